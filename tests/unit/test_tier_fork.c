/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that forks while one of its threads is at work in the disk tier: the child has
 * that thread's locks, of both kinds, and not the thread. It must neither keep others from
 * them nor wait for them itself.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "partition.h"
#include "tier.h"
#include "tiered.h"

#define SIZE ((uint64_t)300000)

enum {
	CHILDREN = 64
};

static bool armed;
static pid_t children[CHILDREN];
static unsigned n_children;

/* Another thread of the program forks just now: the child has the locked descriptor,
 * and does nothing with it. */
static void fork_now(void)
{
	cr_assert_lt(n_children, CHILDREN);
	children[n_children] = fork();
	cr_assert_geq(children[n_children], 0);
	if (children[n_children] == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	n_children++;
}

int flock(int fd, int operation)
{
	typedef int fn(int, int);
	int r = NEXT(fn *, "flock")(fd, operation);

	if (r == 0 && armed && (operation & LOCK_EX))
		fork_now();
	return r;
}

static void ensure_free(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0, "a child holds %s", path);
	close(fd);
}

/* Checks after each call, while its children live, that they hold no lock. */
static void after(const char *what, int result)
{
	char path[SCRATCH_PATH + 64];

	armed = false;
	cr_assert_eq(result, 0, "%s: %s", what, shmstore_error_detail());
	cr_assert_gt(n_children, 0, "%s locks nothing", what);
	ensure_free(scratch_store_path("s", "objects"));
	ensure_free(tiered_file("s", "k"));
	snprintf(path, sizeof(path), "%s/tier", scratch_partition_path());
	ensure_free(path);
	snprintf(path, sizeof(path), "%s/tier/%u/lock", scratch_partition_path(),
		 (unsigned)geteuid());
	ensure_free(path);
	while (n_children) {
		kill(children[--n_children], SIGKILL);
		waitpid(children[n_children], NULL, 0);
	}
	armed = true;
}

Test(tier_fork, child_keeps_no_lock_of_its_parents)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_ticket t;
	struct shmstore *s;

	TIERED_OR_SKIP();
	config.path = tiered_disk();
	what.bytes = SIZE;
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY("l"), &t, 0), 0);
	armed = true;
	after("demote", shmstore_demote(s, KEY("k"), 0));
	after("promote", shmstore_promote(s, KEY("k"), 0));
	after("evict", shmstore_partition_evict(p, &what, NULL) - 1);
	after("promote", shmstore_promote(s, KEY("l"), 0));
	after("set", shmstore_tier_set(p, &config));
	after("gc", shmstore_partition_gc(p, 0, NULL));
	armed = false;
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
	ensure_tier_empty();
}

static int child_with_its_own(void *arg)
{
	struct shmstore *s;

	(void)arg;
	alarm(20); /* rather than wait for a thread that is not there */
	s = scratch_store("child");
	return put_pattern(s, "k", SIZE, 2, 0) != 0 || shmstore_demote(s, KEY("k"), 0) != 0 ||
	       get_pattern(s, "k", SIZE, 2) != 0 || shmstore_close(s) != 0;
}

Test(tier_fork, child_waits_for_no_thread_of_its_parents)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	/* As if another thread were there now. */
	pthread_mutex_lock(&p->tier_lock);
	pthread_mutex_lock(&p->tier->lock);
	cr_assert_eq(in_child(child_with_its_own, NULL), 0);
	pthread_mutex_unlock(&p->tier->lock);
	pthread_mutex_unlock(&p->tier_lock);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
	ensure_tier_empty();
}
