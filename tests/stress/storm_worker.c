/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm_worker.c: one worker of the storm, see storm.h. One thread does everything, one only gets
 * and checks, and where there are writers one more does all but what concerns the whole store, with
 * keys of its own. Children look at what they inherited.
 */
#include "storm_worker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "killing.h"
#include "storm.h"

#define OPEN_DEADLINE_MS 60000u
#define CHILDREN         2u
#define CHILD_MS         300u
#define CHILD_SHORT_MS   4u /* where lives are short */
#define N_SMALL          5u /* of the sizes of objects */

uint64_t worker_next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

unsigned worker_pick(struct worker *w, unsigned n)
{
	return (unsigned)(worker_next_random(&w->random) % n);
}

/* Mostly small, some to 300 KB, few to 3 MB: each around its middle by 20 %. */
uint64_t worker_random_size(struct worker *w)
{
	static const uint64_t middle[] = {0,     100,    4000,   16000,   60000,
					  70000, 300000, 300000, 1000000, 2500000};
	/* Short lives have small objects. */
	uint64_t m = middle[worker_pick(
		w, w->st->options->n_kills ? N_SMALL : sizeof(middle) / sizeof(middle[0]))];
	return m ? m * 4 / 5 + worker_next_random(&w->random) % (m * 2 / 5) : 0;
}

/* Errors that leave everything as it was: no room, a limit, or somebody was
 * stopped with what we need. */
bool worker_excused(struct worker *w, int rc)
{
	const struct storm_options *o = w->st->options;
	struct storm_shared *shared = w->st->shared;

	if (rc == -ENOSPC)
		shared->n_enospc++;
	else if (rc == -EDQUOT && o->limit)
		shared->n_edquot++;
	else if (rc == -ETIMEDOUT && (o->stops || o->daemon))
		shared->n_timedout++;
	else
		return false;
	return true;
}

static void count(struct worker *w, enum storm_op op)
{
	atomic_fetch_add_explicit(&w->st->shared->n_ops[op], 1, memory_order_relaxed);
}

/* Every third key is too long for a file name. */
size_t worker_key_of(unsigned i, char ret[400])
{
	int n = snprintf(ret, 400, "key-%u", i);
	if (i % 3 == 0) {
		memset(ret + n, '.', 300);
		n += 300;
	}
	return (size_t)n;
}

/* ---- the book of what is held ---------------------------------------------------------------- */

struct storm_key *worker_book(struct worker *w, unsigned key)
{
	return &w->st->shared->keys[w->id][key];
}

void worker_will_be(struct worker *w, unsigned key, uint64_t seed)
{
	struct storm_key *k = worker_book(w, key);
	k->next = seed;
	k->pending = true;
}

void worker_is_now(struct worker *w, unsigned key, bool done)
{
	struct storm_key *k = worker_book(w, key);
	if (done)
		k->now = k->next;
	k->pending = false;
}

int worker_bad(struct worker *w, const char *what, unsigned key, int rc, const char *why)
{
	return storm_fail(w->st, "worker %u: %s key %u: %d (%s) %s; book says %llu", w->id, what,
			  key, rc, shmstore_strerror(rc), why ? why : "",
			  (unsigned long long)worker_book(w, key)->now);
}

/* Looks up the content of key, by get. 0; 1: it is demoted and does not fit now; -1. */
int worker_look_up(struct worker *w, unsigned key, uint64_t *ret_seed)
{
	char name[400];
	size_t size = worker_key_of(key, name);
	struct content c = {0, 0};
	const char *why = NULL;
	int rc = content_get(w->s, name, size, &c, &why);
	if ((rc != -ENOSPC || w->st->options->disk) && worker_excused(w, rc))
		return 1;
	if (rc < 0 && rc != -ENOENT)
		return worker_bad(w, "get", key, rc, why);
	*ret_seed = rc == 0 ? c.seed : 0;
	return 0;
}

/* ---- the second thread ----------------------------------------------------------------------- */

