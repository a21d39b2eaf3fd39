/* SPDX-License-Identifier: Apache-2.0 */
/* ownbooks.h: what the arbiter of a test's own daemon has booked, against what the kernel says. */
#ifndef OWNBOOKS_H
#define OWNBOOKS_H

#include <shmstore/daemon.h>
#include <stdbool.h>
#include <stdint.h>

struct own_books {
	uint64_t used;   /* of the partition's pool: with what is leased */
	uint64_t leased; /* of that */
	uint64_t left;   /* tasks, contexts, and pools besides the partition's */
	uint64_t kernel; /* used, by statfs */
};

/* Of the only partition that the client's daemon has, at path. NULL, or what is wrong: static. */
const char *own_books_read(struct shmstore_client *client, const char *path, struct own_books *ret);
/*
 * Surveys, until all that is booked is what the kernel counts, and nobody is left:
 * nothing leased either, but where alive stores may be. NULL, or what is wrong then:
 * static. *ret is as was read last.
 */
const char *own_books_settle(struct shmstore_client *client, const char *path, bool alive,
			     unsigned within_ms, struct own_books *ret);

#endif
