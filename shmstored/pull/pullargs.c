/* SPDX-License-Identifier: Apache-2.0 */
/* pullargs.c: a table of tasks with what each pins, and one of objects with how many pin it; bytes is the sum of the latter. */
#include "pullargs.h"

#include <errno.h>
#include <stdlib.h>

#include "idtable.h"

struct object {
	uint64_t id, bytes;
	uint32_t n_pins;
	UT_hash_handle hh;
};

struct task {
	uint64_t id;
	size_t n_objects;
	UT_hash_handle hh;
	struct object *objects[];
};

struct pullargs {
	uint64_t limit, bytes;
	struct object *objects;
	struct task *tasks;
};

struct pullargs *pullargs_new(uint64_t limit)
{
	struct pullargs *a = calloc(1, sizeof(*a));

	if (a)
		a->limit = limit;
	return a;
}

void pullargs_set_limit(struct pullargs *a, uint64_t limit)
{
	a->limit = limit;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static struct task *find(const struct pullargs *a, uint64_t id)
{
	struct task *t;

	HASH_FIND(hh, a->tasks, &id, sizeof(id), t);
	return t;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static struct object *object_get(struct pullargs *a, const struct pull_object *wanted)
{
	struct object *o;

	HASH_FIND(hh, a->objects, &wanted->id, sizeof(wanted->id), o);
	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->id = wanted->id;
	o->bytes = wanted->bytes;
	HASH_ADD(hh, a->objects, id, sizeof(o->id), o);
	if (!o->hh.tbl) {
		free(o);
		return NULL;
	}
	return o;
}

/* Nobody pins it: it is forgotten. uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static void object_put(struct pullargs *a, struct object *o)
{
	HASH_DEL(a->objects, o);
	free(o);
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
static void unpin(struct pullargs *a, struct task *t)
{
	for (size_t i = 0; i < t->n_objects; i++) {
		struct object *o = t->objects[i];

		if (--o->n_pins)
			continue;
		a->bytes -= o->bytes;
		object_put(a, o);
	}
	HASH_DEL(a->tasks, t);
	free(t);
}

static bool has(const struct task *t, const struct object *o)
{
	for (size_t i = 0; i < t->n_objects; i++)
		if (t->objects[i] == o)
			return true;
	return false;
}

/* The task's objects. own: their bytes. */
static int gather(struct pullargs *a, struct task *t, const struct pull_object *objects, size_t n, uint64_t *own)
{
	for (size_t i = 0; i < n; i++) {
		struct object *o;

		if (objects[i].bytes == PULL_UNKNOWN)
			return -EOVERFLOW;
		o = object_get(a, &objects[i]);
		if (!o)
			return -ENOMEM;
		if (has(t, o))
			continue;
		if (!o->n_pins && o->bytes > PULL_MOST - a->bytes) {
			object_put(a, o);
			return -EOVERFLOW;
		}
		if (!o->n_pins++)
			a->bytes += o->bytes;
		t->objects[t->n_objects++] = o;
		*own += o->bytes;
	}
	return 0;
}

/* uthash's macros nest. NOLINTNEXTLINE(readability-function-size) */
int pullargs_pin(struct pullargs *a, uint64_t task, const struct pull_object *objects, size_t n, bool *ret_over)
{
	uint64_t own = 0;
	struct task *t = find(a, task);
	int err;

	if (t)
		return 1;
	if (n > UINT32_MAX)
		return -EOVERFLOW;
	t = calloc(1, sizeof(*t) + n * sizeof(t->objects[0]));
	if (!t)
		return -ENOMEM;
	t->id = task;
	HASH_ADD(hh, a->tasks, id, sizeof(t->id), t);
	if (!t->hh.tbl) {
		free(t);
		return -ENOMEM;
	}
	err = gather(a, t, objects, n, &own);
	if (err || (a->bytes > a->limit && own <= a->limit)) {
		unpin(a, t);
		return err;
	}
	if (ret_over)
		*ret_over = own > a->limit;
	return 1;
}

int pullargs_unpin(struct pullargs *a, uint64_t task)
{
	struct task *t = find(a, task);

	if (!t)
		return -ENOENT;
	unpin(a, t);
	return 0;
}

struct pullargs *pullargs_free(struct pullargs *a)
{
	if (!a)
		return NULL;
	while (a->tasks)
		unpin(a, a->tasks);
	free(a);
	return NULL;
}

uint64_t pullargs_bytes(const struct pullargs *a)
{
	return a->bytes;
}
