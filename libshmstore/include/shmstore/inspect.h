/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore/inspect.h: what operators' tools need beyond shmstore.h: look into a partition and all
 * of its stores, name the processes that hold memory, plan a clean-up, verify. Conventions are
 * those of shmstore.h. For every function here:
 *
 *   Structures   begin with their size as the library knows it, and later versions grow them at
 *                their end. Pointers in a callback's argument are valid during that call
 *   Callbacks    are called by the calling thread; a return other than 0 ends the walk and is
 *                returned. They may call into the library
 *   Return       0, or a callback's; and from every function that walks a partition:
 *                  -EINVAL   an argument is NULL that must not be, an unknown flag
 *                  -EPERM    the partition's own directories may not be read. Stores of others that
 *                            may not be looked into are no error: their reports say so
 *                  -EMFILE   out of file descriptors     -ENOMEM   out of memory
 *                  -EIO      the kernel reported a damaged file system
 *   Threads, Fork   any thread, also at the same time on one partition; a child
 *                   may go on using the partition
 */
#ifndef SHMSTORE_INSPECT_H
#define SHMSTORE_INSPECT_H

#include <shmstore/shmstore.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shmstore_partition_info {
	size_t size;
	const char *path;  /* canonical; owned by the partition */
	const char *mount; /* where its file system is mounted; owned by the partition */
	char uuid[37];
	/* the mount's huge= option: never, within_size, always, advise; "" if unknown or on disk */
	char huge[16];
	uint32_t version;    /* of the on-tmpfs format */
	bool tmpfs;          /* false: on disk, by SHMSTORE_ALLOW_DISK */
	bool same_boot;      /* the marker was written since this boot */
	uint64_t bytes_size; /* of the file system; 0 = no limit */
	uint64_t bytes_used; /* statfs */
	uint64_t bytes_available;
	uint64_t inodes_size; /* 0 = no limit */
	uint64_t inodes_used;
	uint64_t inodes_free;
	uint64_t device; /* st_dev */
	uint32_t uid, mode;
};

/*
 * Describes a partition from its marker and its file system. Two system calls.
 * Ownership: strings in ret are the partition's and live as long. Return: 0; -EINVAL (NULL), -EIO.
 */
