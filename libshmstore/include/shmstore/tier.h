/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore/tier.h: the disk tier. Included by shmstore.h; conventions are those stated there:
 * Return, Never, Threads, Fork.
 *
 * A partition may have a tier: a directory on a real file system. A demoted object lies in a tier
 * file there; its name stays: contains, foreach, handoff and delete work as on any object, and get
 * promotes it, that is, brings it back. An object is demoted for all stores that link it or for
 * none, and promoted once for all. Its tier file is kept while its names live, so demoting it again
 * writes nothing. A damaged tier file is -EBADMSG; shmstore_error_path() names it.
 *
 * Every call with a key also returns -EINVAL (s is NULL or closed, a key of more
 * than SHMSTORE_KEY_MAX bytes, an unknown flag) and -EPERM (a store that the
 * parent opened before a fork).
 */
#ifndef SHMSTORE_TIER_H
#define SHMSTORE_TIER_H

#ifndef SHMSTORE_H
#error "include <shmstore/shmstore.h>"
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct shmstore_tier_config {
	size_t size; /* sizeof(struct shmstore_tier_config): set by SHMSTORE_TIER_CONFIG_INIT */
	const char *path;  /* an absolute directory on a file system that is not memory */
	uint64_t max;      /* bytes of tier files of this partition at most; 0 = no limit */
	uint64_t min_free; /* bytes that stay free on that file system */
	int level;         /* of zstd, 1 to 19; 0: nothing is compressed */
	bool fsync;        /* a tier file is on the disk before its object leaves memory */
	unsigned high;     /* percent of the partition: demotion begins above */
	unsigned low;      /* percent of the partition: and ends here. low < high <= 100 */
};
#define SHMSTORE_TIER_CONFIG_INIT                                                 \
	{                                                                         \
		sizeof(struct shmstore_tier_config), NULL, 0, 0, 1, false, 85, 75 \
	}

/*
 * Gives the partition its tier, or changes its limits; config NULL takes it away. It is written in
 * the partition (tier/config), where stores, tools and the daemon find it. Stores that are open
 * already notice within a second of calls that put or delete.
 *   config   copied. Limits that are not to change must be given again:
 *            shmstore_tier_info() has them
 * Return: 0; -EBUSY (another path, or none, while the tier holds objects), -ENOENT (no such
 * directory), -ENOTSUP (the directory is in memory, or the partition is on disk), -EPERM (the
 * caller is neither the partition's owner nor root), -EINVAL (p NULL, config->size, a path
 * that is not absolute, level, high or low), -ENOSPC (no room for the configuration),
 * -EMFILE, -ENOMEM. Since 0.1.
 */
SHMSTORE_API int shmstore_tier_set(struct shmstore_partition *p,
				   const struct shmstore_tier_config *config);

/* Bytes unless n_. The sums lack other users' files that we may not read. */
struct shmstore_tier_info {
	size_t size;                        /* of the library that fills it */
	struct shmstore_tier_config config; /* path: valid as long as this structure */
	char path[4096];                    /* where the tier files are: below config.path */
	uint64_t disk_size, disk_free;      /* of that file system */
	uint64_t used;    /* blocks of tier files: = demoted + clean + orphans, on disk */
	uint64_t demoted; /* of it: objects that are in the tier only */
	/* of it: objects that are in memory as well, and can be demoted again without a write */
	uint64_t clean;
	uint64_t orphans; /* of it: left by killed processes; gc removes them */
	uint64_t n_demoted, n_clean, n_orphans; /* tier files */
	uint64_t original; /* bytes that the demoted ones take in memory when they come back */
	uint64_t n_codec_raw, n_codec_zstd; /* tier files of objects by how they are stored */
	char config_path[4096];             /* what config.path points to */
	uint64_t last_minute; /* of used: written within the last 60 s, and there still */
};

/*
 * Sums up the tier in a walk of its directories; opens no tier file.
 *   ret   Ownership: the caller's; config.path points into it
 * Return: 0; -ENOENT (the partition has no tier, or its directory is gone), -EPERM (the partition's
 * tier may not be read), -EBADMSG (its configuration is damaged, or written by somebody who may
 * not), -EINVAL (NULL), -ENOMEM, -EMFILE. Since 0.1.
 */
