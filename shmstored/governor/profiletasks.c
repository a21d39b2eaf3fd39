/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletasks.c: see profiles.h. The statm of a client's process stays open from its first
 * task until its connection ends: a look is one system call, and a look at a dead process finds
 * nothing, even if another process has its number. The timer runs while tasks do.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "fields.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "pressure.h"
#include "profiles.h"

/* ---- looking at a process ---- */

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * The process's anonymous pages (its resident ones, less those of files and of shared memory), and
 * bytes in the store that are no object yet: arrays born there, and objects being written. False:
 * they are not known.
 */
static bool look(const struct client *g, uint64_t *ret)
{
	struct member *m = g->conn->member;
	uint64_t size, resident, shared;
	char text[128];
	ssize_t n;

	if (g->statm_fd < 0)
		return false;
	n = pread(g->statm_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &size, &resident, &shared) != 3 ||
	    !size)
		return false;
	*ret = resident > shared ? (resident - shared) * page_size() : 0;
	if (m) {
		member_refresh(m);
		*ret += m->last.reserved_bytes;
	}
	return true;
}

static uint64_t profiled_age_ms(const struct profiled *k)
{
	return (loop_clock() - k->began_ns) / 1000000;
}

static void note(struct profiled *k, bool seen, uint64_t now)
{
	uint64_t grown = k->seen && seen && now > k->base ? now - k->base : 0;

	if ((k->seen && seen) || k->has_told)
		profiletrack_note(&k->track, profiled_age_ms(k), grown > k->told ? grown : k->told);
}

void profiletasks_look(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct profiles *p = CONTAINER_OF(op, profiles, looks);
	bool any = false;

	for (struct client *g = p->host->clients; g; g = g->next) {
		uint64_t now = 0;
		bool seen = g->profiled && look(g, &now);

		for (struct profiled *k = g->profiled; k; k = k->hh.next)
			note(k, seen, now);
		any |= g->profiled != NULL;
	}
	if (any && result >= 0)
		loop_timer(p->host->loop, op, loop_clock() + p->host->config->profile.interval_ns,
			   0);
}

/* ---- tasks ---- */

static void task_free(struct client *g, struct profiled *k)
{
	HASH_DEL(g->profiled, k);
	free(k->names);
	free(k);
}

static void left(struct client *g)
{
	struct profiled *k, *next;

	HASH_ITER(hh, g->profiled, k, next)
	task_free(g, k);
	if (g->statm_fd >= 0)
		close(g->statm_fd);
}

static int open_statm(pid_t pid)
{
	char path[64];

	if (pid <= 0) /* of a pid namespace that we do not see */
		return -1;
	snprintf(path, sizeof(path), "/proc/%ld/statm", (long)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static struct profiled *task_of(const struct client *g, uint32_t id)
{
	uint64_t key = id;
	struct profiled *k = NULL;

	if (g)
		HASH_FIND(hh, g->profiled, &key, sizeof(key), k);
	return k;
}

int profiletasks_begin(struct profiles *p, struct conn *c, uint32_t task,
		       const struct profile_name *name)
{
	struct client *g = client_get(c);
	struct profiled *k;

	if (!g)
		return -ENOMEM;
	if (task_of(g, task))
		return -EEXIST;
	if (HASH_COUNT(g->profiled) == PROFILETASKS_MAX)
		return -EMFILE;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->id = task;
	k->names = profile_name_copy(name, &k->name);
	if (k->names)
		HASH_ADD(hh, g->profiled, id, sizeof(k->id), k);
	if (!k->hh.tbl) {
		free(k->names);
		free(k);
		return -ENOMEM;
	}
	g->left[CLIENT_PROFILED] = left;
	if (g->statm_fd < 0)
		g->statm_fd = open_statm(c->peer.pid);
	profiletrack_init(&k->track);
	k->began_ns = loop_clock();
	k->seen = look(g, &k->base);
	if (k->seen && (!g->floor || k->base < g->floor))
		g->floor = k->base;
	note(k, k->seen, k->base);
	if (!p->looks.busy)
		loop_timer(p->host->loop, &p->looks,
			   loop_clock() + p->host->config->profile.interval_ns, 0);
	return 0;
}

int profiletasks_sample(const struct conn *c, uint32_t task, uint64_t bytes)
{
	struct client *g = client_find(c);
	struct profiled *k = task_of(g, task);
	uint64_t now = 0;
	bool seen;

	if (!k)
		return -ENOENT;
	k->has_told = true;
	k->told = bytes;
	seen = look(g, &now);
	note(k, seen, now);
	return 0;
}

/*
 * A process that keeps memory that earlier tasks freed, as malloc does, does not grow when the next
 * task uses it. As far as kept memory explains it, such a task had as much as its kind has on
 * average; and none had nothing.
 */
static uint64_t with_kept(const struct profiles *p, const struct client *g,
			  const struct profiled *k)
{
	const struct profile *known = profiles_find(p, g->conn->peer.uid);
	const struct profile_key *kind = known ? profile_find(known, &k->name) : NULL;
	uint64_t usual = kind ? profile_stat(kind, PROFILE_PRIVATE).average : 0,
		 most = k->track.peak + (k->seen ? k->base - g->floor : 0),
		 used = usual < most ? usual : most;

	used = used > k->track.peak ? used : k->track.peak;
	return used > page_size() ? used : page_size();
}

int profiletasks_end(struct profiles *p, struct conn *c, uint32_t task,
		     const struct profile_task *told, enum profiles_end how)
{
	struct client *g = client_find(c);
	struct profiled *k = task_of(g, task);
	struct profile_task ended = *told;
	uint64_t now = 0;
	bool seen;
	int r;

	if (!k)
		return -ENOENT;
	seen = look(g, &now);
	note(k, seen, now);
	if (!told->has[PROFILE_PRIVATE] || k->track.peak > told->used[PROFILE_PRIVATE])
		ended.used[PROFILE_PRIVATE] = k->track.peak;
	if (!told->has[PROFILE_PRIVATE] && k->track.n_samples)
		ended.used[PROFILE_PRIVATE] = with_kept(p, g, k);
	ended.has[PROFILE_PRIVATE] = told->has[PROFILE_PRIVATE] || k->track.n_samples;
	profiletrack_end(&k->track, profiled_age_ms(k), &ended);
	r = profiles_ended(p, c->peer.uid, &k->name, &ended, how);
	task_free(g, k);
	return r;
}

/* ---- a document ------------------------------------------------------------------------------ */

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
