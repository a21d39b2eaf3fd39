/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierwork.c: an eviction is one call of the library for each user in the plan's order, each for so
 * many bytes, until the partition is below its low mark; then one for everybody, since the plan was
 * made of the last survey, which may be old by now.
 *
 * The library's text of a failure belongs to the thread, until its next call: it is copied at once.
 * Of several failures the last is told, but one of the disk goes before all others.
 */

#include <errno.h>
#include <shmstore/inspect.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "account.h"
#include "conn.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "pagewords.h"
#include "quota.h"
#include "tierkeeper.h"

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
		/* After other errors the next user's objects may do. */
		if (r == -ECANCELED || r == -ENOENT || (r < 0 && w->report.disk_full))
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

/* ---- the plan -------------------------------------------------------------------------------- */

/*
 * A second is long for memory: a partition may fill by a gigabyte in it. So where used has risen so
 * fast that it would pass the high mark before the next second's look, it is looked at LOOKS times
 * as often. A faster rise meets the library, which demotes before it says that a partition is full.
 *
 * Recycled files go first, by the stores themselves, which are asked for them at the same mark:
 * where these alone would do, we wait POOL_NS for them. An idle store gives nothing back before its
 * next call, so it is not waited for longer.
 *
 * Rejected: cutting all users down to one level (the busy ones would lose what they are at work on
 * while others' sleeps in memory).
 */

#define SECOND   UINT64_C(1000000000)
#define POOL_NS  SECOND
#define LOOK_NS  (SECOND / 20)
#define WAIT_MAX 6u /* 2^6 seconds */

static uint64_t part(uint64_t whole, unsigned percent)
{
	return (uint64_t)((__uint128_t)whole * percent / 100);
}

struct tierplan_marks tierplan_marks(uint64_t size, uint64_t hard, unsigned high, unsigned low)
{
	uint64_t whole = hard && (!size || hard < size) ? hard : size;
	struct tierplan_marks m = {.high = part(whole, high), .low = part(whole, low)};

	m.urgent = m.high + (whole - m.high) / 2;
	return m;
}

bool tierplan_due(struct tierplan *p, const struct tierplan_marks *m,
		  const struct tierplan_now *now)
{
	if (!m->high || now->used <= m->high) {
		p->above_since_ns = 0;
		return false;
	}
	if (!p->above_since_ns)
		p->above_since_ns = now->ns;
	if (now->ns < p->not_before_ns)
		return false;
	return now->pool < now->used - m->low || now->ns >= p->above_since_ns + POOL_NS ||
	       now->used >= m->urgent;
}

uint64_t tierplan_next_look(const struct tierplan_marks *m, const struct tierplan_now *before,
			    const struct tierplan_now *now)
{
	uint64_t rise;

	if (!m->high || now->used <= before->used || now->ns <= before->ns)
		return UINT64_MAX;
	rise = (uint64_t)((__uint128_t)(now->used - before->used) * SECOND /
			  (now->ns - before->ns));
	return now->used + rise > m->high ? now->ns + LOOK_NS : UINT64_MAX;
}

void tierplan_succeeded(struct tierplan *p)
{
	p->n_failed = 0;
	p->not_before_ns = 0;
}

uint64_t tierplan_failed(struct tierplan *p, uint64_t now_ns)
{
	uint64_t wait_ns = SECOND << (p->n_failed < WAIT_MAX ? p->n_failed : WAIT_MAX);

	p->n_failed++;
	p->not_before_ns = now_ns + wait_ns;
	return wait_ns;
}

void tierplan_forget(struct tierplan *p)
{
	*p = (struct tierplan){.above_since_ns = p->above_since_ns};
}

/* ---- whose ----------------------------------------------------------------------------------- */

/* all: what it has; else what it has above its share. */
static uint64_t bytes_of(const struct tierplan_user *u, bool all)
{
	return all ? u->bytes : u->bytes > u->share ? u->bytes - u->share : 0;
}

