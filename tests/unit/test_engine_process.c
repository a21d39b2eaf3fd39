/* SPDX-License-Identifier: Apache-2.0 */
/* The engine in processes that fork, that have threads, and that may not do what it would like to:
 * descriptors, io_uring. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "enginemove.h"

/* ---- processes and limits -------------------------------------------------------------------- */

static int free_it(void *arg)
{
	shms_engine_free(arg);
	return 0;
}

Test(engine_process, a_child_can_free_it_and_the_parent_goes_on)
{
	for (unsigned n_threads = 0; n_threads < 3; n_threads++) {
		struct shms_engine *e = job_engine_new(n_threads, false);
		struct moved m[8];

		for (unsigned i = 0; i < 8; i++)
			job_store(e, &m[i], job_object_new(9 * MIB, MIXED, i + 1), 1);
		/* Some are under way. */
		cr_assert_eq(in_child(free_it, e), 0);
		shms_engine_drain(e);
		for (unsigned i = 0; i < 8; i++)
			job_load(e, &m[i]);
		cr_assert_eq(in_child(free_it, e), 0);
		shms_engine_drain(e);
		for (unsigned i = 0; i < 8; i++) {
			job_check_back(&m[i]);
			job_moved_free(&m[i]);
		}
		shms_engine_free(e);
	}
}

Test(engine_process, free_finishes_what_is_under_way)
{
	struct shms_engine *e = job_engine_new(2, false);
	struct moved m[4];

	for (unsigned i = 0; i < 4; i++)
		job_store(e, &m[i], job_object_new(9 * MIB, MIXED, i + 1), 1);
	shms_engine_free(e);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert(m[i].n_done == 1 && m[i].job.error == 0);
		job_moved_free(&m[i]);
	}
	shms_engine_free(NULL);
}

Test(engine_process, says_how_it_moves)
{
	struct shms_engine *e = job_engine_new(1, true);

	cr_assert_str_eq(shms_engine_io(e), "plain: so chosen");
	shms_engine_free(e);
	setenv("SHMSTORE_TIER_IO", "plain", 1);
	e = job_engine_new(0, false);
	cr_assert_str_eq(shms_engine_io(e), "plain: so chosen");
	shms_engine_free(e);
	unsetenv("SHMSTORE_TIER_IO");
	e = job_engine_new(0, false);
	cr_assert(strncmp(shms_engine_io(e), "io_uring", 8) == 0 ||
		  strncmp(shms_engine_io(e), "plain: ", 7) == 0);
	cr_assert_str_eq(shmstore_tier_io(), shms_engine_io(e));
	shms_engine_free(e);
}

Test(engine_process, does_without_what_it_has_no_descriptors_for)
{
	struct rlimit before, limit;
	struct shms_engine *e = job_engine_new(0, false), *threads = NULL;
	struct moved m;

	/* All descriptors but those of the test itself: no ring can be made, and no crew. */
	ENSURE(getrlimit(RLIMIT_NOFILE, &before) == 0);
	job_store(e, &m, job_object_new(MIB, NOISE, 1), 1);
	limit = before;
	limit.rlim_cur = (rlim_t)m.job.tier_fd + 1;
	ENSURE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	cr_assert_eq(shms_engine_new(&(struct shms_engine_options){.n_threads = 1}, &threads),
		     -EMFILE);
	cr_assert(strncmp(shms_engine_io(e), "plain: io_uring is refused: ", 28) == 0, "%s",
		  shms_engine_io(e));
	shms_engine_drain(e);
	cr_assert(m.n_done == 1 && m.job.error == 0);
	ENSURE(setrlimit(RLIMIT_NOFILE, &before) == 0);
	job_moved_free(&m);
	shms_engine_free(e);
}

/* ---- where io_uring is refused --------------------------------------------------------------- */

/* Refuses io_uring, as a container's filter does. */
static void forbid_io_uring(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	ENSURE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	ENSURE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Moves a few objects there and back; the engine says that. */
static bool moves_and_says(unsigned n_threads, const char *expected)
{
	struct shms_engine *e = job_engine_new(n_threads, false);
	bool said = strcmp(shms_engine_io(e), expected) == 0, good = true;

	if (!said)
		fprintf(stderr, "said: %s\n", shms_engine_io(e));
	for (unsigned i = 0; i < 6; i++) {
		struct moved m;

		job_store(e, &m, job_object_new(i * 3 * MIB + 1, MIXED, i + 1), 1);
		shms_engine_drain(e);
		job_load(e, &m);
		shms_engine_drain(e);
		good = good && m.n_done == 1 && m.job.error == 0;
		job_moved_free(&m);
	}
	shms_engine_free(e);
	return said && good;
}

static int under_a_filter(void *arg)
{
	static const char expected[] = "plain: io_uring is refused: Operation not permitted";

	(void)arg;
	forbid_io_uring();
	return !(moves_and_says(0, expected) && moves_and_says(2, expected) &&
		 strcmp(shmstore_tier_io(), expected) == 0);
}

Test(engine_process, does_without_io_uring_where_it_is_forbidden)
{
	cr_assert_eq(in_child(under_a_filter, NULL), 0);
}

static void *in_own_engine(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;
	struct shms_engine *e = job_engine_new((unsigned)(i % 3), false);

	for (unsigned n = 0; n < 10; n++) {
		struct moved m;

		job_store(e, &m, job_object_new(5 * MIB + i, MIXED, i + n), 1);
		shms_engine_drain(e);
		job_load(e, &m);
		shms_engine_drain(e);
		job_check_back(&m);
		job_moved_free(&m);
	}
	shms_engine_free(e);
	return NULL;
}

Test(engine_process, each_thread_has_its_own)
{
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		ENSURE(pthread_create(&threads[i], NULL, in_own_engine, (void *)(uintptr_t)i) == 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
