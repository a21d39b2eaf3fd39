/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fields.h: the members of a structure, as documents of the daemon and of the tool and the daemon's
 * metrics have them. Each is told once, in a row of a table; the rows of what has a metric, or is
 * told by several programs, are in fields/. A table is of the structure that OF names while it is
 * defined.
 */
#ifndef FIELDS_H
#define FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jsonmake.h"

enum field_form {
	FIELD_U64,
	FIELD_I64,
	FIELD_U32,
	FIELD_INT,
	FIELD_FLAG,
	FIELD_TEXT,        /* a pointer; NULL is null */
	FIELD_ARRAY,       /* text within the structure */
	FIELD_PROSE,       /* as FIELD_TEXT and FIELD_ARRAY: what people wrote (jsonmake_prose()) */
	FIELD_PROSE_ARRAY, /* */
	FIELD_NS,          /* nanoseconds, shown as seconds */
	FIELD_REAL_NS,     /* an int64_t, rounded to thousandths */
	FIELD_MS,          /* milliseconds in a uint64_t, shown as seconds */
	FIELD_ID,          /* a uint64_t; in documents 0 is null */
	FIELD_MOMENT,      /* nanoseconds; in documents 0 is null */
	FIELD_PLACE,       /* null: another value may take its place (jsonmake_…()) */
};

struct field {
	const char *name; /* of the member in documents; NULL: it is not there */
	uint16_t form, off;
	bool counter;              /* the metric only grows */
	const char *metric, *help; /* NULL: it has none */
};

/* clang-format off */
#define FIELD_FORM(member) _Generic(&((OF *)0)->member, \
	uint64_t *: FIELD_U64, int64_t *: FIELD_I64, uint32_t *: FIELD_U32, int *: FIELD_INT, \
	const uint64_t *: FIELD_U64, const int64_t *: FIELD_I64, \
	const uint32_t *: FIELD_U32, const int *: FIELD_INT, \
	bool *: FIELD_FLAG, char **: FIELD_TEXT, const char **: FIELD_TEXT, \
	const bool *: FIELD_FLAG, char *const *: FIELD_TEXT, \
	const char *const *: FIELD_TEXT, default: FIELD_ARRAY)
/* clang-format on */

/*
 * Rows: a member by its type, and its name in documents; in a form of its own; one that is called
 * there as here, or here n_…; a place for what is no member. Those with a metric have its name
 * behind the prefix METRICS, and the text that explains it.
 */
#define FIELD_AS(form, member, name)             \
	{                                        \
		name, form, offsetof(OF, member) \
	}
#define FIELD(member, name) FIELD_AS(FIELD_FORM(member), member, name)
#define SAME(member)        FIELD(member, #member)
#define NUMBER(member)      FIELD(n_##member, #member)
#define PROSE(member)       FIELD_AS(FIELD_PROSE, member, #member)
#define PLACE(name)               \
	{                         \
		name, FIELD_PLACE \
	}
#define METRIC(form, counter, member, name, metric, help)                       \
	{                                                                       \
		name, form, offsetof(OF, member), counter, METRICS metric, help \
	}
#define GAUGE(member, name, metric, help) \
	METRIC(FIELD_FORM(member), false, member, name, metric, help)
#define COUNTER(member, name, metric, help) \
	METRIC(FIELD_FORM(member), true, member, name, metric, help)

/* Adds the members of thing to o; thing NULL: each is null. */
void fields_write(struct json_object *o, const struct field *fields, size_t n, const void *thing);
#define fields_add(o, fields, thing) \
	fields_write(o, fields, sizeof(fields) / sizeof((fields)[0]), thing)
/* The same of rows that stand there only. */
#define fields_of(o, thing, ...)                                              \
	do {                                                                  \
		typedef __typeof__(*(thing)) OF;                              \
		static const struct field rows[] = {__VA_ARGS__};             \
		fields_write(o, rows, sizeof(rows) / sizeof(rows[0]), thing); \
	} while (0)

/* A disk tier: figures that are made of others, and all of them as JSON, by the same names
 * from the daemon and from the tool. */

struct shmstore_tier_info;

/* Bytes that tier files may still take, by the tier's limits and the disk's free space. */
uint64_t tierfigures_available(const struct shmstore_tier_info *info);
void tierfigures_add(struct json_object *o, const struct shmstore_tier_info *info);

#endif