/* The idle before the busy, then who has the most. */
static int compare(const void *left, const void *right, void *arg)
{
	const struct tierplan_user *a = left, *b = right;
	const bool *all = arg;
	uint64_t one = bytes_of(a, *all), two = bytes_of(b, *all);

	if (a->idle != b->idle)
		return a->idle ? -1 : 1;
	return (one < two) - (one > two);
}

/* Takes bytes_of() each user in that order while there is need, and subtracts them from its. */
static size_t take(struct tierplan_user *users, size_t n, bool all, uint64_t *io_need,
		   struct tierplan_step *ret_steps)
{
	size_t n_steps = 0;

	qsort_r(users, n, sizeof(*users), compare, &all);
	for (size_t i = 0; i < n && *io_need; i++) {
		uint64_t bytes = bytes_of(&users[i], all);

		if (bytes > *io_need)
			bytes = *io_need;
		if (!bytes)
			continue;
		ret_steps[n_steps++] = (struct tierplan_step){.uid = users[i].uid, .bytes = bytes};
		users[i].bytes -= bytes;
		*io_need -= bytes;
	}
	return n_steps;
}

size_t tierplan_steps(struct tierplan_user *users, size_t n, uint64_t low, uint64_t need,
		      struct tierplan_step *ret_steps)
{
	size_t n_steps;

	if (!n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (!users[i].share)
			users[i].share = low / n;
	}
	n_steps = take(users, n, false, &need, ret_steps);
	return n_steps + take(users, n, true, &need, ret_steps + n_steps);
}

/* ---- it is told ------------------------------------------------------------------------------ */

/*
 * Sums are for everybody who may watch; a damaged file's name has its owner's uid in it, and is
 * told to administrators and to that user alone.
 */

void tiersay_demoted(struct account *a, const struct tierwork *w)
{
	const struct shmstore_evict_report *r = &w->report;
	struct json_object *o = account_json(a);

	fields_of(o, r, NUMBER(objects), SAME(freed), SAME(held), SAME(original), SAME(written),
		  NUMBER(clean), NUMBER(skipped),
		  FIELD_AS(FIELD_NS, duration_ns, "duration_seconds"));
	/* False: it was ended, or could not free as much as it should. */
	jsonmake_flag(o, "complete", w->result == 1);
	events_emit(a->host->events, EVENT_DEMOTED, a->path, o);
}

void tiersay_disk_full(struct account *a, const struct tierwork *w, uint64_t retry_ns)
{
	struct json_object *o = account_json(a);

	jsonmake_text(o, "what", w->why[0] ? w->why : "disk full");
	if (w->look_result == 0) {
		fields_of(o, &w->info, FIELD(config.path, "path"), FIELD(disk_free, "free"),
			  FIELD(config.min_free, "min_free"), FIELD(used, "tier_used"),
			  FIELD(config.max, "max"));
	}
	jsonmake_seconds(o, "retry_seconds", (int64_t)retry_ns);
	events_emit(a->host->events, EVENT_DISK_FULL, a->path, o);
}

void tiersay_damage(struct account *a, const char *path, const char *what, int error)
{
	struct json_object *o = account_json(a);
	const char *owner = path ? strrchr(path, '/') : NULL;
	unsigned uid = 0;
	int end = 0;

	jsonmake_text(o, "path", path && *path ? path : NULL);
	jsonmake_text(o, "what", *what ? what : shmstore_strerror(error));
	jsonmake_text(o, "error", shmstore_strerror(error));
	/* It lies in its user's directory of the tier: ".../<uid>/<id>". Nobody's event is
	 * everybody's: what is not known to be somebody's is root's. */
	while (owner && owner > path && owner[-1] != '/')
		owner--;
	if (!owner || sscanf(owner, "%10u/%n", &uid, &end) != 1 || !end || uid == (uid_t)-1)
		uid = 0;
	jsonmake_u64(o, "uid", uid);
	events_emit(a->host->events, EVENT_TIER_DAMAGE, path && *path ? path : a->path, o);
}

/* Asked already, it is woken again: an event loop gives for a while only. To who has not read what
 * came before nothing is sent. */
