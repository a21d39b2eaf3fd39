/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surveyor.c: one survey at a time whose result counts: one that somebody asked for (several askers
 * share it), or the one that is due at the configured interval, but never more than a twentieth of
 * the time. A survey's wait for a processor does not count: on a busy host the next ones would come
 * later and later. Requests while a survey runs get the next one: they ask for the state after
 * their question. A survey that is only due gives way to a requested one: it is told to stop, and
 * its result forgotten. It runs when the processors have nothing else to do; where that does not
 * happen for a whole interval, the next one does not wait for it.
 *
 * A published survey is the cure for all that was missed: stores that came without being seen,
 * members that are gone, dead stores that nobody told us of.
 */

#include <errno.h>
#include <malloc.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "account.h"
#include "alloc.h"
#include "clocks.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "scanner.h"

#define SHARE 20u /* a survey nobody asked for takes at most 1/20 of the time */

struct surveying {
	struct scanner_job job;
	struct account *account;
	struct account_wait *waits; /* asked for by them; NULL: it was due */
	uint64_t began_ns;
	_Atomic bool stop;
	struct survey *survey;
	int result;
};

/*
 * Copies what the library tells of a partition into a struct survey, and sums it by user. Of the
 * holders only the largest are kept: a process may hold any number of files. Runs in a worker;
 * knows no account.
 */
struct taking {
	const struct surveying *of;
	struct survey *s;
	size_t stores_size, users_size, holders_size;
};

/* ---- stores ---------------------------------------------------------------------------------- */

static int on_store(const struct shmstore_store_books *books, void *arg)
{
	struct taking *t = arg;
	struct survey *s = t->s;
	const struct shmstore_store_info *info = books->store;
	struct survey_store *to;

	if (SHMS_GROW(s->stores, t->stores_size, s->n_stores, 1) < 0)
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
	return to->name && to->path && to->label && to->address ? 0 : -ENOMEM;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct survey_store *)a)->path,
		      ((const struct survey_store *)b)->path);
}

/* ---- users ----------------------------------------------------------------------------------- */

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

	if (SHMS_GROW(s->users, t->users_size, s->n_users, 1) < 0)
		return -ENOMEM;
	to = &s->users[s->n_users++];
	*to = (struct survey_user){
		.uid = books->uid, .name = user_name(books->uid), .books = *books};
	/* The stores were told before. */
	for (size_t i = 0; i < s->n_stores; i++) {
		if (s->stores[i].uid == to->uid) {
			to->pss += s->stores[i].books.pss;
			to->uss += s->stores[i].books.uss;
		}
	}
	return to->name ? 0 : -ENOMEM;
}

/* ---- holders --------------------------------------------------------------------------------- */

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
	if (SHMS_GROW(s->holders, t->holders_size, s->n_holders, 1) < 0)
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

/* ---- the whole ------------------------------------------------------------------------------- */

/* Asked now and then: true ends it with -ECANCELED. */
static int on_progress(UNUSED uint64_t n_names, void *arg)
{
	const struct surveying *s = ((const struct taking *)arg)->of;

	/* Relaxed: nothing is read because of it. */
	return atomic_load_explicit(&s->stop, memory_order_relaxed) ||
	       scanner_stopping(s->account->host->scanner);
}

static void surveydata_free(struct survey *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_stores; i++) {
		free(s->stores[i].name);
		free(s->stores[i].path);
		free(s->stores[i].label);
		free(s->stores[i].address);
	}
	for (size_t i = 0; i < s->n_users; i++)
		free(s->users[i].name);
	for (size_t i = 0; i < s->n_holders; i++)
		free_holder(&s->holders[i]);
	free(s->stores);
	free(s->users);
	free(s->holders);
	free(s);
}

/* In the worker. Blocks; looks users' names up. Sequence and ages are for publish() to fill in. */
static void run(struct scanner_job *job)
{
	struct surveying *of = CONTAINER_OF(job, surveying, job);
	struct survey *s = calloc(1, sizeof(*s));
	struct taking t = {.of = of, .s = s};
	struct shmstore_survey survey = {
		.size = sizeof(survey),
		.store = on_store,
		.user = on_user,
		.holder = on_holder,
		.progress = on_progress,
		.arg = &t,
	};
	uint64_t began_ns = loop_clock();

	of->result =
		s ? shmstore_partition_survey(of->account->partition, &survey, &s->usage) : -ENOMEM;
	if (of->result < 0) {
		surveydata_free(s);
		return;
	}
	if (s->n_stores)
		qsort(s->stores, s->n_stores, sizeof(*s->stores), by_path);
	keep_largest(s);
	s->time_ns = (int64_t)clock_ns(CLOCK_REALTIME);
	s->duration_ns = loop_clock() - began_ns;
	of->survey = s;
}

