/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views.c: one view referenced, read and unreferenced by many threads while its key is replaced and
 * its store closed by others; and partitions referenced and unreferenced likewise.
 */
#include <errno.h>
#include <pthread.h>

#include "api.h"

enum {
	THREADS = 8,
	ROUNDS = 300,
	SIZE = 100000
};

struct shared {
	struct shmstore_partition *p;
	struct shmstore_view *v;
	pthread_barrier_t start;
};

static void *use(void *arg)
{
	struct shared *sh = arg;

	pthread_barrier_wait(&sh->start);
	for (int i = 0; i < ROUNDS / 10; i++) {
		struct shmstore_view *mine = shmstore_view_ref(sh->v);
		struct shmstore_partition *p = shmstore_partition_ref(sh->p);

		ENSURE(view_pattern(mine, SIZE, 1) == 0);
		ENSURE(shmstore_partition_path(p)[0] == '/');
		shmstore_view_unref(mine);
		shmstore_partition_unref(p);
	}
	/* This thread's own reference: the last one of all unmaps. */
	shmstore_view_unref(sh->v);
	shmstore_partition_unref(sh->p);
	return NULL;
}

static void one(struct shmstore *churn)
{
	struct shared sh = {.p = scratch_partition()};
	struct shmstore *s = scratch_store("a");
	pthread_t threads[THREADS];

	pthread_barrier_init(&sh.start, NULL, THREADS + 1);
	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	sh.v = get_view(s, "k", 0);
	for (int i = 0; i < THREADS; i++) {
		shmstore_view_ref(sh.v);
		shmstore_partition_ref(sh.p);
		ENSURE(pthread_create(&threads[i], NULL, use, &sh) == 0);
	}
	shmstore_view_unref(sh.v);
	shmstore_partition_unref(sh.p);
	pthread_barrier_wait(&sh.start);
	ENSURE(put_pattern(s, "k", SIZE, 2, SHMSTORE_REPLACE) == 0);
	ENSURE(put_pattern(s, "k", SIZE, 3, SHMSTORE_REPLACE) == 0);
	ENSURE(put_pattern(churn, "k", SIZE, 4, SHMSTORE_REPLACE) == 0);
	ENSURE(shmstore_close(s) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&sh.start);
}

int main(void)
{
	struct shmstore *churn = scratch_store("churn");

	for (int i = 0; i < ROUNDS / 10; i++)
		one(churn);
	ENSURE(shmstore_close(churn) == 0);
	ensure_nothing_left();
	return 0;
}
