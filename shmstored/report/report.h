/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: the daemon's state as JSON documents: one source for the CLI (WIRE_QUERY), the HTTP API
 * and the page, so that they say the same. Fields are named as in shmstore-admin's --json where
 * they mean the same; bytes are integers. docs/operations.md lists them.
 */
#ifndef REPORT_H
#define REPORT_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "arbiter.h"
#include "fields.h"
#include "wire.h"

struct host;
struct lateness;

#define REPORT_ALL         ((unsigned)-1)
#define REPORT_NOBODY      ((unsigned)-2) /* sees no store by name, only totals */
#define REPORT_WORKERS_MAX 4096u          /* a longer list is cut, and says by how much */

/* Is there such a question? */
bool report_answers(uint32_t what);
/* The question that has this name; 0: none has. */
enum wire_question report_question(const char *name);
/* path: one partition, "" or NULL = all. NULL: no such partition, or no memory. The caller puts the
 * object. uid: whose stores may be seen by name; REPORT_ALL, REPORT_NOBODY. since: only what is
 * newer: EVENTS after that number, HISTORY after that time (CLOCK_REALTIME, ns). 0: all. */
struct json_object *report_make(struct host *h, enum wire_question what, const char *path,
				unsigned uid, uint64_t since);

/* Is the daemon well enough to be believed? */
/* {"status":"ok"|"unwell","reasons":["…"]}; the caller puts it. NULL: no memory. */
struct json_object *health_make(const struct host *h, const struct lateness *l, bool *ret_well);

/* The daemon's state for Prometheus and its like. docs/operations.md lists the metrics. */
#define METRICS_TYPE_OPEN  "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define METRICS_TYPE_PLAIN "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_STORES_MAX 256u /* series of single stores, per partition and metric */

/*
 * open: OpenMetrics 1.0, else the older text format of Prometheus. uid: as report_make(): whose
 * stores and labels are there by name. 0: *ret is to be freed. -ENOMEM.
 */
int metrics_make(struct host *h, const struct lateness *l, unsigned uid, bool open, char **ret,
		 size_t *ret_size);

/* For this room, and for metrics of actors: the parts that report.c puts together. Each fills in
 * the object of one partition. */
struct account;
struct quota_line;
struct survey;
struct survey_label;

/* The asking user, and the time. */
struct report_view {
	unsigned uid;     /* as report_make() */
	uint64_t since;   /* as report_make_since() */
	int64_t now_ns;   /* CLOCK_REALTIME */
	uint64_t mono_ns; /* CLOCK_MONOTONIC */
};

/* May the asker see what is that user's by name? */
static inline bool report_may_see(const struct report_view *v, uid_t owner)
{
	return v->uid == REPORT_ALL || (v->uid != REPORT_NOBODY && v->uid == owner);
}

bool report_may_see_limit(const struct report_view *v, const struct account *a,
			  const struct quota_line *q);
/* survey_labels() of those stores only that the asker may see. */
int report_labels(const struct report_view *v, const struct survey *s, struct survey_label **ret,
		  size_t *ret_n);

/* Adds "arbiter" to what report_status() says; null where it is off. */
void report_arb_status(const struct account *a, struct json_object *o);
/* Contexts with a withheld call, tasks, and the sums that operators look at: for report_status()
 * and the metrics. */
struct report_arb {
	struct arb_totals totals;
	struct arb_pool_info pool; /* the partition's */
	uint64_t leased, objects, drift, level;
};
/* False: the arbiter is off. */
bool report_arb_sums(const struct account *a, struct report_arb *ret);

void report_arbiter(const struct report_view *v, struct account *a, struct json_object *o);
void report_arb_log(const struct report_view *v, struct account *a, struct json_object *o);
void report_workers(const struct report_view *v, struct account *a, struct json_object *o);
void report_quota(const struct report_view *v, struct account *a, struct json_object *o);

struct stages;
struct report_stages_sums {
	int64_t total, held;                                   /* bytes, private and shared */
	uint64_t n_sessions, n_running, n_waiting, n_degraded; /* now */
	uint64_t n_queries, n_begun, n_waited, n_begun_degraded, wait_ns; /* ever */
};
void report_stages_sums(const struct stages *t, struct report_stages_sums *ret);
void report_stages(const struct report_view *v, struct account *a, struct json_object *o);

/* Of the host, not of a partition. */
void report_memory(const struct report_view *v, struct host *h, struct json_object *o);
void report_gate(const struct report_view *v, struct host *h, struct json_object *o);

/*
 * Metrics, in OpenMetrics 1.0 or in Prometheus's older text format. All samples of a family follow
 * each other, so things are gathered first, each with its labels, and then each row of their table
 * is written for all of them.
 */

/* Names and texts, "partition", path, …: texts may be any bytes; NULL is "". */
#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LABELS_MAX  ((size_t)4)

struct metric_thing {
	const void *at;
	const char *labels[2 * LABELS_MAX + 1];
	unsigned uid; /* that the label metric_uid shows */
};

struct metric_out {
	FILE *file;
	bool open;   /* OpenMetrics */
	bool failed; /* no memory */
	struct metric_thing *things;
	size_t n_things, room;
};

/* Takes part in what is written next. Borrowed until then. NULL: no memory. */
struct metric_thing *metric_add(struct metric_out *o, const void *at, const char *const *labels);
/* Writes the rows that have a metric, each for all things of before; and forgets these. */
void metric_rows(struct metric_out *o, const struct field *rows, size_t n);
#define metric_table(o, rows)   metric_rows(o, rows, sizeof(rows) / sizeof((rows)[0]))
/* The rows of one thing. */
#define metric_one(o, rows, at) (metric_add(o, at, LABELS(NULL)), metric_table(o, rows))

/* HTTP on the loop, with libmicrohttpd: /metrics, /healthz, /api/v1/…, and the page. No
 * threads; nothing here blocks. */
struct web;

/* Listens where h->config says. 0, -errno (said in the log). */
int web_new(struct host *h, struct web **ret);
/* Closes its connections. It may be called with the loop running or after it; what the loop still
 * has of it goes with the loop. */
struct web *web_free(struct web *w);

/* From a request to its response: what is at which path, and who may see it.
 * Knows no sockets and no loop. */

struct web_context {
	struct host *host;
	const struct lateness *lateness;
	struct peeruid *peeruid; /* NULL: the kernel does not tell who asks */
	bool loopback;           /* we listen on a loopback address only */
};

/* Whether the request brings bytes of its own, or is none of those that are answered. */
bool web_has_body(struct MHD_Connection *connection, const char *method);
/* Queues the response. MHD_NO: the connection ends. */
enum MHD_Result web_answer(const struct web_context *c, struct MHD_Connection *connection,
			   const char *url, const char *method, const char *version);

/* The page as it is sent, joined of page/ when the daemon is built
 * (page/embed.cmake writes the .c). */

extern const unsigned char web_page[];
extern const size_t web_page_size;
extern const char web_page_etag[]; /* quoted */
/* Content-Security-Policy: names the page's own style and script by their hashes */
extern const char web_page_policy[];

#endif
