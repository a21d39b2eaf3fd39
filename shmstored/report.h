/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: the daemon's state as JSON documents: one source for the CLI (WIRE_QUERY), the HTTP API and the page, so that they say the
 * same. Fields are named as in shmstore-admin's --json where they mean the same; bytes are integers.
 */
#ifndef REPORT_H
#define REPORT_H

#include "wire.h"

struct account;
struct host;
struct json_object;

/* path: one partition, "" or NULL = all. NULL: no such partition. The caller puts the object. uid: whose stores may be seen by name;
 * (uid_t)-1 = all. */
struct json_object *report_make(struct host *h, enum wire_question what, const char *path, unsigned uid);

#endif
