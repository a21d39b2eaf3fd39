/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics.c: tables of what there is to say, and one writer for each kind of thing that it is said of: the daemon, a partition, its
 * last survey, a user, a label, a store, a limit. All samples of a metric follow each other, as the format wants, so the tables are the
 * outer loop.
 *
 * The number of series is bounded: users and labels are few, stores are METRICS_STORES_MAX a partition and no label changes with a
 * process (a pid in a label would make a new series with every restart).
 */
#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "events.h"
#include "host.h"
#include "lateness.h"
#include "loop.h"
#include "metricsactors.h"
#include "metricspressure.h"
#include "metricsself.h"
#include "metricsstages.h"
#include "metricswrite.h"
#include "quota.h"
#include "report_parts.h"
#include "tierkeeper.h"
#include "tierscrub.h"

#define GAUGE(type, member, name, unit, help)                             \
	{                                                                 \
		name, unit, help, false, FORM_U64, offsetof(type, member) \
	}
#define COUNTER(type, member, name, unit, help)                          \
	{                                                                \
		name, unit, help, true, FORM_U64, offsetof(type, member) \
	}

#define HOST(member, name, help) COUNTER(struct host_counters, member, "shmstored_" name, "", help)
static const struct metric of_host[] = {
	HOST(n_requests, "requests", "Messages handled."),
	HOST(n_connections, "connections", "Connections accepted."),
	HOST(n_dropped, "dropped_connections", "Connections that the daemon ended for a fault of the client's."),
	HOST(n_refused, "refused_connections", "Connections not accepted because there were too many."),
	HOST(n_grants, "grants", "Requests for credit that were granted."),
	HOST(n_waits, "waits", "Requests for credit that had to wait."),
	HOST(n_refusals, "refusals", "Requests for credit that were refused."),
	HOST(n_reaped, "reaped_stores", "Stores taken apart after their owner's death."),
	HOST(n_brokered, "user_handoffs", "Handoffs between users."),
};

#define TICK_GAUGE(member, name, unit, help)   GAUGE(struct account_tick, member, "shmstore_" name, unit, help)
#define TICK_COUNTER(member, name, unit, help) COUNTER(struct account_tick, member, "shmstore_" name, unit, help)
static const struct metric of_tick[] = {
	TICK_GAUGE(size, "size_bytes", "bytes", "Size of the partition's file system; 0: no limit."),
	TICK_GAUGE(used, "used_bytes", "bytes", "Used bytes of the partition's file system."),
	TICK_GAUGE(used_max, "used_max_bytes", "bytes", "Most bytes used since the daemon began."),
	TICK_GAUGE(inodes_size, "inodes", "", "Inodes that the file system may have; 0: no limit."),
	TICK_GAUGE(inodes_used, "inodes_used", "", "Inodes in use."),
	TICK_GAUGE(n_members, "stores", "", "Stores that live."),
	TICK_GAUGE(n_objects, "objects", "", "Objects linked, summed over the stores that live."),
	TICK_GAUGE(linked, "ledger_linked_bytes", "bytes",
		   "Linked by the ledgers; shared objects count once per store."),
	TICK_GAUGE(pool, "ledger_pool_bytes", "bytes", "Recycled files by the ledgers."),
	TICK_GAUGE(mapped, "ledger_mapped_bytes", "bytes", "Mapped views by the ledgers."),
	TICK_GAUGE(reserved, "ledger_reserved_bytes", "bytes", "Reserved for writers by the ledgers."),
	TICK_COUNTER(put_n, "puts", "", "Objects put."),
	TICK_COUNTER(put_bytes, "put_bytes", "bytes", "Bytes put."),
	TICK_COUNTER(get_n, "gets", "", "Views got."),
	TICK_COUNTER(get_bytes, "get_bytes", "bytes", "Bytes of views got."),
	TICK_COUNTER(delete_n, "deletes", "", "Objects deleted."),
	TICK_COUNTER(handoff_n, "handoffs", "", "Objects handed off."),
	TICK_COUNTER(handoff_bytes, "handoff_bytes", "bytes", "Bytes handed off."),
	TICK_COUNTER(adopt_n, "adopts", "", "Objects adopted."),
	TICK_COUNTER(adopt_bytes, "adopt_bytes", "bytes", "Bytes adopted."),
};