SHMSTORE_API int shmstore_tier_info_sized(struct shmstore_partition *p,
					  struct shmstore_tier_info *ret SHMSTORE_RET_SIZE);
#define shmstore_tier_info(...) SHMSTORE_FILLS(tier_info, tier_info, __VA_ARGS__)

/*
 * How objects are moved to and from the disk in this process: "io_uring", or "plain: " and why it
 * is pread() and pwrite(), one at a time: a container's seccomp filter, mostly; slower by what
 * would overlap. Tried once. Never NULL. Since 0.1.
 */
SHMSTORE_API const char *shmstore_tier_io(void);

#define SHMSTORE_IN_MEMORY 1
#define SHMSTORE_IN_TIER   2
/* Where the object is now. Reads the name alone. Return: SHMSTORE_IN_MEMORY, SHMSTORE_IN_TIER, 0
 * (no such key), -EINVAL, -EPERM. Since 0.1. */
SHMSTORE_API int shmstore_locate(struct shmstore *s, const void *key, size_t key_size);

/*
 * Moves one object to the tier, for every store that links it. Views stay valid; the memory
 * is free when the last one is gone. Allowed on read-only handles of one's own stores too.
 * Not pinned ones: unpin first.
 * Return: 0, also where it is there already; -ENOENT (no such key; no tier), -ENOSPC (disk full:
 * shmstore_error_detail() says which and how far; without shmstore_error_path(): the partition
 * lacks the page that a long key of one of its names needs), -EPERM (pinned; links in stores that
 * are not ours, or a lease; packed, and the handle is read-only), -EBADMSG (no valid object), -EIO,
 * -ETIMEDOUT (its store's names are held by a stopped process; or the user's part of the tier is
 * busy for 10 s), -EINVAL, -EMFILE, -ENOMEM. Nothing is lost by an error. Since 0.1.
 */
SHMSTORE_API int shmstore_demote(struct shmstore *s, const void *key, size_t key_size,
				 unsigned flags);

/*
 * Brings one object back to memory, as a get does.
 *   flags   SHMSTORE_NO_EVICT.
 * Return: 0, also where it is there already; -ENOENT, -ENOSPC, -EDQUOT (as shmstore_put()),
 * -EBADMSG (tier file missing or damaged: shmstore_error_path()), -EIO (of the disk, or its
 * directory is away: not mounted), -ETIMEDOUT, -EINVAL, -EPERM, -EMFILE, -ENOMEM. Since 0.1.
 */
SHMSTORE_API int shmstore_promote(struct shmstore *s, const void *key, size_t key_size,
				  unsigned flags);

/*
 * Promotes many keys ahead of their use, reading several at once. Others are evicted for half a
 * partition's worth of them at most.
 *   keys, n_keys   each a key.
 *   n_threads      worker threads that this call may start and ends before it
 *                  returns; 0: the caller's alone.
 *   ret_results    n_keys times what shmstore_promote() would return; may be NULL.
 * Return: number of keys that are in memory now, or -EINVAL, -EPERM, -ENOMEM. Since 0.1.
 */
SHMSTORE_API int shmstore_prefetch(struct shmstore *s, const struct iovec *keys, size_t n_keys,
				   unsigned n_threads, unsigned flags, int *ret_results);

/*
 * Pins an object, or unpins it: a pinned object stays in memory, for all stores that link it.
 * SHMSTORE_PIN does it at put.
 * Return: 0; -ENOENT (no such key), -EPERM (the file is another user's), -ETIMEDOUT (another
 * process, which was stopped, is handing it to another user), -EINVAL, or as shmstore_promote()
 * where it is demoted. Since 0.1.
 */
SHMSTORE_API int shmstore_pin(struct shmstore *s, const void *key, size_t key_size, bool pin);

