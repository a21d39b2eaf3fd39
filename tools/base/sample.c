/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c: one statfs and one page per store, whatever the number of objects. The pages are other processes' words: counters
 * that run backwards and gauges below zero count as none.
 */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include "jsonin.h"
#include "message.h"
#include "screen.h"

static char *copy(const char *text)
{
	char *copied = strdup(text ? text : "");

	if (!copied)
		message_no_memory();
	return copied;
}

/* A gauge out of another process's page: one that fell below zero is none. */
static uint64_t gauge(uint64_t value)
{
	return value > INT64_MAX ? 0 : value;
}

void sample_add(struct sample *sample, const struct shmstore_store_info *info)
{
	struct sample_store *grown = realloc(sample->stores, (sample->n_stores + 1) * sizeof(*grown));

	if (!grown)
		message_no_memory();
	sample->stores = grown;
	grown[sample->n_stores++] = (struct sample_store){
		.name = copy(info->name[0] ? info->name : info->path),
		.path = copy(info->path),
		.label = copy(info->label),
		.pid = info->pid,
		.created_ns = info->created_ns,
		.alive = info->alive,
		.keep = info->keep,
		.counters = info->counters,
	};
	struct shmstore_counters *c = &grown[sample->n_stores - 1].counters;
	c->linked_n = gauge(c->linked_n);
	c->linked_bytes = gauge(c->linked_bytes);
	c->mapped_bytes = gauge(c->mapped_bytes);
	c->pool_bytes = gauge(c->pool_bytes);
}

static int add_store(const struct shmstore_store_info *info, void *arg)
{
	sample_add(arg, info);
	return 0;
}

void sample_deinit(struct sample *s)
{
	for (size_t i = 0; i < s->n_stores; i++) {
		free(s->stores[i].name);
		free(s->stores[i].path);
		free(s->stores[i].label);
	}
	free(s->stores);
	free(s->path);
	jsonin_free(s->tier);
	*s = (struct sample){.stores = NULL};
}

static int by_path(const void *x, const void *y)
{
	const struct sample_store *a = x, *b = y;

	return strcmp(a->path, b->path);
}

const char *const sample_rates[SAMPLE_RATES] = {"put_per_s",       "put_bytes_per_s", "get_per_s",
						"get_bytes_per_s", "handoff_per_s",   "adopt_per_s",
						"delete_per_s",    "enospc_per_s",    "evicted_per_s"};

static uint64_t counter(const struct shmstore_counters *c, size_t r)
{
	const uint64_t counters[SAMPLE_RATES] = {c->put_n,   c->put_bytes, c->get_n,    c->get_bytes, c->handoff_n,
						 c->adopt_n, c->delete_n,  c->enospc_n, c->evicted_n};

	return counters[r];
}

/* A counter's difference per second. A counter that fell belongs to another life of the store. */
static double rate(uint64_t now, uint64_t before, double seconds)
{
	return now > before ? (double)(now - before) / seconds : 0;
}

/* Fills the rates of now against before, whose stores are sorted by path. A new store counts from zero. */
static void compare(struct sample *now, const struct sample *before)
{
	double seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;

	if (!before->taken_ns || seconds <= 0)
		return;
	now->has_rates = true;
	for (size_t i = 0; i < now->n_stores; i++) {
		struct sample_store *s = &now->stores[i];
		const struct sample_store *was =
			before->n_stores ? bsearch(s, before->stores, before->n_stores, sizeof(*s), by_path) : NULL;
		bool same = was && was->pid == s->pid && was->created_ns == s->created_ns;
		for (size_t r = 0; r < SAMPLE_RATES; r++) {
			s->rates[r] = rate(counter(&s->counters, r), same ? counter(&was->counters, r) : 0, seconds);
			now->rates[r] += s->rates[r];
		}
	}
}

void sample_finish(struct sample *ret, const struct sample *before)
{
	if (ret->n_stores)
		qsort(ret->stores, ret->n_stores, sizeof(*ret->stores), by_path);
	compare(ret, before);
	for (size_t i = 0; i < ret->n_stores; i++) {
		const struct sample_store *s = &ret->stores[i];
		ret->n_objects += s->counters.linked_n;
		ret->linked += s->counters.linked_bytes;
		if (s->alive == SHMSTORE_DEAD) /* its views and its pool are nobody's */
			continue;
		ret->n_alive++;
		ret->mapped += s->counters.mapped_bytes;
		ret->pool += s->counters.pool_bytes;
	}
}

int sample_take(struct shmstore_partition *p, struct sample *ret, const struct sample *before)
{
	*ret = (struct sample){.info = {.size = sizeof(ret->info)}};
	int r = shmstore_partition_info(p, &ret->info);
	if (r == 0)
		r = shmstore_partition_stores(p, add_store, ret);
	if (r < 0)
		return r;
	ret->taken_ns = screen_now();
	sample_finish(ret, before);
	return 0;
}
