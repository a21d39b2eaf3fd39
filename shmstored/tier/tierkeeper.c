/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierkeeper.c: one job at a time for each partition:
 *
 *   set     the configured tier is written into the partition: at the start, at a reload, again
 *           where its disk is not there yet
 *   look    what is in the tier: after a survey, after the others, and when
 *           tier/config is another file than it was
 *   evict   above the high mark: down to the low one; or as much as the memory
 *           arbiter has somebody waiting for
 *
 * The partition's own tier/config counts, whoever wrote it: without disk.path in our configuration
 * we keep what shmstore-admin set.
 *
 * An eviction gives way to all else on the host, until the partition is urgently full: then
 * it is ended and begun again at the rank of any program, since on a busy host the other one
 * may get nowhere. A failed run is tried again, later each time (tierplan_failed()); demoted
 * objects stay so, whenever we are killed.
 *
 * Rejected: demoting at the store's quota too (the library does, for its own put); a thread for
 * each partition (they share a disk mostly).
 */
#include "tierkeeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "quota.h"
#include "scanner.h"

#define SECOND      UINT64_C(1000000000)
#define LOOK_SHARE  20u           /* looks that nobody asked for take at most 1/20 of the time */
#define THREADS_MAX 4             /* compress and write, at idle priority mostly */
#define CONFIG      "tier/config" /* docs/format.md */

struct tierkeeper {
	struct scanner_job job;
	struct loop_op timer;
	struct account *account;
	struct tierwork work; /* the worker's while running */
	_Atomic bool stop;
	bool running, hurried, closed;
	bool ending; /* one is over, and its work is not freed so far */
	bool want_set, want_look;
	uint64_t want_room; /* bytes that the arbiter waits for; 0: none */
	bool for_room;      /* the eviction that runs is for those */
	uint64_t look_due_ns;
	struct tierplan set_plan, look_plan, plan;
	struct tierplan_now before; /* a second ago */
	uint64_t books;             /* quota_books() when the eviction began */
	/* The tier's known state. */
	struct stat config; /* of CONFIG; st_ino 0: there is none */
	bool known;
	struct shmstore_tier_info info;
	char disk[sizeof(((struct tierwork *)0)->disk)];
	enum tierkeeper_state state;
	char why[sizeof(((struct tierwork *)0)->why)];
	struct tierkeeper_counters counters;
};

const char *tierkeeper_state_name(enum tierkeeper_state state)
{
	static const char *const names[] = {"none",      "ready", "evicting",
					    "disk-full", "stuck", "unavailable"};

	return names[state];
}

static void set_state(struct tierkeeper *k, enum tierkeeper_state state, const char *why)
{
	k->state = state;
	snprintf(k->why, sizeof(k->why), "%s", why);
}

/* Is tier/config another file than it was? It is replaced, never written over. */
static bool config_changed(struct tierkeeper *k)
{
	struct stat st = {0}, *old = &k->config;
	bool changed;

	/* On the partition, in memory: nothing blocks. */
	if (fstatat(k->account->fd, CONFIG, &st, AT_SYMLINK_NOFOLLOW) < 0)
		st = (struct stat){0};
	changed = st.st_ino != old->st_ino || st.st_ctim.tv_sec != old->st_ctim.tv_sec ||
		  st.st_ctim.tv_nsec != old->st_ctim.tv_nsec;
	*old = st;
	return changed;
}

/* ---- the job --------------------------------------------------------------------------------- */

static bool is_stopped(void *arg)
{
	const struct tierkeeper *k = arg;

	/* Relaxed: nothing is read because of it. */
	return atomic_load_explicit(&k->stop, memory_order_relaxed) ||
	       scanner_stopping(k->account->host->scanner);
}

static void run(struct scanner_job *job)
{
	tierwork_run(&(CONTAINER_OF(job, tierkeeper, job))->work);
}

