/* SPDX-License-Identifier: Apache-2.0 */
/* opening.h: the partition, the store and the key that a command names: opened, or refused
 * with what to do about it. */
#ifndef OPENING_H
#define OPENING_H

#include <limits.h>
#include <shmstore/inspect.h>
#include <stdbool.h>
#include <sys/types.h>

#include "admin.h"

/* The partition's path as the user means it. Ends the program where no default can be told. */
void opening_path(const struct admin *a, char ret_path[PATH_MAX]);
/* Flags for shmstore_partition_open(): the default path must be our user's or root's. */
unsigned opening_flags(const struct admin *a);
/* Says why where it cannot be opened, and ends the program, as opening_store() does. */
struct shmstore_partition *opening_partition(const struct admin *a);
static inline void opening_give_back(struct shmstore_partition **p)
{
	shmstore_partition_unref(*p);
}
static inline void opening_close(struct shmstore **s)
{
	shmstore_close(*s);
}
/* Locals that give their partition or store back, if they have one. */
#define _partition_ __attribute__((cleanup(opening_give_back)))
#define _store_     __attribute__((cleanup(opening_close)))
/* Says why the partition at path cannot be opened or made. Returns ADMIN_FAILED. */
int opening_explain(const struct admin *a, const char *path, int error);
#define OPENING_MARKER_VERSION 1u /* the one that the library knows: partition.h */
/* The format version that the marker at path states; 0 = none. The marker
 * is text (docs/format.md). */
unsigned opening_marker_version(const char *path);
/* The store called name, or at that absolute path, for reading. */
struct shmstore *opening_store(struct shmstore_partition *p, const char *name);
/* Says why the store called name cannot be used. Returns ADMIN_FAILED. */
int opening_explain_store(struct shmstore_partition *p, const char *name, int error);
/* Says why the object of a key, as the user typed it, cannot be read. Returns ADMIN_FAILED. */
int opening_explain_key(struct shmstore_partition *p, struct shmstore *s, const char *key,
			int error);
/* A key as the user typed it, unescaped into key (room for SHMSTORE_KEY_MAX
 * bytes). False: too long; said. */
bool opening_key(const char *text, unsigned char *key, size_t *ret_size);

/* The stores of a partition as a list, and a store out of it opened for reading. */
struct storelist {
	size_t n_stores;
	struct shmstore_store_info *stores; /* whose texts are the list's, but no address */
};

#define STORELIST_NULL ((struct storelist){0, NULL})
/* A local that is freed. */
#define _stores_       __attribute__((cleanup(storelist_deinit)))

/* 0 or as shmstore_partition_stores(): the list is empty then. storelist_deinit() is owed in both
 * cases. */
int storelist_read(struct shmstore_partition *p, struct storelist *ret);
void storelist_deinit(struct storelist *l);
/* The store called name, or at that absolute path; where two have that name, the living
 * one. NULL: none. Owned by l. */
const struct shmstore_store_info *storelist_find(const struct storelist *l, const char *name);
/* 0 or as shmstore_open(). */
int storelist_open(struct shmstore_partition *p, const struct shmstore_store_info *entry,
		   struct shmstore **ret);
/*
 * Kept stores that nobody owns have nobody to notice that the partition has a disk tier now: those
 * of ours are opened and closed once, so that their objects can be moved there. A store that
 * cannot be opened stays as it is.
 */
void storelist_join_tier(struct shmstore_partition *p);

/* The disk tier, as commands look at it and print it. */

/* 1: *ret is filled; 0: the partition has no tier; -errno: it has one that cannot be looked at, and
 * shmstore_error_detail() may say why. */
int tierstate_read(struct shmstore_partition *p, struct shmstore_tier_info *ret);
/* The directory that the partition's configuration names (docs/format.md). False:
 * none, or it may not be read. */
bool tierstate_directory(struct shmstore_partition *p, char ret_path[PATH_MAX]);
/* The tier file that the stub at link (docs/format.md) leads to. False:
 * there is no stub, or no tier. */
bool tierstate_file(struct shmstore_partition *p, const char *link, char ret_path[PATH_MAX]);
/* Says why the tier cannot be used, or that there is none (-ENOENT), after a call about
 * it. Returns ADMIN_FAILED. */
int tierstate_explain(struct shmstore_partition *p, int error);
/* As an object of JSON; NULL: null. */
struct json_object *tierstate_json(const struct shmstore_tier_info *info);
/* Prints the daemon's view of a tier in one line: its work, its contents, its failures. */
void tierstate_print_asked(const struct admin *a, const struct json_object *tier);

#endif
