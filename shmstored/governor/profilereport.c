/* SPDX-License-Identifier: Apache-2.0 */
/* profilereport.c: the profiles and the tasks that run, as a document. */
#include <json-c/json.h>

#include "client.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "jsonmake.h"
#include "profiletasks.h"

static const char *const resources[PROFILE_RESOURCES] = {"private", "shared", "cpu_ms"};

static void add_name(struct json_object *o, const struct profile_name *name)
{
	fields_of(o, name, SAME(lang), SAME(func), SAME(group));
}

/* Lists the steps that are not empty: where each begins, and how many tasks were there. */
static void add_histogram(struct json_object *o, const struct profile_key *k,
			  enum profile_resource r)
{
	const uint32_t *buckets = profile_histogram(k, r);
	struct json_object *list = jsonmake_child(o, "histogram", jsonmake_new_list());

	for (unsigned i = 0; i < PROFILE_BUCKETS; i++) {
		struct json_object *pair;

		if (!buckets[i])
			continue;
		pair = jsonmake_append(list, jsonmake_new_list());
		jsonmake_append_u64(pair, profile_bucket_from(r, i));
		jsonmake_append_u64(pair, buckets[i]);
	}
}

static void add_kind(const struct host *h, struct json_object *list, uint32_t uid,
		     const struct profile_key *k)
{
	static const uint64_t nothing[PROFILE_RESOURCES];
	struct json_object *o = jsonmake_append(list, jsonmake_new()), *phases;
	struct profile_name name = profile_name_of(k);
	struct profiles_estimate e = profiles_estimate(h->profiles, uid, &name, nothing);
	uint64_t life_ms = 0, peaks[PROFILE_PHASES];
	unsigned n;

	add_name(o, &name);
	for (int i = 0; i < PROFILE_RESOURCES; i++) {
		struct profile_stat s = profile_stat(k, (enum profile_resource)i);
		struct json_object *r = jsonmake_child(o, resources[i], jsonmake_new());

		fields_of(r, &s, SAME(n), SAME(peak), SAME(average), SAME(p95));
		jsonmake_u64(r, "estimate", e.used[i]);
		add_histogram(r, k, (enum profile_resource)i);
	}
	jsonmake_text(o, "strategy", profile_strategy_name(e.strategy));
	jsonmake_flag(o, "preempted", profile_was_preempted(k));
	n = profile_phases(k, &life_ms, peaks);
	jsonmake_u64(o, "life_ms", life_ms);
	phases = jsonmake_child(o, "phases", jsonmake_new_list());
	for (unsigned i = 0; i < n; i++)
		jsonmake_append_u64(phases, peaks[i]);
}

static void add_user(const struct host *h, struct json_object *list, uint32_t uid)
{
	const struct profile *p = profiles_known(h->profiles, uid);
	struct json_object *o = jsonmake_append(list, jsonmake_new()), *kinds;

	jsonmake_u64(o, "uid", uid);
	kinds = jsonmake_child(o, "kinds", jsonmake_new_list());
	for (const struct profile_key *k = p ? profile_next(p, NULL) : NULL; k;
	     k = profile_next(p, k))
		add_kind(h, kinds, uid, k);
}

static void add_running(struct json_object *list, const struct client *c, const struct profiled *k)
{
	struct json_object *o = jsonmake_append(list, jsonmake_new());

	fields_of(o, &c->conn->peer, SAME(uid), SAME(pid));
	jsonmake_u64(o, "task", k->id);
	add_name(o, &k->name);
	jsonmake_u64(o, "age_ms", profiled_age_ms(k));
	fields_of(o, &k->track, FIELD(now, "private"), FIELD(peak, "private_peak"));
}

struct json_object *profilereport_make(const struct host *h, bool all, uint32_t uid)
{
	struct json_object *o, *users, *running;

	jsonmake_begin();
	o = jsonmake_new();
	jsonmake_text(o, "strategy", profile_strategy_name(profiles_strategy(h->profiles)));
	jsonmake_flag(o, "adaptive", h->config->profile.strategy.adaptive);
	jsonmake_u64(o, "default_estimate", h->config->profile.fallback);
	users = jsonmake_child(o, "users", jsonmake_new_list());
	if (!all)
		add_user(h, users, uid);
	for (uint32_t u = 0; all && (u = profiles_next(h->profiles, u)) != UINT32_MAX; u++)
		add_user(h, users, u);
	running = jsonmake_child(o, "running", jsonmake_new_list());
	for (const struct client *c = h->clients; c; c = c->next)
		for (const struct profiled *k = all || c->conn->peer.uid == uid ? c->profiled
										: NULL;
		     k; k = k->hh.next)
			add_running(running, c, k);
	return jsonmake_end(o);
}
