/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.c: a list of bundles for each rank, in the order of their arrival, and a table of the objects that they want.
 *
 * Every change runs one pass over the lists, which sets and clears marks; what is told is the difference of before and after, so
 * that a bundle that was put off and let in again within one pass is not cancelled. What must hold after each:
 *   an object's n_active is the number of active bundles that want it; bytes is their sum, each once
 *   if any bundle can be active, one is
 *   ARGS and WAIT alone are never beyond what is left, unless they are the only one
 */
#include "pull.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "idtable.h"

#define RANKS 3

struct object {
	uint64_t id, bytes;
	uint32_t n_wanted, n_active;
	bool pinned;
	UT_hash_handle hh;
};

struct bundle {
	uint64_t id;
	enum pull_rank rank;
	bool active, was_active;
	uint32_t n_unknown;
	size_t n_objects;
	struct bundle *prev, *next;
	UT_hash_handle hh;
	struct object *objects[];
};

struct pull {
	struct pull_config config;
	pull_changed *changed;
	void *arg;
	struct object *objects;
	struct bundle *bundles, *ranks[RANKS];
	uint64_t available, all; /* all: of every object known */
	uint64_t bytes;          /* of active bundles and not pinned */
	uint32_t n_active;
};

struct pull *pull_new(const struct pull_config *config, pull_changed *changed, void *arg)
{
	struct pull *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->config = *config;
	p->changed = changed;
	p->arg = arg;
	return p;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static struct bundle *find_bundle(const struct pull *p, uint64_t id)
{
	struct bundle *b;

	HASH_FIND(hh, p->bundles, &id, sizeof(id), b);
	return b;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static struct object *find_object(const struct pull *p, uint64_t id)
{
	struct object *o;

	HASH_FIND(hh, p->objects, &id, sizeof(id), o);
	return o;
}

/* Nobody wants it: it is forgotten. uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static void object_put(struct pull *p, struct object *o)
{
	if (o->n_wanted)
		return;
	if (o->bytes != PULL_UNKNOWN)
		p->all -= o->bytes;
	HASH_DEL(p->objects, o);
	free(o);
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static struct object *object_get(struct pull *p, uint64_t id)
{
	struct object *o = find_object(p, id);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->id = id;
	o->bytes = PULL_UNKNOWN;
	HASH_ADD(hh, p->objects, id, sizeof(o->id), o);
	if (!o->hh.tbl) {
		free(o);
		return NULL;
	}
	return o;
}

static void set_active(struct pull *p, struct bundle *b, bool active)
{
	b->active = active;
	p->n_active += active ? 1u : -1u;
	for (size_t i = 0; i < b->n_objects; i++) {
		struct object *o = b->objects[i];

		if (active ? !o->n_active++ : !--o->n_active) {
			if (!o->pinned)
				p->bytes = active ? p->bytes + o->bytes : p->bytes - o->bytes;
		}
	}
}

/* What it would add. Its objects are different ones. */
static uint64_t needs(const struct bundle *b)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < b->n_objects; i++)
		if (!b->objects[i]->n_active && !b->objects[i]->pinned)
			bytes += b->objects[i]->bytes;
	return bytes;
}

static bool fits(const struct pull *p, uint64_t bytes, uint64_t beyond)
{
	uint64_t most = p->available > UINT64_MAX - beyond ? UINT64_MAX : p->available + beyond;

	return p->bytes <= most && bytes <= most - p->bytes;
}

/* The next of its rank that is not active and could be, from b on. */
static struct bundle *waiting_from(struct bundle *b)
{
	while (b && (b->active || b->n_unknown))
		b = b->next;
	return b;
}

/* Puts off the newest of a rank until what next needs fits; next = NULL: until nothing is beyond the quota. least: so many stay active. */
static void put_off(struct pull *p, enum pull_rank rank, const struct bundle *next, uint32_t least)
{
	struct bundle *head = p->ranks[rank], *b = head ? head->prev : NULL;

	while (b && p->n_active > least && !fits(p, next ? needs(next) : 0, 0)) {
		if (b->active)
			set_active(p, b, false);
		b = b == head ? NULL : b->prev;
	}
}

static void let_in(struct pull *p, enum pull_rank rank, uint64_t beyond)
{
	struct bundle *b = waiting_from(p->ranks[rank]);

	for (; b; b = waiting_from(b)) {
		if (rank < PULL_ARGS)
			put_off(p, PULL_ARGS, b, 0);
		if (rank < PULL_WAIT)
			put_off(p, PULL_WAIT, b, 0);
		if (p->n_active && beyond != UINT64_MAX && !fits(p, needs(b), beyond))
			return;
		set_active(p, b, true);
	}
}

static void tell(struct pull *p, bool active)
{
	for (int rank = 0; rank < RANKS; rank++)
		for (struct bundle *b = p->ranks[rank]; b; b = b->next)
			if (b->active == active && b->was_active != active) {
				b->was_active = active;
				if (p->changed)
					p->changed(p->arg, b->id, active);
			}
}

