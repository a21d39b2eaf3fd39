/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that demoted at the same time each took all the room that the disk tier's limit left:
 * it was passed as many times over as there were processes. Here each has written its copy and
 * waits, before that gets its name, until the others have theirs or were refused.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "partition.h"
#include "tier.h"
#include "tiered.h"

#define N    6
#define ROOM 3 /* of them, that the limit has room for */
#define SIZE (4u << 20)
#define MAX  ((uint64_t)ROOM * (SIZE + (64u << 10)))

TestSuite(tier_limit_processes, .timeout = 120);

static struct shared {
	_Atomic int ready, begin;
	_Atomic int n_written, n_refused; /* written: without a name yet */
	_Atomic int may_name, n_over, may_end;
} * shared;
static pid_t children[N];
static bool waits; /* in a child */

static bool reached(void *arg)
{
	return *(_Atomic int *)arg != 0;
}

/* The anchor comes after the copy and right before its name. */
int linkat(int olddirfd, const char *oldname, int newdirfd, const char *newname, int flags)
{
	typedef int fn(int, const char *, int, const char *, int);
	const char *end = strrchr(newname, '.');

	if (waits && end && strcmp(end, ".stub") == 0) {
		atomic_fetch_add(&shared->n_written, 1);
		ENSURE(wait_until(reached, &shared->may_name, 60000));
	}
	return NEXT(fn *, "linkat")(olddirfd, oldname, newdirfd, newname, flags);
}

static void child(int i)
{
	char name[2] = {(char)('a' + i), 0};
	struct shmstore *s = scratch_store(name);
	int r;

	ENSURE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	ENSURE(put_pattern(s, "k", SIZE, (uint64_t)i, 0) == 0);
	atomic_fetch_add(&shared->ready, 1);
	ENSURE(wait_until(reached, &shared->begin, 60000));
	waits = true;
	r = shmstore_demote(s, KEY("k"), 0);
	ENSURE(r == 0 || r == -ENOSPC);
	if (r == -ENOSPC)
		atomic_fetch_add(&shared->n_refused, 1);
	atomic_fetch_add(&shared->n_over, 1);
	/* Its objects go with the store. */
	ENSURE(wait_until(reached, &shared->may_end, 60000));
	ENSURE(get_pattern(s, "k", SIZE, (uint64_t)i) == 0);
	ENSURE(shmstore_close(s) == 0);
	_exit(r == 0 ? 0 : 1);
}

static bool all_ready(void *arg)
{
	(void)arg;
	return shared->ready == N;
}

static bool all_decided(void *arg)
{
	(void)arg;
	return shared->n_written + shared->n_refused == N;
}

/* Blocks of the tier files, as the disk tells them. */
static uint64_t used(void)
{
	struct shmstore_partition *p = scratch_partition();
	char path[TIERED_PATH + 128];
	struct dirent *e;
	uint64_t sum = 0;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s/%u", tiered_disk(), p->uuid, (unsigned)geteuid());
	shmstore_partition_unref(p);
	dir = opendir(path);
	while (dir && (e = readdir(dir)) != NULL)
		if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
			sum += (uint64_t)st.st_blocks * 512;
	if (dir)
		closedir(dir);
	return sum;
}

static bool all_over(void *arg)
{
	(void)arg;
	ENSURE(used() <= MAX);
	return shared->n_over == N;
}

/* All at once, to where each has written or was refused. False: no disk. */
static bool begin(void)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;

	c.max = MAX;
	c.level = 0;
	scratch_dir("size=128m");
	if (!tiered_begin(&c))
		return false;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	cr_assert_neq(shared, MAP_FAILED);
	for (int i = 0; i < N; i++) {
		children[i] = fork();
		cr_assert(children[i] >= 0);
		if (children[i] == 0)
			child(i);
	}
	cr_assert(wait_until(all_ready, NULL, 60000));
	shared->begin = 1;
	cr_assert(wait_until(all_decided, NULL, 60000));
	return true;
}

/* How many have demoted. */
static int end(void)
{
	int n = 0, status;

	for (int i = 0; i < N; i++) {
		cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
		n += WIFEXITED(status) && WEXITSTATUS(status) == 0;
		cr_expect(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
					      : WEXITSTATUS(status) <= 1,
			  "%x", status);
	}
	return n;
}

Test(tier_limit_processes, what_all_write_at_once_stays_below_the_limit)
{
	if (!begin())
		cr_skip_test("no disk");
	cr_expect_eq(shared->n_written, ROOM);
	shared->may_name = 1;
	cr_assert(wait_until(all_over, NULL, 60000));
	cr_expect_gt(used(), (uint64_t)ROOM * SIZE);
	shared->may_end = 1;
	cr_expect_eq(end(), ROOM);
	ensure_nothing_left();
	ensure_tier_empty();
}

static struct shmstore *last;

static bool demoted(void *arg)
{
	const char *key = arg;
	int r = shmstore_demote(last, KEY(key), 0);

	ENSURE(r == 0 || r == -ENOSPC);
	ENSURE(used() <= MAX);
	return r == 0;
}

/* The room that the dead had claimed is there again, without a gc. */
Test(tier_limit_processes, who_is_killed_gives_its_room_back)
{
	if (!begin())
		cr_skip_test("no disk");
	for (int i = 0; i < N; i++)
		kill(children[i], SIGKILL);
	end();
	cr_expect_eq(used(), 0);
	last = scratch_store("last");
	for (int i = 0; i < ROOM; i++) {
		char key[2] = {(char)('a' + i), 0};

		cr_assert_eq(put_pattern(last, key, SIZE, 1, 0), 0);
		cr_expect(wait_until(demoted, key, 60000), "%s: %s", key, shmstore_error_detail());
	}
	cr_assert_eq(put_pattern(last, "more", SIZE, 1, 0), 0);
	cr_expect_eq(shmstore_demote(last, KEY("more"), 0), -ENOSPC);
	cr_expect_eq(shmstore_delete(last, KEY("a")), 0);
	cr_expect_eq(shmstore_demote(last, KEY("more"), 0), 0);
	cr_assert_eq(shmstore_close(last), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