#define SURVEY(member, name, unit, help) GAUGE(struct survey, member, "shmstore_survey_" name, unit, help)
static const struct metric of_survey[] = {
	SURVEY(usage.used, "used_bytes", "bytes",
	       "Used bytes at the last survey: the sum of its terms and the residual."),
	{"shmstore_survey_residual_bytes", "bytes",
	 "What the survey's terms leave unexplained; 0 on a quiet partition.", false, FORM_I64,
	 offsetof(struct survey, usage.residual)},
	SURVEY(usage.metadata, "metadata_bytes", "bytes", "The part of linked that is the stores' own pages."),
	SURVEY(usage.stranded, "stranded_bytes", "bytes",
	       "The part of pool in pages that packed objects have the rest of."),
	SURVEY(usage.n_stores, "stores", "", "Stores, dead ones included."),
	SURVEY(usage.n_objects, "objects", "", "Names of objects."),
	SURVEY(usage.n_leases, "leases", "", "Handoffs on their way."),
	SURVEY(usage.n_unreadable, "unreadable", "", "Directories and processes that the survey could not look into."),
	COUNTER(struct survey, sequence, "shmstore_surveys", "", "Surveys made."),
	{"shmstore_survey_duration_seconds", "seconds", "How long the last survey took.", false, FORM_NS,
	 offsetof(struct survey, duration_ns)},
	{"shmstore_survey_time_seconds", "seconds", "When the last survey ended, since the epoch.", false, FORM_NS,
	 offsetof(struct survey, time_ns)},
};

/* The df equation: used is the sum of these and of the residual. */
static const struct {
	const char *name;
	size_t off;
} terms[] = {
	{"linked", offsetof(struct shmstore_usage, linked)},   {"ghosts", offsetof(struct shmstore_usage, ghosts)},
	{"pool", offsetof(struct shmstore_usage, pool)},       {"inflight", offsetof(struct shmstore_usage, inflight)},
	{"foreign", offsetof(struct shmstore_usage, foreign)},
};

#define TIER(member, name, unit, help) GAUGE(struct shmstore_tier_info, member, "shmstore_tier_" name, unit, help)
static const struct metric of_tier[] = {
	TIER(disk_size, "disk_size_bytes", "bytes", "Size of the file system that the disk tier is on."),
	TIER(disk_free, "disk_free_bytes", "bytes", "Free bytes of it."),
	TIER(config.max, "max_bytes", "bytes", "Most bytes that the partition's tier files may take; 0: no limit."),
	TIER(config.min_free, "min_free_bytes", "bytes", "Bytes that stay free on the tier's file system."),
	TIER(used, "used_bytes", "bytes", "Tier files, on disk."),
	TIER(demoted, "demoted_bytes", "bytes", "Of them, those of objects that are there only."),
	TIER(clean, "clean_bytes", "bytes", "Of them, those of objects that are in memory too."),
	TIER(orphans, "orphan_bytes", "bytes", "Of them, those of no object: garbage, until the next gc."),
	TIER(original, "original_bytes", "bytes", "What the demoted objects would take in memory."),
	TIER(n_demoted, "demoted_objects", "", "Objects that are in the tier only."),
	TIER(n_codec_raw, "raw_files", "", "Tier files that are not compressed."),
	TIER(n_codec_zstd, "zstd_files", "", "Tier files that are compressed."),
};

