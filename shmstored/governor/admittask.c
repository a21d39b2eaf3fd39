/* SPDX-License-Identifier: Apache-2.0 */
/* admittask.c: see admittask.h. */
#include "admittask.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "loop.h"
#include "pressprocs.h"

/* ---- tasks --------------------------------------------------------------------------------------------------------- */

/* Copies the parts, one behind the other. False: out of memory. */
static bool keep_name(struct admit_task *k, const struct profile_name *name)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1, group = strlen(name->group) + 1;

	k->names = malloc(lang + func + group);
	if (!k->names)
		return false;
	k->name = (struct profile_name){memcpy(k->names, name->lang, lang), memcpy(k->names + lang, name->func, func),
					memcpy(k->names + lang + func, name->group, group)};
	return true;
}

/*
 * Numbers are microseconds. No daemon lets in more than one task in each, so the next daemon's
 * numbers are above; and JSON holds them exactly.
 */
void admittask_number(struct admit_tasks *t)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	t->first_id = t->last_id = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct admit_task *admittask_find(const struct admit_tasks *t, uint64_t id)
{
	struct admit_task *k;

	HASH_FIND(hh, t->all, &id, sizeof(id), k);
	return k;
}

struct admit_task *admittask_new(struct admit_tasks *t, const struct admit_kind *kind)
{
	size_t n = kind->ask->n_values;
	struct admit_task *k = calloc(1, sizeof(*k) + n * sizeof(k->values[0]));

	if (!k)
		return NULL;
	k->uid = kind->uid;
	k->ask = *kind->ask;
	if (n)
		memcpy(k->values, kind->ask->values, n * sizeof(k->values[0]));
	k->ask.values = k->values;
	k->id = kind->id ? kind->id : ++t->last_id;
	k->since_ns = loop_clock();
	if (kind->name && !keep_name(k, kind->name)) {
		free(k);
		return NULL;
	}
	HASH_ADD(hh, t->all, id, sizeof(k->id), k);
	if (k->hh.tbl)
		return k;
	free(k->names);
	free(k);
	return NULL;
}

void admittask_join(struct admit_guest *g, struct admit_task *k)
{
	k->guest = g;
	DL_APPEND(g->tasks, k);
	g->n++;
}

static void count_child(const struct admit_tasks *t, struct admit_task *k)
{
	struct admit_task *parent = k->parent && !k->counted ? admittask_find(t, k->parent) : NULL;

	if (parent) {
		parent->n_children++;
		k->counted = true;
	}
}

static void uncount_child(const struct admit_tasks *t, const struct admit_task *k)
{
	struct admit_task *parent = k->counted ? admittask_find(t, k->parent) : NULL;

	if (parent)
		parent->n_children--;
}