static void take_info(struct tierkeeper *k)
{
	const struct tierwork *w = &k->work;

	k->look_due_ns = loop_clock() + LOOK_SHARE * w->look_ns;
	k->known = w->look_result == 0;
	if (k->known) {
		k->info = w->info;
		memcpy(k->disk, w->disk, sizeof(k->disk));
		k->info.config.path = k->disk;
		tierplan_succeeded(&k->look_plan);
		/* Where another one is configured and cannot be had, that stays said. */
		if (k->state == TIERKEEPER_UNAVAILABLE && k->want_set)
			k->state = TIERKEEPER_READY;
		else if (k->state == TIERKEEPER_NONE || k->state == TIERKEEPER_UNAVAILABLE)
			set_state(k, TIERKEEPER_READY, "");
		return;
	}
	if (w->look_result == -ECANCELED)
		return;
	if (!k->config.st_ino) {
		if (!k->want_set)
			set_state(k, TIERKEEPER_NONE, "");
		return;
	}
	if (k->state != TIERKEEPER_UNAVAILABLE)
		log_say(LOG_WARNING,
			LOG_FIELDS(.object = k->account->path, .error = w->look_result),
			"the disk tier cannot be used: %s; tried again", w->why);
	set_state(k, TIERKEEPER_UNAVAILABLE,
		  w->why[0] ? w->why : shmstore_strerror(w->look_result));
	tierplan_failed(&k->look_plan, loop_clock());
}

static void set_done(struct tierkeeper *k)
{
	const struct tierwork *w = &k->work;
	const char *path = w->config.path;

	k->want_set = w->result < 0 && w->result != -EBUSY;
	config_changed(k); /* by us: no reason for another look */
	if (w->result == 0) {
		if (path)
			log_say(LOG_INFO, LOG_FIELDS(.object = k->account->path),
				"its disk tier is in %s", path);
		tierplan_forget(&k->plan);
		return;
	}
	if (!k->set_plan.n_failed)
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->account->path, .error = w->result),
			"its disk tier cannot be %s%s%s%s; %s", path ? "in " : "taken away",
			path ? path : "", w->why[0] ? ": " : "", w->why,
			w->result == -EBUSY ? "it holds objects, and stays as it was"
					    : "tried again");
	if (k->want_set) {
		tierplan_failed(&k->set_plan, loop_clock());
		set_state(k, TIERKEEPER_UNAVAILABLE,
			  w->why[0] ? w->why : shmstore_strerror(w->result));
	}
}

/* Returns the error of the disk or the files, which an eviction may have survived. */
static int damage(const struct tierwork *w)
{
	int error = w->report.error ? w->report.error : w->result;

	return error == -EBADMSG || error == -EIO ? error : 0;
}

static void count(struct tierkeeper *k)
{
	const struct tierwork *w = &k->work;
	const struct shmstore_evict_report *r = &w->report;
	struct tierkeeper_counters *c = &k->counters;

	c->n_evictions += r->n_objects != 0;
	c->n_disk_full += r->disk_full;
	c->n_damaged += damage(w) == -EBADMSG;
	tierwork_add(&c->all, r);
	for (size_t i = 0; i < w->n_steps; i++) {
		if (w->steps[i].freed)
			accountquota_freed(k->account, k->books, w->steps[i].uid, "",
					   w->steps[i].freed);
	}
	if (r->freed)
		accountquota_room(k->account);
}

static void evict_done(struct tierkeeper *k)
{
	const struct tierwork *w = &k->work;
	uint64_t retry_ns;

	count(k);
	if (w->report.n_objects)
		tiersay_demoted(k->account, w);
	if (damage(w))
		tiersay_damage(k->account, w->path, w->why, damage(w));
	if (w->result == -ECANCELED)
		return;
	if (w->result >= 0) {
		tierplan_succeeded(&k->plan);
		set_state(k, TIERKEEPER_READY, "");
		return;
	}
	if (w->report.freed)
		tierplan_succeeded(&k->plan);
	retry_ns = tierplan_failed(&k->plan, loop_clock());
	if (w->report.disk_full) {
		set_state(k, TIERKEEPER_DISK_FULL, w->why);
		tiersay_disk_full(k->account, w, retry_ns);
		return;
	}
	if (k->state != TIERKEEPER_STUCK && w->result != -ENOSPC)
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->account->path, .error = w->result),
			"objects cannot be demoted: %s; tried again", w->why);
	set_state(k, TIERKEEPER_STUCK, w->why[0] ? w->why : shmstore_strerror(w->result));
}

