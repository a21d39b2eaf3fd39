/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c: many keys are promoted ahead of their use.
 *
 * One look at each name tells what is demoted. That is shared out, largest first, among the
 * calling thread and those that the caller allows: each takes the next one as it is done with
 * the last. Threads beyond one for each object go to the engines, that decompress and check the
 * frames of one object side by side. All of them have ended when the call returns, and none
 * takes the program's signals.
 *
 * An object that found no room has none larger tried after it: a tier file is not read to find out
 * again that its object does not fit. And others are evicted for half a partition's worth of
 * objects at most: beyond that one call would evict what it has just brought back.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "engine.h"
#include "name.h"
#include "nameslock.h"
#include "packed.h"
#include "parts.h"
#include "publish.h"
#include "room.h"
#include "sys.h"
#include "tierformat.h"

#define THREADS_MAX 64u /* more are not started, whatever is allowed */

struct wanted {
	size_t i; /* of the caller's key */
	uint64_t size;
	char name[SHMS_NAME_SIZE];
};

struct prefetch {
	struct shmstore *s;
	const struct iovec *keys;
	size_t n_keys;
	bool no_evict;
	int *results;
	struct wanted *wanted; /* what is demoted */
	size_t n_wanted;
	unsigned n_engine_threads; /* of each engine */
	_Atomic size_t next;
	uint64_t half;              /* of the partition, in bytes */
	_Atomic uint64_t brought;   /* back, or on its way */
	_Atomic uint64_t too_large; /* an object of that size found no room, */
	_Atomic int no_room;        /* and this is what it was told */
	pthread_mutex_t lock;       /* of the first failure that has more to say: */
	int error;
	char detail[512], path[SHMSTORE_TICKET_PATH];
};

/* ---- what there is to do --------------------------------------------------------------------- */

/* 0: in memory, or else on its way into wanted (*w is filled); -ENOENT, -errno. */
static int look(const struct prefetch *p, size_t i, struct wanted *w, bool *ret_demoted)
{
	struct shms_keyname k;
	struct shms_stub stub;
	int r = shms_keyname_init(&k, p->keys[i].iov_base, p->keys[i].iov_len);

	*ret_demoted = false;
	if (r == 0 && shms_packed_has(p->s, &k))
		return 0;
	if (r == 0)
		r = shms_key_find(p->s->objects_fd, &k);
	if (r < 0)
		return r;
	r = shms_stub_read(p->s->objects_fd, k.name, &stub, NULL);
	if (r == -EINVAL)
		return 0; /* no link, an object */
	if (r < 0)
		return shms_error(r);
	w->i = i;
	w->size = stub.header_size + stub.buffer_size;
	memcpy(w->name, k.name, sizeof(w->name));
	*ret_demoted = true;
	return 0;
}

/* Large ones first: the last to end is a small one then. */
static int larger(const void *x, const void *y)
{
	const struct wanted *a = x, *b = y;

	return (a->size < b->size) - (a->size > b->size);
}

/* Fills wanted and the results of what needs nothing done. */
static int look_at_all(struct prefetch *p)
{
	size_t room = 0;

	for (size_t i = 0; i < p->n_keys; i++) {
		struct wanted w;
		bool demoted;

		p->results[i] = look(p, i, &w, &demoted);
		if (!demoted)
			continue;
		if (SHMS_GROW(p->wanted, room, p->n_wanted, 1) < 0)
			return -ENOMEM;
		p->wanted[p->n_wanted++] = w;
	}
	if (p->n_wanted)
		qsort(p->wanted, p->n_wanted, sizeof(*p->wanted), larger);
	return 0;
}

/* ---- doing it -------------------------------------------------------------------------------- */

/* Keeps the detail of this thread's failure for the thread that called. */
static void note_failure(struct prefetch *p, int error)
{
	if (!*shmstore_error_detail())
		return;
	SHMS_HELD(&p->lock);
	if (!p->error) {
		p->error = error;
		snprintf(p->detail, sizeof(p->detail), "%s", shmstore_error_detail());
		snprintf(p->path, sizeof(p->path), "%s", shmstore_error_path());
	}
}