static void pass(struct pull *p)
{
	let_in(p, PULL_GET, p->config.mode == PULL_FIRST ? UINT64_MAX : p->config.reserve);
	let_in(p, PULL_WAIT, 0);
	let_in(p, PULL_ARGS, 0);
	put_off(p, PULL_ARGS, NULL, 1);
	put_off(p, PULL_WAIT, NULL, 1);
	tell(p, false);
	tell(p, true);
}

void pull_available(struct pull *p, uint64_t bytes)
{
	p->available = bytes;
	pass(p);
}

static int learn(struct pull *p, struct object *o, uint64_t bytes)
{
	if (bytes > PULL_MOST - p->all)
		return -EOVERFLOW;
	o->bytes = bytes;
	p->all += bytes;
	return 0;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static void remove_bundle(struct pull *p, struct bundle *b)
{
	if (b->active)
		set_active(p, b, false);
	for (size_t i = 0; i < b->n_objects; i++) {
		b->objects[i]->n_wanted--;
		object_put(p, b->objects[i]);
	}
	DL_DELETE(p->ranks[b->rank], b);
	HASH_DEL(p->bundles, b);
	free(b);
}

static bool wants(const struct bundle *b, const struct object *o)
{
	for (size_t i = 0; i < b->n_objects; i++)
		if (b->objects[i] == o)
			return true;
	return false;
}

/* Those that waited for this size. */
static void size_known(struct pull *p, const struct object *o)
{
	for (struct bundle *b = p->bundles; b; b = b->hh.next)
		if (b->n_unknown && wants(b, o))
			b->n_unknown--;
}

static int want(struct pull *p, struct bundle *b, const struct pull_object *wanted)
{
	struct object *o = object_get(p, wanted->id);
	int err = 0;

	if (!o)
		return -ENOMEM;
	if (o->bytes == PULL_UNKNOWN && wanted->bytes != PULL_UNKNOWN) {
		err = learn(p, o, wanted->bytes);
		if (!err)
			size_known(p, o);
	}
	if (err) {
		object_put(p, o);
		return err;
	}
	if (wants(b, o))
		return 0;
	o->n_wanted++;
	b->n_unknown += o->bytes == PULL_UNKNOWN;
	b->objects[b->n_objects++] = o;
	return 0;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
int pull_add(struct pull *p, uint64_t bundle, enum pull_rank rank, const struct pull_object *objects, size_t n)
{
	struct bundle *b;
	int err = 0;

	if (find_bundle(p, bundle))
		return -EEXIST;
	if (n > UINT32_MAX)
		return -EOVERFLOW;
	b = calloc(1, sizeof(*b) + n * sizeof(b->objects[0]));
	if (!b)
		return -ENOMEM;
	b->id = bundle;
	b->rank = rank;
	HASH_ADD(hh, p->bundles, id, sizeof(b->id), b);
	if (!b->hh.tbl) {
		free(b);
		return -ENOMEM;
	}
	DL_APPEND(p->ranks[rank], b);
	for (size_t i = 0; i < n && !err; i++)
		err = want(p, b, &objects[i]);
	if (err)
		remove_bundle(p, b);
	pass(p);
	return err;
}

int pull_size(struct pull *p, uint64_t object, uint64_t bytes)
{
	struct object *o = find_object(p, object);
	int err;

	if (!o)
		return -ENOENT;
	if (o->bytes != PULL_UNKNOWN)
		return -EALREADY;
	if (bytes == PULL_UNKNOWN)
		return 0;
	err = learn(p, o, bytes);
	if (err)
		return err;
	size_known(p, o);
	pass(p);
	return 0;
}

int pull_cancel(struct pull *p, uint64_t bundle)
{
	struct bundle *b = find_bundle(p, bundle);

	if (!b)
		return -ENOENT;
	remove_bundle(p, b);
	pass(p);
	return 0;
}

int pull_pin(struct pull *p, uint64_t object, bool pinned)
{
	struct object *o = find_object(p, object);

	if (!o)
		return -ENOENT;
	if (o->pinned == pinned)
		return 0;
	o->pinned = pinned;
	if (o->n_active)
		p->bytes = pinned ? p->bytes - o->bytes : p->bytes + o->bytes;
	pass(p);
	return 0;
}

struct pull *pull_free(struct pull *p)
{
	if (!p)
		return NULL;
	while (p->bundles)
		remove_bundle(p, p->bundles);
	free(p);
	return NULL;
}

bool pull_is_active(const struct pull *p, uint64_t bundle)
{
	const struct bundle *b = find_bundle(p, bundle);

	return b && b->active;
}

uint32_t pull_n_active(const struct pull *p)
{
	return p->n_active;
}

uint64_t pull_bytes(const struct pull *p)
{
	return p->bytes;
}
