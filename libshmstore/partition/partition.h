/* SPDX-License-Identifier: Apache-2.0 */
/* partition.h: an open partition, for the library's own modules. All fields but the last seven are
 * constant after shmstore_partition_open(). */
#ifndef SHMS_PARTITION_H
#define SHMS_PARTITION_H

#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ramroom.h"
#include "turns.h"

#define SHMS_MARKER_FILE    ".shmstore"
#define SHMS_MARKER_VERSION 1u

struct shmstore_partition {
	_Atomic uint64_t n_ref;
	int fd;              /* the partition's directory */
	dev_t device;        /* st_dev of the partition */
	char *path;          /* canonical, absolute, no trailing slash */
	char *mount;         /* mount point of its file system, canonical */
	bool tmpfs;          /* else: on disk, as the marker allows */
	bool open_to_others; /* users other than us may enter it */
	/* marker of this boot, as on tmpfs all are: else every owner is
	 * dead and every lease expired */
	bool same_boot;
	uint32_t version;
	char uuid[37];
	char huge[16];            /* "" = unknown */
	_Atomic uint64_t vain_ms; /* when other stores' segments had nothing to take (gc.h) */
	/* CLOCK_MONOTONIC of the last sweep for want of space; 0 = never */
	_Atomic uint64_t swept_ns;
	struct shms_turns making; /* room, by the disk tier (room.h) */
	struct shms_ramroom ram;
	_Atomic bool short_of; /* who has the turn makes room in the partition, not below a limit */
	pthread_mutex_t tier_lock;
	struct shms_tier *tier; /* our own user's part of the disk tier, once it was asked for */
	struct shms_tier *(*tier_close)(struct shms_tier *t); /* what ends it */
};

/* How many stores stores/ has, live or dead; 0 also where the kernel does not count
 * directories. One call, no walk. */
uint64_t shms_partition_n_stores(const struct shmstore_partition *p);

#endif