static void gone(void *object)
{
	struct tierkeeper *k = object;
	struct account *a = k->account;

	tierwork_deinit(&k->work);
	free(k);
	account_unref(a);
}

/* A worker that has its work ends it later. */
static void end(struct tierkeeper *k)
{
	k->closed = true;
	if (!k->running)
		loop_release_all(k->account->host->loop, (struct loop_op *const[]){&k->timer}, 1,
				 gone, k);
}

static void begin_room(struct tierkeeper *k);

static void done(struct scanner_job *job)
{
	struct tierkeeper *k = CONTAINER_OF(job, tierkeeper, job);
	bool for_room = k->for_room, closing = k->closed || k->account->closing;

	k->running = k->for_room = false;
	/* what it freed may let puts in, and those may want more: that is begun below */
	k->ending = true;
	if (!closing) {
		if (k->work.kind == TIERWORK_SET)
			set_done(k);
		else if (k->work.kind == TIERWORK_EVICT)
			evict_done(k);
		take_info(k);
	}
	tierwork_deinit(&k->work);
	k->ending = false;
	if (k->closed)
		end(k);
	if (closing)
		return;
	if (for_room)
		PART_EACH(k->account, evicted, k->account);
	if (k->want_room && !k->running)
		begin_room(k);
}

/* The caller has filled in w's other input. */
static void submit(struct tierkeeper *k, enum tierwork_kind kind)
{
	struct tierwork *w = &k->work;

	w->kind = kind;
	w->partition = k->account->partition;
	w->fd = k->account->fd;
	w->stop = is_stopped;
	w->arg = k;
	w->result = w->look_result = -ECANCELED; /* as long as it did not run */
	atomic_store_explicit(&k->stop, false, memory_order_relaxed);
	k->hurried = false;
	k->running = true;
	k->job = (struct scanner_job){.worker = SCANNER_TIER, .run = run, .done = done};
	scanner_submit(k->account->host->scanner, &k->job);
}

static void submit_set(struct tierkeeper *k)
{
	const struct config_disk *d = &k->account->config->disk;
	struct shmstore_tier_config *c = &k->work.config;

	*c = (struct shmstore_tier_config)SHMSTORE_TIER_CONFIG_INIT;
	if (strcmp(d->path, "none") != 0) {
		c->path = strdup(d->path);
		if (!c->path)
			return; /* the next second tries again */
		c->max = d->max;
		c->min_free = d->min_free;
		c->level = (int)d->level;
		c->fsync = d->fsync;
		c->high = d->high;
		c->low = d->low;
	}
	submit(k, TIERWORK_SET);
}

/* ---- when ------------------------------------------------------------------------------------ */

/* Where demotion begins and ends. False: there is no tier. */
static bool marks_of(const struct account *a, struct tierplan_marks *ret)
{
	const struct tierkeeper *k = a->tier;
	struct quota_limits l;
	uint64_t hard = 0;

	if (!k || !k->known)
		return false;
	if (quota_limit_get(a->quota, WIRE_LIMIT_PARTITION, "", &l) == 0 && l.hard != QUOTA_DEFAULT)
		hard = l.hard;
	*ret = tierplan_marks(a->tick.size, hard, k->info.config.high, k->info.config.low);
	return true;
}

