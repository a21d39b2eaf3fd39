/* SPDX-License-Identifier: Apache-2.0 */
/* tierstate.h: a partition's disk tier, as commands look at it and print it. */
#ifndef TIERSTATE_H
#define TIERSTATE_H

#include <limits.h>
#include <shmstore/shmstore.h>

#include "admin.h"

struct json_object;

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
