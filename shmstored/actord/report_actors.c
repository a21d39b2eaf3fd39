/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_actors.c: actors: where each is, what it does, what waits for it, and where there
 * are copies of it; the other daemons. Actors are shown to their users and to
 * administrators; the sums to all.
 */

#include "actors.def"
#include "actorspeers.h"
#include "config.h"
#include "door.h"
#include "host.h"
#include "jsonmake.h"
#include "metricswrite.h"
#include "peers.h"
#include "report_parts.h"

#define SHOWN        1024u
#define COPIES_SHOWN 16u /* of one actor */

struct list {
	const struct report_view *v;
	struct json_object *list;
	size_t n, n_left_out;
};

/* A text; null where it is empty. */
static void optional(struct json_object *o, const char *name, const char *text)
{
	jsonmake_text(o, name, *text ? text : NULL);
}

/* As keys of the section peers, whoever said them. */
static void add_options(const struct config_copies *c, struct json_object *o)
{
	char stale[CKPT_STALE_MAX];

	ckpt_stale_write(&c->stale, stale);
	fields_of(o, c, FIELD(on, "copies"), FIELD(num.text, "num"), PLACE("selection"),
		  PLACE("strategy"), FIELD_AS(FIELD_NS, frequency_ns, "frequency"), SAME(retry),
		  SAME(panic_on_missing));
	jsonmake_text(o, "selection", c->selection ? c->selection : "resource");
	jsonmake_text(o, "strategy", c->strategy == CKPT_ALL ? "all" : "round_robin");
	jsonmake_text(o, "preempt_from_stale", stale);
}

/* "active", a step of a move, "elsewhere", "recovering", "copy" (kept here for another daemon). */
static const char *state_of(const struct actors_one *k)
{
	static const char *const states[] = {
		[ACTOR_ACTIVE] = "active",          [ACTOR_SUSPENDING] = "suspending",
		[ACTOR_STOPPING] = "stopping",      [ACTOR_SERIALIZING] = "saving",
		[ACTOR_PLACING] = "waits for room", [ACTOR_TRANSFERRING] = "moving",
		[ACTOR_DESERIALIZING] = "loading",  [ACTOR_FORWARDING] = "forwarding",
		[ACTOR_LOCATING] = "locating",      [ACTOR_KILLED] = "ended",
	};

	if (k->core)
		return states[k->core->state];
	if (k->claims)
		return "settling";
	if (k->recovering || (k->kept && k->kept->loading))
		return "recovering";
	return *k->far ? "elsewhere" : "copy";
}

static uint64_t n_held(const struct actors_one *k)
{
	uint64_t n = 0;

	for (const struct actors_call *l = k->held; l; l = l->next_held)
		n++;
	return n;
}

static void add_actor(struct list *all, const struct actors_one *k)
{
	const struct actors_guest *g = k->core ? k->at : k->kept ? k->kept->place : NULL;
	const struct actors_advert *v = k->adverts;
	struct json_object *o, *copies;

	if (!report_may_see(all->v, k->key.uid))
		return;
	if (all->n == SHOWN) {
		all->n_left_out++;
		return;
	}
	all->n++;
	o = jsonmake_append(all->list, jsonmake_new());
	jsonmake_text(o, "name", k->key.name);
	jsonmake_u64(o, "uid", k->key.uid);
	optional(o, "parent", k->parent);
	jsonmake_text(o, "state", state_of(k));
	optional(o, "place", g ? g->place : "");
	optional(o, "daemon", k->far);
	jsonmake_i64(o, "pid", g ? g->conn->peer.pid : 0);
	jsonmake_u64(o, "version",
		     k->core   ? k->version
		     : k->kept ? k->kept->version
			       : k->far_version);
	jsonmake_u64(o, "bytes", k->kept ? k->kept->bytes : 0);
	jsonmake_u64(o, "queued", k->core ? (k->core->n_requests - k->core->n_running) : n_held(k));
	jsonmake_u64(o, "running", k->core ? k->core->n_running : 0);
	jsonmake_flag(o, "movable",
		      k->core && k->said.level > ACTOR_NEVER &&
			      (k->said.flags & WIRE_ACTOR_CAN_SAVE) &&
			      (k->said.flags & WIRE_ACTOR_CAN_LOAD));
	jsonmake_flag(o, "copied", k->copy && actors_copied(k));
	jsonmake_u64(o, "saved", k->copy ? k->copy->meta.version : 0);
	jsonmake_flag(o, "unsaved", k->copy && (k->copy->dirty || k->copy->fd >= 0));
	jsonmake_null(o, "restarts_left");
	if (k->restarts != UINT32_MAX)
		jsonmake_u64(o, "restarts_left", k->restarts);
	add_options(actors_options(k), jsonmake_child(o, "options", jsonmake_new()));
	copies = jsonmake_child(o, "copies", jsonmake_new_list());
	for (unsigned n = 0; v && n < COPIES_SHOWN; v = v->next, n++)
		fields_of(jsonmake_append(copies, jsonmake_new()), v, FIELD(peer, "daemon"),
			  SAME(version), SAME(bytes));
}

void actord_report(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct list all = {.v = v};
	struct actors_books b;
	struct json_object *peers;

	actors_books(h->actors, &b);
	jsonmake_flag(o, "copies", h->peers && h->config->peers.copies.on);
	optional(o, "daemon", peers_own_name(h->peers));
	peers = jsonmake_child(o, "peers", jsonmake_new_list());
	for (const struct peer *p = peers_next(h->peers, NULL); p; p = peers_next(h->peers, p))
		jsonmake_text(jsonmake_append(peers, jsonmake_new()), "name", peer_name(p));
	fields_add(o, of_actors, &b);
	jsonmake_u64(o, "total", b.n_actors);
	all.list = jsonmake_child(o, "actors", jsonmake_new_list());
	for (const struct actors_one *k = h->actors->all; k; k = k->hh.next)
		add_actor(&all, k);
	jsonmake_u64(o, "left_out", all.n_left_out);
}

void actord_metrics(struct metric_out *o, const struct host *h)
{
	struct actors_books b;

	actors_books(h->actors, &b);
	metric_one(o, of_actors, &b);
}
