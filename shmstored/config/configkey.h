/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configkey.h: one key of the configuration: which values it takes, and how one becomes
 * a field of a structure. Pure.
 */
#ifndef SHMSTORED_CONFIGKEY_H
#define SHMSTORED_CONFIGKEY_H

#include <stddef.h>
#include <stdint.h>

enum configkey_kind {
	KEY_PATH,
	KEY_TEXT,
	KEY_OCTAL,
	KEY_COUNT,
	KEY_PORT,
	KEY_SIZE,
	KEY_SIZE32,
	KEY_DURATION,
	KEY_MICROS,
	KEY_SWITCH,
	KEY_LEVEL,
	KEY_DETAIL,
	KEY_WATERMARK,
	KEY_PATH_OR_NONE,
	KEY_SIZE_OR_NONE,
	KEY_PERCENT,
	KEY_STRATEGY,
	KEY_RATIO,
	KEY_NUMBER, /* of 64 bits */
	KEY_STAGE_MODE,
	KEY_CONFLICT,
	KEY_POLICY,
	KEY_QUEUE,
	KEY_COPIES,    /* ckpt_num_read() */
	KEY_SELECTION, /* a text */
	KEY_CAST,
	KEY_STALE, /* ckpt_stale_read() */
};

struct configkey {
	const char *name;
	size_t offset;        /* of its field */
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

/* One file's text, by libConfuse, into a configuration. For config.c. */
struct config;

/*
 * Reads file into c: what it names takes the place of what c says. 0, -errno, -EINVAL; ret_error:
 * "file:line: what", to be freed.
 */
int configread_file(struct config *c, const char *file, char **ret_error);

#endif
