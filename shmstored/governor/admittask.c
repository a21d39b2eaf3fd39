/* SPDX-License-Identifier: Apache-2.0 */
/* admittask.c: see admit.h. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "admit.h"
#include "clocks.h"
#include "loop.h"
#include "pressure.h"

/* ---- tasks ----------------------------------------------------------------------------------- */

struct admit_task *admittask_find(const struct admit_tasks *t, uint64_t id)
{
	struct admit_task *k;

	HASH_FIND(hh, t->all, &id, sizeof(id), k);
	return k;
}

struct admit_task *admittask_new(struct admit_tasks *t, struct client *c,
				 const struct admit_want *w, uint64_t id,
				 const struct admission_task *share)
{
	size_t n = share->n_values;
	struct admit_task *k = calloc(1, sizeof(*k) + n * sizeof(k->values[0]));

	if (!k)
		return NULL;
	*k = (struct admit_task){
		.id = id ? id : t->last_id + 1,
		.client = c,
		.gate = {.form = w->form, .declared = w->declared, .share = *share},
		.serial = w->serial,
		.uid = w->uid,
		.level = w->level,
		.retriable = w->retriable,
		.parent = w->parent,
		.since_ns = loop_clock(),
	};
	if (n)
		memcpy(k->values, share->values, n * sizeof(k->values[0]));
	k->gate.share.values = k->values;
	k->gate.level = admittask_level(k);
	if (w->name)
		k->names = profile_name_copy(w->name, &k->name);
	if (!w->name || k->names)
		HASH_ADD(hh, t->all, id, sizeof(k->id), k);
	if (!k->hh.tbl) {
		free(k->names);
		free(k);
		return NULL;
	}
	t->last_id += !id;
	DL_APPEND(c->tasks, k);
	c->n_tasks++;
	return k;
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
		if (k->gate.runs)
			count_child(t, k);
}

/* ---- processes ------------------------------------------------------------------------------- */

/*
 * If the process cannot be seen, the task runs all the same: then none of what is expected of it
 * counts as there.
 */
static void join_proc(const struct admit_tasks *t, struct admit_task *k)
{
	struct pressproc *p = pressprocs_link(t->procs, k->client);

	if (!p)
		return;
	if (!p->tasks) {
		pressprocs_read_one(t->procs, p);
		p->seen = p->private.known;
		p->base = p->private.bytes;
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
static void look_at(const struct admit_tasks *t, struct pressproc *p)
{
	pressprocs_read_one(t->procs, p);
	if (p->seen && p->private.known)
		p->grown = p->private.bytes > p->base ? p->private.bytes - p->base : 0;
}

static void leave_proc(const struct admit_tasks *t, struct admit_task *k)
{
	struct pressproc *p = k->proc;
	int64_t expected = 0;

	DL_DELETE2(p->tasks, k, proc_prev, proc_next);
	if (!p->tasks)
		return;
	look_at(t, p);
	for (const struct admit_task *other = p->tasks; other; other = other->proc_next)
		expected = amount_sum(expected, (int64_t)other->gate.share.estimate);
	if (p->grown <= expected)
		return;
	p->base += p->grown - expected;
	p->grown = expected;
}

void admittask_begin(struct admit_tasks *t, struct admit_task *k)
{
	k->client->used = true;
	k->since_ns = loop_clock();
	join_proc(t, k);
	count_child(t, k);
}

void admittask_free(struct admit_tasks *t, struct admit_task *k)
{
	gateline_end(&t->line, &k->gate);
	if (k->proc)
		leave_proc(t, k);
	uncount_child(t, k);
	DL_DELETE(k->client->tasks, k);
	k->client->n_tasks--;
	HASH_DEL(t->all, k);
	free(k->names);
	free(k);
}

/* ---- what they have -------------------------------------------------------------------------- */

static uint64_t share_of(const struct admit_task *k, uint64_t left)
{
	if (!k->proc_next)
		return left;
	return left < k->gate.share.estimate ? left : k->gate.share.estimate;
}

void admittask_look_before(struct admit_tasks *t)
{
	for (struct pressproc *p = t->procs->list; p; p = p->next)
		if (p->tasks) {
			look_at(t, p);
			p->before = p->grown;
		}
}

static void look(struct admit_tasks *t, struct pressproc *p,
		 uint64_t (*remaining)(const struct admit_task *k, void *arg), void *arg)
{
	uint64_t left;

	look_at(t, p);
	if (p->before < p->grown)
		p->grown = p->before;
	left = (uint64_t)p->grown;
	for (struct admit_task *k = p->tasks; k; k = k->proc_next) {
		uint64_t now = share_of(k, left);

		k->most = now > k->most ? now : k->most;
		left -= now;
		admission_note(&t->line.sums, &k->gate.share, now,
			       k->name.lang ? remaining(k, arg) : UINT64_MAX);
	}
}

void admittask_look(struct admit_tasks *t,
		    uint64_t (*remaining)(const struct admit_task *k, void *arg), void *arg)
{
	for (struct pressproc *p = t->procs->list; p; p = p->next)
		if (p->tasks)
			look(t, p, remaining, arg);
}

/* Tasks of its process may be other connections'. */
bool admittask_is_idle(const struct admit_tasks *t, const struct client *c)
{
	const struct pressproc *p = pressprocs_find(t->procs, c->conn->peer.pid);

	return !c->n_tasks && !(p && p->tasks);
}

enum policylevel admittask_level(const struct admit_task *k)
{
	const struct policylevel_wish wish = {.class = POLICYLEVEL_UNSAID,
					      .instance = k->level,
					      .retriable = k->retriable,
					      .n_children = k->n_children};

	return policylevel_resolve(&wish);
}
