/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forks.c: threads work on a store while another thread forks, over and over. The children use the
 * views they inherited and open stores of their own; nobody deadlocks on a lock that was held at
 * the fork, and the parent's store stays the parent's. Only without sanitizers, whose own locks do
 * not survive a fork of several threads (scratch.h).
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#if !CHILD_OF_THREADS_MAY_ALLOCATE
int main(void)
{
	puts("skipped: the sanitizers' own locks do not survive a fork of several threads");
	return 77;
}
#else

enum {
	THREADS = 4,
	FORKS = 100,
	SIZE = 100000
};

static struct shmstore *store;
static struct shmstore_view *view;
static atomic_bool stop;

static void *work(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	char key[16];

	snprintf(key, sizeof(key), "t%u", (unsigned)seed);
	while (!stop) {
		struct shmstore_view *v;

		ENSURE(put_pattern(store, key, SIZE, seed, SHMSTORE_REPLACE) == 0);
		v = get_view(store, key, 0);
		ENSURE(view_pattern(v, SIZE, seed) == 0);
		ENSURE(shmstore_delete(store, KEY(key)) == 0);
		ENSURE(view_pattern(v, SIZE, seed) == 0);
		shmstore_view_unref(v);
	}
	return NULL;
}

static int child(int i)
{
	struct shmstore_view *v;
	struct shmstore *s;
	char name[32];

	if (view_pattern(view, SIZE, 77) != 0)
		return 1;
	if (shmstore_get(store, "k", 1, 0, &v) != -EPERM)
		return 2;
	snprintf(name, sizeof(name), "child-%d", i);
	s = scratch_store(name);
	if (put_pattern(s, "k", SIZE, 5, 0) != 0 || get_pattern(s, "k", SIZE, 5) != 0)
		return 3;
	if (i % 3 == 0)
		raise(SIGKILL);
	shmstore_view_unref(view);
	if (i % 3 == 1)
		shmstore_close(store);
	return shmstore_close(s) == 0 ? 0 : 4;
}

int main(void)
{
	pthread_t threads[THREADS];

	alarm(240); /* a deadlock is a failure, with a core that shows where */
	store = scratch_store("parent");
	ENSURE(put_pattern(store, "k", SIZE, 77, 0) == 0);
	view = get_view(store, "k", 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		ENSURE(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
	for (int i = 0; i < FORKS; i++) {
		int status;
		pid_t pid = fork_bound(60);

		ENSURE(pid >= 0);
		if (pid == 0)
			_exit(child(i));
		waitpid(pid, &status, 0);
		if (i % 3 == 0)
			ENSURE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else if (status != 0)
			fprintf(stderr, "child %d: status %#x\n", i, (unsigned)status);
		ENSURE(i % 3 == 0 || status == 0);
	}
	stop = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ENSURE(get_pattern(store, "k", SIZE, 77) == 0);
	shmstore_view_unref(view);
	ENSURE(shmstore_close(store) == 0);
	ensure_nothing_left();
	return 0;
}
#endif
