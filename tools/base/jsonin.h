/* SPDX-License-Identifier: Apache-2.0 */
/* jsonin.h: reads members of a document; missing ones and other types read as nothing. */
#ifndef JSONIN_H
#define JSONIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

/* The document in text (n bytes), to be put; NULL: it is no JSON object. */
struct json_object *jsonin_parse(const char *text, size_t n);
void jsonin_free(struct json_object *o);
static inline void jsonin_give_back(struct json_object **o)
{
	jsonin_free(*o);
}
/* A local that is freed. */
#define _json_ __attribute__((cleanup(jsonin_give_back)))

/* A member that is an object; NULL. o may be NULL in all of these. */
struct json_object *jsonin_object(const struct json_object *o, const char *name);
/* A member that is a list: how many it has, and the i-th. */
size_t jsonin_count(const struct json_object *o, const char *name);
struct json_object *jsonin_at(const struct json_object *o, const char *name, size_t i);
/* The member at a path such as "credit.outstanding"; of several paths, "linked|ledger.linked", the
 * first that is there and no empty text. NULL: missing, or null. */
struct json_object *jsonin_at_path(const struct json_object *o, const char *path);
/*
 * The list's objects, to be freed, in the order of these members (jsonin_at_path(); ended by NULL):
 * numbers and texts upwards, with a minus before its name downwards.
 */
const struct json_object **jsonin_sorted(const struct json_object *o, const char *list,
					 const char *const *order, size_t *ret_n);
/* Adds the members of these names (ended by NULL) to another object; missing ones are null. */
void jsonin_copy(struct json_object *to, const struct json_object *from,
		 const char *const *members);
bool jsonin_has(const struct json_object *o, const char *name); /* and it is not null */
uint64_t jsonin_u64(const struct json_object *o, const char *name);
int64_t jsonin_i64(const struct json_object *o, const char *name);
double jsonin_real(const struct json_object *o, const char *name);
bool jsonin_flag(const struct json_object *o, const char *name);
/* "" where there is none. o's. */
const char *jsonin_text(const struct json_object *o, const char *name);

#endif