/* An eviction's results so far. Bytes unless n_. */
struct shmstore_evict_report {
	size_t size;
	uint64_t n_objects; /* demoted */
	uint64_t freed;     /* memory that is free now */
	/* memory of demoted objects that is not free before their last view is gone */
	uint64_t held;
	uint64_t original;  /* bytes copied out, as they were in memory */
	uint64_t written;   /* bytes written to the disk for them */
	uint64_t n_clean;   /* objects that needed no write */
	uint64_t n_skipped; /* objects that changed, or were locked, meanwhile */
	bool disk_full;     /* ended for want of disk; shmstore_error_detail() says which */
	int error;          /* -errno of the last object that failed, 0 = none */
	uint64_t duration_ns;
};

struct shmstore_evict {
	size_t size;     /* sizeof(struct shmstore_evict): set by SHMSTORE_EVICT_INIT */
	uint64_t bytes;  /* to free at least */
	uint64_t to;     /* or: down to so many bytes used of the partition; 0 = not asked */
	bool watermarks; /* or: nothing below the high watermark; above it, down to the low one */
	unsigned n_threads; /* worker threads that this call may start and ends before it returns */
	/* at idle priority: gives way to everything else on the host (for the worker threads) */
	bool background;
	bool wait; /* where another eviction runs: wait for it. Else 0 is returned at once */
	/* Now and then; other than 0 ends the eviction. May be NULL. */
	int (*progress)(const struct shmstore_evict_report *report, void *arg);
	void *arg;
	/* root: whose objects; SHMSTORE_EVICT_ALL: everybody's. Others:
	 * their own, whatever it says */
	uid_t uid;
};
#define SHMSTORE_EVICT_ALL ((uid_t)-1)
#define SHMSTORE_EVICT_INIT                                                              \
	{                                                                                \
		sizeof(struct shmstore_evict), 0, 0, false, 0, false, false, NULL, NULL, \
			SHMSTORE_EVICT_ALL                                               \
	}

/*
 * Demotes the least used objects (docs/tier.md), none pinned or leased, mapped ones last. Any
 * process may call it; one at a time works for each user. Starts and ends what->n_threads threads.
 * Live stores are asked for packed objects, which only their processes can demote: those count
 * towards the goal, not in the report. A store without a call for 0.1 s gives nothing.
 *   ret   may be NULL; written also on error.
 * Return: 1: done; 0: nothing to do, or (without wait) another eviction of that user is running;
 * -ENOSPC (all was tried, and it did not suffice, or the disk is full: report.disk_full), -ENOENT
 * (no tier), -ECANCELED (progress), -EIO (the disk), -EINVAL (p or what NULL, what->size), -EPERM
 * (the tier is another user's), -ENOMEM, -EMFILE. Since 0.1.
 */
SHMSTORE_API int shmstore_partition_evict_sized(
	struct shmstore_partition *p, const struct shmstore_evict *what,
	struct shmstore_evict_report *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_evict(...) SHMSTORE_FILLS(partition_evict, evict_report, __VA_ARGS__)

#define SHMSTORE_AS_IS (1u << 7) /* handoff_flags: a demoted object as it is */
/*
 * As shmstore_handoff(), which promotes a demoted object first.
 *   flags   SHMSTORE_AS_IS hands it over as it is: the receiver's get promotes it, once for all.
 *           (Where the partition has no room, shmstore_handoff() does that too.)
 * Return: as shmstore_handoff(), and as shmstore_promote() where it promotes. Since 0.1.
 */
SHMSTORE_API int shmstore_handoff_flags(struct shmstore *s, const void *key, size_t key_size,
					uint64_t lease_ms, unsigned flags,
					struct shmstore_ticket *ret);

/*
 * Why this thread's last call that returns 0 or -errno failed: a sentence that names the one cause,
 * with paths and sizes where it has to do with those; and the path of the file of the disk tier, or
 * of the tier's directory, that it is about ("" if none). Every failure sets them, every call that
 * returns 0 or -errno resets them ("" after a success, but for the single results of
 * shmstore_prefetch()). The words are for people: they may change.
 * Ownership: the calling thread's, valid until its next such call. Return: never NULL.
 * Cost no system call. Since 0.1.
 */
SHMSTORE_API const char *shmstore_error_detail(void);
SHMSTORE_API const char *shmstore_error_path(void);

#ifdef __cplusplus
}
#endif
#endif
