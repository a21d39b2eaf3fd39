/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbinfo.c: what the daemon knows of a context, a task, a pool; and outcomes injected for tests.
 *
 * Its answers are flat objects of numbers and one word, searched for the names. Missing ones are 0.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbcontext.h"
#include "detail.h"

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

int shmstore_arb_state(struct shmstore *s, struct shmstore_arb_context *c, struct shmstore_arb_info *ret)
{
	struct wire_arb m = {.op = WIRE_ARB_STATE};
	struct shmstore_arb_info info = {.state = "UNKNOWN"};
	struct shms_reply reply;
	int r = shms_store_usable(s, true);

	if (r == 0)
		r = shms_context(s, c, &c);
	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	/* Also of one that waits: whoever asks is another thread. */
	if (shms_context_bound(s, c)) {
		m.context = c->id;
		r = shms_arb_call(s, &m, NULL, atomic_load_explicit(&c->generation, memory_order_relaxed), &reply);
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
	pthread_mutex_lock(&s->arb->lock);
	if (c->n_tasks == 1)
		task = c->tasks[0];
	pthread_mutex_unlock(&s->arb->lock);
	return task;
}

int shmstore_arb_stats(struct shmstore *s, uint32_t task, uint32_t pool, bool reset, struct shmstore_arb_stats *ret)
{
	struct wire_arb m = {.op = WIRE_ARB_STATS, .task = task, .pool = pool, .flags = reset ? WIRE_ARB_RESET : 0};
	struct shms_reply reply;
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	if (!task)
		m.task = own_task(s);
	if (!m.task)
		return shms_detail(-EINVAL, NULL, "the calling thread works for no task, or for several: name one");
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
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
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

int shmstore_arb_inject(struct shmstore *s, struct shmstore_arb_context *c, enum shmstore_arb_injection kind,
			uint32_t count, uint32_t skip, uint32_t pool)
{
	struct wire_arb m = {
		.op = WIRE_ARB_INJECT, .kind = (uint16_t)kind, .value = count, .extra_kib = skip, .pool = pool};
	uint64_t generation;
	struct shms_reply reply;
	int r = kind < SHMSTORE_ARB_INJECT_RETRY || kind > SHMSTORE_ARB_INJECT_TIMEDOUT
			? shms_detail(-EINVAL, NULL, "%d is no kind of injection", (int)kind)
			: shms_context_begin(s, c, &c, &generation);

	if (r != 0)
		return r;
	if (!generation)
		return shms_detail(-EINVAL, NULL, "the context is bound to no task");
	m.context = c->id;
	r = shms_arb_call(s, &m, NULL, generation, &reply);
	if (r == 0 && count) {
		/* No lease till they are through. */
		c->inject_pool = c->n_injected && c->inject_pool != pool ? UINT32_MAX : pool;
		c->n_injected = c->n_injected > UINT32_MAX / 2 ? c->n_injected : c->n_injected + count + skip;
		c->slow |= SHMS_SLOW_INJECT;
	}
	return r;
}
