/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierwork.c: an eviction is one call of the library for each user in the plan's order, each for so
 * many bytes, until the partition is below its low mark; then one for everybody, since the plan was
 * made of the last survey, which may be old by now.
 *
 * The library's text of a failure belongs to the thread, until its next call: it is copied at once.
 * Of several failures the last is told, but one of the disk goes before all others.
 */
#include "tierwork.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "loop.h"

static void keep_why(struct tierwork *w)
{
	if (w->report.disk_full || w->report.error)
		return; /* the disk has had its say */
	snprintf(w->why, sizeof(w->why), "%s", shmstore_error_detail());
	snprintf(w->path, sizeof(w->path), "%s", shmstore_error_path());
}

/* ---- evicting -------------------------------------------------------------------------------- */

void tierwork_add(struct shmstore_evict_report *sum, const struct shmstore_evict_report *r)
{
	sum->n_objects += r->n_objects;
	sum->freed += r->freed;
	sum->held += r->held;
	sum->original += r->original;
	sum->written += r->written;
	sum->n_clean += r->n_clean;
	sum->n_skipped += r->n_skipped;
	sum->duration_ns += r->duration_ns;
	sum->disk_full |= r->disk_full;
	if (!sum->error)
		sum->error = r->error;
}

static int on_progress(const struct shmstore_evict_report *r, void *arg)
{
	struct tierwork *w = arg;

	atomic_store_explicit(&w->n_objects, w->report.n_objects + r->n_objects,
			      memory_order_relaxed);
	atomic_store_explicit(&w->freed, w->report.freed + r->freed, memory_order_relaxed);
	atomic_store_explicit(&w->written, w->report.written + r->written, memory_order_relaxed);
	return w->stop(w->arg);
}

/* bytes 0: down to the low mark. */
static int evict(struct tierwork *w, uid_t uid, uint64_t bytes, uint64_t *ret_freed)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	int r;

	what.bytes = bytes;
	what.to = bytes ? 0 : w->low ? w->low : 1; /* 0: not asked */
	what.n_threads = w->n_threads;
	what.background = w->background;
	what.progress = on_progress;
	what.arg = w;
	what.uid = uid;
	r = shmstore_partition_evict(w->partition, &what, &report);
	if (r < 0 || report.error)
		keep_why(w);
	tierwork_add(&w->report, &report);
	*ret_freed = report.freed;
	return r;
}

uint64_t tierwork_used(int fd)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) < 0 ? 0 : (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* An error that ends the eviction; after others the next user's objects may do. */
static bool is_over(const struct tierwork *w, int r)
{
	return r == -ECANCELED || r == -ENOENT || w->report.disk_full;
}

static int evict_all(struct tierwork *w)
{
	uint64_t over, freed;
	int r = 1;

	for (size_t i = 0; i < w->n_steps; i++) {
		struct tierplan_step *s = &w->steps[i];

		if (w->stop(w->arg))
			return -ECANCELED;
		over = tierwork_used(w->fd);
		if (over <= w->low)
			return 1;
		over -= w->low;
		r = evict(w, s->uid, s->bytes < over ? s->bytes : over, &s->freed);
		if (r < 0 && is_over(w, r))
			return r;
	}
	if (tierwork_used(w->fd) <= w->low)
		return 1;
	return evict(w, SHMSTORE_EVICT_ALL, 0, &freed);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void look(struct tierwork *w)
{
	uint64_t began_ns = loop_clock();

	w->info.size = sizeof(w->info);
	w->look_result = shmstore_tier_info(w->partition, &w->info);
	if (w->look_result == 0) {
		/* The pointer is good for as long as the library keeps it; ours is
		 * good for as long as we are. */
		snprintf(w->disk, sizeof(w->disk), "%s", w->info.config.path);
		w->info.config.path = w->disk;
	} else if (w->result >= 0) {
		keep_why(w); /* else what failed first says more */
	}
	w->look_ns = loop_clock() - began_ns;
}

void tierwork_run(struct tierwork *w)
{
	uint64_t began_ns = loop_clock();

	w->result = 0;
	if (w->kind == TIERWORK_SET) {
		w->result = shmstore_tier_set(w->partition, w->config.path ? &w->config : NULL);
		if (w->result < 0)
			keep_why(w);
	} else if (w->kind == TIERWORK_EVICT) {
		w->result = evict_all(w);
		w->report.duration_ns = loop_clock() - began_ns;
	}
	if (w->result != -ECANCELED)
		look(w);
}

void tierwork_deinit(struct tierwork *w)
{
	free((char *)(uintptr_t)w->config.path);
	free(w->steps);
	memset(w, 0, sizeof(*w));
}
