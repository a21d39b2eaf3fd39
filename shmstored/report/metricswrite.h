/* SPDX-License-Identifier: Apache-2.0 */
/* metricswrite.h: one metric and its samples as text, in the format of OpenMetrics or in the older one of Prometheus. */
#ifndef METRICSWRITE_H
#define METRICSWRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum form {
	FORM_U64,
	FORM_I64,
	FORM_U32,
	FORM_NS, /* shown in seconds */
};

struct metric {
	const char *name, *unit, *help; /* the name as it is shown, unit included; unit: "" = none */
	bool counter;
	enum form form;
	size_t off; /* in the thing's structure */
};

/* One number of its own, not a counter. */
#define METRIC(form, name, unit, help)           \
	{                                        \
		name, unit, help, false, form, 0 \
	}

struct metric_out {
	FILE *file;
	bool open; /* OpenMetrics */
};

#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The lines before a metric's samples. */
void metric_begin(const struct metric_out *o, const char *name, const char *type, const char *unit, const char *help);
void metric_family(const struct metric_out *o, const struct metric *m);
/* A sample of the thing. Labels: name, text, name, text, …, NULL (LABELS). Texts may be any bytes. */
void metric_sample(const struct metric_out *o, const struct metric *m, const void *thing, const char *const *labels);

#endif
