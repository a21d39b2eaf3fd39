/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c: the things that there are (the daemon, partitions, users, labels, stores, limits),
 * each with its labels; what is said of each is in fields/.
 *
 * The number of series is bounded: users and labels are few, stores are METRICS_STORES_MAX a
 * partition and no label changes with a process (a pid in a label would make a new series with
 * every restart).
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "actord.h"
#include "alloc.h"
#include "config.h"
#include "fields.h"
#include "gate.def"
#include "host.def"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "partition.def"
#include "pressure.h"
#include "process.h"
#include "report.h"
#include "socket.h"
#include "stores.def"
#include "sums.def"
#include "tier.def"
#include "tierwork.def"
#include "usage.def"

/* As a label's text: the uid of its thing. */
static const char metric_uid[1] = "";

/* The last word of a name that has one; no unit else. */
static const char *unit_of(const char *name)
{
	const char *last = strrchr(name, '_');

	return last && (strcmp(last, "_bytes") == 0 || strcmp(last, "_seconds") == 0) ? last + 1
										      : NULL;
}

/* The lines before a metric's samples. */
static void metric_begin(const struct metric_out *o, const char *name, const char *type,
			 const char *help)
{
	/* The older format calls a family of counters by its samples' name. */
	const char *suffix = !o->open && strcmp(type, "counter") == 0 ? "_total" : "";

	fprintf(o->file, "# TYPE %s%s %s\n", name, suffix, type);
	if (o->open && unit_of(name))
		fprintf(o->file, "# UNIT %s %s\n", name, unit_of(name));
	fprintf(o->file, "# HELP %s%s %s\n", name, suffix, help);
}