/* Remembers the smallest. */
static void note_size(struct prefetch *p, uint64_t size, int error)
{
	uint64_t known = atomic_load_explicit(&p->too_large, memory_order_relaxed);

	atomic_store_explicit(&p->no_room, error, memory_order_relaxed);
	while (size < known &&
	       !atomic_compare_exchange_weak_explicit(&p->too_large, &known, size,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

static int bring_back(struct prefetch *p, const struct wanted *w, struct shms_engine *engine)
{
	uint64_t brought;
	int r;

	if (w->size >= atomic_load_explicit(&p->too_large, memory_order_relaxed))
		return atomic_load_explicit(&p->no_room, memory_order_relaxed);
	shms_detail_clear();
	brought = atomic_fetch_add_explicit(&p->brought, w->size, memory_order_relaxed) + w->size;
	r = shms_promote(&(struct shms_promote){.s = p->s,
						.name = w->name,
						.no_evict = p->no_evict || brought > p->half,
						.no_wait = true,
						.engine = engine});
	if (shms_room_wanted(r))
		note_size(p, w->size, r);
	if (r < 0)
		note_failure(p, shms_error(r));
	return shms_error(r);
}

static void *work(void *arg)
{
	struct prefetch *p = arg;
	struct shms_engine_options options = {.n_threads = p->n_engine_threads};
	struct shms_engine *engine = NULL; /* NULL: one of the tier's, which have no threads */
	size_t at;

	if (options.n_threads && shms_engine_new(&options, &engine) < 0)
		engine = NULL;
	while ((at = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n_wanted)
		p->results[p->wanted[at].i] = bring_back(p, &p->wanted[at], engine);
	shms_engine_free(engine);
	return NULL;
}

/* The caller works too. Fewer threads than are allowed, where the host has
 * no more, do it more slowly. */
static void work_together(struct prefetch *p, unsigned n_threads)
{
	pthread_t threads[THREADS_MAX];
	sigset_t all, before;
	unsigned n_workers, n = 0;

	if (n_threads > THREADS_MAX)
		n_threads = THREADS_MAX;
	n_workers = p->n_wanted - 1 < n_threads ? (unsigned)p->n_wanted - 1 : n_threads;
	p->n_engine_threads = (n_threads - n_workers) / (n_workers + 1);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (n < n_workers && pthread_create(&threads[n], NULL, work, p) == 0)
		n++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	work(p);
	while (n)
		pthread_join(threads[--n], NULL);
}

static int prefetch(struct prefetch *p, unsigned n_threads)
{
	struct shms_space space;
	int n_there = 0, r = look_at_all(p);

	if (r < 0)
		return r;
	if (p->n_wanted) {
		p->half = shms_space(p->s->p->fd, &space) < 0 || !space.size ? UINT64_MAX
									     : space.size / 2;
		work_together(p, n_threads);
	}
	/* Objects that were moved out again meanwhile are not in memory. */
	for (size_t n = 0; n < p->n_wanted; n++) {
		int *result = &p->results[p->wanted[n].i];

		if (*result == 0 && shms_stub_is(p->s->objects_fd, p->wanted[n].name))
			*result = -ENOSPC;
	}
	for (size_t i = 0; i < p->n_keys; i++)
		n_there += p->results[i] == 0;
	if (p->error)
		shms_detail(p->error, p->path, "%s", p->detail);
	else
		shms_detail_clear();
	return n_there;
}

int shmstore_prefetch(struct shmstore *s, const struct iovec *keys, size_t n_keys,
		      unsigned n_threads, unsigned flags, int *ret_results)
{
	struct prefetch p = {.s = s,
			     .keys = keys,
			     .n_keys = n_keys,
			     .no_evict = (flags & SHMSTORE_NO_EVICT) != 0,
			     .too_large = UINT64_MAX,
			     .no_room = -ENOSPC};
	int r;

	if ((!keys && n_keys) || n_keys > INT_MAX || (flags & ~SHMSTORE_NO_EVICT))
		return flags & ~SHMSTORE_NO_EVICT
			       ? shms_detail_flags(flags, SHMSTORE_NO_EVICT)
			       : shms_detail(-EINVAL, NULL, "%zu keys at %s", n_keys,
					     keys ? "once are too many" : "NULL");
	p.results = calloc(n_keys + 1, sizeof(*p.results));
	if (!p.results)
		return -ENOMEM;
	pthread_mutex_init(&p.lock, NULL);
	r = prefetch(&p, n_threads);
	if (r >= 0 && ret_results && n_keys)
		memcpy(ret_results, p.results, n_keys * sizeof(*ret_results));
	pthread_mutex_destroy(&p.lock);
	free(p.results);
	free(p.wanted);
	return r;
}