#define EVICT(member, name, unit, help) COUNTER(struct tierkeeper_counters, member, "shmstore_tier_" name, unit, help)
static const struct metric of_evictions[] = {
	EVICT(n_evictions, "evictions", "", "Evictions by the daemon that demoted something."),
	EVICT(n_objects, "evicted_objects", "", "Objects that the daemon demoted."),
	EVICT(n_clean, "evicted_clean_objects", "", "Of them, those that needed no write."),
	EVICT(freed, "freed_bytes", "bytes", "Memory that the daemon's evictions freed at once."),
	EVICT(held, "held_bytes", "bytes", "Memory of demoted objects that was mapped still."),
	EVICT(original, "evicted_bytes", "bytes", "Bytes of objects that the daemon wrote to the disk, as in memory."),
	EVICT(written, "written_bytes", "bytes", "Bytes that the daemon wrote to the disk for them."),
	EVICT(n_disk_full, "disk_full", "", "Evictions that ended for want of disk."),
	EVICT(n_damaged, "damaged", "", "Evictions that met a damaged tier file."),
	{"shmstore_tier_eviction_seconds", "seconds", "Time that the daemon's evictions took.", true, FORM_NS,
	 offsetof(struct tierkeeper_counters, duration_ns)},
};

#define SCRUB(kind, member, name, unit, help) kind(struct tierscrub_view, member, "shmstore_tier_" name, unit, help)
static const struct metric of_scrubs[] = {
	SCRUB(COUNTER, n_scrubs, "scrubs", "", "Scrubs of all tier files that came to their end."),
	SCRUB(COUNTER, bytes_all, "scrubbed_bytes", "bytes", "Bytes of tier files read by scrubs."),
	SCRUB(GAUGE, n_damaged, "damaged_files", "", "Tier files that the last scrub found damaged or missing."),
};

#define USER(member, name, unit, help) GAUGE(struct survey_user, member, "shmstore_user_" name, unit, help)
static const struct metric of_user[] = {
	USER(books.linked, "linked_bytes", "bytes", "The user's objects, leases and stores' pages, each inode once."),
	USER(books.pool, "pool_bytes", "bytes", "The user's recycled files."),
	USER(books.ghosts, "ghost_bytes", "bytes", "The user's deleted files that are still mapped or open."),
	USER(books.inflight, "inflight_bytes", "bytes", "The user's files that are being written."),
	USER(pss, "pss_bytes", "bytes", "Proportional share, summed over the user's stores."),
	USER(uss, "uss_bytes", "bytes", "What only one store links, summed over the user's stores."),
	USER(books.n_stores, "stores", "", "The user's stores."),
};

#define LABEL(member, name, unit, help) GAUGE(struct report_label, member, "shmstore_label_" name, unit, help)
static const struct metric of_label[] = {
	LABEL(linked, "linked_bytes", "bytes", "Linked by the label's stores; shared objects count once per store."),
	LABEL(pss, "pss_bytes", "bytes", "Proportional share, summed over the label's stores."),
	LABEL(uss, "uss_bytes", "bytes", "What only one store links, summed over the label's stores."),
	LABEL(pool, "pool_bytes", "bytes", "Recycled files of the label's stores."),
	LABEL(n_stores, "stores", "", "The label's stores."),
};

#define STORE(member, name, unit, help) GAUGE(struct survey_store, member, "shmstore_store_" name, unit, help)
static const struct metric of_store[] = {
	STORE(books.linked, "linked_bytes", "bytes", "Objects that the store links."),
	STORE(books.pss, "pss_bytes", "bytes", "The store's proportional share of them."),
	STORE(books.uss, "uss_bytes", "bytes", "What would be free if the store went."),
	STORE(books.pool, "pool_bytes", "bytes", "Memory that the store keeps for its next puts."),
	STORE(books.stranded, "stranded_bytes", "bytes",
	      "The part of it in pages that packed objects have the rest of."),
	STORE(counters.mapped_bytes, "mapped_bytes", "bytes", "What the store's process maps, by its ledger."),
	STORE(books.n_objects, "objects", "", "Objects that the store links."),
};

#define LIMIT(member, name, unit, help) GAUGE(struct quota_line, member, "shmstore_limit_" name, unit, help)
static const struct metric of_limit[] = {
	LIMIT(hard, "hard_bytes", "bytes", "The hard limit; 0: none."),
	LIMIT(soft, "soft_bytes", "bytes", "The soft limit; 0: none."),
	LIMIT(used, "used_bytes", "bytes", "Used of the limit."),
	LIMIT(outstanding, "outstanding_bytes", "bytes", "Granted and not yet used."),
	{"shmstore_limit_waiting", "", "Requests that wait under the limit.", false, FORM_U32,
	 offsetof(struct quota_line, n_waiting)},
	COUNTER(struct quota_line, n_refused, "shmstore_limit_refusals", "", "Requests that the limit refused."),
};

