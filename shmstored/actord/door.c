/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c: what shmstore-actord has and shmstored has not, put together: other daemons, the profiles
 * that they exchange, and actors: a user's, by requests of that user's processes alone (actors.h).
 * Actors are shown to their users and to administrators; the sums to all.
 */
#include "door.h"

#include <errno.h>
#include <string.h>

#include "actors.def"
#include "actors.h"
#include "config.h"
#include "conn.h"
#include "fields.h"
#include "host.h"
#include "peers.h"
#include "policy.h"
#include "report.h"

/* ---- requests -------------------------------------------------------------------------------- */

struct names {
	/* second: "" where there is none */
	char first[WIRE_ACTOR_NAME + 1], second[WIRE_ACTOR_NAME + 1];
	const char *more; /* a third line; NULL: there is none */
};

/* "first", "first\nsecond"; with a third line the second one may be empty. */
static bool cut_names(const char *text, struct names *ret)
{
	const char *end = strchrnul(text, '\n'), *second = *end ? end + 1 : end,
		   *last = strchrnul(second, '\n');
	size_t n = (size_t)(end - text), m = (size_t)(last - second);

	if (n > WIRE_ACTOR_NAME || m > WIRE_ACTOR_NAME)
		return false;
	memcpy(ret->first, text, n);
	ret->first[n] = '\0';
	memcpy(ret->second, second, m);
	ret->second[m] = '\0';
	ret->more = *last ? last + 1 : NULL;
	return actors_is_name(ret->first) &&
	       (!*end || (ret->more && !m) || actors_is_name(ret->second));
}

/* The first n bytes of a tail are a name. */
static bool take_name(const char *tail, size_t tail_size, uint32_t n, char ret[WIRE_ACTOR_NAME + 1])
{
	if (n > tail_size || n > WIRE_ACTOR_NAME || memchr(tail, '\0', n))
		return false;
	memcpy(ret, tail, n);
	ret[n] = '\0';
	return actors_is_name(ret);
}
static const struct conn_why why_not[] = {
	{-EEXIST, "the user has another of that name"},
	{-ENOENT, "no such actor, or it is not here: the user has none of that name, or it is just "
		  "being found again after a start of the daemon"},
	{-EBUSY, "the actor is being moved, or this connection is a place of another name, or asks "
		 "for an order already"},
	{-EINVAL,
	 "the actor has a level, and cannot both save and load its state, so that it cannot "
	 "be preempted"},
	{-EPERM, "the actor must not be moved: its level is never, or it cannot both save and load "
		 "its state"},
	{-ESTALE, "nobody asked for that, or not any more; or no such place is there, or the actor "
		  "is there already"},
	{-EMFILE,
	 "too many actors of this place, children of children, or calls that wait: 1024 of "
	 "each, and 16"},
	{0, NULL}};

/* Answers DONE, or the error. late: the answer comes by itself. */
static int answer_why(struct conn *c, uint64_t serial, int error, bool late, const char *why)
{
	if (error < 0)
		return conn_refuse(c, serial, error, "%s", why);
	return late ? CONN_OK : conn_send_done(c, serial);
}

static int answer(struct conn *c, uint64_t serial, int error, bool late)
{
	return answer_why(c, serial, error, late, conn_why(why_not, error));
}

static int wrong_name(struct conn *c, uint64_t serial)
{
	return conn_refuse(c, serial, -EINVAL,
			   "a name of an actor or of a place has 1 to %u printable bytes, no "
			   "blank, no slash, and no dot in front",
			   WIRE_ACTOR_NAME);
}

static int place(struct conn *c, uint64_t serial, const struct wire_actor_place *body,
		 const char *tail)
{
	struct actors *a = c->host->actors;
	int r;

	if (!(body->flags & WIRE_ACTOR_LEAVES) && !actors_is_name(tail))
		return wrong_name(c, serial);
	r = body->flags & WIRE_ACTOR_LEAVES ? actors_leave(c)
					    : actors_place(a, c, tail, body->free);
	return answer(c, serial, r, false);
}