/* Moves what is used above low to the tier. */
static void evict(struct tierkeeper *k, uint64_t low, uint64_t used)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	k->work.low = low;
	k->work.n_threads = n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
	k->books = quota_books(k->account->quota);
	k->work.steps =
		tierusers_steps(k->account, low, used > low ? used - low : 0, &k->work.n_steps);
	submit(k, TIERWORK_EVICT);
}

static void evict_if_due(struct tierkeeper *k, const struct tierplan_now *now)
{
	struct account *a = k->account;
	struct tierplan_marks m;

	if (!marks_of(a, &m))
		return;
	if (m.high && now->used > m.high)
		tierask(a, now->used - m.low, now->used);
	if (k->running) {
		/* Once: the next one is not at idle priority. */
		if (k->work.kind == TIERWORK_EVICT && k->work.background && now->used >= m.urgent &&
		    !k->hurried) {
			k->hurried = true;
			atomic_store_explicit(&k->stop, true, memory_order_relaxed);
		}
		return;
	}
	if (now->used <= m.high &&
	    (k->state == TIERKEEPER_DISK_FULL || k->state == TIERKEEPER_STUCK))
		set_state(k, TIERKEEPER_READY, "");
	if (!tierplan_due(&k->plan, &m, now))
		return;
	k->work.background = now->used < m.urgent;
	evict(k, m.low, now->used);
}

/* ---- for the arbiter ------------------------------------------------------------------------- */

uint64_t tierkeeper_room(const struct account *a)
{
	const struct tierkeeper *k = a->tier;
	uint64_t room;

	if (!k || !k->known || loop_clock() < k->plan.not_before_ns)
		return 0;
	room = tierfigures_available(&k->info);
	/* Those whose tier files are good still need no disk. */
	return room < UINT64_MAX - k->info.clean ? room + k->info.clean : room;
}

static void begin_room(struct tierkeeper *k)
{
	uint64_t used = tierwork_used(k->account->fd),
		 low = used > k->want_room ? used - k->want_room : 1;

	k->want_room = 0;
	k->for_room = true;
	if (used)
		tierask(k->account, used - low, used);
	evict(k, low, used); /* not in the background: somebody waits */
}

bool tierkeeper_make_room(struct account *a, uint64_t bytes)
{
	struct tierkeeper *k = a->tier;

	if (!k || !k->known || k->closed || !bytes)
		return false;
	if (bytes > k->want_room)
		k->want_room = bytes;
	if (!k->running && !k->ending)
		begin_room(k);
	return true;
}

/* ---------------------------------------------------------------------------------------------- */

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct tierkeeper *k = CONTAINER_OF(op, tierkeeper, timer);
	struct tierplan_now now = {.ns = loop_clock()};

	if (k->closed || result < 0)
		return;
	now.used = tierwork_used(k->account->fd);
	now.pool = k->account->tick.pool;
	evict_if_due(k, &now);
	/* Until the next second's look, which decides anew. */
	if (now.ns + SECOND / 20 < k->before.ns + SECOND)
		loop_timer(k->account->host->loop, &k->timer, now.ns + SECOND / 20, 0);
}

static void next_job(struct tierkeeper *k, uint64_t now_ns)
{
	bool again = k->state == TIERKEEPER_UNAVAILABLE && now_ns >= k->look_plan.not_before_ns;

	if (k->running)
		return;
	if (k->want_set && now_ns >= k->set_plan.not_before_ns)
		submit_set(k);
	else if ((k->want_look && now_ns >= k->look_due_ns) || again) {
		k->want_look = false;
		submit(k, TIERWORK_LOOK);
	}
}

static void keeper_tick(struct account *a)
{
	struct tierkeeper *k = a->tier;
	struct tierplan_now now = {.used = a->tick.used, .pool = a->tick.pool, .ns = loop_clock()};
	struct tierplan_marks m;
	uint64_t next_ns = UINT64_MAX;

	if (config_changed(k)) {
		k->want_look = true;
		k->look_due_ns = 0;
		tierplan_forget(&k->plan);
		tierplan_forget(&k->look_plan);
	}
	next_job(k, now.ns);
	evict_if_due(k, &now);
	if (k->before.ns && marks_of(a, &m))
		next_ns = tierplan_next_look(&m, &k->before, &now);
	k->before = now;
	tierscrub_tick(a, k->known);
	if (next_ns != UINT64_MAX && !k->timer.busy)
		loop_timer(a->host->loop, &k->timer, next_ns, 0);
}

