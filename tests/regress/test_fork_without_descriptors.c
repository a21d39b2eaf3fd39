/* SPDX-License-Identifier: Apache-2.0 */
/* After a fork in a process without a free descriptor, all memory that it had views of was lost
 * until the store was closed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"

#define N    20u
#define SIZE 900000u

static uint64_t ghosts(void)
{
	struct shmstore_usage u;

	shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u);
	return u.ghosts;
}

/* A child that looks at the views' bytes when it is told to, and says
 * whether they are what they were. */
static pid_t child_of(struct shmstore_view *const *views, int go)
{
	pid_t pid = fork();
	char c;

	if (pid != 0)
		return pid;
	_exit(read(go, &c, 1) == 1 && view_pattern(views[3], SIZE, 3) == 0 ? 0 : 1);
}

static void put_and_view(struct shmstore *s, struct shmstore_view **views)
{
	char key[16];

	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(s, key, SIZE, i, 0), 0);
		cr_assert_eq(shmstore_get(s, key, strlen(key), 0, &views[i]), 0);
	}
}

static void unview_and_delete(struct shmstore *s, struct shmstore_view **views)
{
	char key[16];

	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		shmstore_view_unref(views[i]);
		cr_assert_eq(shmstore_delete(s, key, strlen(key)), 0);
	}
}

static void use(struct shmstore *s)
{
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(put_pattern(s, "t", SIZE, i, SHMSTORE_REPLACE), 0);
	cr_assert_eq(shmstore_delete(s, KEY("t")), 0);
}

Test(fork_without_descriptors, memory_of_views_is_free_after_the_childs_end)
{
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false);
	struct shmstore_view *views[N];
	struct rlimit limit, none;
	int go[2], status;
	pid_t pid;

	put_and_view(s, views);
	cr_assert_eq(pipe(go), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){3, limit.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	pid = child_of(views, go[0]);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_assert_gt(pid, 0);
	unview_and_delete(s, views);
	use(s);
	cr_assert_geq(ghosts(), (uint64_t)N * SIZE, "the child has them");
	cr_assert_eq(write(go[1], "g", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* Whether children live is asked ten times a second, by calls that come anyway. */
	for (unsigned i = 0; i < 1000 && ghosts() >= SIZE; i++) {
		use(s);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	cr_assert_lt(ghosts(), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