static void ask(struct member *m, struct wire_packed *w, uint64_t bytes)
{
	struct wire_ask body = {.bytes = bytes};

	if (!atomic_load_explicit(&w->wanted, memory_order_relaxed)) {
		atomic_store_explicit(&w->asked_ns, shmstore_lease_clock_ms() * 1000000,
				      memory_order_relaxed);
		/* Release: pairs with the owner's look (packgive.c). */
		atomic_store_explicit(&w->wanted, bytes, memory_order_release);
	}
	(void)conn_send(m->conn, WIRE_ASK, 0, &body, NULL, 0);
}

void tierask(struct account *a, uint64_t need, uint64_t used)
{
	for (struct member *m = a->members; m; m = m->next) {
		struct wire_packed *w = (void *)((char *)m->page + WIRE_PACKED_OFF);
		uint64_t bytes;

		/* Without credit the page is mapped for reading alone. */
		if (!m->conn || !m->credit || need > used)
			continue;
		bytes = atomic_load_explicit(&w->bytes, memory_order_relaxed);
		/* The page's number may be anything. */
		bytes = (uint64_t)((__uint128_t)need * (bytes < used ? bytes : used) / used);
		if (bytes)
			ask(m, w, bytes);
	}
}

/* ---- the users of a partition, for an eviction ----------------------------------------------- */

/*
 * A user's bytes are those that the survey found, its share is its limit, and it is idle as its
 * stores' ledgers showed in the last seconds. Stores have no say of their own here: within a
 * user's, the library chooses objects by their last use, whichever store they are in.
 */

#define IDLE_NS UINT64_C(10000000000) /* a user whose stores did nothing for so long is idle */

struct users {
	struct tierplan_user *list;
	size_t n;
};

static struct tierplan_user *find(const struct users *u, uid_t uid)
{
	for (size_t i = 0; i < u->n; i++) {
		if (u->list[i].uid == uid)
			return &u->list[i];
	}
	return NULL;
}

static int add_share(const struct quota_line *line, void *arg)
{
	struct tierplan_user *u;

	if (line->kind != WIRE_LIMIT_USER || strcmp(line->id, "*") == 0)
		return 0;
	u = find(arg, (uid_t)strtoul(line->id, NULL, 10));
	if (u)
		u->share = line->soft ? line->soft : line->hard;
	return 0;
}

static void fill(const struct account *a, struct users *u)
{
	uint64_t now_ns = loop_clock();

	for (; u->n < a->survey->n_users; u->n++) {
		const struct survey_user *from = &a->survey->users[u->n];

		u->list[u->n] = (struct tierplan_user){
			.uid = from->uid, .bytes = from->books.linked, .idle = true};
	}
	for (const struct member *m = a->members; m; m = m->next) {
		struct tierplan_user *owner = find(u, m->uid);

		if (owner && now_ns - m->active_ns < IDLE_NS)
			owner->idle = false;
	}
	quota_each(a->quota, add_share, u);
}

static struct tierplan_step *steps_of_all(const struct account *a, uint64_t low, uint64_t need,
					  size_t *ret_n)
{
	size_t n = a->survey ? a->survey->n_users : 0;
	struct tierplan_step *steps = calloc(2 * n + 1, sizeof(*steps));
	struct users u = {.list = calloc(n + 1, sizeof(*u.list))};

	*ret_n = 0;
	if (n && steps && u.list) {
		fill(a, &u);
		*ret_n = tierplan_steps(u.list, u.n, low, need, steps);
	}
	free(u.list);
	if (*ret_n)
		return steps;
	free(steps);
	return NULL;
}

struct tierplan_step *tierusers_steps(const struct account *a, uint64_t low, uint64_t need,
				      size_t *ret_n)
{
	struct tierplan_step *step;

	if (geteuid() == 0)
		return steps_of_all(a, low, need, ret_n);
	/* A daemon of one user: that user's objects are all that it may touch. */
	step = calloc(1, sizeof(*step));
	if (step)
		*step = (struct tierplan_step){.uid = geteuid(), .bytes = need};
	*ret_n = step != NULL;
	return step;
}