#define ARB_GAUGE(member, name, unit, help) GAUGE(struct report_arb, member, "shmstore_arbiter_" name, unit, help)
#define ARB_COUNTER(member, name, help)     COUNTER(struct report_arb, member, "shmstore_arbiter_" name, "", help)
static const struct metric of_arbiter[] = {
	ARB_GAUGE(capacity, "capacity_bytes", "bytes", "What the partition's pool has to give."),
	ARB_GAUGE(used, "used_bytes", "bytes", "Booked of it: what the kernel counts, reservations, leases."),
	ARB_GAUGE(reclaimable, "reclaimable_bytes", "bytes", "The part of it that can be had back."),
	ARB_GAUGE(leased, "leased_bytes", "bytes", "In leases of stores, spent or not."),
	ARB_GAUGE(objects, "objects_bytes", "bytes", "What the kernel counts and nothing can give back."),
	ARB_GAUGE(drift, "drift_bytes", "bytes", "Foreign files, by which the pool is smaller."),
	ARB_GAUGE(n_tasks, "tasks", "", "Tasks that live."),
	ARB_GAUGE(n_contexts, "contexts", "", "Contexts that are bound."),
	ARB_GAUGE(n_parked, "parked", "", "Contexts that wait."),
	ARB_GAUGE(level, "pressure", "", "0: nobody waits; 1: somebody does; 2: somebody was rolled back lately."),
	ARB_COUNTER(n_retries, "retries", "Times that somebody was told to roll back."),
	ARB_COUNTER(n_splits, "splits", "Times that somebody was told to make its work smaller."),
	ARB_COUNTER(n_nomem, "nomem", "Reservations that could not be had."),
	ARB_COUNTER(n_toobig, "toobig", "Reservations larger than their pool."),
	ARB_COUNTER(n_timeouts, "timeouts", "Reservations that were waited for in vain."),
};

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

/* A partition, with what is worked out once for all of its metrics. */
struct scene {
	const struct account *account;
	struct tierkeeper_view tier;
	struct tierscrub_view scrub;
	struct report_arb arb;
	bool arbitrated;
	struct report_label *labels;
	size_t n_labels;
};

struct writer {
	struct metric_out out;
	struct host *host;
	struct report_view view;
	struct scene *scenes;
	size_t n_scenes;
};

#define N_OF(table) (sizeof(table) / sizeof((table)[0]))

/* ---- the things -------------------------------------------------------------------------------------------------------- */

