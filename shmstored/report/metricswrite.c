/* SPDX-License-Identifier: Apache-2.0 */
/* metricswrite.c: see metricswrite.h. */
#include "metricswrite.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "printable.h"

void metric_begin(const struct metric_out *o, const char *name, const char *type, const char *unit, const char *help)
{
	/* The older format calls a family of counters by its samples' name. */
	const char *suffix = !o->open && strcmp(type, "counter") == 0 ? "_total" : "";

	fprintf(o->file, "# TYPE %s%s %s\n", name, suffix, type);
	if (o->open && *unit)
		fprintf(o->file, "# UNIT %s %s\n", name, unit);
	fprintf(o->file, "# HELP %s%s %s\n", name, suffix, help);
}

static void value(const struct metric_out *o, const struct metric *m, const void *thing)
{
	const void *at = (const char *)thing + m->off;
	uint64_t ns;

	switch (m->form) {
	case FORM_U64:
		fprintf(o->file, " %" PRIu64 "\n", *(const uint64_t *)at);
		return;
	case FORM_I64:
		fprintf(o->file, " %" PRId64 "\n", *(const int64_t *)at);
		return;
	case FORM_U32:
		fprintf(o->file, " %" PRIu32 "\n", *(const uint32_t *)at);
		return;
	case FORM_NS:
	default:
		ns = *(const uint64_t *)at;
		fprintf(o->file, " %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000, ns % 1000000000);
	}
}

void metric_sample(const struct metric_out *o, const struct metric *m, const void *thing, const char *const *labels)
{
	char sign = '{';

	fprintf(o->file, "%s%s", m->name, m->counter ? "_total" : "");
	for (; *labels; labels += 2) {
		const char *text = labels[1] ? labels[1] : "";
		char *escaped = printable_is(text, strlen(text)) ? NULL : printable_new(text, strlen(text));

		fprintf(o->file, "%c%s=\"", sign, labels[0]);
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
	value(o, m, thing);
}

void metric_family(const struct metric_out *o, const struct metric *m)
{
	metric_begin(o, m->name, m->counter ? "counter" : "gauge", m->unit, m->help);
}
