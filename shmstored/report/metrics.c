/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c: the things that there are (the daemon, partitions, users, labels, stores, limits),
 * each with its labels; what is said of each is in fields/.
 *
 * The number of series is bounded: users and labels are few, stores are METRICS_STORES_MAX a
 * partition and no label changes with a process (a pid in a label would make a new series with
 * every restart).
 */
#include <errno.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>

#include "actord.h"
#include "config.h"
#include "events.h"
#include "host.def"
#include "lateness.h"
#include "loop.h"
#include "metricswrite.h"
#include "partition.def"
#include "report.h"
#include "stores.def"
#include "sums.def"
#include "tier.def"
#include "tierwork.def"
#include "usage.def"

/* A partition, with what is worked out once for all of its metrics. */
struct scene {
	const struct account *account;
	struct tierkeeper_view tier;
	struct tierscrub_view scrub;
	struct report_arb arb;
	bool arbitrated;
	struct report_stages_sums stages;
	struct survey_label *labels;
	size_t n_labels;
	uint64_t states[TIERKEEPER_UNAVAILABLE + 1]; /* 1: the tier's */
	uint64_t n_left_out;
};

struct writer {
	struct metric_out out;
	struct host *host;
	struct report_view view;
	struct scene *scenes;
	size_t n_scenes;
};

/* For each partition; a thing of one; and a table of things, one of each partition where there is
 * one. */
