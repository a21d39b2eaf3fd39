/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilereport.h: a JSON document of what is known of users' tasks, and of those that run.
 * shmstore-admin(1) lists its fields.
 */
#ifndef PROFILEREPORT_H
#define PROFILEREPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "profiletasks.h"

struct json_object;

/* all: of every user; else of this one. The caller puts the object. NULL: out of memory. */
struct json_object *profilereport_make(const struct host *h, bool all, uint32_t uid);

#endif
