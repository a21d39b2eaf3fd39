/* SPDX-License-Identifier: Apache-2.0 */
/* survey.c: everything about a partition, of one moment: one walk and one scan of /proc (usage.c's,
 * with its tries) fill stores, users, holders and the equation. Reports on stores are copied first:
 * only the last try counts, and the asker is called when it is over, so that it hears of each store
 * once and nothing of a try that was given up. */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "books.h"
#include "detail.h"
#include "holders.h"

struct noted {
	struct shmstore_store_books books;
	struct shmstore_store_info info;
	char *text; /* name, path, label and address in one allocation */
};

struct surveying {
	const struct shmstore_survey *survey;
	struct noted *stores;
	size_t n_stores, stores_size;
	struct shms_users users;
};

static void begin(void *arg)
{
	struct surveying *s = arg;

	for (size_t i = 0; i < s->n_stores; i++)
		free(s->stores[i].text);
	s->n_stores = 0;
}

/* Puts a copy of *io_string at *io_at, and lets it point there. */
static void move_string(const char **io_string, char **io_at)
{
	size_t n = strlen(*io_string) + 1;

	memcpy(*io_at, *io_string, n);
	*io_string = *io_at;
	*io_at += n;
}

static int note_store(const struct shmstore_store_books *books, void *arg)
{
	struct surveying *s = arg;
	struct noted *to;
	char *at;

	if (!s->survey->store)
		return 0;
	if (SHMS_GROW(s->stores, s->stores_size, s->n_stores, 1) < 0)
		return -ENOMEM;
	to = &s->stores[s->n_stores];
	to->books = *books;
	to->info = *books->store;
	to->text = malloc(strlen(to->info.name) + strlen(to->info.path) + strlen(to->info.label) +
			  strlen(to->info.address) + 4);
	if (!to->text)
		return -ENOMEM;
	at = to->text;
	move_string(&to->info.name, &at);
	move_string(&to->info.path, &at);
	move_string(&to->info.label, &at);
	move_string(&to->info.address, &at);
	s->n_stores++;
	return 0;
}

static int progress(uint64_t n_names, void *arg)
{
	const struct surveying *s = arg;

	return s->survey->progress ? s->survey->progress(n_names, s->survey->arg) : 0;
}

static int tell(struct surveying *s, struct shms_holders *holders)
{
	const struct shmstore_survey *v = s->survey;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n_stores; i++) {
		s->stores[i].books.store = &s->stores[i].info; /* not before: the array moved */
		r = v->store(&s->stores[i].books, v->arg);
	}
	for (size_t i = 0; r == 0 && i < s->users.n; i++)
		r = v->user(&s->users.list[i], v->arg);
	if (r == 0 && v->holder)
		r = shms_holders_each(holders, v->holder, v->arg);
	return r;
}

int shmstore_partition_survey(struct shmstore_partition *p, const struct shmstore_survey *survey,
			      struct shmstore_usage *ret)
{
	struct surveying s = {.survey = survey};
	struct shms_usage_ask ask = {
		.holders = true,
		.begin = begin,
		.books = {.store = note_store, .progress = progress, .arg = &s},
	};
	struct shms_holders *holders = NULL;
	struct shmstore_usage usage;
	int r;

	if (!p || !survey || survey->size < sizeof(*survey) || survey->flags)
		return !p || !survey ? shms_detail_null(!p ? "p" : "survey")
				     : shms_detail(-EINVAL, NULL,
						   "survey.size is %zu and survey.flags 0x%x: "
						   "sizeof and 0 are right",
						   survey->size, survey->flags);
	ask.keys = survey->holder != NULL;
	ask.books.users = survey->user ? &s.users : NULL;
	r = shms_usage_take(p, &ask, &usage, &holders);
	if (r == 0)
		r = tell(&s, holders);
	shms_holders_free(holders);
	begin(&s);
	free(s.stores);
	shms_users_clear(&s.users);
	if (r == 0 && ret)
		*ret = usage;
	return r;
}

int shmstore_partition_reconcile(struct shmstore_partition *p,
				 int (*fn)(const struct shmstore_holder *holder, void *arg),
				 void *arg, struct shmstore_usage *ret)
{
	struct shmstore_survey survey = {.size = sizeof(survey), .holder = fn, .arg = arg};

	return shmstore_partition_survey(p, &survey, ret);
}