static void *reader_main(void *arg)
{
	struct worker *w = arg;
	while (!w->threads_stop && !w->st->shared->stop) {
		char name[400];
		unsigned key = (unsigned)(worker_next_random(&w->reader_random) %
					  (STORM_KEYS + STORM_MORE));
		size_t size = worker_key_of(key, name);
		struct shmstore_view *v = NULL;
		int rc = shmstore_get(w->s, name, size, 0, &v);
		storm_rest(w->st, &w->threads_stop);
		if (rc < 0 && rc != -ENOENT &&
		    !((rc != -ENOSPC || w->st->options->disk) && worker_excused(w, rc))) {
			worker_bad(w, "get by the second thread of", key, rc, NULL);
			break;
		}
		if (rc == 0) {
			struct content before, after;
			const char *why = content_check(v, &before);
			if (!why) {
				sched_yield();
				why = content_check(v, &after);
				if (!why && before.seed != after.seed)
					why = "changed under the view";
			}
			if (why)
				worker_bad(w, "view of the second thread of", key, 0, why);
			shmstore_view_unref(v);
			atomic_fetch_add_explicit(&w->st->shared->n_ops[OP_THREAD_GET], 1,
						  memory_order_relaxed);
		}
		struct timespec pause = {
			.tv_nsec = (long)(worker_next_random(&w->reader_random) % 2000000)};
		nanosleep(&pause, NULL); /* a load, not a wait: leaves the cores to the others */
	}
	return NULL;
}

static void *writer_main(void *arg);

/* ---- opening, closing ------------------------------------------------------------------------ */

/* Everything that was held by our predecessor, or, where gc may have been faster or we do not
 * take it over, nothing of it. */
static int check_inheritance(struct worker *w)
{
	for (unsigned key = 0; key < STORM_KEYS + STORM_MORE; key++) {
		struct storm_key *k = worker_book(w, key);
		uint64_t seed = 0, until = storm_now_ms() + OPEN_DEADLINE_MS;
		int rc;
		while ((rc = worker_look_up(w, key, &seed)) > 0 && storm_now_ms() < until)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		if (rc != 0)
			return rc < 0 ? -1
				      : worker_bad(w, "no room for a demoted", key, -ENOSPC, NULL);
		bool ok = seed == k->now || (k->pending && seed == k->next) ||
			  (!storm_keeps(w->id) && seed == 0);
		if (!ok)
			return storm_fail(
				w->st, "worker %u: after a kill key %u holds %llu, not %llu%s%llu",
				w->id, key, (unsigned long long)seed, (unsigned long long)k->now,
				k->pending ? " or " : " (nothing under way) ",
				(unsigned long long)k->next);
		k->now = seed;
		k->pending = false;
	}
	return 0;
}

static int open_store(struct worker *w)
{
	char name[16];
	storm_name(w->id, name);
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.keep = storm_keeps(w->id);
	options.pack_max = w->st->options->pack_max;
	/* Packed: of what was taken apart in part, keys that were deleted may be there again
	 * (docs/segments.md, "Not done yet"). */
	if (!options.keep && !options.pack_max && worker_pick(w, 2))
		options.flags = SHMSTORE_OPEN_ADOPT;
	uint64_t until = storm_now_ms() + OPEN_DEADLINE_MS;
	int rc;
	/* A gc may hold the lock for a moment, and on a full partition the page of a new store
	 * waits for room like all others. */
	w->st->shared->n_opened[w->id]++;
	while (((rc = shmstore_open(w->p, name, &options, &w->s)) == -EBUSY ||
		worker_excused(w, rc)) &&
	       storm_now_ms() < until)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (rc < 0)
		return storm_fail(w->st, "worker %u: open: %d (%s)", w->id, rc,
				  shmstore_error_detail());
	if (check_inheritance(w) < 0)
		return -1;
	w->threads_stop = false;
	w->reader_random = w->random ^ 0x5deece66dull;
	/* Instructions are counted of one thread. */
	if (w->st->options->steps)
		return 0;
	if (pthread_create(&w->reader, NULL, reader_main, w) != 0 ||
	    (w->second && pthread_create(&w->writer, NULL, writer_main, w) != 0))
		return storm_fail(w->st, "worker %u: no thread", w->id);
	return 0;
}

static int let_go(struct worker *w)
{
	for (size_t i = 0; i < STORM_VIEWS; i++) {
		struct content c = {0, 0};
		const char *why = w->held[i].view ? content_check(w->held[i].view, &c) : NULL;
		if (why || (w->held[i].view && c.seed != w->held[i].seed))
			storm_fail(w->st, "worker %u: a view at the end: %s", w->id,
				   why ? why : "another seed");
		w->held[i].view = shmstore_view_unref(w->held[i].view);
	}
	return w->st->shared->failed ? -1 : 0;
}

