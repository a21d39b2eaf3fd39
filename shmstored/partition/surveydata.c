/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surveydata.c: copies what the library tells of a partition into a struct survey, and sums it by user and label. Of the holders only the
 * largest are kept: a process may hold any number of files. Runs in a worker; knows no account.
 */
#include "surveydata.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "account.h"
#include "loop.h"
#include "printable.h"

struct taking {
	struct survey *s;
	size_t stores_size, users_size, labels_size, holders_size;
	bool (*stop)(void *arg);
	void *arg;
};

/* Room for one more entry of a list that is n long. 0, -ENOMEM. */
static int grow(void *io_list, size_t n, size_t *io_size, size_t entry)
{
	size_t size = *io_size ? 2 * *io_size : 64;
	void *list, *old;

	if (n < *io_size)
		return 0;
	memcpy(&old, io_list, sizeof(old));
	list = reallocarray(old, size, entry);
	if (!list)
		return -ENOMEM;
	memcpy(io_list, &list, sizeof(list));
	*io_size = size;
	return 0;
}

/* ---- stores and labels --------------------------------------------------------------------------------------------- */

static int add_label(struct taking *t, const struct survey_store *store)
{
	struct survey *s = t->s;
	struct survey_label *l = NULL;

	if (!store->label[0])
		return 0;
	for (size_t i = 0; !l && i < s->n_labels; i++) {
		if (strcmp(s->labels[i].label, store->label) == 0)
			l = &s->labels[i];
	}
	if (!l) {
		if (grow(&s->labels, s->n_labels, &t->labels_size, sizeof(*l)) < 0)
			return -ENOMEM;
		l = &s->labels[s->n_labels];
		*l = (struct survey_label){.label = strdup(store->label)};
		if (!l->label)
			return -ENOMEM;
		s->n_labels++;
	}
	l->n_stores++;
	l->linked += store->books.linked;
	l->pss += store->books.pss;
	l->uss += store->books.uss;
	l->pool += store->books.pool;
	return 0;
}

static int on_store(const struct shmstore_store_books *books, void *arg)
{
	struct taking *t = arg;
	struct survey *s = t->s;
	const struct shmstore_store_info *info = books->store;
	struct survey_store *to;

	if (grow(&s->stores, s->n_stores, &t->stores_size, sizeof(*to)) < 0)
		return -ENOMEM;
	to = &s->stores[s->n_stores++];
	*to = (struct survey_store){
		.name = strdup(info->name),
		.path = strdup(info->path),
		.label = strdup(info->label),
		.address = strdup(info->address),
		.pid = info->pid,
		.uid = info->uid,
		.alive = info->alive,
		.keep = info->keep,
		.books = *books,
		.counters = info->counters,
	};
	to->books.store = NULL;
	if (!to->name || !to->path || !to->label || !to->address)
		return -ENOMEM;
	return add_label(t, to);
}

/* ---- users --------------------------------------------------------------------------------------------------------- */

static char *user_name(uid_t uid)
{
	char buffer[4096];
	struct passwd entry, *found = NULL;
	char *name = NULL;

	if (getpwuid_r(uid, &entry, buffer, sizeof(buffer), &found) == 0 && found)
		return printable_new(found->pw_name, strlen(found->pw_name));
	if (asprintf(&name, "%u", (unsigned)uid) < 0)
		return NULL;
	return name;
}

static int on_user(const struct shmstore_user_books *books, void *arg)
{
	struct taking *t = arg;
	struct survey *s = t->s;
	struct survey_user *to;

	if (grow(&s->users, s->n_users, &t->users_size, sizeof(*to)) < 0)
		return -ENOMEM;
	to = &s->users[s->n_users++];
	*to = (struct survey_user){.uid = books->uid, .name = user_name(books->uid), .books = *books};
	/* The stores were told before. */
	for (size_t i = 0; i < s->n_stores; i++) {
		if (s->stores[i].uid == to->uid) {
			to->pss += s->stores[i].books.pss;
			to->uss += s->stores[i].books.uss;
		}
	}
	return to->name ? 0 : -ENOMEM;
}

/* ---- holders ------------------------------------------------------------------------------------------------------- */

static void free_holder(struct survey_holder *h)
{
	free(h->path);
	free(h->key);
}

static int by_size(const void *a, const void *b)
{
	const struct survey_holder *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->first != y->first)
		return x->first ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void keep_largest(struct survey *s)
{
	if (s->n_holders)
		qsort(s->holders, s->n_holders, sizeof(*s->holders), by_size);
	while (s->n_holders > SURVEY_HOLDERS_MAX) {
		free_holder(&s->holders[--s->n_holders]);
		s->n_holders_left_out++;
	}
}

static int on_holder(const struct shmstore_holder *h, void *arg)
{
	struct taking *t = arg;
	struct survey *s = t->s;
	struct survey_holder *to;

	/* Sorted once per so many: cheap, whatever comes. */
	if (s->n_holders == (size_t)2 * SURVEY_HOLDERS_MAX)
		keep_largest(s);
	if (grow(&s->holders, s->n_holders, &t->holders_size, sizeof(*to)) < 0)
		return -ENOMEM;
	to = &s->holders[s->n_holders++];
	*to = (struct survey_holder){
		.kind = h->kind,
		.pid = h->pid,
		.uid = h->uid,
		.inode = h->inode,
		.id = h->inode ^ h->generation,
		.bytes = h->bytes,
		.mapped = h->mapped,
		.n_fds = h->n_fds,
		.path = strdup(h->path),
		.key = h->key ? printable_new(h->key, h->key_size) : NULL,
		.first = h->first,
	};
	snprintf(to->command, sizeof(to->command), "%s", h->command);
	return to->path && (to->key || !h->key) ? 0 : -ENOMEM;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int on_progress(UNUSED uint64_t n_names, void *arg)
{
	struct taking *t = arg;

	return t->stop(t->arg);
}

int surveydata_take(struct shmstore_partition *p, bool (*stop)(void *arg), void *arg, struct survey **ret)
{
	struct survey *s = calloc(1, sizeof(*s));
	struct taking t = {.s = s, .stop = stop, .arg = arg};
	struct shmstore_survey survey = {
		.size = sizeof(survey),
		.store = on_store,
		.user = on_user,
		.holder = on_holder,
		.progress = on_progress,
		.arg = &t,
	};
	uint64_t began_ns = loop_clock();
	struct timespec now;
	int r;

	if (!s)
		return -ENOMEM;
	r = shmstore_partition_survey(p, &survey, &s->usage);
	if (r < 0) {
		surveydata_free(s);
		return r;
	}
	keep_largest(s);
	clock_gettime(CLOCK_REALTIME, &now);
	s->time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	s->duration_ns = loop_clock() - began_ns;
	*ret = s;
	return 0;
}

struct survey *surveydata_free(struct survey *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n_stores; i++) {
		free(s->stores[i].name);
		free(s->stores[i].path);
		free(s->stores[i].label);
		free(s->stores[i].address);
	}
	for (size_t i = 0; i < s->n_users; i++)
		free(s->users[i].name);
	for (size_t i = 0; i < s->n_labels; i++)
		free(s->labels[i].label);
	for (size_t i = 0; i < s->n_holders; i++)
		free_holder(&s->holders[i]);
	free(s->stores);
	free(s->users);
	free(s->labels);
	free(s->holders);
	free(s);
	return NULL;
}
