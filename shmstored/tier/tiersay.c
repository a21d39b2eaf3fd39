/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiersay.c: sums are for everybody who may watch; a damaged file's name has its owner's uid in it,
 * and is said to administrators and to that user alone.
 */

#include <shmstore/inspect.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "conn.h"
#include "events.h"
#include "fields.h"
#include "host.h"
#include "jsonmake.h"
#include "loop.h"
#include "member.h"
#include "pagewords.h"
#include "quota.h"
#include "tierkeeper.h"
#include "tierwork.h"

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

/* The user in whose directory of the tier path lies: ".../<uid>/<id>".
 * (uid_t)-1: not to be told. */
static uid_t owner_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	unsigned uid;
	int end = 0;

	while (slash && slash > path && slash[-1] != '/')
		slash--;
	if (!slash || sscanf(slash, "%10u/%n", &uid, &end) != 1 || !end)
		return (uid_t)-1;
	return (uid_t)uid;
}

void tiersay_damage(struct account *a, const char *path, const char *what, int error)
{
	struct json_object *o = account_json(a);
	uid_t owner = owner_of(path ? path : "");

	jsonmake_text(o, "path", path && *path ? path : NULL);
	jsonmake_text(o, "what", *what ? what : shmstore_strerror(error));
	jsonmake_text(o, "error", shmstore_strerror(error));
	/* Nobody's event is everybody's: what is not known to be somebody's is root's. */
	jsonmake_u64(o, "uid", owner == (uid_t)-1 ? 0 : owner);
	events_emit(a->host->events, EVENT_TIER_DAMAGE, path && *path ? path : a->path, o);
}

static struct wire_packed *packed_of(const struct member *m)
{
	/* Without credit the page is mapped for reading alone. */
	return m->conn && m->credit
		       ? (struct wire_packed *)(void *)((char *)m->page + WIRE_PACKED_OFF)
		       : NULL;
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
		struct wire_packed *w = packed_of(m);
		uint64_t bytes = w ? atomic_load_explicit(&w->bytes, memory_order_relaxed) : 0;

		if (!bytes || need > used)
			continue;
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