void admittask_count_children(struct admit_tasks *t)
{
	for (struct admit_task *k = t->all; k; k = k->hh.next)
		if (k->runs)
			count_child(t, k);
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

static struct admit_proc *get_proc(struct admit_tasks *t, pid_t pid)
{
	struct admit_proc *p;

	HASH_FIND(hh, t->procs, &pid, sizeof(pid), p);
	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	HASH_ADD(hh, t->procs, pid, sizeof(p->pid), p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	return p;
}

/*
 * If the process cannot be seen, the task runs all the same: then none of what is expected of it
 * counts as there.
 */
static void join_proc(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs)
{
	const struct presslink *l = pressprocs_link(procs, k->guest->conn);
	struct admit_proc *p = l && l->proc ? get_proc(t, l->proc->pid) : NULL;

	if (!p)
		return;
	if (!p->tasks) {
		pressprocs_read_one(procs, l->proc);
		p->seen = l->proc->private.known;
		p->base = l->proc->private.bytes;
		p->grown = p->before = 0;
	}
	if (p->tasks)
		p->tasks->alone = false;
	k->alone = !p->tasks;
	DL_APPEND2(p->tasks, k, proc_prev, proc_next);
	k->proc = p;
}

/*
 * Reads how much of the process's memory is its tasks'. If it cannot be read, the last value stays.
 */
static void look_at(struct admit_proc *p, struct pressprocs *procs)
{
	struct pressproc *seen = pressprocs_find(procs, p->pid);

	if (!seen)
		return;
	pressprocs_read_one(procs, seen);
	if (p->seen && seen->private.known)
		p->grown = seen->private.bytes > p->base ? seen->private.bytes - p->base : 0;
}

static void keep_rest(struct admit_proc *p, struct pressprocs *procs)
{
	int64_t expected = 0;

	look_at(p, procs);
	for (const struct admit_task *k = p->tasks; k; k = k->proc_next)
		expected = amount_sum(expected, (int64_t)k->ask.estimate);
	if (p->grown <= expected)
		return;
	p->base += p->grown - expected;
	p->grown = expected;
}

static void leave_proc(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs)
{
	struct admit_proc *p = k->proc;

	if (!p)
		return;
	DL_DELETE2(p->tasks, k, proc_prev, proc_next);
	if (p->tasks) {
		keep_rest(p, procs);
		return;
	}
	HASH_DEL(t->procs, p);
	free(p);
}

int admittask_begin(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs)
{
	int r = admission_start(t->sums, k->id, &k->ask);

	if (r < 0)
		return r;
	k->runs = k->guest->used = true;
	k->since_ns = loop_clock();
	join_proc(t, k, procs);
	count_child(t, k);
	return 0;
}

void admittask_free(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs)
{
	if (k->runs) {
		leave_proc(t, k, procs);
		admission_end(t->sums, k->id);
		uncount_child(t, k);
	}
	if (k->guest) {
		DL_DELETE(k->guest->tasks, k);
		k->guest->n--;
	}
	HASH_DEL(t->all, k);
	free(k->names);
	free(k);
}

/* ---- what they have ------------------------------------------------------------------------------------------------ */

static uint64_t share_of(const struct admit_task *k, uint64_t left)
{
	if (!k->proc_next)
		return left;
	return left < k->ask.estimate ? left : k->ask.estimate;
}

void admittask_look_before(struct admit_tasks *t, struct pressprocs *procs)
{
	for (struct admit_proc *p = t->procs; p; p = p->hh.next) {
		look_at(p, procs);
		p->before = p->grown;
	}
}

void admittask_look(struct admit_tasks *t, struct pressprocs *procs,
		    uint64_t (*remaining)(const struct admit_task *k, void *arg), void *arg)
{
	for (struct admit_proc *p = t->procs; p; p = p->hh.next) {
		uint64_t left;

		look_at(p, procs);
		if (p->before < p->grown)
			p->grown = p->before;
		left = (uint64_t)p->grown;
		for (struct admit_task *k = p->tasks; k; k = k->proc_next) {
			k->now = share_of(k, left);
			k->most = k->now > k->most ? k->now : k->most;
			left -= k->now;
			admission_note(t->sums, k->id, k->now, k->name.lang ? remaining(k, arg) : UINT64_MAX);
		}
	}
}

/* Tasks of its process may be other connections'. */
bool admittask_is_idle(const struct admit_tasks *t, const struct admit_guest *g)
{
	pid_t pid = conn_peer(g->conn)->pid;
	struct admit_proc *p;

	HASH_FIND(hh, t->procs, &pid, sizeof(pid), p);
	return !p && !g->n;
}

enum policylevel admittask_level(const struct admit_task *k)
{
	const struct policylevel_wish wish = {.class = POLICYLEVEL_UNSAID,
					      .instance = k->level,
					      .retriable = k->retriable,
					      .n_children = k->n_children};

	return policylevel_resolve(&wish);
}

/* ---- connections --------------------------------------------------------------------------------------------------- */

struct admit_guest *admittask_guest(const struct admit_tasks *t, const struct conn *c)
{
	struct admit_guest *g;

	HASH_FIND(hh, t->guests, &c, sizeof(const struct conn *), g);
	return g;
}

struct admit_guest *admittask_get_guest(struct admit_tasks *t, struct conn *c)
{
	struct admit_guest *g = admittask_guest(t, c);

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->conn = c;
	HASH_ADD(hh, t->guests, conn, sizeof(struct conn *), g);
	if (!g->hh.tbl) {
		free(g);
		return NULL;
	}
	return g;
}

void admittask_guest_free(struct admit_tasks *t, struct admit_guest *g, struct pressprocs *procs)
{
	while (g->tasks)
		admittask_free(t, g->tasks, procs);
	HASH_DEL(t->guests, g);
	free(g);
}