#define EACH_SCENE(w) for (struct scene *s = (w)->scenes; s < (w)->scenes + (w)->n_scenes; s++)
#define ADD(w, thing, s, ...) \
	metric_add(&(w)->out, thing, LABELS("partition", (s)->account->path, ##__VA_ARGS__))
#define TABLE(w, rows, there, thing)              \
	do {                                      \
		EACH_SCENE(w)                     \
			if (there)                \
				ADD(w, thing, s); \
		metric_table(&(w)->out, rows);    \
	} while (0)

static void write_lateness(struct writer *w, const struct lateness *l)
{
	uint64_t n = 0;

	metric_begin(&w->out, "shmstored_loop_lateness_seconds", "histogram",
		     "How late a timer of the loop's was called.");
	for (unsigned i = 0; i < LATENESS_BUCKETS; i++) {
		n += l->counts[i];
		fprintf(w->out.file, "shmstored_loop_lateness_seconds_bucket{le=\"");
		if (i < LATENESS_BUCKETS - 1)
			fprintf(w->out.file, i == LATENESS_BUCKETS - 2 ? "%.1f" : "%g",
				(double)lateness_bounds[i] / 1e9);
		else
			fprintf(w->out.file, "+Inf");
		fprintf(w->out.file, "\"} %" PRIu64 "\n", n);
	}
	fprintf(w->out.file, "shmstored_loop_lateness_seconds_sum %" PRIu64 ".%09" PRIu64 "\n",
		l->sum_ns / 1000000000, l->sum_ns % 1000000000);
	fprintf(w->out.file, "shmstored_loop_lateness_seconds_count %" PRIu64 "\n", n);
}

static void write_host(struct writer *w, const struct lateness *l)
{
	uint64_t one = 1, n[EVENTS_N];

	metric_add(&w->out, &one,
		   LABELS("version", shmstore_version(), "backend", loop_backend(w->host->loop)));
	metric_as(&w->out, FIELD_U64, false, "shmstored_build_info",
		  "1, with the daemon's version.");
	metric_add(&w->out, &w->host->started_ns, LABELS(NULL));
	metric_as(&w->out, FIELD_NS, false, "shmstored_start_time_seconds",
		  "When the daemon began, since the epoch.");
	metric_number(&w->out, "shmstored_clients", false, "Connected clients.", w->host->n_conns);
	metric_one(&w->out, of_host, &w->host->counters);
	for (int e = 0; e < (int)EVENTS_N; e++) {
		n[e] = events_count(w->host->events, (enum event)e);
		metric_add(&w->out, &n[e], LABELS("event", event_name((enum event)e)));
	}
	metric_as(&w->out, FIELD_U64, true, "shmstored_events", "Events, by kind.");
	if (l)
		write_lateness(w, l);
}

/* The df equation: used is the sum of these and of the residual. */
static void add_terms(struct writer *w, const struct scene *s, const struct shmstore_usage *u)
{
	ADD(w, &u->linked, s, "term", "linked");
	ADD(w, &u->ghosts, s, "term", "ghosts");
	ADD(w, &u->pool, s, "term", "pool");
	ADD(w, &u->inflight, s, "term", "inflight");
	ADD(w, &u->foreign, s, "term", "foreign");
}

static void write_partitions(struct writer *w)
{
	TABLE(w, of_space, true, &s->account->tick);
	TABLE(w, of_ledgers, true, &s->account->tick);
	TABLE(w, of_usage, s->account->survey, &s->account->survey->usage);
	TABLE(w, of_survey, s->account->survey, s->account->survey);
	EACH_SCENE(w)
		if (s->account->survey)
			add_terms(w, s, &s->account->survey->usage);
	metric_as(&w->out, FIELD_U64, false, "shmstore_survey_term_bytes",
		  "The terms of the df equation at the last survey.");
	TABLE(w, of_tier, s->tier.info, s->tier.info);
	TABLE(w, of_evictions, true, &s->tier.counters);
	TABLE(w, of_scrubs, true, &s->scrub);
	EACH_SCENE(w)
		for (unsigned state = TIERKEEPER_NONE; state <= TIERKEEPER_UNAVAILABLE; state++)
			ADD(w, &s->states[state], s, "state",
			    tierkeeper_state_name((enum tierkeeper_state)state));
	metric_as(&w->out, FIELD_U64, false, "shmstore_tier_state",
		  "1 for the state that the disk tier is in.");
}

static void write_users(struct writer *w)
{
	EACH_SCENE(w)
		for (size_t i = 0; s->account->survey && i < s->account->survey->n_users; i++) {
			const struct survey_user *u = &s->account->survey->users[i];
			struct metric_thing *t = ADD(w, u, s, "uid", metric_uid, "user", u->name);

			if (t)
				t->uid = u->uid;
		}
	metric_table(&w->out, of_user);
	EACH_SCENE(w)
		for (size_t i = 0; i < s->n_labels; i++)
			ADD(w, &s->labels[i], s, "label", s->labels[i].label);
	metric_table(&w->out, of_label);
}

static void write_stores(struct writer *w)
{
	EACH_SCENE(w) {
		uint64_t n = 0;

		for (size_t i = 0; s->account->survey && i < s->account->survey->n_stores; i++) {
			const struct survey_store *store = &s->account->survey->stores[i];

			if (store->alive != SHMSTORE_ALIVE || !report_may_see(&w->view, store->uid))
				continue;
			if (n++ < METRICS_STORES_MAX)
				ADD(w, store, s, "store", store->name, "path", store->path, "label",
				    store->label);
		}
		s->n_left_out = n > METRICS_STORES_MAX ? n - METRICS_STORES_MAX : 0;
	}
	metric_table(&w->out, of_store);
	EACH_SCENE(w)
		ADD(w, &s->n_left_out, s);
	metric_as(&w->out, FIELD_U64, false, "shmstore_stores_left_out",
		  "Stores that have no series of their own here.");
}

struct limit_writer {
	struct writer *writer;
	const struct field *row;
	const struct scene *scene;
};

/* A line is there during the call only: what is written of it is written at once. */
static int write_limit(const struct quota_line *line, void *arg)
{
	struct limit_writer *l = arg;

	if (report_may_see_limit(&l->writer->view, l->scene->account, line)) {
		ADD(l->writer, line, l->scene, "kind", quota_kind_name(line->kind), "id", line->id);
		metric_samples(&l->writer->out, l->row);
	}
	return 0;
}

static void write_limits(struct writer *w)
{
	for (size_t i = 0; i < sizeof(of_limit) / sizeof(of_limit[0]); i++) {
		if (!of_limit[i].metric)
			continue;
		metric_family(&w->out, &of_limit[i]);
		EACH_SCENE(w) {
			struct limit_writer l = {w, &of_limit[i], s};

			if (s->account->quota)
				quota_each(s->account->quota, write_limit, &l);
		}
	}
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void scenes_deinit(struct writer *w)
{
	for (size_t i = 0; i < w->n_scenes; i++)
		free(w->scenes[i].labels);
	free(w->scenes);
}

static int scenes_init(struct writer *w)
{
	size_t n = 0;

	for (const struct account *a = w->host->accounts; a; a = a->next)
		n++;
	w->scenes = calloc(n + 1, sizeof(*w->scenes));
	if (!w->scenes)
		return -ENOMEM;
	for (const struct account *a = w->host->accounts; a; a = a->next) {
		struct scene *s = &w->scenes[w->n_scenes++];

		s->account = a;
		tierkeeper_view(a, &s->tier);
		tierscrub_view(a, &s->scrub);
		s->states[s->tier.state] = 1;
		if (a->stages)
			report_stages_sums(a->stages, &s->stages);
		s->arbitrated = report_arb_sums(a, &s->arb);
		if (a->survey && report_labels(&w->view, a->survey, &s->labels, &s->n_labels) < 0)
			return -ENOMEM;
	}
	return 0;
}

static void write_all(struct writer *w, const struct lateness *l)
{
	write_host(w, l);
	metricsself_write(&w->out, w->host->started_ns);
	metricspressure_write(&w->out, w->host);
	if (w->host->actord->metrics)
		w->host->actord->metrics(&w->out, w->host);
	if (w->host->config->stage.rules.enabled && w->n_scenes)
		TABLE(w, of_stages, true, &s->stages);
	write_partitions(w);
	TABLE(w, of_arbiter, s->arbitrated, &s->arb);
	write_users(w);
	write_stores(w);
	write_limits(w);
	if (w->out.open)
		fputs("# EOF\n", w->out.file);
}

int metrics_make(struct host *h, const struct lateness *l, unsigned uid, bool open, char **ret,
		 size_t *ret_size)
{
	struct writer w = {.out.open = open, .host = h, .view = {.uid = uid}};
	char *text = NULL;
	size_t size = 0;
	int r;

	w.out.file = open_memstream(&text, &size);
	if (!w.out.file)
		return -ENOMEM;
	r = scenes_init(&w);
	if (r == 0)
		write_all(&w, l);
	scenes_deinit(&w);
	metric_out_deinit(&w.out);
	if (w.out.failed || ferror(w.out.file))
		r = -ENOMEM;
	if (fclose(w.out.file) != 0)
		r = -ENOMEM;
	if (r < 0) {
		free(text);
		return r;
	}
	*ret = text;
	*ret_size = size;
	return 0;
}
