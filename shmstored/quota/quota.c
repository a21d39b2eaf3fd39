/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.c: the calls of quota.h, put together of what quota_core.h lists.
 *
 * One thread. Of a page, the daemon's half is written here, but for asked_n and asked_bytes.
 */
#include "quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/param.h>

#include "quota_core.h"

/* ---- levels, and asking ---------------------------------------------------------------------- */

/*
 * Over soft until below low (so that it does not flutter), and where requests were refused or wait
 * at hard, the excess is shared out: pooled files first, of the largest pool first: they hold
 * nothing that anybody needs; then objects, of the largest store first, up to half of what it has.
 * A store that several limits cover is asked for the most that one of them wants of it. Nobody is
 * asked again for what it was asked and is still about to give.
 */

#define ASK_MOST 16 /* stores that one limit asks at a time, for pools and for objects */

/* The bytes of pools, or of objects, that s may be asked for. */
static uint64_t offer_of(const struct quota_store *s, bool objects)
{
	return objects ? s->share.linked / 2 : s->share.pool;
}

/* Asks for excess of them, of the largest first. Returns what is still missing. */
static uint64_t share_out(struct quota_group *g, uint64_t excess, bool objects)
{
	for (int i = 0; excess && i < ASK_MOST; i++) {
		struct quota_store *largest = NULL;
		uint64_t part;

		QUOTA_EACH(s, g) {
			if (!s->part[objects] && offer_of(s, objects) &&
			    (!largest || offer_of(s, objects) > offer_of(largest, objects)))
				largest = s;
		}
		if (!largest)
			break;
		part = MIN(offer_of(largest, objects), excess);
		largest->part[objects] = part;
		excess -= part;
	}
	return excess;
}

static void ask_for(struct quota_group *g, uint64_t excess)
{
	QUOTA_EACH(s, g)
		s->part[false] = s->part[true] = 0;
	excess = share_out(g, excess, false);
	share_out(g, excess, true);
	QUOTA_EACH(s, g)
		s->want = MAX(s->want, s->part[false] + s->part[true]);
}

static void look(struct quota *q, struct quota_group *g, bool tick)
{
	uint64_t used = g->soft ? quota_group_used(q, g) : 0, excess;
	int level = g->n_refused != g->n_refused_seen || g->n_holding ? 2 : 0;
	bool soft = g->soft && (used > g->soft || (g->asking && used > g->low));

	g->asking = soft;
	excess = level ? g->deficit : 0;
	if (!level && soft)
		level = 1;
	if (soft && used - g->low > excess)
		excess = used - g->low;
	if (excess)
		ask_for(g, excess);
	if (!tick)
		return;
	quota_group_level(q, g, level);
	g->n_refused_seen = g->n_refused;
	g->deficit = 0;
}

/* Is it worth a word that s is to give want now, and not what it was asked for, less what it
 * gave? */
static bool news(const struct quota_store *s)
{
	uint64_t given =
		atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed) - s->given_seen;
	uint64_t left = given < s->asked ? s->asked - given : 0;

	if (!s->want || !left)
		return s->want != s->asked;
	return s->want > left + left / 8 || s->want < left - left / 8;
}

/* Asks, by what is used and missing now; at a tick levels too, and what
 * was missing is forgotten. */
static void quota_ask_walk(struct quota *q, bool tick)
{
	struct quota_group *g, *next;

	QUOTA_EACH(s, q->partition) {
		s->want = 0;
		q->ops.share(q->ops.arg, s, &s->share);
	}
	HASH_ITER(hh, q->groups, g, next)
	{
		look(q, g, tick);
		quota_group_drop(q, g);
	}
	QUOTA_EACH(s, q->partition) {
		if (!s->credit || s->liar || !news(s))
			continue;
		s->asked = s->want;
		s->given_seen = atomic_load_explicit(&s->credit->given_bytes, memory_order_relaxed);
		s->ask = true;
		q->tell_stores = true;
	}
}

/* ---- telling --------------------------------------------------------------------------------- */

const char *quota_kind_name(enum wire_limit kind)
{
	static const char *const names[] = {"none", "partition", "user", "label", "store"};

	return names[kind];
}