static void write_lateness(struct writer *w, const struct lateness *l)
{
	uint64_t n = 0;

	metric_begin(&w->out, "shmstored_loop_lateness_seconds", "histogram", "seconds",
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
	fprintf(w->out.file, "shmstored_loop_lateness_seconds_sum %" PRIu64 ".%09" PRIu64 "\n", l->sum_ns / 1000000000,
		l->sum_ns % 1000000000);
	fprintf(w->out.file, "shmstored_loop_lateness_seconds_count %" PRIu64 "\n", n);
}

static void write_host(struct writer *w, const struct lateness *l)
{
	static const struct metric start =
		METRIC(FORM_NS, "shmstored_start_time_seconds", "seconds", "When the daemon began, since the epoch.");
	static const struct metric build =
		METRIC(FORM_U64, "shmstored_build_info", "", "1, with the daemon's version.");
	static const struct metric clients = {"shmstored_clients", "", "Connected clients.", false, FORM_U32, 0};
	static const struct metric events = {"shmstored_events", "", "Events, by kind.", true, FORM_U64, 0};
	const uint64_t one = 1;

	metric_family(&w->out, &build);
	metric_sample(&w->out, &build, &one,
		      LABELS("version", shmstore_version(), "backend", loop_backend(w->host->loop)));
	metric_family(&w->out, &start);
	metric_sample(&w->out, &start, &w->host->started_ns, LABELS(NULL));
	metric_family(&w->out, &clients);
	metric_sample(&w->out, &clients, &w->host->n_conns, LABELS(NULL));
	for (size_t i = 0; i < N_OF(of_host); i++) {
		metric_family(&w->out, &of_host[i]);
		metric_sample(&w->out, &of_host[i], &w->host->counters, LABELS(NULL));
	}
	metric_family(&w->out, &events);
	for (int e = 0; e < (int)EVENTS_N; e++) {
		const uint64_t n = events_count(w->host->events, (enum event)e);

		metric_sample(&w->out, &events, &n, LABELS("event", event_name((enum event)e)));
	}
	if (l)
		write_lateness(w, l);
}

static void write_partitions(struct writer *w)
{
	static const struct metric term = METRIC(FORM_U64, "shmstore_survey_term_bytes", "bytes",
						 "The terms of the df equation at the last survey.");

	for (size_t i = 0; i < N_OF(of_tick); i++) {
		metric_family(&w->out, &of_tick[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			metric_sample(&w->out, &of_tick[i], &w->scenes[k].account->tick,
				      LABELS("partition", w->scenes[k].account->path));
	}
	for (size_t i = 0; i < N_OF(of_survey); i++) {
		metric_family(&w->out, &of_survey[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			if (w->scenes[k].account->survey)
				metric_sample(&w->out, &of_survey[i], w->scenes[k].account->survey,
					      LABELS("partition", w->scenes[k].account->path));
	}
	metric_family(&w->out, &term);
	for (size_t k = 0; k < w->n_scenes; k++) {
		const struct account *a = w->scenes[k].account;

		for (size_t i = 0; a->survey && i < N_OF(terms); i++)
			metric_sample(&w->out, &term, (const char *)&a->survey->usage + terms[i].off,
				      LABELS("partition", a->path, "term", terms[i].name));
	}
}

static void write_tiers(struct writer *w)
{
	static const struct metric state = {
		"shmstore_tier_state", "", "1 for the state that the disk tier is in.", false, FORM_U64, 0};

	for (size_t i = 0; i < N_OF(of_tier); i++) {
		metric_family(&w->out, &of_tier[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			if (w->scenes[k].tier.info)
				metric_sample(&w->out, &of_tier[i], w->scenes[k].tier.info,
					      LABELS("partition", w->scenes[k].account->path));
	}
	for (size_t i = 0; i < N_OF(of_evictions); i++) {
		metric_family(&w->out, &of_evictions[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			metric_sample(&w->out, &of_evictions[i], &w->scenes[k].tier.counters,
				      LABELS("partition", w->scenes[k].account->path));
	}
	for (size_t i = 0; i < N_OF(of_scrubs); i++) {
		metric_family(&w->out, &of_scrubs[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			metric_sample(&w->out, &of_scrubs[i], &w->scenes[k].scrub,
				      LABELS("partition", w->scenes[k].account->path));
	}
	metric_family(&w->out, &state);
	for (size_t k = 0; k < w->n_scenes; k++)
		for (unsigned s = TIERKEEPER_NONE; s <= TIERKEEPER_UNAVAILABLE; s++) {
			const uint64_t is = w->scenes[k].tier.state == s;

			metric_sample(&w->out, &state, &is,
				      LABELS("partition", w->scenes[k].account->path, "state",
					     tierkeeper_state_name((enum tierkeeper_state)s)));
		}
}

static void write_arbiters(struct writer *w, const struct metric *m)
{
	metric_family(&w->out, m);
	for (size_t k = 0; k < w->n_scenes; k++)
		if (w->scenes[k].arbitrated)
			metric_sample(&w->out, m, &w->scenes[k].arb, LABELS("partition", w->scenes[k].account->path));
}

static void write_users(struct writer *w, const struct metric *m)
{
	metric_family(&w->out, m);
	for (size_t k = 0; k < w->n_scenes; k++) {
		const struct account *a = w->scenes[k].account;

		for (size_t i = 0; a->survey && i < a->survey->n_users; i++) {
			const struct survey_user *u = &a->survey->users[i];
			char uid[16];

			snprintf(uid, sizeof(uid), "%u", (unsigned)u->uid);
			metric_sample(&w->out, m, u, LABELS("partition", a->path, "uid", uid, "user", u->name));
		}
	}
}

static void write_labels(struct writer *w, const struct metric *m)
{
	metric_family(&w->out, m);
	for (size_t k = 0; k < w->n_scenes; k++)
		for (size_t i = 0; i < w->scenes[k].n_labels; i++)
			metric_sample(
				&w->out, m, &w->scenes[k].labels[i],
				LABELS("partition", w->scenes[k].account->path, "label", w->scenes[k].labels[i].label));
}

/* m NULL: only counts those that there is no room for. */
static uint64_t write_stores_of(struct writer *w, const struct account *a, const struct metric *m)
{
	uint64_t n = 0;

	for (size_t i = 0; a->survey && i < a->survey->n_stores; i++) {
		const struct survey_store *s = &a->survey->stores[i];

		if (s->alive != SHMSTORE_ALIVE || !report_may_see(&w->view, s->uid))
			continue;
		if (n++ < METRICS_STORES_MAX && m)
			metric_sample(
				&w->out, m, s,
				LABELS("partition", a->path, "store", s->name, "path", s->path, "label", s->label));
	}
	return n > METRICS_STORES_MAX ? n - METRICS_STORES_MAX : 0;
}

static void write_stores(struct writer *w)
{
	static const struct metric left_out = {
		"shmstore_stores_left_out", "", "Stores that have no series of their own here.", false, FORM_U64, 0};

	for (size_t i = 0; i < N_OF(of_store); i++) {
		metric_family(&w->out, &of_store[i]);
		for (size_t k = 0; k < w->n_scenes; k++)
			write_stores_of(w, w->scenes[k].account, &of_store[i]);
	}
	metric_family(&w->out, &left_out);
	for (size_t k = 0; k < w->n_scenes; k++) {
		const uint64_t n = write_stores_of(w, w->scenes[k].account, NULL);

		metric_sample(&w->out, &left_out, &n, LABELS("partition", w->scenes[k].account->path));
	}
}

struct limit_writer {
	struct writer *writer;
	const struct metric *metric;
	const struct account *account;
};

static int write_limit(const struct quota_line *line, void *arg)
{
	struct limit_writer *l = arg;

	if (report_may_see_limit(&l->writer->view, l->account, line))
		metric_sample(
			&l->writer->out, l->metric, line,
			LABELS("partition", l->account->path, "kind", report_limit_name(line->kind), "id", line->id));
	return 0;
}

static void write_limits(struct writer *w, const struct metric *m)
{
	metric_family(&w->out, m);
	for (size_t k = 0; k < w->n_scenes; k++) {
		struct limit_writer l = {.writer = w, .metric = m, .account = w->scenes[k].account};

		if (l.account->quota)
			quota_each(l.account->quota, write_limit, &l);
	}
}

/* ---- all of it --------------------------------------------------------------------------------------------------------- */

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
	metricsactors_write(&w->out, w->host->actors);
	metricsstages_write(&w->out, w->host->accounts);
	write_partitions(w);
	write_tiers(w);
	for (size_t i = 0; i < N_OF(of_arbiter); i++)
		write_arbiters(w, &of_arbiter[i]);
	for (size_t i = 0; i < N_OF(of_user); i++)
		write_users(w, &of_user[i]);
	for (size_t i = 0; i < N_OF(of_label); i++)
		write_labels(w, &of_label[i]);
	write_stores(w);
	for (size_t i = 0; i < N_OF(of_limit); i++)
		write_limits(w, &of_limit[i]);
	if (w->out.open)
		fputs("# EOF\n", w->out.file);
}

int metrics_make(struct host *h, const struct lateness *l, unsigned uid, bool open, char **ret, size_t *ret_size)
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
	if (ferror(w.out.file))
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