/* ---- what follows from a survey -------------------------------------------------------------- */

/* The hold in the survey before. NULL: it is new, or was not among the largest. */
static const struct survey_holder *seen_before(const struct survey *old,
					       const struct survey_holder *h)
{
	for (size_t i = 0; old && i < old->n_holders; i++)
		if (old->holders[i].id == h->id && old->holders[i].pid == h->pid)
			return &old->holders[i];
	return NULL;
}

/*
 * The kernel does not tell when a file lost its last name, so an age is counted from the survey
 * that met the hold first: too young by at most the time between two surveys. A tmpfs gives an
 * inode number once, so the pair of inode and pid is not taken for another one later on.
 */
static void age_holders(struct account *a, struct survey *s)
{
	uint64_t now_ns = loop_clock();

	for (size_t i = 0; i < s->n_holders; i++) {
		struct survey_holder *h = &s->holders[i];
		const struct survey_holder *before = seen_before(a->survey, h);
		struct json_object *o;
		char key[64];

		h->since_ns = before ? before->since_ns : now_ns;
		h->told_old = before && before->told_old;
		if (h->kind != SHMSTORE_HOLD_GHOST || h->told_old ||
		    now_ns - h->since_ns < a->config->ghost_age_ns)
			continue;
		h->told_old = true;
		snprintf(key, sizeof(key), "%llu.%d", (unsigned long long)h->id, h->pid);
		o = account_json(a);
		fields_of(o, h, SAME(pid), SAME(uid), SAME(command), SAME(inode), SAME(bytes),
			  SAME(path), SAME(key));
		jsonmake_seconds(o, "age_seconds", (int64_t)(now_ns - h->since_ns));
		events_emit(a->host->events, EVENT_GHOST_OLD, key, o);
	}
}

/* Members and dead stores as the survey found them. */
static void compare(struct account *a, const struct survey *s)
{
	struct member *m, *next;

	for (size_t i = 0; i < s->n_stores; i++) {
		const struct survey_store *store = &s->stores[i];

		m = member_find(a, store->path);
		if (!m && store->alive == SHMSTORE_ALIVE)
			(void)member_get(a, store->path, (uid_t)-1, &m);
		if (m)
			m->found = store;
		if (store->alive == SHMSTORE_DEAD && (m || !store->keep || store->books.n_leases))
			reaper_look(a, store->path);
	}
	/* The others may have come since it began, or be gone. */
	for (m = a->members; m; m = next) {
		next = m->next;
		if (!m->found)
			reaper_look(a, m->path);
	}
}

static void replace(struct account *a, struct survey *s)
{
	for (struct member *m = a->members; m; m = m->next)
		m->found = NULL;
	surveydata_free(a->survey);
	a->survey = s;
}

static void publish(struct account *a, struct surveying *job)
{
	struct survey *s = job->survey;
	struct json_object *fields;

	job->survey = NULL;
	s->sequence = ++a->n_surveys;
	age_holders(a, s);
	replace(a, s);
	accountquota_surveyed(a, s);
	PART_EACH(a, surveyed, a, s);
	a->n_residuals = s->usage.residual ? a->n_residuals + 1 : 0;
	if (a->n_residuals == 2) {
		fields = account_json(a);
		jsonmake_i64(fields, "residual", s->usage.residual);
		jsonmake_u64(fields, "unreadable", s->usage.n_unreadable);
		events_emit(a->host->events, EVENT_RESIDUAL, a->path, fields);
	}
	compare(a, s);
}

/* ---- one after the other --------------------------------------------------------------------- */

/* fn may ask again; none cancels another's. */
static void answer(struct account_wait *w, const struct survey *survey, int error)
{
	for (struct account_wait *next; w; w = next) {
		next = w->next;
		w->waits = false;
		w->fn(w, survey, error);
	}
}

