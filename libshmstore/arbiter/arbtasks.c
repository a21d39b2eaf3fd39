/* SPDX-License-Identifier: Apache-2.0 */
/* arbtasks.c: tasks and pools of the arbiter; the brackets and marks of a context. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"

#define KIB       1024u
#define EXTRA_MAX (UINT32_MAX * (uint64_t)KIB) /* of a pool's spill reserve */

int shmstore_arb_available(struct shmstore *s)
{
	struct wire_arb m = {.op = WIRE_ARB_STATS, .pool = WIRE_ARB_PARTITION};
	int r;

	if (!shms_arb_generation(s))
		return -ENOTSUP;
	r = shms_arb_call(s, &m, NULL, 0, NULL);
	return r > 0 ? -ENOTSUP : r;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

int shmstore_arb_task_begin(struct shmstore *s, const struct shmstore_arb_task_options *from,
			    uint32_t *ret_task)
{
	struct shmstore_arb_task_options o = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	struct wire_arb m = {.op = WIRE_ARB_TASK_BEGIN};
	uint64_t generation;
	int r = shms_take_sized(&o, sizeof(o), from, SHMS_UPTO(shmstore_arb_task_options, inherit),
				"options", "SHMSTORE_ARB_TASK_OPTIONS_INIT");

	if (r < 0)
		return r;
	if (!ret_task || (o.label && strlen(o.label) > SHMSTORE_LABEL_MAX))
		return !ret_task ? shms_detail_null("ret_task")
				 : shms_detail(-EINVAL, NULL, "a label has %u bytes at most",
					       SHMSTORE_LABEL_MAX);
	generation = shms_arb_generation(s);
	if (!generation)
		return -ENOTSUP;
	m.task = shms_arb_new_id(s->arb, &s->arb->tasks, generation);
	m.value = o.priority;
	/* The priority of a task of an earlier daemon is unknown to this one. */
	if (o.inherit && shms_arb_knows(s->arb, &s->arb->tasks, o.inherit, generation))
		m.other = o.inherit;
	r = shms_arb_call(s, &m, o.label, generation, NULL);
	if (r == 0)
		*ret_task = m.task;
	return r;
}

int shmstore_arb_task_end(struct shmstore *s, uint32_t task)
{
	struct wire_arb m = {.op = WIRE_ARB_TASK_END, .task = task, .flags = WIRE_ARB_RELEASED};
	uint64_t generation;
	int r;

	if (!task)
		return shms_detail(-EINVAL, NULL, "0 is no task");
	generation = shms_attach_generation(shms_attach_of(s));
	/* With the daemon that knew it, it ended. */
	if (!generation || !shms_arb_knows(s->arb, &s->arb->tasks, task, generation))
		return 0;
	r = shms_arb_call(s, &m, NULL, generation, NULL);
	if (r == 0)
		shms_contexts_task_ended(s->arb, task);
	return r == SHMSTORE_ARB_DOWN ? 0 : r;
}

/* ---- pools ----------------------------------------------------------------------------------- */

int shmstore_arb_pool_create(struct shmstore *s, const char *name, uint64_t capacity,
			     uint64_t spill_reserve, uint32_t *ret_pool)
{
	struct wire_arb m = {.op = WIRE_ARB_POOL_CREATE, .bytes = capacity};
	uint64_t generation;
	int r;

	if (!ret_pool || !name || !*name || strlen(name) > SHMSTORE_LABEL_MAX ||
	    spill_reserve > EXTRA_MAX || spill_reserve > capacity)
		return !ret_pool ? shms_detail_null("ret_pool")
		       : !name || !*name || strlen(name) > SHMSTORE_LABEL_MAX
			       ? shms_detail(-EINVAL, NULL, "a pool's name has 1 to %u bytes",
					     SHMSTORE_LABEL_MAX)
			       : shms_detail(-EINVAL, NULL,
					     "the spill reserve is more than the capacity");
	generation = shms_arb_generation(s);
	if (!generation)
		return -ENOTSUP;
	m.extra_kib = (uint32_t)((spill_reserve + KIB - 1) / KIB);
	m.pool = shms_arb_new_id(s->arb, &s->arb->pools, generation);
	r = shms_arb_call(s, &m, name, generation, NULL);
	if (r == 0)
		*ret_pool = m.pool;
	return r;
}

static int pool_call(struct shmstore *s, uint32_t pool, struct wire_arb m)
{
	uint64_t generation;

	if (pool <= SHMSTORE_ARB_PARTITION)
		return shms_detail(-EINVAL, NULL, "pool %u is not a private one", pool);
	generation = shms_arb_generation(s);
	if (!shms_arb_knows(s->arb, &s->arb->pools, pool, generation))
		return shms_arb_say(SHMSTORE_ARB_DOWN,
				    "the daemon that knew pool %u went away: make it anew", pool);
	m.pool = pool;
	return shms_arb_call(s, &m, NULL, generation, NULL);
}

int shmstore_arb_pool_resize(struct shmstore *s, uint32_t pool, uint64_t capacity)
{
	return pool_call(s, pool, (struct wire_arb){.op = WIRE_ARB_POOL_RESIZE, .bytes = capacity});
}

int shmstore_arb_pool_remove(struct shmstore *s, uint32_t pool)
{
	return pool_call(s, pool, (struct wire_arb){.op = WIRE_ARB_POOL_REMOVE});
}

/* ---- brackets and marks ---------------------------------------------------------------------- */

/* Tells the daemon something of a bound context; what is not bound needs no telling. 0, -errno. */
static int tell(struct shmstore *s, struct shmstore_arb_context *c, struct wire_arb m)
{
	uint64_t generation;
	int r = shms_context_begin(s, c, &c, &generation);

	if (r < 0)
		return r;
	m.context = c->id;
	m.flags = WIRE_ARB_QUIET;
	if (r == 0 && generation)
		shms_arb_post(s, &m, generation);
	c->slow &= ~SHMS_SLOW_MARKED;
	return 0;
}

int shmstore_arb_retry_begin(struct shmstore *s, struct shmstore_arb_context *c)
{
	return tell(s, c, (struct wire_arb){.op = WIRE_ARB_RETRY_BEGIN});
}

int shmstore_arb_retry_end(struct shmstore *s, struct shmstore_arb_context *c, bool ok)
{
	return tell(s, c, (struct wire_arb){.op = WIRE_ARB_RETRY_END, .value = ok});
}

int shmstore_arb_wait_begin(struct shmstore *s, struct shmstore_arb_context *c,
			    enum shmstore_arb_wait kind, uint32_t target)
{
	struct wire_arb m = {.op = WIRE_ARB_WAIT_ON, .kind = (uint16_t)kind, .other = target};
	int r = shms_context(s, c, &c);

	if (r < 0)
		return r;
	if (kind < SHMSTORE_ARB_WAIT_POOL || kind > SHMSTORE_ARB_WAIT_EXTERNAL || c->helper ||
	    (target != 0) != (kind == SHMSTORE_ARB_WAIT_TASK))
		return shms_detail(
			-EINVAL, NULL, "%s",
			c->helper ? "the context is a helper: dedicated ones wait"
				  : "the kind of wait is none, or its target is not a task's");
	r = tell(s, c, m);
	if (r == 0)
		c->slow |= SHMS_SLOW_MARKED;
	return r;
}

int shmstore_arb_wait_end(struct shmstore *s, struct shmstore_arb_context *c)
{
	return tell(s, c, (struct wire_arb){.op = WIRE_ARB_WAIT_OFF});
}

int shmstore_arb_spill_begin(struct shmstore *s, struct shmstore_arb_context *c)
{
	return tell(s, c, (struct wire_arb){.op = WIRE_ARB_SPILL_BEGIN});
}

int shmstore_arb_spill_end(struct shmstore *s, struct shmstore_arb_context *c)
{
	return tell(s, c, (struct wire_arb){.op = WIRE_ARB_SPILL_END});
}

/* ---- what the daemon knows, and outcomes injected for tests ---------------------------------- */

/* Finds the value of "name" in a flat JSON object; NULL: none. */
static const char *value_of(const char *json, const char *name)
{
	char quoted[64];
	const char *at;

	snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	at = strstr(json, quoted);
	if (!at)
		return NULL;
	at += strlen(quoted);
	at += strspn(at, " \t");
	if (*at++ != ':')
		return NULL;
	return at + strspn(at, " \t");
}

static uint64_t number_of(const char *json, const char *name)
{
	const char *at = value_of(json, name);

	return at && *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : 0;
}

static void word_of(const char *json, const char *name, char *ret, size_t size)
{
	const char *at = value_of(json, name);
	size_t n = at && *at == '"' ? strcspn(at + 1, "\"") : 0;

	snprintf(ret, size, "%.*s", (int)(n < size ? n : size - 1), n ? at + 1 : "");
}

int shmstore_arb_state(struct shmstore *s, struct shmstore_arb_context *c,
		       struct shmstore_arb_info *ret)
{
	struct wire_arb m = {.op = WIRE_ARB_STATE};
	struct shmstore_arb_info info = {.state = "UNKNOWN"};
	struct shms_reply reply;
	int r = shms_context(s, c, &c);

	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	/* Also of one that waits: whoever asks is another thread. */
	if (shms_context_bound(s, c)) {
		m.context = c->id;
		r = shms_arb_call(s, &m, NULL,
				  atomic_load_explicit(&c->generation, memory_order_relaxed),
				  &reply);
		/* Unbound just now by its own thread: the daemon does not know it any more. */
		if (r != 0 && r != -EINVAL)
			return r;
	}
	if (r == 0 && m.context) {
		word_of(reply.tail, "state", info.state, sizeof(info.state));
		info.since_ms = number_of(reply.tail, "since_ms");
		info.held = number_of(reply.tail, "held");
		info.need = number_of(reply.tail, "need");
	}
	*ret = info;
	return 0;
}

/* The task of the calling thread; 0: none, or several. */
static uint32_t own_task(struct shmstore *s)
{
	struct shmstore_arb_context *c;
	uint32_t task = 0;

	if (shms_context(s, NULL, &c) < 0)
		return 0;
	SHMS_HELD(&s->arb->lock);
	if (c->n_tasks == 1)
		task = c->tasks[0];
	return task;
}

int shmstore_arb_stats(struct shmstore *s, uint32_t task, uint32_t pool, bool reset,
		       struct shmstore_arb_stats *ret)
{
	struct wire_arb m = {.op = WIRE_ARB_STATS,
			     .task = task,
			     .pool = pool,
			     .flags = reset ? WIRE_ARB_RESET : 0};
	struct shms_reply reply;
	int r;

	if (!ret)
		return shms_detail_null("ret");
	if (!task)
		m.task = own_task(s);
	if (!m.task)
		return shms_detail(
			-EINVAL, NULL,
			"the calling thread works for no task, or for several: name one");
	r = shms_arb_call(s, &m, NULL, 0, &reply);
	if (r == 0)
		*ret = (struct shmstore_arb_stats){
			.n_retries = number_of(reply.tail, "retries"),
			.n_splits = number_of(reply.tail, "splits"),
			.n_grants = number_of(reply.tail, "grants"),
			.blocked_ns = number_of(reply.tail, "blocked_ns"),
			.lost_ns = number_of(reply.tail, "lost_ns"),
			.blocked_or_lost_ns = number_of(reply.tail, "blocked_or_lost_ns"),
			.current = number_of(reply.tail, "current"),
			.max = number_of(reply.tail, "max"),
			.footprint = number_of(reply.tail, "footprint"),
			.need = number_of(reply.tail, "need"),
		};
	return r;
}

int shmstore_arb_pool_info(struct shmstore *s, uint32_t pool, struct shmstore_arb_pool_info *ret)
{
	struct wire_arb m = {.op = WIRE_ARB_STATS, .pool = pool};
	struct shms_reply reply;
	int r;

	if (!pool || !ret)
		return !ret ? shms_detail_null("ret") : shms_detail(-EINVAL, NULL, "0 is no pool");
	r = shms_arb_call(s, &m, NULL, 0, &reply);
	if (r == 0)
		*ret = (struct shmstore_arb_pool_info){
			.capacity = number_of(reply.tail, "capacity"),
			.used = number_of(reply.tail, "used"),
			.reclaimable = number_of(reply.tail, "reclaimable"),
			.spilled = number_of(reply.tail, "spilled"),
			.max_used = number_of(reply.tail, "max_used"),
			.n_waiting = (uint32_t)number_of(reply.tail, "waiting"),
			.level = (uint32_t)number_of(reply.tail, "level"),
		};
	return r;
}

int shmstore_arb_inject(struct shmstore *s, struct shmstore_arb_context *c,
			enum shmstore_arb_injection kind, uint32_t count, uint32_t skip,
			uint32_t pool)
{
	struct wire_arb m = {.op = WIRE_ARB_INJECT,
			     .kind = (uint16_t)kind,
			     .value = count,
			     .extra_kib = skip,
			     .pool = pool};
	uint64_t generation;
	int r = kind < SHMSTORE_ARB_INJECT_RETRY || kind > SHMSTORE_ARB_INJECT_TIMEDOUT
			? shms_detail(-EINVAL, NULL, "%d is no kind of injection", (int)kind)
			: shms_context_begin(s, c, &c, &generation);

	if (r != 0)
		return r;
	if (!generation)
		return shms_detail(-EINVAL, NULL, "the context is bound to no task");
	m.context = c->id;
	r = shms_arb_call(s, &m, NULL, generation, NULL);
	/* No lease from now on: the daemon must see each reserve that may be hit. */
	if (r == 0 && count)
		c->slow |= SHMS_SLOW_INJECT;
	return r;
}
