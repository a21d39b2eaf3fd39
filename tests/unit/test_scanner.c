/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs come back to the loop's thread, urgent ones past slow ones, and all of them at the end. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "scanner.h"
#include "scratch.h"

#define JOBS 200

struct job {
	struct scanner_job job;
	struct loop *loop;
	pthread_t ran_in;
	_Atomic bool *gate; /* waits for it to open */
	int n_ran, n_done;
	int *countdown;
};

static pthread_t loop_thread;

static bool is_open(void *gate)
{
	return atomic_load((_Atomic bool *)gate);
}

static void run(struct scanner_job *j)
{
	struct job *job = (struct job *)(void *)j;

	job->ran_in = pthread_self();
	while (job->gate && !atomic_load(job->gate))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	job->n_ran++;
}

static void done(struct scanner_job *j)
{
	struct job *job = (struct job *)(void *)j;

	cr_assert(pthread_equal(pthread_self(), loop_thread));
	job->n_done++;
	if (--*job->countdown == 0)
		loop_stop(job->loop);
}

static struct scanner *begin(struct loop **ret_loop)
{
	struct scanner *s;

	loop_thread = pthread_self();
	cr_assert_eq(loop_new(ret_loop), 0);
	cr_assert_eq(scanner_new(*ret_loop, &s), 0);
	return s;
}

Test(scanner, jobs_run_elsewhere_and_are_done_here, .timeout = 60)
{
	static struct job jobs[JOBS];
	struct loop *loop;
	struct scanner *s = begin(&loop);
	int countdown = JOBS;

	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct job){
			.job = {.worker = (enum scanner_worker)(i % SCANNER_WORKERS),
				.run = run,
				.done = done},
			.loop = loop,
			.countdown = &countdown,
		};
		scanner_submit(s, &jobs[i].job);
	}
	cr_assert_eq(loop_run(loop), 0);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(jobs[i].n_ran, 1);
		cr_assert_eq(jobs[i].n_done, 1);
		cr_assert_not(pthread_equal(jobs[i].ran_in, loop_thread));
	}
	scanner_free(s);
	loop_free(loop);
}

Test(scanner, an_urgent_job_passes_a_slow_one, .timeout = 60)
{
	_Atomic bool gate = false;
	struct loop *loop;
	struct scanner *s = begin(&loop);
	int n_slow = 3, n_urgent = 1;
	struct job slow = {.job = {.run = run, .done = done},
			   .loop = loop,
			   .gate = &gate,
			   .countdown = &n_slow};
	struct job idle = {.job = {.worker = SCANNER_IDLE, .run = run, .done = done},
			   .loop = loop,
			   .gate = &gate,
			   .countdown = &n_slow};
	struct job tier = {.job = {.worker = SCANNER_TIER, .run = run, .done = done},
			   .loop = loop,
			   .gate = &gate,
			   .countdown = &n_slow};
	struct job urgent = {.job = {.worker = SCANNER_REAP, .run = run, .done = done},
			     .loop = loop,
			     .countdown = &n_urgent};

	scanner_submit(s, &slow.job);
	scanner_submit(s, &idle.job);
	scanner_submit(s, &tier.job);
	scanner_submit(s, &urgent.job);
	cr_assert_eq(loop_run(loop), 0);
	cr_assert_eq(urgent.n_done, 1);
	cr_assert_eq(slow.n_done + idle.n_done + tier.n_done, 0);
	atomic_store(&gate, true);
	cr_assert_eq(loop_run(loop), 0);
	cr_assert_eq(slow.n_done + idle.n_done + tier.n_done, 3);
	scanner_free(s);
	loop_free(loop);
}

static void run_until_stopping(struct scanner_job *j)
{
	struct job *job = (struct job *)(void *)j;

	atomic_store(job->gate, true);
	job->n_ran++;
}

Test(scanner, every_job_is_done_at_the_end, .timeout = 60)
{
	static struct job jobs[JOBS];
	_Atomic bool began = false;
	struct loop *loop;
	struct scanner *s = begin(&loop);
	int countdown = JOBS + 1, n_ran = 0;

	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct job){
			.job = {.run = i ? run : run_until_stopping, .done = done},
			.loop = loop,
			.gate = i ? NULL : &began,
			.countdown = &countdown,
		};
		scanner_submit(s, &jobs[i].job);
	}
	cr_assert(wait_until(is_open, &began, 30000));
	scanner_free(s);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(jobs[i].n_done, 1, "job %d", i);
		n_ran += jobs[i].n_ran;
	}
	cr_assert_geq(n_ran, 1);
	cr_assert_eq(countdown, 1);
	loop_free(loop);
}

/* ---- what a job costs ------------------------------------------------------------------------ */

struct burning {
	struct job job;
	uint64_t took_ns;
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* To one processor, the first of those that the process may use. */
static void pin(void)
{
	cpu_set_t all, one;
	size_t cpu = 0;

	cr_assert_eq(sched_getaffinity(getpid(), sizeof(all), &all), 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

/* Takes 10 ms of the processor, however long it waits for them. */
static void burn(struct scanner_job *j)
{
	struct burning *b = (struct burning *)(void *)j;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), end_ns;

	pin();
	end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 10000000;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns)
		continue;
	b->took_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
}

static void *want_processor(void *arg)
{
	const _Atomic bool *ended = arg;

	pin();
	while (!atomic_load(ended))
		continue;
	return NULL;
}

/* A survey that waits for its processor takes long and costs little: the next
 * one is not put off for that. */
Test(scanner, a_wait_for_the_processor_is_no_cost, .timeout = 200)
{
	_Atomic bool ended = false;
	struct loop *loop;
	struct scanner *s = begin(&loop);
	unsigned n_waited = 0;
	bool counted = true;
	/* the job gets a tenth of a processor at best, on a quiet machine, too */
	pthread_t others[9];

	if (access("/proc/thread-self/schedstat", R_OK) < 0)
		cr_skip_test("the kernel does not count what a thread waits for");
	for (size_t i = 0; i < 9; i++)
		cr_assert_eq(pthread_create(&others[i], NULL, want_processor, &ended), 0);
	for (int i = 0; i < 1000 && n_waited < 100 && counted; i++) {
		int countdown = 1;
		struct burning b = {
			.job = {.job = {.worker = SCANNER_ASKED, .run = burn, .done = done},
				.loop = loop,
				.countdown = &countdown}};

		scanner_submit(s, &b.job.job);
		cr_assert_eq(loop_run(loop), 0);
		/* Where the host lends the processor to others, that is counted as work. */
		if (b.took_ns < 5 * UINT64_C(10000000))
			continue;
		n_waited++;
		counted = b.job.job.busy_ns > b.took_ns / 2;
	}
	atomic_store(&ended, true);
	for (size_t i = 0; i < 9; i++)
		pthread_join(others[i], NULL);
	cr_assert_gt(n_waited, 0, "the job never had to wait");
	cr_assert_not(counted);
	scanner_free(s);
	loop_free(loop);
}