static bool tell_wait(struct quota *q)
{
	struct quota_wait *w = q->done, ended;

	if (!w)
		return false;
	ended = *w;
	quota_queue_forget(q, w);
	q->ops.answer(q->ops.arg, ended.store, ended.want.serial, ended.error, &ended.answer);
	return true;
}

static bool tell_level(struct quota *q)
{
	if (!q->tell_levels)
		return false;
	for (struct quota_group *g = q->groups; g; g = g->hh.next) {
		struct quota_line line;

		if (g->level == g->level_told)
			continue;
		g->level_told = g->level;
		quota_group_line(q, g, &line);
		q->ops.level(q->ops.arg, &line);
		return true; /* the callback may have changed the list */
	}
	q->tell_levels = false;
	return false;
}

static bool tell_store(struct quota *q)
{
	if (!q->tell_stores)
		return false;
	QUOTA_EACH(s, q->partition) {
		if (s->liar && !s->liar_told) {
			s->liar_told = true;
			q->ops.liar(q->ops.arg, s, s->lie);
			return true;
		}
		if (s->ask) {
			s->ask = false;
			q->ops.ask(q->ops.arg, s, s->asked);
			return true;
		}
	}
	q->tell_stores = false;
	return false;
}

void quota_tell(struct quota *q)
{
	if (q->telling)
		return;
	q->telling = true;
	while (tell_wait(q) || tell_level(q) || tell_store(q))
		continue;
	q->telling = false;
}

/* ---- requests -------------------------------------------------------------------------------- */

int quota_new(const struct quota_config *config, const struct quota_ops *ops, struct quota **ret)
{
	struct quota *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->config = *config;
	q->ops = *ops;
	q->partition = quota_group_get(q, WIRE_LIMIT_PARTITION, "");
	if (!q->partition) {
		free(q);
		return -ENOMEM;
	}
	if (config->puts)
		quota_put_init(q);
	*ret = q;
	return 0;
}

struct quota *quota_free(struct quota *q)
{
	struct quota_group *g, *next;

	if (!q)
		return NULL;
	while (q->partition->stores) {
		struct quota_store *s = q->partition->stores;

		quota_cancel_all(q, s);
		QUOTA_EACH_OF(g_of, s)
			quota_group_leave(g_of, s);
		free(s);
	}
	HASH_ITER(hh, q->groups, g, next)
	{
		HASH_DEL(q->groups, g);
		free(g);
	}
	free(q);
	return NULL;
}

static bool limit_valid(uint64_t bytes)
{
	return bytes == QUOTA_DEFAULT || bytes <= QUOTA_MAX;
}

int quota_limit(struct quota *q, enum wire_limit kind, const char *id, const struct quota_limits *l,
		uint64_t now_ns)
{
	struct quota_group *g;
	bool all = kind != WIRE_LIMIT_PARTITION && id[0] == '*' && !id[1];

	if (kind < WIRE_LIMIT_PARTITION || kind > WIRE_LIMIT_STORE ||
	    (kind == WIRE_LIMIT_PARTITION) != !*id)
		return -EINVAL;
	if (!limit_valid(l->hard) || !limit_valid(l->soft) || l->low > l->soft ||
	    (l->hard && l->hard != QUOTA_DEFAULT && l->soft != QUOTA_DEFAULT && l->soft > l->hard))
		return -EINVAL;
	if (all) {
		struct quota_limits *d = &q->defaults[kind];

		*d = *l;
		d->hard = l->hard == QUOTA_DEFAULT ? 0 : l->hard;
		d->soft = l->soft == QUOTA_DEFAULT ? 0 : l->soft;
		for (g = q->groups; g; g = g->hh.next)
			if (g->kind == kind)
				quota_group_limit(q, g, now_ns);
	} else {
		g = quota_group_get(q, kind, id);
		if (!g)
			return strlen(id) > QUOTA_ID_MAX ? -EINVAL : -ENOMEM;
		g->own = *l;
		quota_group_limit(q, g, now_ns);
		quota_group_drop(q, g);
	}
	quota_queue_walk(q, now_ns);
	quota_tell(q);
	return 0;
}

