/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metricswrite.h: writes families and samples of metrics, in OpenMetrics 1.0 or in Prometheus's
 * older text format. All samples of a family follow each other, so things are gathered first, each
 * with its labels, and then each row of their table is written for all of them.
 */
#ifndef METRICSWRITE_H
#define METRICSWRITE_H

#include <stdio.h>

#include "fields.h"

/* Names and texts, "partition", path, …: texts may be any bytes; NULL is "". */
#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LABELS_MAX  ((size_t)4)
extern const char metric_uid[1];

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

/* The lines before a metric's samples. */
void metric_begin(const struct metric_out *o, const char *name, const char *type, const char *help);
/* Takes part in what is written next. Borrowed until then. NULL: no memory. */
struct metric_thing *metric_add(struct metric_out *o, const void *at, const char *const *labels);
/* The lines before a row's samples; and these, of the things, which are forgotten. */
void metric_family(const struct metric_out *o, const struct field *row);
void metric_samples(struct metric_out *o, const struct field *row);
/* Writes the rows that have a metric, each for all things of before; and forgets these. */
void metric_rows(struct metric_out *o, const struct field *rows, size_t n);
#define metric_table(o, rows)   metric_rows(o, rows, sizeof(rows) / sizeof((rows)[0]))
/* The rows of one thing. */
#define metric_one(o, rows, at) (metric_add(o, at, LABELS(NULL)), metric_table(o, rows))
/* A metric that is no member of a structure: each thing is that number. */
void metric_as(struct metric_out *o, enum field_form form, bool counter, const char *name,
	       const char *help);
/* A single number. */
void metric_number(struct metric_out *o, const char *name, bool counter, const char *help,
		   uint64_t number);
void metric_out_deinit(struct metric_out *o);

#endif