static int add_recycled(const struct shmstore_store_info *info, void *arg)
{
	struct worker *w = arg;
	char name[16];
	storm_name(w->id, name);
	if (strcmp(info->name, name) == 0)
		w->st->shared->n_recycled += info->counters.recycled_n;
	return 0;
}

static int close_store(struct worker *w)
{
	w->threads_stop = true;
	if (!w->st->options->steps)
		pthread_join(w->reader, NULL);
	if (w->second)
		pthread_join(w->writer, NULL);
	shmstore_partition_stores(w->p, add_recycled, w);
	/* A kept store that packs is not opened again while this process
	 * has views of what it packed. */
	if (storm_keeps(w->id) && w->st->options->pack_max && let_go(w) < 0)
		return -1;
	if (!storm_keeps(w->id))
		for (unsigned key = 0; key < STORM_KEYS + STORM_MORE; key++)
			worker_will_be(w, key, 0);
	int rc = shmstore_close(w->s);
	w->s = NULL;
	if (rc == -ETIMEDOUT && worker_excused(w, rc))
		return 0; /* what it holds goes, or not: gc, or the next open, finds a dead store */
	for (unsigned key = 0; key < STORM_KEYS + STORM_MORE && !storm_keeps(w->id); key++)
		worker_is_now(w, key, true);
	return rc < 0 ? storm_fail(w->st, "worker %u: close: %d (%s)", w->id, rc,
				   shmstore_strerror(rc))
		      : 0;
}

static int do_gc(struct worker *w)
{
	int rc = shmstore_partition_gc(w->p, 0, NULL);
	return rc < 0 && !worker_excused(w, rc) ? storm_fail(w->st, "worker %u: gc: %d (%s)", w->id,
							     rc, shmstore_strerror(rc))
						: 0;
}

/* ---- children -------------------------------------------------------------------------------- */

/* The handle is of no use here, views stay what they were, and what the parent does
 * meanwhile is not kept by us. */
static int child(struct worker *w)
{
	struct content c = {1, 100};
	unsigned most_ms = w->st->options->n_kills ? CHILD_SHORT_MS : CHILD_MS;
	int rc = content_put(w->s, "child", 5, c, 0);

	if (rc != -EPERM)
		return storm_fail(w->st, "worker %u: put in a child: %d", w->id, rc);
	if (worker_pick(w, 2) && (rc = shmstore_close(w->s)) != -EPERM)
		return storm_fail(w->st, "worker %u: close in a child: %d", w->id, rc);
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < STORM_VIEWS; i++) {
			const char *why =
				w->held[i].view ? content_check(w->held[i].view, &c) : NULL;

			if (why || (w->held[i].view && c.seed != w->held[i].seed))
				return storm_fail(w->st, "worker %u: a child's view: %s", w->id,
						  why ? why : "another seed");
		}
		nanosleep(
			&(struct timespec){.tv_nsec = (long)worker_pick(w, most_ms) * 1000000 / 2},
			NULL);
	}
	return 0;
}

static int do_fork(struct worker *w)
{
	pid_t pid;
	int status;

	while (w->n_children && waitpid(-1, &status, w->n_children < CHILDREN ? WNOHANG : 0) > 0) {
		w->n_children--;
		if (WIFEXITED(status) && WEXITSTATUS(status))
			return storm_fail(w->st, "worker %u: a child ended with status 0x%x", w->id,
					  (unsigned)status);
	}
	pid = fork();
	if (pid == 0)
		_exit(child(w) < 0 ? 1 : 0);
	w->n_children += pid > 0;
	return pid < 0 ? storm_fail(w->st, "worker %u: fork: %s", w->id, strerror(errno)) : 0;
}

static enum storm_op pick_op(struct worker *w)
{
	static const unsigned char weight[N_OPS] = {
		[OP_PUT] = 24,   [OP_REPLACE] = 8, [OP_CREATE] = 6, [OP_ABORT] = 2,
		[OP_GET] = 14,   [OP_VIEW] = 8,    [OP_ALIAS] = 3,  [OP_HANDOFF] = 9,
		[OP_ADOPT] = 10, [OP_DELETE] = 14, [OP_PEEK] = 2,   [OP_GC] = 1,
	};
	static const enum storm_op of_the_tier[] = {OP_DEMOTE,  OP_DEMOTE,  OP_DEMOTE,
						    OP_PROMOTE, OP_PROMOTE, OP_PIN};
	if (w->st->options->forks && worker_pick(w, 200) == 0)
		return OP_FORK;
	if (w->st->options->disk && worker_pick(w, 5) == 0)
		return worker_pick(w, 20) == 0 ? OP_EVICT : of_the_tier[worker_pick(w, 6)];
	if (worker_pick(w, 3000) == 0)
		return OP_REOPEN;
	unsigned at = worker_pick(w, 101), op = 0;
	while (at >= weight[op])
		at -= weight[op++];
	return (enum storm_op)op;
}

