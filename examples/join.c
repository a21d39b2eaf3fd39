/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins rows in 64 MiB of its own, without knowing how many rows fit at a time: ten do, forty do
 * not, and are split (docs/arbiter.md).
 *
 *	shmstored &
 *	cc join.c $(pkg-config --cflags --libs shmstore) -o join && ./join
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/arbiter.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

struct rows { /* an item: so many rows of a MiB each */
	uint64_t first, n;
	bool piece; /* of a split: freed by done() */
};

struct job {
	struct shmstore *store;
	uint32_t budget; /* a pool: what this process may take */
	/* what an attempt changes beside its item, and what that was before it */
	uint64_t n_done, n_done_then;
};

/* The rows, and as much again for what comes of them. */
static int join(void *ctx, void *item)
{
	struct job *job = ctx;
	const struct rows *rows = item;
	struct shmstore_arb_reservation in, out;
	int r = shmstore_arb_reserve(job->store, job->budget, rows->n * MIB, NULL, &in);

	if (r != 0)
		return r;
	/* ... read the rows ... */
	job->n_done += rows->n;
	r = shmstore_arb_reserve(job->store, job->budget, rows->n * MIB, NULL, &out);
	if (r != 0)
		/* restore() undoes, and the caller releases what is reserved */
		return r;
	/* ... compute ... */
	shmstore_arb_release(job->store, &in);
	return shmstore_arb_release(job->store, &out);
}

static void save(void *ctx, void *item)
{
	struct job *job = ctx;

	(void)item;
	job->n_done_then = job->n_done;
}

static void restore(void *ctx, void *item)
{
	struct job *job = ctx;

	(void)item;
	job->n_done = job->n_done_then;
}

static int halve(void *ctx, void *item, void **ret_items, size_t max)
{
	struct rows *rows = item, *half[2] = {NULL, NULL};
	uint64_t middle = rows->n / 2;

	(void)ctx;
	(void)max; /* more than 2 */
	if (middle == 0)
		/* it is as small as it gets: the caller of shmstore_arb_with_retry() gets SPLIT */
		return 0;
	for (int i = 0; i < 2; i++) {
		half[i] = malloc(sizeof(*half[i]));
		if (!half[i]) {
			free(half[0]);
			return -ENOMEM;
		}
		*half[i] = i ? (struct rows){rows->first + middle, rows->n - middle, true}
			     : (struct rows){rows->first, middle, true};
		ret_items[i] = half[i];
	}
	if (rows->piece)
		free(rows); /* done() is not told of what was split */
	return 2;
}

static void done(void *ctx, void *item, int result)
{
	struct rows *rows = item;

	(void)ctx;
	if (result == 0)
		printf("rows %" PRIu64 " to %" PRIu64 "\n", rows->first, rows->first + rows->n - 1);
	if (rows->piece)
		free(rows);
}

static int run(struct job *job)
{
	struct shmstore_arb_work work = {.size = sizeof(work),
					 .attempt = join,
					 .split = halve,
					 .done = done,
					 .save = save,
					 .restore = restore,
					 .ctx = job};
	struct rows all[] = {{.first = 0, .n = 10}, {.first = 10, .n = 40}};
	void *items[] = {&all[0], &all[1]};
	uint32_t task = 0;
	int r = shmstore_arb_pool_create(job->store, "join", 64 * MIB, 0, &job->budget);

	if (r == 0)
		r = shmstore_arb_task_begin(job->store, NULL, &task);
	if (r == 0)
		r = shmstore_arb_bind(job->store, NULL, task); /* this thread works for it */
	if (r == 0)
		r = shmstore_arb_with_retry(job->store, items, 2, &work);
	printf("%" PRIu64 " rows, %" PRIu64 " splits\n", job->n_done, work.n_splits);
	if (task)
		shmstore_arb_task_end(job->store, task);
	return r;
}

int main(void)
{
	struct shmstore_partition *partition = NULL;
	struct job job = {0};
	int r = shmstore_partition_open(NULL, SHMSTORE_CREATE, &partition);

	if (r == 0)
		r = shmstore_open(partition, "join", NULL, &job.store);
	if (r == 0)
		r = run(&job);
	if (r == -ENOTSUP)
		fprintf(stderr, "no daemon, or its arbiter is off: nothing is reserved then\n");
	else if (r != 0)
		fprintf(stderr, "%s: %s\n",
			r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r),
			shmstore_arb_why());
	if (job.store)
		shmstore_close(job.store);
	shmstore_partition_unref(partition);
	return r != 0;
}
