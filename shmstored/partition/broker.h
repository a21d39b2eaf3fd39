/* SPDX-License-Identifier: Apache-2.0 */
/* broker.h: the work of one handoff between users: everything about it that asks the file system, for a worker thread. */
#ifndef BROKER_H
#define BROKER_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

struct shmstore_partition;

struct broker_ask {
	struct shmstore_partition *partition;
	int partition_fd;
	char store[PATH_MAX]; /* the sender's registered store, below the partition */
	char path
		[PATH_MAX]; /* as the sender named it: …/<store>/handoff/<lease>, with lease_ms …/<store>/objects/<name> */
	uid_t from, to;
	uint32_t lease_ms; /* not 0: to is from, whose own inbox gets a lease of an object that stays */
};

struct broker_answer {
	char path[PATH_MAX]; /* the lease in the inbox, below the partition */
	uint64_t bytes;      /* of memory that the file takes */
	const char *why;     /* on failure: a sentence */
};

/* 0, -errno out of shmstore.h's list. Blocks. */
int broker_run(const struct broker_ask *ask, struct broker_answer *ret);

#endif