int quota_limit_get(struct quota *q, enum wire_limit kind, const char *id, struct quota_limits *ret)
{
	const struct quota_group *g;
	const struct quota_limits *d;

	if (kind < WIRE_LIMIT_PARTITION || kind > WIRE_LIMIT_STORE)
		return -ENOENT;
	if (kind != WIRE_LIMIT_PARTITION && id[0] == '*' && !id[1]) {
		d = &q->defaults[kind];
		if (!d->hard && !d->soft)
			return -ENOENT;
		*ret = *d;
		return 0;
	}
	g = quota_group_find(q, kind, id);
	if (!g || (g->own.hard == QUOTA_DEFAULT && g->own.soft == QUOTA_DEFAULT))
		return -ENOENT;
	*ret = g->own;
	return 0;
}

int quota_add(struct quota *q, uid_t uid, const char *label, const char *name, void *user,
	      uint64_t now_ns, struct quota_store **ret)
{
	struct quota_store *s = calloc(1, sizeof(*s));
	struct quota_group *groups[QUOTA_KINDS] = {NULL};
	char id[16];

	if (!s)
		return -ENOMEM;
	snprintf(id, sizeof(id), "%u", uid);
	groups[WIRE_LIMIT_PARTITION] = q->partition;
	groups[WIRE_LIMIT_USER] = quota_group_get(q, WIRE_LIMIT_USER, id);
	groups[WIRE_LIMIT_LABEL] = *label ? quota_group_get(q, WIRE_LIMIT_LABEL, label) : NULL;
	groups[WIRE_LIMIT_STORE] = quota_group_get(q, WIRE_LIMIT_STORE, name);
	if (!groups[WIRE_LIMIT_USER] || !groups[WIRE_LIMIT_STORE] ||
	    (*label && !groups[WIRE_LIMIT_LABEL])) {
		/* The empty ones go at the next look at all groups. */
		free(s);
		return -ENOMEM;
	}
	s->user = user;
	s->active_ns = now_ns;
	s->credit = q->ops.credit(q->ops.arg, s);
	for (int kind = WIRE_LIMIT_PARTITION; kind < QUOTA_KINDS; kind++) {
		if (groups[kind])
			quota_group_enter(groups[kind], s);
	}
	quota_credit_inherit(q, s);
	*ret = s;
	quota_tell(q);
	return 0;
}

void *quota_user(const struct quota_store *s)
{
	return s->user;
}

uint64_t quota_outstanding(const struct quota_store *s)
{
	return s->out;
}

void quota_forget(struct quota *q, struct quota_store *s)
{
	quota_cancel_all(q, s);
	if (q->victim == s)
		q->victim = NULL;
	QUOTA_EACH_OF(g, s) {
		quota_group_leave(g, s);
		quota_group_drop(q, g);
	}
	free(s);
}

void quota_remove(struct quota *q, struct quota_store *s, uint64_t now_ns)
{
	quota_credit_read(q, s);
	quota_base_leave(q, s);
	/* After base: a look in between counts the bytes twice, not never. */
	if (s->credit)
		atomic_fetch_or_explicit(&s->credit->flags, WIRE_CREDIT_GONE, memory_order_release);
	quota_forget(q, s);
	quota_queue_walk(q, now_ns);
	quota_tell(q);
}

static int refuse(struct quota *q, struct quota_store *s, uint32_t held, uint64_t lack, bool counts,
		  struct quota_answer *ret)
{
	quota_queue_note(q, s, held, lack, counts);
	return quota_queue_name(q, s, held, ret);
}

int quota_try(struct quota *q, struct quota_store *s, const struct quota_want *want,
	      struct quota_answer *ret)
{
	uint64_t lack;
	uint32_t held;
	int r;

