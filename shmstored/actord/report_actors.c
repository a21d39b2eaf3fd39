/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_actors.c: actors: where each is, what it does, what waits for it, and where there
 * are copies of it; the other daemons. Actors are shown to their users and to
 * administrators; the sums to all.
 */

#include "actors.def"
#include "config.h"
#include "door.h"
#include "host.h"
#include "jsonmake.h"
#include "metricswrite.h"
#include "peers.h"
#include "report_parts.h"

#define SHOWN 1024u

struct list {
	const struct report_view *v;
	struct json_object *list;
	size_t n, n_left_out;
};

/* A text in its place, which stays null where it is empty. */
static void optional(struct json_object *o, const char *name, const char *text)
{
	if (*text)
		jsonmake_text(o, name, text);
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

static void add_line(const struct actors_line *l, void *arg)
{
	struct list *all = arg;
	struct json_object *o, *copies;

	if (!report_may_see(all->v, l->uid))
		return;
	if (all->n == SHOWN) {
		all->n_left_out++;
		return;
	}
	all->n++;
	o = jsonmake_append(all->list, jsonmake_new());
	fields_of(o, l, SAME(name), SAME(uid), PLACE("parent"), SAME(state), PLACE("place"),
		  PLACE("daemon"), SAME(pid), SAME(version), SAME(bytes), NUMBER(queued),
		  NUMBER(running), SAME(movable), SAME(copied), SAME(saved), SAME(unsaved),
		  PLACE("restarts_left"));
	optional(o, "parent", l->parent);
	optional(o, "place", l->place);
	optional(o, "daemon", l->daemon);
	if (l->restarts != UINT32_MAX)
		jsonmake_u64(o, "restarts_left", l->restarts);
	add_options(l->options, jsonmake_child(o, "options", jsonmake_new()));
	copies = jsonmake_child(o, "copies", jsonmake_new_list());
	for (size_t i = 0; i < l->n_copies; i++)
		fields_of(jsonmake_append(copies, jsonmake_new()), &l->copies[i], SAME(daemon),
			  SAME(version), SAME(bytes));
}

void actord_report(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct list all = {.v = v};
	struct actors_books b;
	struct json_object *peers;

	actors_books(h->actors, &b);
	jsonmake_flag(o, "copies", h->peers && h->config->peers.copies.on);
	jsonmake_null(o, "daemon");
	optional(o, "daemon", peers_own_name(h->peers));
	peers = jsonmake_child(o, "peers", jsonmake_new_list());
	for (const struct peer *p = peers_next(h->peers, NULL); p; p = peers_next(h->peers, p))
		jsonmake_text(jsonmake_append(peers, jsonmake_new()), "name", peer_name(p));
	fields_add(o, of_actors, &b);
	jsonmake_u64(o, "total", b.n_actors);
	all.list = jsonmake_child(o, "actors", jsonmake_new_list());
	actors_each(h->actors, add_line, &all);
	jsonmake_u64(o, "left_out", all.n_left_out);
}

void actord_metrics(struct metric_out *o, const struct host *h)
{
	struct actors_books b;

	actors_books(h->actors, &b);
	metric_one(o, of_actors, &b);
}
