/* SPDX-License-Identifier: Apache-2.0 */
/* account_ref.c: the memory of a partition's account stays as long as an operation is in flight;
 * finding it; sums of stores. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "config.h"
#include "host.h"
#include "jsonmake.h"

void account_ref(struct account *a)
{
	a->n_refs++;
}

void account_unref(struct account *a)
{
	if (--a->n_refs)
		return;
	if (a->fd >= 0)
		close(a->fd);
	shmstore_partition_unref(a->partition);
	free(a);
}

struct json_object *account_json(const struct account *a)
{
	struct json_object *o = jsonmake_new();

	jsonmake_text(o, "partition", a->path);
	return o;
}

void account_add_totals(struct account_tick *t, const struct shmstore_counters *c)
{
	t->put_n += c->put_n;
	t->put_bytes += c->put_bytes;
	t->get_n += c->get_n;
	t->get_bytes += c->get_bytes;
	t->delete_n += c->delete_n;
	t->handoff_n += c->handoff_n;
	t->handoff_bytes += c->handoff_bytes;
	t->adopt_n += c->adopt_n;
	t->adopt_bytes += c->adopt_bytes;
}

static int by_label(const void *a, const void *b)
{
	return strcmp(((const struct survey_label *)a)->label,
		      ((const struct survey_label *)b)->label);
}

int survey_labels(const struct survey *s, bool (*counts)(const void *arg, uid_t uid),
		  const void *arg, struct survey_label **ret, size_t *ret_n)
{
	struct survey_label *l = calloc(s->n_stores + 1, sizeof(*l));
	size_t n = 0, n_sums = 0;

	if (!l)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_stores; i++) {
		const struct survey_store *st = &s->stores[i];

		if (!st->label || !*st->label || (counts && !counts(arg, st->uid)))
			continue;
		l[n++] = (struct survey_label){
			.label = st->label,
			.n_stores = 1,
			.linked = st->books.linked,
			.pss = st->books.pss,
			.uss = st->books.uss,
			.pool = st->books.pool,
		};
	}
	qsort(l, n, sizeof(*l), by_label);
	for (size_t i = 0; i < n; i++) {
		struct survey_label *sum = n_sums ? &l[n_sums - 1] : NULL;

		if (!sum || strcmp(sum->label, l[i].label) != 0) {
			l[n_sums++] = l[i];
			continue;
		}
		sum->n_stores++;
		sum->linked += l[i].linked;
		sum->pss += l[i].pss;
		sum->uss += l[i].uss;
		sum->pool += l[i].pool;
	}
	*ret = l;
	*ret_n = n_sums;
	return 0;
}

struct account *account_find(struct host *h, const char *path)
{
	char real[PATH_MAX];
	struct account *a;

	for (a = h->accounts; a; a = a->next) {
		if (strcmp(a->path, path) == 0 || strcmp(a->config->path, path) == 0)
			return a;
	}
	/* Another spelling of the path; a partition is a tmpfs, so nothing blocks. */
	if (path[0] != '/' || !realpath(path, real))
		return NULL;
	for (a = h->accounts; a; a = a->next) {
		if (strcmp(a->path, real) == 0)
			return a;
	}
	return NULL;
}

struct account *account_find_uuid(struct host *h, const uint8_t uuid[16])
{
	char text[37];
	size_t at = 0;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			text[at++] = '-';
		snprintf(text + at, sizeof(text) - at, "%02x", uuid[i]);
		at += 2;
	}
	for (struct account *a = h->accounts; a; a = a->next) {
		if (strcmp(a->uuid, text) == 0)
			return a;
	}
	return NULL;
}
