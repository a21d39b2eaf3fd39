/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memsource.h: reads what the host and this process's memory cgroups say, each term with its
 * source. The monitor's modules decide what may be read; here files are opened and nothing else. A
 * file that is missing, or unreadable, or cut, is an unknown term.
 */
#ifndef MEMSOURCE_H
#define MEMSOURCE_H

#include <stddef.h>

#include "memtext.h"

#define MEMSOURCE_TERMS_MAX 8u

struct memsource_config {
	const char *proc, *cgroup; /* NULL: /proc and /sys/fs/cgroup */
	bool count_swap;
};

enum memsource_state {
	MEMSOURCE_READ,
	MEMSOURCE_UNLIMITED,
	MEMSOURCE_UNKNOWN
};

struct memsource_term {
	const char *name; /* of a field, or of a file and its field */
	enum memsource_state state;
	int64_t bytes; /* where it was READ */
};

/* The host, or one cgroup. */
struct memsource_level {
	char *path;  /* the file or the directory */
	int version; /* of its cgroup; 0: the host */
	struct memsource_term terms[MEMSOURCE_TERMS_MAX];
	size_t n_terms;
	struct memlimit_use use; /* clamped */
};

struct memsource_reading {
	/* the host, then this process's cgroup, its parent, and so on to the root */
	struct memsource_level *levels;
	size_t n_levels;
	size_t tightest; /* whose total counts */
};

#define MEMSOURCE_NULL ((struct memsource_reading){0})

/* -ENOMEM. No other failure: see the states of the terms. */
int memsource_read(const struct memsource_config *config, struct memsource_reading *ret);
/* Reads again what has a limit, and the host: a cgroup without one decides nothing until it gets
 * one, which memsource_read() sees. -ENOMEM: nothing has changed. */
int memsource_again(const struct memsource_config *config, struct memsource_reading *io);
void memsource_deinit(struct memsource_reading *r);

/* A reading as JSON, by the same names from the tool and from the daemon. */
struct json_object;

/* null where it is unknown. */
void memjson_amount(struct json_object *o, const char *name, struct amount a);
/* Adds "memories": the host and each cgroup, with their terms. */
void memjson_levels(struct json_object *o, const struct memsource_reading *r);

#endif