static int born(struct conn *c, uint64_t serial, const struct wire_actor_born *body,
		const char *tail)
{
	char why[CONFIG_WHY] = "";
	struct names names;
	int r;

	if (body->flags & ~ACTORS_FLAGS || body->level > POLICYLEVEL_ALWAYS)
		return conn_fault(c, "ACTOR_BORN: no such level, or unknown flags");
	if (!cut_names(tail, &names))
		return wrong_name(c, serial);
	r = actors_born(c->host->actors, c,
			&(struct actors_birth){body, names.first, names.second,
					       names.more ? names.more : ""},
			why);
	return answer_why(c, serial, r, false, *why ? why : conn_why(why_not, r));
}

static int done(struct conn *c, uint64_t serial, const struct wire_actor_done *body,
		const char *tail, size_t tail_size)
{
	char name[WIRE_ACTOR_NAME + 1];

	if (body->how < WIRE_ACTOR_OK || body->how >= WIRE_ACTOR_HOW_END ||
	    body->how == WIRE_ACTOR_LOST)
		return conn_fault(c, "ACTOR_DONE: no such outcome");
	if (!take_name(tail, tail_size, body->name, name))
		return wrong_name(c, serial);
	return answer(c, serial,
		      actors_done(c->host->actors, c, body, name, tail + body->name,
				  tail_size - body->name),
		      false);
}

static int call(struct conn *c, uint64_t serial, const struct wire_actor_call *body,
		const char *tail, size_t tail_size)
{
	char name[WIRE_ACTOR_NAME + 1];

	if (!take_name(tail, tail_size, body->name, name))
		return wrong_name(c, serial);
	return answer(c, serial,
		      actors_call(c->host->actors, c, serial, name, tail + body->name,
				  tail_size - body->name),
		      true);
}

static int move(struct conn *c, uint64_t serial, const char *tail)
{
	struct names names;

	if (!cut_names(tail, &names) || names.more)
		return wrong_name(c, serial);
	return answer(c, serial, actors_move(c->host->actors, c, serial, names.first, names.second),
		      true);
}

static int request(struct conn *c, uint16_t type, uint64_t serial, const void *body,
		   const char *tail, size_t tail_size)
{
	switch (type) {
	case WIRE_ACTOR_PLACE:
		return place(c, serial, body, tail);
	case WIRE_ACTOR_BORN:
		return born(c, serial, body, tail);
	case WIRE_ACTOR_NEXT:
		return answer(c, serial, actors_next(c, serial), true);
	case WIRE_ACTOR_DONE:
		return done(c, serial, body, tail, tail_size);
	case WIRE_ACTOR_CALL:
		return call(c, serial, body, tail, tail_size);
	case WIRE_ACTOR_MOVE:
	default:
		return move(c, serial, tail);
	}
}

/* ---- reports --------------------------------------------------------------------------------- */

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

static void report(const struct report_view *v, struct host *h, struct json_object *o)
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

static void metrics(struct metric_out *o, const struct host *h)
{
	struct actors_books b;

	actors_books(h->actors, &b);
	metric_one(o, of_actors, &b);
}

/* ---- the door -------------------------------------------------------------------------------- */

static int open_all(struct host *h)
{
	int r = peers_new(h, &h->peers);

	if (r == 0)
		r = profilepeers_new(h, &h->profilepeers);
	if (r < 0)
		return r;
	h->actors = actors_new(h);
	return h->actors ? 0 : -ENOMEM;
}

static void close_all(struct host *h)
{
	h->peers = peers_free(h->peers);
	h->profilepeers = profilepeers_free(h->profilepeers);
	h->actors = actors_free(h->actors);
}

const struct actord actord_whole = {.program = "shmstore-actord",
				    .has_peers = true,
				    .open = open_all,
				    .close = close_all,
				    .leaving = actors_leaving,
				    .evacuate = actors_evacuate,
				    .place_next = actors_place_next,
				    .stuck = actors_stuck,
				    .profiled = profilepeers_changed,
				    .request = request,
				    .cancel = actors_cancel,
				    .report = report,
				    .metrics = metrics};