static int begin(struct account *a, bool idle);

static void done(struct scanner_job *job)
{
	struct surveying *s = CONTAINER_OF(job, surveying, job);
	struct account *a = s->account;
	uint64_t interval_ns = a->config->survey_interval_ns;
	bool counts = a->running == s;

	if (counts) {
		a->running = NULL;
		a->survey_due_ns =
			MAX(s->began_ns + interval_ns, loop_clock() + job->busy_ns * SHARE);
		if (interval_ns == 0)
			a->survey_due_ns = UINT64_MAX; /* on demand only */
		if (s->result == 0) {
			s->survey->cost_ns = job->busy_ns;
			publish(a, s);
			if (!s->waits)
				sweep_start(a);
		} else {
			accountquota_surveyed(a, NULL);
		}
		if (s->result < 0 && s->result != -ECANCELED)
			log_say(LOG_WARNING, LOG_FIELDS(.object = a->path, .error = s->result),
				"a survey failed: the last one stays");
		answer(s->waits, s->result == 0 ? a->survey : NULL, s->result);
		if (a->waits && begin(a, false) < 0)
			log_say(LOG_WARNING, LOG_FIELDS(.object = a->path, .error = -ENOMEM),
				"a survey that is asked for has to wait");
	}
	malloc_trim(0); /* a walk over a million names took a lot */
	surveydata_free(s->survey);
	free(s);
	account_unref(a);
}

/* For those who wait; for itself where there are none. */
static int begin(struct account *a, bool idle)
{
	struct surveying *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	account_ref(a);
	s->account = a;
	s->waits = a->waits;
	s->began_ns = loop_clock();
	s->result = -ECANCELED; /* as long as it did not run */
	s->job = (struct scanner_job){
		.worker = idle ? SCANNER_IDLE : SCANNER_ASKED, .run = run, .done = done};
	a->waits = NULL;
	a->running = s;
	quota_mark(a->quota);
	scanner_submit(a->host->scanner, &s->job);
	return 0;
}

static void give_up(struct account *a)
{
	if (!a->running)
		return;
	atomic_store_explicit(&a->running->stop, true, memory_order_relaxed);
	a->running = NULL;
	accountquota_surveyed(a, NULL);
}

int account_survey(struct account *a, struct account_wait *w)
{
	int r;

	if (a->closing)
		return -ECANCELED;
	w->waits = true;
	w->next = a->waits;
	a->waits = w;
	if (a->running && a->running->waits)
		return 0; /* it is begun when that is done */
	give_up(a);
	r = begin(a, false);
	if (r < 0)
		account_survey_cancel(a, w);
	return r;
}

void account_survey_seldom(struct account *a, struct account_wait *w)
{
	if (!w->waits && !a->running && loop_now(a->host->loop) >= w->not_before_ns)
		(void)account_survey(a, w);
}

static void remove_wait(struct account_wait **at, const struct account_wait *w)
{
	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

void account_survey_cancel(struct account *a, struct account_wait *w)
{
	w->waits = false;
	remove_wait(&a->waits, w);
	if (a->running)
		remove_wait(&a->running->waits, w);
}

int surveyor_open(struct account *a)
{
	/* The first one is waited for, by whoever wants to know how things are. */
	return begin(a, false);
}

void surveyor_close(struct account *a)
{
	struct account_wait *asked = a->running ? a->running->waits : NULL, *next = a->waits;

	a->waits = NULL;
	give_up(a);
	answer(asked, NULL, -ECANCELED);
	answer(next, NULL, -ECANCELED);
	replace(a, NULL);
}

void surveyor_tick(struct account *a, uint64_t now_ns)
{
	const struct surveying *s = a->running;
	uint64_t allowed_ns =
		a->config->survey_interval_ns + (a->survey ? SHARE * a->survey->cost_ns : 0);
	/* The idle one got no processor for so long that the books are getting old. */
	bool starved = s && s->job.worker == SCANNER_IDLE && now_ns > s->began_ns + allowed_ns;

	if (starved)
		give_up(a);
	if (!a->running && now_ns >= a->survey_due_ns && begin(a, !starved) < 0)
		a->survey_due_ns = now_ns + a->config->survey_interval_ns;
}
