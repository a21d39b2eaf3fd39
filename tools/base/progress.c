/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c: tells people that long work goes on. A thread waits two seconds and then writes, on a
 * terminal, one line that it rewrites twice a second; into a file, a line every ten seconds. A
 * thread, because some of the work is one long call of the library. The numbers are relaxed
 * atomics: each is shown for itself.
 */
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "admin.h"
#include "human.h"

static struct {
	pthread_mutex_t lock; /* of running, shown and standard error's last line */
	pthread_cond_t wake;
	pthread_t thread;
	const char *what;
	struct timespec start;
	bool running, shown, terminal;
	_Atomic uint64_t n_objects, bytes;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void clear_locked(void)
{
	if (progress.shown && progress.terminal)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

static void show_locked(void)
{
	struct timespec now;
	uint64_t n = atomic_load_explicit(&progress.n_objects, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(&progress.bytes, memory_order_relaxed);

	clock_gettime(CLOCK_MONOTONIC, &now);
	fprintf(stderr, "%s%s: %s: %lld s", progress.terminal ? "\r" : "", ADMIN_NAME,
		progress.what, (long long)(now.tv_sec - progress.start.tv_sec));
	if (n)
		fprintf(stderr, ", %" PRIu64 " objects", n);
	if (bytes)
		fprintf(stderr, ", %s", human_size(bytes));
	fputs(progress.terminal ? " ...\033[K" : "\n", stderr);
	fflush(stderr);
	progress.shown = true;
}

static void *run(void *arg)
{
	struct timespec next = progress.start;

	(void)arg;
	next.tv_sec += 2;
	pthread_mutex_lock(&progress.lock);
	while (progress.running) {
		if (pthread_cond_timedwait(&progress.wake, &progress.lock, &next) != ETIMEDOUT)
			continue;
		show_locked();
		if (!progress.terminal) {
			next.tv_sec += 10;
		} else {
			next.tv_nsec += 500000000;
			if (next.tv_nsec >= 1000000000) {
				next.tv_nsec -= 1000000000;
				next.tv_sec++;
			}
		}
	}
	pthread_mutex_unlock(&progress.lock);
	return NULL;
}

void progress_begin(const char *what)
{
	pthread_condattr_t attributes;

	progress.what = what;
	progress.terminal = isatty(STDERR_FILENO);
	progress.n_objects = 0;
	progress.bytes = 0;
	clock_gettime(CLOCK_MONOTONIC, &progress.start);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&progress.wake, &attributes);
	pthread_condattr_destroy(&attributes);
	progress.running = true;
	if (pthread_create(&progress.thread, NULL, run, NULL) != 0)
		progress.running = false; /* then without it */
}

void progress_set(uint64_t n_objects, uint64_t bytes)
{
	atomic_store_explicit(&progress.n_objects, n_objects, memory_order_relaxed);
	atomic_store_explicit(&progress.bytes, bytes, memory_order_relaxed);
}

void progress_clear(void)
{
	pthread_mutex_lock(&progress.lock);
	clear_locked();
	pthread_mutex_unlock(&progress.lock);
}

void progress_end(void)
{
	pthread_mutex_lock(&progress.lock);
	if (!progress.running) {
		pthread_mutex_unlock(&progress.lock);
		return;
	}
	progress.running = false;
	pthread_cond_signal(&progress.wake);
	clear_locked();
	pthread_mutex_unlock(&progress.lock);
	pthread_join(progress.thread, NULL);
}

/* ---- a signal -------------------------------------------------------------------------------- */

static volatile sig_atomic_t came; /* its number; 0 = none */

static void note(int number)
{
	came = number;
}

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND}, old;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		/* nohup stays nohup */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

bool interrupt_pending(void)
{
	return came != 0;
}

void interrupt_finish(void)
{
	if (!came)
		return;
	fflush(stdout); /* what was said of what was done */
	signal(came, SIG_DFL);
	raise(came);
}