static void keeper_surveyed(struct account *a, UNUSED const struct survey *survey)
{
	if (a->tier && a->tier->config.st_ino)
		a->tier->want_look = true;
}

/* ---- the keeper's life ----------------------------------------------------------------------- */

static void keeper_reload(struct account *a)
{
	struct tierkeeper *k = a->tier;

	if (!k)
		return;
	config_changed(k);
	/* None is to be taken away where none is. */
	k->want_set = a->config->disk.path &&
		      (k->config.st_ino || strcmp(a->config->disk.path, "none") != 0);
	tierplan_forget(&k->plan);
	tierplan_forget(&k->set_plan);
	next_job(k, loop_clock());
}

static int keeper_open(struct account *a)
{
	struct tierkeeper *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	account_ref(a);
	k->account = a;
	k->timer.fn = on_timer;
	k->want_look = true;
	a->tier = k;
	keeper_reload(a);
	return tierscrub_open(a);
}

static void keeper_close(struct account *a)
{
	struct tierkeeper *k = a->tier;

	tierscrub_close(a);
	if (!k)
		return;
	a->tier = NULL;
	atomic_store_explicit(&k->stop, true, memory_order_relaxed);
	end(k);
}

void tierkeeper_view(const struct account *a, struct tierkeeper_view *ret)
{
	const struct tierkeeper *k = a->tier;

	*ret = (struct tierkeeper_view){.why = ""};
	if (!k)
		return;
	ret->state = k->state;
	ret->why = k->why;
	ret->info = k->known ? &k->info : NULL;
	ret->counters = k->counters;
	if (k->state == TIERKEEPER_UNAVAILABLE)
		ret->retry_ns =
			k->want_set ? k->set_plan.not_before_ns : k->look_plan.not_before_ns;
	else if (k->state == TIERKEEPER_DISK_FULL || k->state == TIERKEEPER_STUCK)
		ret->retry_ns = k->plan.not_before_ns;
	if (k->running && k->work.kind == TIERWORK_EVICT) {
		ret->state = TIERKEEPER_EVICTING;
		ret->n_objects = atomic_load_explicit(&k->work.n_objects, memory_order_relaxed);
		ret->freed = atomic_load_explicit(&k->work.freed, memory_order_relaxed);
		ret->written = atomic_load_explicit(&k->work.written, memory_order_relaxed);
	}
}

static void keeper_marks(const struct account *a, uint64_t *io_high, uint64_t *io_low)
{
	struct tierplan_marks m;

	if (!marks_of(a, &m) || !m.high || (*io_high && m.high >= *io_high))
		return;
	*io_high = m.high;
	*io_low = m.low;
}

static bool keeper_spill(struct account *a, uint64_t bytes)
{
	const struct tierkeeper *k = a->tier;

	if (!k)
		return false;
	if (!bytes)
		return k->ending || (k->running && k->work.kind == TIERWORK_EVICT);
	return k->state != TIERKEEPER_DISK_FULL && tierkeeper_room(a) &&
	       tierkeeper_make_room(a, bytes);
}

static bool keeper_disk_full(const struct account *a)
{
	return a->tier && a->tier->state == TIERKEEPER_DISK_FULL;
}

const struct part tierkeeper_part = {
	.name = "tier",
	.open = keeper_open,
	.close = keeper_close,
	.reload = keeper_reload,
	.tick = keeper_tick,
	.surveyed = keeper_surveyed,
	.spill = keeper_spill,
	.disk_full = keeper_disk_full,
	.marks = keeper_marks,
};