	*ret = (struct quota_answer){0};
	quota_credit_read(q, s);
	if (!s->credit || s->liar)
		return -EPERM;
	quota_credit_active(s, true, q->now_ns);
	/* Waiting requests may have room by now. */
	if (quota_queue_held(s))
		quota_queue_walk(q, q->now_ns);
	lack = quota_credit_lack(s, want->need);
	held = lack ? quota_queue_never(s, want->need) : 0;
	if (held)
		return refuse(q, s, held, lack, true, ret);
	held = quota_queue_grant(q, s, want, quota_queue_held(s), ret);
	if (!held)
		return 0;
	if (!want->wait && !want->look)
		return refuse(q, s, held, lack, !want->probe, ret);
	r = quota_queue_add(q, s, want, held);
	if (r < 0)
		return r;
	quota_queue_note(q, s, held, lack, false);
	quota_ask_walk(q, false);
	return 1;
}

int quota_request(struct quota *q, struct quota_store *s, const struct quota_want *want,
		  uint64_t now_ns, struct quota_answer *ret)
{
	int r;

	if (!want->serial || !want->need || want->need > WIRE_GRANT_MAX ||
	    quota_queue_find(s, want->serial))
		return -EINVAL;
	q->now_ns = now_ns;
	r = q->config.puts && !want->look ? quota_put_request(q, s, want, ret)
					  : quota_try(q, s, want, ret);
	quota_tell(q);
	return r;
}

int quota_cancel(struct quota *q, struct quota_store *s, uint64_t serial)
{
	struct quota_wait *w = quota_queue_find(s, serial);

	if (!w)
		return -ENOENT;
	quota_queue_end(q, w, -ECANCELED, 0);
	quota_tell(q);
	return 0;
}

void quota_cancel_all(struct quota *q, struct quota_store *s)
{
	while (s->waits)
		quota_queue_forget(q, s->waits);
}

void quota_serve(struct quota *q, uint64_t now_ns)
{
	if (q->queue)
		quota_queue_walk(q, now_ns);
	q->now_ns = now_ns;
	quota_put_pass(q);
	quota_tell(q);
}

void quota_looked(struct quota *q, uint64_t now_ns)
{
	for (struct quota_wait *w = q->queue; w; w = w->next)
		if (w->want.look)
			w->want.deadline_ns = now_ns;
	quota_serve(q, now_ns);
}

uint64_t quota_deadline(const struct quota *q)
{
	uint64_t first = UINT64_MAX;

	for (const struct quota_wait *w = q->queue; w; w = w->next)
		if (w->want.deadline_ns < first)
			first = w->want.deadline_ns;
	for (const struct createqueue_request *r = q->puts.waiting; r; r = r->next)
		if (r->deadline < first)
			first = r->deadline;
	return first;
}

const struct createqueue *quota_puts(const struct quota *q)
{
	return q->config.puts ? &q->puts : NULL;
}

void quota_tick(struct quota *q, uint64_t now_ns)
{
	quota_credit_read_all(q, q->partition);
	QUOTA_EACH(s, q->partition) {
		if (s->charged != s->charged_seen)
			quota_credit_active(s, true, now_ns);
		else if (now_ns - s->active_ns >= q->config.idle_ns) {
			quota_credit_active(s, false, now_ns);
			quota_credit_take(s, UINT64_MAX);
		}
		s->charged_seen = s->charged;
	}
	for (struct quota_group *g = q->groups; g; g = g->hh.next)
		quota_queue_restore(q, g);
	quota_queue_walk(q, now_ns);
	quota_ask_walk(q, true);
	quota_tell(q);
}

int quota_each(struct quota *q, int (*fn)(const struct quota_line *line, void *arg), void *arg)
{
	quota_credit_read_all(q, q->partition);
	for (struct quota_group *g = q->groups; g; g = g->hh.next) {
		struct quota_line line;
		int r;

		if (g->kind == WIRE_LIMIT_STORE && !g->hard && !g->soft)
			continue;
		quota_group_line(q, g, &line);
		r = fn(&line, arg);
		if (r)
			return r;
	}
	for (enum wire_limit kind = WIRE_LIMIT_USER; kind <= WIRE_LIMIT_STORE; kind++) {
		const struct quota_limits *l = &q->defaults[kind];
		struct quota_line line = {
			.kind = kind, .id = "*", .hard = l->hard, .soft = l->soft};
		int r = l->hard || l->soft ? fn(&line, arg) : 0;

		if (r)
			return r;
	}
	return 0;
}
