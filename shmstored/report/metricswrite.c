/* SPDX-License-Identifier: Apache-2.0 */
/* metricswrite.c: see metricswrite.h. */
#include "metricswrite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "printable.h"

const char metric_uid[1] = "";

/* The last word of a name that has one; no unit else. */
static const char *unit_of(const char *name)
{
	const char *last = strrchr(name, '_');

	return last && (strcmp(last, "_bytes") == 0 || strcmp(last, "_seconds") == 0) ? last + 1
										      : NULL;
}

void metric_begin(const struct metric_out *o, const char *name, const char *type, const char *help)
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

void metric_family(const struct metric_out *o, const struct field *row)
{
	metric_begin(o, row->metric, row->counter ? "counter" : "gauge", row->help);
}

void metric_samples(struct metric_out *o, const struct field *row)
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

void metric_as(struct metric_out *o, enum field_form form, bool counter, const char *name,
	       const char *help)
{
	const struct field row = {
		.form = (uint16_t)form, .counter = counter, .metric = name, .help = help};

	metric_rows(o, &row, 1);
}

void metric_number(struct metric_out *o, const char *name, bool counter, const char *help,
		   uint64_t number)
{
	metric_add(o, &number, LABELS(NULL));
	metric_as(o, FIELD_U64, counter, name, help);
}

void metric_out_deinit(struct metric_out *o)
{
	free(o->things);
}