static void write_value(const struct metric_out *o, const struct field *f, const void *thing)
{
	const void *at = (const char *)thing + f->off;
	uint64_t ns;

	if (f->form == FIELD_U32)
		fprintf(o->file, " %" PRIu32 "\n", *(const uint32_t *)at);
	else if (f->form == FIELD_I64)
		fprintf(o->file, " %" PRId64 "\n", *(const int64_t *)at);
	else if (f->form != FIELD_NS && f->form != FIELD_MS)
		fprintf(o->file, " %" PRIu64 "\n", *(const uint64_t *)at);
	else {
		ns = *(const uint64_t *)at * (f->form == FIELD_MS ? 1000000 : 1);
		fprintf(o->file, " %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000, ns % 1000000000);
	}
}

static void write_sample(const struct metric_out *o, const struct field *f,
			 const struct metric_thing *t)
{
	char sign = '{', digits[12];

	snprintf(digits, sizeof(digits), "%u", t->uid);
	fprintf(o->file, "%s%s", f->metric, f->counter ? "_total" : "");
	for (const char *const *label = t->labels; *label; label += 2) {
		const char *text = label[1] == metric_uid ? digits : label[1] ? label[1] : "";
		char *escaped =
			printable_is(text, strlen(text)) ? NULL : printable_new(text, strlen(text));

		fprintf(o->file, "%c%s=\"", sign, label[0]);
		for (const char *c = escaped ? escaped : text; *c; c++) {
			if (*c == '\\' || *c == '"')
				putc('\\', o->file);
			putc(*c, o->file);
		}
		putc('"', o->file);
		free(escaped);
		sign = ',';
	}
	if (sign == ',')
		putc('}', o->file);
	write_value(o, f, t->at);
}

struct metric_thing *metric_add(struct metric_out *o, const void *at, const char *const *labels)
{
	struct metric_thing *t;
	size_t n = 0;

	if (SHMS_GROW(o->things, o->room, o->n_things, 1) < 0) {
		o->failed = true;
		return NULL;
	}
	t = &o->things[o->n_things++];
	*t = (struct metric_thing){.at = at};
	for (; labels[n] && n < 2 * LABELS_MAX; n += 2) {
		t->labels[n] = labels[n];
		t->labels[n + 1] = labels[n + 1];
	}
	return t;
}

/* The lines before a row's samples. */
static void metric_family(const struct metric_out *o, const struct field *row)
{
	metric_begin(o, row->metric, row->counter ? "counter" : "gauge", row->help);
}

/* The samples of the things, which are forgotten. */
static void metric_samples(struct metric_out *o, const struct field *row)
{
	for (size_t i = 0; i < o->n_things; i++)
		write_sample(o, row, &o->things[i]);
	o->n_things = 0;
}

void metric_rows(struct metric_out *o, const struct field *rows, size_t n)
{
	size_t n_things = o->n_things;

	for (const struct field *f = rows; f < rows + n; f++) {
		if (!f->metric)
			continue;
		metric_family(o, f);
		o->n_things = n_things;
		metric_samples(o, f);
	}
	o->n_things = 0;
}

/* A metric that is no member of a structure: each thing is that number. */
static void metric_as(struct metric_out *o, enum field_form form, bool counter, const char *name,
		      const char *help)
{
	const struct field row = {
		.form = (uint16_t)form, .counter = counter, .metric = name, .help = help};

	metric_rows(o, &row, 1);
}

static void metric_number(struct metric_out *o, const char *name, bool counter, const char *help,
			  uint64_t number)
{
	metric_add(o, &number, LABELS(NULL));
	metric_as(o, FIELD_U64, counter, name, help);
}

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

/* ---- the host's memory ----------------------------------------------------------------------- */

#define OF      struct amount
#define METRICS "shmstore_memory_"
static const struct field of_sums[] = {
	GAUGE(bytes, NULL, "total_bytes",
	      "What may be used of the host's memory: the tightest limit."),
	GAUGE(bytes, NULL, "used_bytes", "What is used of it."),
	GAUGE(bytes, NULL, "private_bytes",
	      "Of it, private memory of registered processes and their descendants."),
	GAUGE(bytes, NULL, "store_bytes", "Of it, what the partitions under watch have."),
	GAUGE(bytes, NULL, "other_bytes", "Of it, all else."),
	GAUGE(bytes, NULL, "gate_bytes", "From here on no more work begins."),
	GAUGE(bytes, NULL, "low_bytes", "Down to here before more begins again."),
	GAUGE(bytes, NULL, "kill_bytes", "Above this, tasks are preempted."),
};
#undef OF
#define OF struct memsource_term
static const struct field of_term[] = {
	GAUGE(bytes, NULL, "term_bytes",
	      "What the host's and each cgroup's files say, as far as they could be read.")};
#undef OF
#define OF struct pressure
static const struct field of_samples[] = {
	COUNTER(n_samples, NULL, "samples", "Looks at the host's memory."),
	COUNTER(n_unknown, NULL, "unknown_samples",
		"Of them, those that did not find out what is used of how much."),
	METRIC(FIELD_NS, true, cost_ns, NULL, "sampling_seconds",
	       "Processor time that the looks took."),
	COUNTER(n_above, NULL, "above_kill", "Times that more was used than the kill threshold."),
};
#undef METRICS
#undef OF

static void write_sums(struct metric_out *o, const struct pressure *p)
{
	const struct amount limits[] = {{p->limited, p->limits.gate},
					{p->limited, p->limits.low},
					{p->limited, p->limits.kill}};
	const struct amount *const sums[] = {&p->total, &p->used,   &p->private, &p->store,
					     &p->other, &limits[0], &limits[1],  &limits[2]};

	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
		if (sums[i]->known)
			metric_add(o, sums[i], LABELS(NULL));
		metric_rows(o, &of_sums[i], 1);
	}
	for (size_t i = 0; i < p->reading.n_levels; i++) {
		const struct memsource_level *l = &p->reading.levels[i];

		for (size_t k = 0; k < l->n_terms; k++)
			if (l->terms[k].state == MEMSOURCE_READ)
				metric_add(o, &l->terms[k],
					   LABELS("source", l->path, "term", l->terms[k].name));
	}
	metric_table(o, of_term);
}

