/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_actors.c: actors: where each is, what it does, what waits for it, and where there
 * are copies of it; the other daemons. Actors are shown to their users and to
 * administrators; the sums to all.
 */
#include <json-c/json.h>

#include "actors.h"
#include "config.h"
#include "host.h"
#include "jsonmake.h"
#include "peers.h"
#include "report_parts.h"

#define SHOWN 1024u

struct list {
	const struct report_view *v;
	struct json_object *list;
	size_t n, n_left_out;
};

static void optional(struct json_object *o, const char *name, const char *text)
{
	if (*text)
		jsonmake_text(o, name, text);
	else
		jsonmake_null(o, name);
}

/* As keys of the section peers, whoever said them. */
static void add_options(const struct config_copies *c, struct json_object *o)
{
	char stale[CKPT_STALE_MAX];

	ckpt_stale_write(&c->stale, stale);
	jsonmake_flag(o, "copies", c->on);
	jsonmake_text(o, "num", c->num.text);
	jsonmake_text(o, "selection", c->selection ? c->selection : "resource");
	jsonmake_text(o, "strategy", c->strategy == CKPT_ALL ? "all" : "round_robin");
	jsonmake_seconds(o, "frequency", (int64_t)c->frequency_ns);
	jsonmake_u64(o, "retry", c->retry);
	jsonmake_flag(o, "panic_on_missing", c->panic_on_missing);
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
	jsonmake_text(o, "name", l->name);
	jsonmake_u64(o, "uid", l->uid);
	optional(o, "parent", l->parent);
	jsonmake_text(o, "state", l->state);
	optional(o, "place", l->place);
	optional(o, "daemon", l->daemon);
	jsonmake_i64(o, "pid", l->pid);
	jsonmake_u64(o, "version", l->version);
	jsonmake_u64(o, "bytes", l->bytes);
	jsonmake_u64(o, "queued", l->n_queued);
	jsonmake_u64(o, "running", l->n_running);
	jsonmake_flag(o, "movable", l->movable);
	jsonmake_flag(o, "copied", l->copied);
	jsonmake_u64(o, "saved", l->saved);
	jsonmake_flag(o, "unsaved", l->unsaved);
	if (l->restarts == UINT32_MAX)
		jsonmake_null(o, "restarts_left");
	else
		jsonmake_u64(o, "restarts_left", l->restarts);
	add_options(l->options, jsonmake_child(o, "options", jsonmake_new()));
	copies = jsonmake_child(o, "copies", jsonmake_new_list());
	for (size_t i = 0; i < l->n_copies; i++) {
		struct json_object *c = jsonmake_append(copies, jsonmake_new());

		jsonmake_text(c, "daemon", l->copies[i].daemon);
		jsonmake_u64(c, "version", l->copies[i].version);
		jsonmake_u64(c, "bytes", l->copies[i].bytes);
	}
}

void report_actors(const struct report_view *v, struct host *h, struct json_object *o)
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
	jsonmake_u64(o, "places", b.n_places);
	jsonmake_u64(o, "calls", b.n_calls);
	jsonmake_u64(o, "answered", b.n_answered);
	jsonmake_u64(o, "lost", b.n_lost);
	jsonmake_u64(o, "died", b.n_died);
	jsonmake_u64(o, "restarts", b.n_restarts);
	jsonmake_u64(o, "moves", b.n_moves);
	jsonmake_u64(o, "failed", b.n_failed);
	jsonmake_u64(o, "total", b.n_actors);
	all.list = jsonmake_child(o, "actors", jsonmake_new_list());
	actors_each(h->actors, add_line, &all);
	jsonmake_u64(o, "left_out", all.n_left_out);
}
