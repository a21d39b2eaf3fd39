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

struct json_object;

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

/*
 * jsonmake.c makes documents in JSON, by json-c, for the daemon and the tool. Text not printable as
 * UTF-8 is escaped (below), so that what comes out is always valid. Where memory is out, a
 * member is missing or null, and jsonmake_end() says so: looked at once, at the end, instead of
 * after every member. Each thread has its own.
 */

/* Forgets earlier failures. */
void jsonmake_begin(void);
/* o; NULL: memory was out since then, and o is gone. */
struct json_object *jsonmake_end(struct json_object *o);

struct json_object *jsonmake_new(void);
struct json_object *jsonmake_new_list(void);
/* These take child and item over, also where they fail; NULL is written as null. child is
 * returned for use until o goes. */
struct json_object *jsonmake_child(struct json_object *o, const char *name,
				   struct json_object *child);
struct json_object *jsonmake_append(struct json_object *list, struct json_object *item);
void jsonmake_append_u64(struct json_object *list, uint64_t value);
void jsonmake_append_text(struct json_object *list, const char *text);
void jsonmake_append_seconds(struct json_object *list, int64_t ns);

void jsonmake_u64(struct json_object *o, const char *name, uint64_t value);
void jsonmake_i64(struct json_object *o, const char *name, int64_t value);
void jsonmake_real(struct json_object *o, const char *name, double value); /* with three decimals */
void jsonmake_flag(struct json_object *o, const char *name, bool value);
void jsonmake_null(struct json_object *o, const char *name);
/* NULL becomes null */
void jsonmake_text(struct json_object *o, const char *name, const char *text);
/* The same of any bytes. */
void jsonmake_key(struct json_object *o, const char *name, const void *key, size_t key_size);
/* As it is where it is UTF-8, control characters too, which json-c escapes: what people wrote,
 * of several lines perhaps. */
void jsonmake_prose(struct json_object *o, const char *name, const char *text);
/* A time or a duration of ns as seconds, with three decimals. */
void jsonmake_seconds(struct json_object *o, const char *name, int64_t ns);

/*
 * Bytes of whoever (keys, paths, names of processes) as one line of valid UTF-8, and
 * back. Printable text stands for itself, every other byte is \xNN, and so is a backslash before
 * what would read as \xNN: what is shown can always be typed. Pure.
 */
/* Whether all of it is printable; in this, \xNN stands for itself. */
bool printable_is(const void *text, size_t size);
/* On the heap; NULL: no memory. */
char *printable_new(const void *text, size_t size);
/* Writes the bytes that text stands for to ret (room bytes) and their number.
 * False: more bytes than that. */
bool printable_parse(const char *text, void *ret, size_t room, size_t *ret_size);

#endif