static int do_this(struct worker *w, enum storm_op op, unsigned key)
{
	switch (op) {
	case OP_PUT:
	case OP_REPLACE:
	case OP_CREATE:
		return worker_do_put(w, op, key);
	case OP_ABORT:
		return worker_do_abort(w, key);
	case OP_GET:
		return worker_do_get(w, key);
	case OP_VIEW:
		return worker_do_view(w, key);
	case OP_ALIAS:
		return worker_do_alias(w, key);
	case OP_HANDOFF:
		return worker_do_handoff(w, key);
	case OP_ADOPT:
		return worker_do_adopt(w, key);
	case OP_DELETE:
		return worker_do_delete(w, key);
	case OP_PEEK:
		return worker_do_peek(w, key);
	case OP_DEMOTE:
		return worker_do_demote(w, key);
	case OP_PROMOTE:
		return worker_do_promote(w, key, false);
	case OP_PIN:
		return worker_do_promote(w, key, true);
	case OP_EVICT:
		return worker_do_evict(w);
	case OP_GC:
		return do_gc(w);
	case OP_REOPEN:
		return close_store(w) < 0 ? -1 : open_store(w);
	case OP_FORK:
		return do_fork(w);
	case OP_THREAD_GET:
	case OP_THREAD_WRITE:
	case N_OPS:
		break;
	}
	return 0;
}

static int do_op(struct worker *w, enum storm_op op, unsigned key)
{
	struct storm_shared *shared = w->st->shared;
	unsigned n_stopped = shared->n_stopped[w->id];
	uint64_t begin_ms = storm_now_ms(), ms;
	int r = do_this(w, op, key);

	ms = storm_now_ms() - begin_ms;
	if (op != OP_FORK && op != OP_REOPEN && n_stopped == shared->n_stopped[w->id] &&
	    ms > shared->longest_ms) {
		shared->longest_ms = ms; /* of two at once either is as good */
		shared->longest_op = op;
	}
	return r;
}

/* The second that writes: what changes keys, and not the whole store. Its views end with it. */
static void *writer_main(void *arg)
{
	struct worker *first = arg, *w = first->second;

	w->s = first->s;
	while (!first->threads_stop && !w->st->shared->stop && !w->st->shared->failed) {
		enum storm_op op = pick_op(w);

		storm_rest(w->st, &first->threads_stop);
		if (op == OP_GC || op == OP_REOPEN || op == OP_FORK || op == OP_EVICT)
			continue;
		if (do_op(w, op, STORM_KEYS + worker_pick(w, STORM_MORE)) < 0)
			break;
		count(w, OP_THREAD_WRITE);
	}
	let_go(w);
	return NULL;
}

int storm_worker(struct storm *st, unsigned id, unsigned life)
{
	static struct worker w, second;
	w = (struct worker){.st = st, .id = id, .second = st->options->writers ? &second : NULL};
	w.random =
		(st->options->seed + id * 1000003ull + life * 7919ull) * 0x9e3779b97f4a7c15ull | 1;
	second = (struct worker){.st = st, .id = id, .random = w.random ^ 0xda942042e4dd58b5ull};
	int rc = shmstore_partition_open(st->path, 0, &w.p);
	if (rc < 0) {
		storm_fail(st, "worker %u: partition: %d", id, rc);
		return 1;
	}
	second.p = w.p;
	if (open_store(&w) < 0)
		return 1;
	for (unsigned n = 1; !st->shared->stop && !st->shared->failed; n++) {
		enum storm_op op = pick_op(&w);
		if (n == st->wait_after && !killing_wait())
			storm_fail(st, "worker %u: ptrace: %s", id, strerror(errno));
		storm_rest(st, &st->shared->stop);
		if (do_op(&w, op, worker_pick(&w, STORM_KEYS)) < 0)
			break;
		count(&w, op);
	}
	let_go(&w);
	if (w.s)
		close_store(&w);
	shmstore_partition_unref(w.p);
	return st->shared->failed ? 1 : 0;
}
