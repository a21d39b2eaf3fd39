/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configkey.h: one key of the configuration: which values it takes, and how one becomes
 * a field of a structure. Pure.
 */
#ifndef SHMSTORED_CONFIGKEY_H
#define SHMSTORED_CONFIGKEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum configkey_kind {
#define KIND(NAME, form, help) KEY_##NAME,
#include "configkind.def"
#undef KIND
};

struct configkey {
	const char *name;
	size_t offset;        /* of its field */
	const char *standard; /* NULL: the field stays as it is made */
	uint64_t least, most; /* of a number */
	enum configkey_kind kind;
};

/* Describes the kind's values, for an error's text. */
const char *configkey_help(enum configkey_kind kind);
/* 0: the key takes the text; -EINVAL. */
int configkey_check(const struct configkey *k, const char *text);
/* Sets the key's field of the structure at base to a text that
 * configkey_check() took. 0, -ENOMEM. */
int configkey_store(const struct configkey *k, const char *text, void *base);

/* Frees the key's field of the structure at base, where it is a text. */
void configkey_clear(const struct configkey *k, void *base);

/* "250ms", "10s", "5min", "1h"; a bare number is seconds. 0, -EINVAL, as: */
int configkey_duration(const char *text, uint64_t *ret_ns);
int configkey_number(const char *text, int base, uint64_t min, uint64_t max, uint64_t *ret);

/* Of n words the one that somebody may have meant by a word that is not known: which takes the
 * fewest edits from it, where these are at most a third of its length (and two); else NULL. */
const char *nearest(const char *word, const char *const *words, size_t n);

/* One file's text, by libConfuse, into a configuration. For config.c. */
struct config;

/*
 * Reads file into c: what it names takes the place of what c says. 0, -errno, -EINVAL; ret_error:
 * "file:line: what", to be freed.
 */
int configread_file(struct config *c, const char *file, char **ret_error);
/* The keys of a struct config_partition, or those of a struct config, at base: sets each field to
 * its standard (0, -ENOMEM); frees all texts. */
int configread_standards(bool partition, void *base);
void configread_clear(bool partition, void *base);

#endif