SHMSTORE_API int shmstore_partition_info_sized(
	struct shmstore_partition *p, struct shmstore_partition_info *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_info(...) SHMSTORE_FILLS(partition_info, partition_info, __VA_ARGS__)

/* The ledger page: what the owner says of itself. Never trusted where the kernel can be asked. */
struct shmstore_counters {
	uint64_t put_n, put_bytes;
	uint64_t get_n, get_bytes;
	uint64_t delete_n, delete_bytes;
	uint64_t handoff_n, handoff_bytes;
	uint64_t adopt_n, adopt_bytes;
	uint64_t alias_n, alias_bytes;       /* puts that became a second link */
	uint64_t recycled_n, recycled_bytes; /* puts into a recycled file */
	uint64_t linked_n, linked_bytes;     /* gauges from here on */
	uint64_t mapped_n, mapped_bytes;
	uint64_t reserved_n, reserved_bytes;
	uint64_t pool_n, pool_bytes;
	uint64_t demoted_n, demoted_bytes;
	uint64_t evicted_n, evicted_bytes;
	uint64_t linked_bytes_max, mapped_bytes_max, pool_bytes_max; /* high-water marks */
	uint64_t enospc_n; /* puts refused for want of space */
};

enum shmstore_alive {
	SHMSTORE_DEAD = 0,
	SHMSTORE_ALIVE = 1,
	SHMSTORE_ALIVE_UNKNOWN = 2, /* we may not look (another user's) */
};

struct shmstore_store_info {
	size_t size;
	const char *name;
	const char *path;    /* absolute */
	const char *label;   /* "" = none */
	const char *address; /* "" = none */
	pid_t pid;           /* of the owner, as it was when it opened the store */
	uid_t uid;
	enum shmstore_alive alive; /* by the lock */
	bool keep;
	bool readable;      /* false: only path and uid are known */
	int64_t created_ns; /* CLOCK_REALTIME */
	struct shmstore_counters counters;
};

/*
 * Calls fn for every store of the partition, those outside stores/ included, live or
 * dead. Opens each store's page.
 * Return: as above; fn must not be NULL.
 */
SHMSTORE_API int shmstore_partition_stores(struct shmstore_partition *p,
					   int (*fn)(const struct shmstore_store_info *info,
						     void *arg),
					   void *arg);

/* One store's books, from the file system. */
struct shmstore_store_books {
	size_t size;
	const struct shmstore_store_info *store;
	uint64_t n_objects, n_leases, n_pool;
	uint64_t linked; /* blocks of its objects, each inode once */
	/* blocks / links over objects and leases; adds up over the stores to what objects take, but
	 * for what only the disk tier links */
	uint64_t pss;
	/* blocks of inodes without a link outside this store (its own
	 * leases do not count as outside) */
	uint64_t uss;
	uint64_t leased;   /* blocks of its leases that it links no longer itself */
	uint64_t pool;     /* blocks of its recycled files */
	uint64_t metadata; /* blocks of its own page and long keys */
	/* The disk tier. */
	uint64_t n_demoted; /* names of demoted objects; part of n_objects */
	uint64_t demoted;   /* bytes that these take in memory when they come back, by name */
	uint64_t n_clean;   /* objects in memory whose tier file is good still */
	/* the part of pool in pages of which packed objects have the rest. Since 0.2 */
	uint64_t stranded;
};
struct shmstore_books_total {
	size_t size;
	uint64_t linked; /* as shmstore_usage.linked */
	uint64_t n_stores, n_objects;
};

/*
 * du: the books of every store, from the file system. Walks every name of the partition once.
 *   fn, ret   either may be NULL
 * Return: as above; -ETIMEDOUT (a stopped process holds a store's names).
 */
SHMSTORE_API int shmstore_partition_books_sized(struct shmstore_partition *p,
						int (*fn)(const struct shmstore_store_books *books,
							  void *arg),
						void *arg,
						struct shmstore_books_total *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_books(...) SHMSTORE_FILLS(partition_books, books_total, __VA_ARGS__)

enum shmstore_hold {
	SHMSTORE_HOLD_GHOST = 1,    /* deleted, still mapped or open */
	SHMSTORE_HOLD_INFLIGHT = 2, /* never named: a writer */
};

/* One process that holds one inode that has no name, or one packed object that no store
 * has any more, or has yet. */
struct shmstore_holder {
	size_t size;
	enum shmstore_hold kind;
	pid_t pid;
	uid_t uid;
	const char *command; /* the process's short name */
	uint64_t inode;      /* of a packed object its segment's, which has a name */
	uint64_t bytes;      /* blocks of the inode; a packed object's own */
	uint64_t mapped;     /* bytes of it that this process maps */
	uint64_t n_fds;      /* descriptors of it that this process has open */
	const char *path;    /* its last name, as the kernel tells it */
	/* the object's key, NULL where it is no object of ours or may not be read */
	const void *key;
	size_t key_size;
	/* true on the first holder reported for this inode or packed
	 * object: sum bytes over these */
	bool first;
	/* of a packed object: tells it from others of its segment; 0: of a file. Since 0.2 */
	uint64_t generation;
};

/*
 * The df equation with its witnesses: shmstore_partition_usage() with SHMSTORE_USAGE_FULL, and fn
 * for each process that holds memory without a name. Scans /proc; processes that may not be looked
 * into count in ret->n_unreadable. All processes outside of the caller's pid namespace count as
 * one, if they leave a residual.
 *   fn, ret   either may be NULL
 * Return: as above.
 */
SHMSTORE_API int shmstore_partition_reconcile_sized(
	struct shmstore_partition *p, int (*fn)(const struct shmstore_holder *holder, void *arg),
	void *arg, struct shmstore_usage *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_reconcile(...) SHMSTORE_FILLS(partition_reconcile, usage, __VA_ARGS__)

enum shmstore_gc_what {
	SHMSTORE_GC_STORE = 1, /* a dead store, whole */
	SHMSTORE_GC_LEASE = 2, /* an expired lease */
	SHMSTORE_GC_TORN = 3,  /* what a killed process left half-made */
	SHMSTORE_GC_POOL = 4,  /* a recycled file whose owner is gone */
	SHMSTORE_GC_PEER = 5,  /* an address of a store that is gone */
	SHMSTORE_GC_KEPT = 6,  /* looked at and kept; evidence says why */
	SHMSTORE_GC_TIER = 7,  /* a tier file of no object */
	/* the last link of a demoted object that no store holds any more, with its tier file */
	SHMSTORE_GC_ANCHOR = 8,
	SHMSTORE_GC_TIER_OF = 9, /* the tier directory of another partition, which is gone */
};

/* "store", "lease", …: one word for tools to print. Static. Since 0.1. */
SHMSTORE_API const char *shmstore_gc_what_name(enum shmstore_gc_what what);

struct shmstore_gc_action {
	size_t size;
	enum shmstore_gc_what what;
	const char *path;     /* absolute */
	uint64_t bytes;       /* that this frees: blocks whose last name goes */
	uint64_t n_objects;   /* objects and leases that go */
	const char *evidence; /* one sentence: why it may go, or why it stays */
	int error;            /* 0, or -errno of the attempt */
	uint64_t tier_bytes;  /* that this frees on the tier's disk */
};

/*
 * shmstore_partition_gc() with a report of each step.
 *   flags     of SHMSTORE_GC_*
 *   fn, ret   either may be NULL. fn is called after the step; one that ends the walk
 *             leaves the rest for the next gc
 * Return: as above. A step that fails is told in its action, and the others go on.
 */
SHMSTORE_API int shmstore_partition_gc_plan_sized(struct shmstore_partition *p, unsigned flags,
						  int (*fn)(const struct shmstore_gc_action *action,
							    void *arg),
						  void *arg,
						  struct shmstore_gc_report *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_gc_plan(...) SHMSTORE_FILLS(partition_gc_plan, gc_report, __VA_ARGS__)

/*
 * gc of one store only, as fast as it can be: for a program that knows that the owner died.
 *   path            the store's, absolute, in this partition
 *   flags           of SHMSTORE_GC_*
 *   fn, ret         either may be NULL
 *   ret_expiry_ms   where leases stay: when the first one ends, in ms of the caller's
 *                   CLOCK_BOOTTIME; else UINT64_MAX. May be NULL
 * Return: as above; -EBUSY (its owner lives), -ENOENT (no store there: nothing is left to do),
 * -EPERM (path is not in the partition, or the store is another user's).
 */
SHMSTORE_API int shmstore_partition_reap_sized(
	struct shmstore_partition *p, const char *path, unsigned flags,
	int (*fn)(const struct shmstore_gc_action *action, void *arg), void *arg,
	struct shmstore_gc_report *ret, uint64_t *ret_expiry_ms SHMSTORE_RET_SIZE);
#define shmstore_partition_reap(...) SHMSTORE_FILLS(partition_reap, gc_report, __VA_ARGS__)

/*
 * The clock that leases end by: CLOCK_BOOTTIME of the host in ms, the same in every container. (In
 * a time namespace CLOCK_BOOTTIME itself is another.) For programs that read the names of leases
 * (docs/format.md). Never fails. Since 0.1.
 */
SHMSTORE_API uint64_t shmstore_lease_clock_ms(void);

/* The bytes of one user's files, whichever stores link them: each inode once, by its owner. */
struct shmstore_user_books {
	size_t size;
	uid_t uid;
	uint64_t linked; /* objects, leases and the stores' own pages */
	uint64_t pool;
	uint64_t ghosts;   /* by the file's owner, as far as it can be told; else the holder's */
	uint64_t inflight; /* as ghosts */
	uint64_t n_stores;
	uint64_t n_demoted; /* names of demoted objects in its stores */
	uint64_t tier;      /* blocks of its tier files, on disk */
};

/* Everything about a partition in one walk and one scan of /proc: du, the holders, the users and
 * the equation, all of one moment. */
struct shmstore_survey {
	size_t size;
	unsigned flags; /* 0 */
	/* Each may be NULL; a return other than 0 ends the survey and is returned. Called when the
	 * equation is as good as it gets. */
	int (*store)(const struct shmstore_store_books *books, void *arg);
	int (*user)(const struct shmstore_user_books *books, void *arg);
	int (*holder)(const struct shmstore_holder *holder, void *arg);
	/* Called now and then during the walk: other than 0 gives up with -ECANCELED. */
	int (*progress)(uint64_t n_names, void *arg);
	void *arg;
};

/*
 * Takes a survey.
 *   survey   survey->size is sizeof(struct shmstore_survey)
 *   ret      may be NULL
 * Return: as above; -ECANCELED (progress), -EINVAL also: survey->size or flags.
 */
SHMSTORE_API int shmstore_partition_survey_sized(struct shmstore_partition *p,
						 const struct shmstore_survey *survey,
						 struct shmstore_usage *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_survey(...) SHMSTORE_FILLS(partition_survey, usage, __VA_ARGS__)

struct shmstore_verify_finding {
	size_t size;
	const char *path; /* absolute */
	int error;        /* -errno; 0 = fine */
	const char *reason;
	uint64_t bytes; /* checked so far, for progress */
};

/*
 * Checks the marker, every store's page, and every object's header, table and (where present)
 * buffers' checksum; each inode once. Reads every object that has a checksum.
 *   fn   must not be NULL; called for every file, also for those that are right
 * Return: as above. Damage is a finding, not an error of the call.
 */
SHMSTORE_API int shmstore_partition_verify(struct shmstore_partition *p,
					   int (*fn)(const struct shmstore_verify_finding *finding,
						     void *arg),
					   void *arg);

struct shmstore_tier_verify {
	size_t size;
	uint64_t rate; /* bytes of tier files read per second at most; 0 = as fast as the disk */
	int (*fn)(const struct shmstore_verify_finding *finding, void *arg);
	/* Now and then, several times a second; other than 0 ends it with -ECANCELED. bytes_all: as
	 * far as it is known. May be NULL. */
	int (*progress)(uint64_t bytes, uint64_t bytes_all, void *arg);
	void *arg;
};

/*
 * Scrubs the disk tier: reads every tier file that we may read from the disk itself, not out of a
 * cache, and checks all of it against its checksums and its stub. fn is called for every file, and
 * for every one that is missing. Files of no object are gc's and not looked at. Nothing is changed.
 * One thread's work and about 8 MiB of memory.
 * Return: as above; -ENOENT (no tier, or its directory is gone), -ECANCELED (progress),
 * -EBADMSG (the tier's configuration is damaged, or written by somebody who may not),
 * -EINVAL also: what->size, fn NULL.
 * Since 0.1.
 */
SHMSTORE_API int shmstore_tier_verify(struct shmstore_partition *p,
				      const struct shmstore_tier_verify *what);

#ifdef __cplusplus
}
#endif
#endif