static void write_pressure(struct metric_out *o, const struct host *h)
{
	const struct pressure *p = h->pressure;
	struct admit_books line;
	struct preempt_counts preempted;
	uint64_t above_ns;

	if (!p)
		return;
	above_ns = pressure_above_ns(p);
	write_sums(o, p);
	metric_number(o, "shmstore_memory_processes", false, "Registered processes.", p->procs.n);
	metric_one(o, of_samples, p);
	metric_add(o, &above_ns, LABELS(NULL));
	metric_as(o, FIELD_NS, true, "shmstore_memory_above_kill_seconds",
		  "How long more was used than that.");
	if (p->gated) {
		metric_number(o, "shmstore_gate_closed", false, "1 while no more work may begin.",
			      p->gate.closed);
		metric_number(o, "shmstore_gate_flips", true,
			      "Times that the gate closed or opened.", p->gate.n_flips);
	}
	if (h->admit) {
		admit_books(h->admit, &line);
		metric_one(o, of_line, &line);
	}
	if (h->preempt) {
		preempt_counts(h->preempt, &preempted);
		metric_one(o, of_preempted, &preempted);
	}
}

/*
 * The daemon's own process as Prometheus's client libraries tell it: process_*. Read
 * from /proc/self when somebody asks; what cannot be read is left out.
 */

/* In seconds with two decimals. */
static void write_hundredths(const struct metric_out *o, const char *name, const char *help,
			     bool counter, uint64_t value)
{
	metric_begin(o, name, counter ? "counter" : "gauge", help);
	fprintf(o->file, "%s%s %" PRIu64 ".%02" PRIu64 "\n", name, counter ? "_total" : "",
		value / 100, value % 100);
}

static void write_descriptors(struct metric_out *o)
{
	struct rlimit limit;
	struct dirent *e;
	uint64_t n = 0;
	DIR *dir = opendir("/proc/self/fd");

	if (dir) {
		while ((e = readdir(dir)) != NULL)
			n += e->d_name[0] != '.';
		closedir(dir);
		/* Without the one that was just open. */
		metric_number(o, "process_open_fds", false, "Open file descriptors.", n - 1);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		metric_number(o, "process_max_fds", false, "File descriptors that it may open.",
			      limit.rlim_cur);
}

/* 0: the text does not have it. */
static uint64_t number(const char *text, enum procstat_field field)
{
	const char *at = procstat_find(text, field);

	return at ? strtoull(at, NULL, 10) : 0;
}

static void write_process(struct metric_out *o, int64_t started_ns)
{
	uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE),
		 cpu;
	char text[PROCSTAT_MAX];

	if (process_read(getpid(), "stat", text, sizeof(text)) == 0 &&
	    number(text, PROCSTAT_RESIDENT_PAGES) && ticks) {
		cpu = number(text, PROCSTAT_USER_TICKS) + number(text, PROCSTAT_SYSTEM_TICKS);
		write_hundredths(o, "process_cpu_seconds", "Processor time, of user and system.",
				 true, cpu * 100 / ticks);
		metric_number(o, "process_threads", false, "Threads.",
			      number(text, PROCSTAT_THREADS));
		metric_number(o, "process_virtual_memory_bytes", false, "Address space.",
			      number(text, PROCSTAT_BYTES));
		metric_number(o, "process_resident_memory_bytes", false, "Memory that is resident.",
			      number(text, PROCSTAT_RESIDENT_PAGES) * page);
	}
	write_hundredths(o, "process_start_time_seconds", "When it began, since the epoch.", false,
			 (uint64_t)started_ns / 10000000);
	write_descriptors(o);
}

/* ---- all of it ------------------------------------------------------------------------------- */

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
	write_process(&w->out, w->host->started_ns);
	write_pressure(&w->out, w->host);
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
	for (size_t i = 0; i < w.n_scenes; i++)
		free(w.scenes[i].labels);
	free(w.scenes);
	free(w.out.things);
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
