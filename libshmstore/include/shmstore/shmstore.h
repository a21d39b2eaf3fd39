/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore: a shared-memory object store for the processes of one host.
 *
 * An object is one immutable file on a tmpfs partition: a header (bytes that are copied) and
 * buffers (bytes that are mapped). A store is one process's directory of objects. A handoff gives
 * another process of the host a ticket - the triplet (path, header size, buffer size) - with which
 * it hard-links the object into its own store: no byte is copied. The kernel counts the references;
 * with the last link and the last view the memory is free again. No daemon is needed.
 *
 * This header is the manual. Conventions that hold for every function:
 *
 *   Return    0 (or a count) on success, -errno on failure, from this closed list only:
 *               -EINVAL     an argument is wrong (NULL, too long, a name with '/', unknown flag)
 *               -ENOENT     no such partition, store, key or peer
 *               -EEXIST     the key is held already; the directory holds something that is not ours
 *               -EBUSY      the store's name is held by a live owner
 *               -ENOSPC     the partition (bytes or inodes) is full, or at its limit
 *               -EDQUOT     a quota is used up: the store's, its user's, its label's
 *               -EBADMSG    an object, a ticket or a marker fails validation
 *               -EPERM      outside the partition, owned by somebody else, not allowed,
 *                           or a store used after fork()
 *               -ESTALE     the lease expired or was taken; the owner of a store
 *                           whose key is waited for is dead
 *               -EXDEV      not the same mount
 *               -EMFILE     out of file descriptors
 *               -ENOMEM     out of memory or of mappings (vm.max_map_count)
 *               -ENOTSUP    another format version; not a tmpfs; a kernel without what is needed
 *               -EIO        the kernel reported a damaged file system; or the disk tier's
 *                           directory is away: not mounted
 *               -EFBIG      an object larger than this process may make files (RLIMIT_FSIZE). The
 *                           kernel is not asked for more, so that it sends no SIGXFSZ
 *               -ETIMEDOUT, -ECANCELED   a wait ended without its object (SHMSTORE_WAIT,
 *                           SHMSTORE_DAEMON_REQUIRED); or another process was stopped just while it
 *                           held what the call needs, and did not go on within a second: a file
 *                           that it was about to test for users (all calls that open an object), or
 *                           the names of a store in a partition with a disk tier (all calls that
 *                           change them). Nothing has changed then: try again
 *             shmstore_strerror() says what a code means here, shmstore_error_detail() (tier.h) why
 *             this call failed. ret_* parameters are written on success only.
 *   Never     prints, exits, sets errno for the caller, installs signal handlers.
 *             Starts threads only in the two calls that are told how many
 *             (shmstore_prefetch(), shmstore_partition_evict()), and ends them before
 *             the call returns; they block all signals.
 *   Threads   every function may be called by many threads on the same object at once, except where
 *             it says that it consumes its argument: that must be the last call on it.
 *             pthread_cancel() takes effect at the next cancellation point after a call has
 *             returned, also after one that waits, or calls back. No call of the library is one: a
 *             thread that makes no others calls pthread_testcancel().
 *   Fork      views stay valid in a child; a partition may be used in both. A store belongs to
 *             the process that opened it: in the child every call on it gives -EPERM, and
 *             closing it there frees memory and touches nothing else. Of fork() that is, which
 *             calls what pthread_atfork() was told. Neither _Fork() nor clone() does: a child of
 *             theirs must not call the library, and what its views show may change as soon as
 *             its parent has no view of that any more.
 *   Signals   no function is safe in a signal handler.
 */
#ifndef SHMSTORE_H
#define SHMSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHMSTORE_VERSION_MAJOR 0
#define SHMSTORE_VERSION_MINOR 2
#define SHMSTORE_VERSION_PATCH 0

#if defined(__GNUC__)
#define SHMSTORE_API __attribute__((visibility("default")))
#else
#define SHMSTORE_API
#endif

/*
 * A structure that a call fills may grow at its end in later versions, but for the ticket and the
 * reservation, and for what is embedded in another one. So such a call is shmstore_..._sized(),
 * whose last argument is the size of the caller's structure, and a macro without _sized adds that:
 * write shmstore_usage(s, &u). A structure that is shorter than the library's gets the members that
 * it has; a longer one gets zeros for those that the library does not know. A program without the
 * header (another language, dlsym()) calls shmstore_usage_sized().
 */
#ifndef SHMSTORE_FILLS
#define SHMSTORE_RET_SIZE , size_t ret_size
#define SHMSTORE_FILLS(name, type, ...) \
	shmstore_##name##_sized(__VA_ARGS__, sizeof(struct shmstore_##type))
#endif

#define SHMSTORE_KEY_MAX     4096u /* bytes of a key; any bytes, also none */
/* bytes of a store's name: no '/', no NUL, not "." or "..", no leading '.' */
#define SHMSTORE_NAME_MAX    255u
#define SHMSTORE_ADDRESS_MAX 255u                /* bytes of an address */
#define SHMSTORE_LABEL_MAX   127u                /* bytes of a label */
#define SHMSTORE_BUFFERS_MAX (1u << 20)          /* buffers of one object */
#define SHMSTORE_HEADER_MAX  (1ull << 31)        /* bytes of a caller's header */
#define SHMSTORE_LEASE_MAX   (86400000ull * 366) /* ms of a lease */
#define SHMSTORE_TICKET_PATH 4096                /* bytes of a ticket's path with its NUL */
#define SHMSTORE_TICKET_TEXT 12400 /* room that shmstore_ticket_format() never exceeds */

struct shmstore_partition;
struct shmstore;
struct shmstore_view;
struct shmstore_writer;

/* The triplet. Plain data: may be sent over anything, to processes of the same host. */
struct shmstore_ticket {
	uint64_t header_size; /* bytes before the first buffer: metadata, not shareable */
	uint64_t buffer_size; /* bytes from the first buffer to the end: shareable */
	char path[SHMSTORE_TICKET_PATH]; /* absolute, NUL-terminated */
};

struct shmstore_options {
	size_t size; /* sizeof(struct shmstore_options): set by SHMSTORE_OPTIONS_INIT */
	/* the store and its objects stay when the owner closes it or dies; gc leaves them */
	bool keep;
	const char *label; /* free text shown to operators, e.g. "dask-worker"; NULL = none */
	/* where the store lives: a path in the partition (absolute, or relative to the partition's
	 * root); made if missing, its parent must exist. NULL = stores/<name> */
	const char *directory;
	/* bytes of deleted objects kept for the next put; 0 = off, SHMSTORE_RECYCLE_DEFAULT */
	uint64_t recycle_max;
	unsigned flags;  /* SHMSTORE_OPEN_* */
	unsigned daemon; /* SHMSTORE_DAEMON_* */
	/* how long a call with SHMSTORE_WAIT waits for room; 0 = SHMSTORE_WAIT_DEFAULT */
	uint64_t wait_ms;
	/*
	 * Objects of up to so many bytes (header and buffers) are put into segments, many to a
	 * file, which takes no system call; 0 = each object is a file; SHMSTORE_PACK_DEFAULT. A
	 * file it is all the same with an empty key, with more than 64 buffers, where the partition
	 * is on a disk, and where a segment finds no room. Since 0.1.
	 */
	uint64_t pack_max;
	/*
	 * The name of a store in stores/: once nobody has that one open, leases of this one are
	 * over for gc, whatever their time. For tickets among the processes of one job, which are
	 * nobody's after it; its own name: after itself. NULL: they last their time. Since 0.2.
	 */
	const char *leases_with;
};
#define SHMSTORE_WAIT_DEFAULT 30000u

/* options.daemon. The socket is $SHMSTORE_SOCKET, else .socket in the partition, where that is
 * there and our user's, else /run/shmstored/socket. */
/* AUTO is what $SHMSTORE_DAEMON says (auto, required, off) where that is set. */
/* register with shmstored where it runs; go on alone where it does not, or no longer does */
#define SHMSTORE_DAEMON_AUTO     0u
/* -ETIMEDOUT from shmstore_open() where it cannot be reached; later as AUTO */
#define SHMSTORE_DAEMON_REQUIRED 1u
/* never look for it: its quotas do not hold here, the file system's size does */
#define SHMSTORE_DAEMON_OFF      2u
/* $SHMSTORE_PACK_MAX bytes where that is a number, else 1 MiB */
#define SHMSTORE_PACK_DEFAULT    UINT64_MAX
#define SHMSTORE_RECYCLE_DEFAULT UINT64_MAX /* 1/16 of the partition, at most 256 MiB */
#define SHMSTORE_OPTIONS_INIT                                                                    \
	{                                                                                        \
		sizeof(struct shmstore_options), false, NULL, NULL, SHMSTORE_RECYCLE_DEFAULT, 0, \
			SHMSTORE_DAEMON_AUTO, 0, SHMSTORE_PACK_DEFAULT, NULL                     \
	}

/* options.flags. A dead owner's kept store is taken over; any other one is garbage and goes. */
#define SHMSTORE_OPEN_READONLY \
	(1u << 0) /* look at a store of one's user, live or dead: get, contains, foreach, usage */
/* take over the objects of a dead owner's store even if it was not kept */
#define SHMSTORE_OPEN_ADOPT     (1u << 1)
/* drop the objects of a dead owner's store even if it was kept */
#define SHMSTORE_OPEN_FRESH     (1u << 2)
/* bound contexts reserve before they take memory: put and others may return
 * outcomes of arbiter.h, > 0 */
#define SHMSTORE_OPEN_ARBITRATE (1u << 3)

/* With READONLY: any user's store. Do not trust it: store names are first come, first served. */
#define SHMSTORE_OPEN_ANY_USER (1u << 4)

/* Bytes unless n_; multiples of the page. used = linked + ghosts + pool +
 * inflight + foreign + residual. */
struct shmstore_usage {
	uint64_t size; /* of the file system; 0 = no limit */
	/* what statfs says; without a limit it says nothing: then the sum of the terms below */
	uint64_t used;
	/* named objects, leases and the stores' own pages, each inode once: what du counts */
	uint64_t linked;
	uint64_t ghosts;   /* deleted but still mapped or open (only with SHMSTORE_USAGE_FULL) */
	uint64_t pool;     /* recycled files kept for the next put */
	uint64_t inflight; /* written but not yet published (only with SHMSTORE_USAGE_FULL) */
	/* files on this file system that are not ours; on disk all that is not in the other
	 * terms */
	uint64_t foreign;
	/* what is left: 0 on a quiet partition with SHMSTORE_USAGE_FULL and enough privilege */
	int64_t residual;
	uint64_t n_stores;
	/* names of objects, over all stores; an inode with two names counts twice */
	uint64_t n_objects;
	uint64_t n_leases;
	uint64_t metadata; /* the part of linked that is the stores' own pages */
	/* directories and processes that we may not look into: the residual may stem from them */
	uint64_t n_unreadable;
	/* The disk tier's own equation: tier = tier_demoted + tier_clean + tier_orphans. All 0
	 * without a tier. Only what we may read. */
	uint64_t tier;         /* blocks of tier files, on disk */
	uint64_t tier_demoted; /* of objects that are there only */
	uint64_t tier_clean;   /* of objects that are in memory as well */
	uint64_t tier_orphans; /* of none: 0 after gc */
	uint64_t n_demoted;    /* names of demoted objects; part of n_objects */
	/* The part of pool that is free in pages of which packed objects
	 * have the rest. Since 0.2. */
	uint64_t stranded;
};

struct shmstore_store_usage {
	uint64_t linked; /* blocks of all it links */
	uint64_t pss;    /* blocks / links, summed */
	/* blocks of what has no link outside this store: what would be freed if it went now */
	uint64_t uss;
	uint64_t mapped;    /* bytes of this handle's live views */
	uint64_t n_objects; /* names */
	uint64_t n_views;   /* this handle's live views */
};

struct shmstore_gc_report {
	uint64_t n_stores;   /* dead stores removed */
	uint64_t n_leases;   /* expired leases removed */
	uint64_t n_objects;  /* objects, recycled and torn files removed */
	uint64_t freed;      /* bytes whose last name went */
	uint64_t n_tier;     /* tier files removed */
	uint64_t tier_freed; /* bytes of these, on the disk */
};

struct shmstore_object_info {
	size_t size;          /* sizeof(struct shmstore_object_info) of the library that fills it */
	const void *key;      /* valid during the callback */
	size_t key_size;      /* bytes */
	uint64_t header_size; /* bytes; 0 with error set */
	uint64_t buffer_size; /* bytes; 0 with error set */
	uint64_t blocks;      /* bytes of memory it takes */
	uint64_t inode;
	/* of the inode, over all stores, leases included; of a packed object:
	 * stores and leases that have it */
	uint64_t links;
	uint64_t n_buffers; /* buffers */
	uint64_t generation;
	int64_t mtime_ns; /* CLOCK_REALTIME of the last write */
	bool checksum;    /* carries a checksum of its buffers */
	/*
	 * 0, or -EBADMSG where the file is no valid object (it is listed all the same); -EPERM: a
	 * segment that may not be read, named segments/..., with packed and without a key.
	 */
	int error;
	const char *name; /* its file name in objects/ */
	bool demoted;     /* in the disk tier: blocks, n_buffers are 0, checksum false */
	bool pinned;      /* never moved there */
	/* one of many in a segment, whose inode it is; mtime_ns is 0, name what the
	 * key's file would be called */
	bool packed;
};

/* ---- partition ------------------------------------------------------------------------------- */

/* make the directory (one level) and the marker where they are missing */
#define SHMSTORE_CREATE     (1u << 0)
/* with SHMSTORE_CREATE: accept a file system that is not a tmpfs */
#define SHMSTORE_ALLOW_DISK (1u << 1)
#define SHMSTORE_SHARED     (1u << 2) /* with SHMSTORE_CREATE: for several users, mode 1777 */
/* -EPERM unless the directory is our user's or root's: for names that others could take first */
#define SHMSTORE_TRUSTED    (1u << 3)

/*
 * Opens the partition at path.
 *   path    a directory on a tmpfs; NULL = shmstore_default_path(), with SHMSTORE_TRUSTED: anybody
 *           may make a directory of that name in /dev/shm.
 *   flags   SHMSTORE_CREATE, SHMSTORE_ALLOW_DISK, SHMSTORE_SHARED, SHMSTORE_TRUSTED or 0.
 * Ownership: *ret has one reference. Threads, Fork: any.
 * Return: 0; -ENOENT (no directory, or no marker in it and no SHMSTORE_CREATE), -EEXIST
 * (SHMSTORE_CREATE on a directory that holds something else), -ENOTSUP (not a tmpfs;
 * marker of another format version), -EBADMSG (damaged marker), -EPERM, -EINVAL, -EMFILE,
 * -ENOMEM, -ENOSPC. Since 0.1.
 */
SHMSTORE_API int shmstore_partition_open(const char *path, unsigned flags,
					 struct shmstore_partition **ret);
SHMSTORE_API struct shmstore_partition *shmstore_partition_ref(struct shmstore_partition *p);
/* Drops a reference. NULL is fine. Returns NULL. Open stores hold one of their own. */
SHMSTORE_API struct shmstore_partition *shmstore_partition_unref(struct shmstore_partition *p);

/* The partition's canonical absolute path. Owned by p. */
SHMSTORE_API const char *shmstore_partition_path(const struct shmstore_partition *p);

/*
 * The partition used where none is named: $SHMSTORE_PARTITION, else the one chosen when the library
 * was built (/dev/shm/shmstore-<uid> unless configured otherwise).
 * Return: 0; -EINVAL (size too small). Since 0.1.
 */
SHMSTORE_API int shmstore_default_path(char *ret_path, size_t size);

/* ask /proc who holds deleted files: costs a scan of all processes */
#define SHMSTORE_USAGE_FULL (1u << 0)

/*
 * Where the bytes of the file system are (the df equation). Walks every name of the mount once;
 * 1,000,000 objects take seconds. Without SHMSTORE_USAGE_FULL what only processes hold is in the
 * residual. A partition that is written to while it is read gives numbers of slightly different
 * moments; the walk is tried three times for a quiet one.
 * Return: 0; -EINVAL, -EPERM, -EMFILE, -ENOMEM. Since 0.1.
 */
SHMSTORE_API int shmstore_partition_usage_sized(struct shmstore_partition *p, unsigned flags,
						struct shmstore_usage *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_usage(...) SHMSTORE_FILLS(partition_usage, usage, __VA_ARGS__)

#define SHMSTORE_GC_DRY_RUN (1u << 0) /* count what would go; delete nothing */
/* leases of dead stores go before they end: their tickets are stale then. Since 0.2 */
#define SHMSTORE_GC_LEASES  (1u << 1)

/*
 * Removes stores of dead owners (unless kept; their unexpired leases stay), expired leases and torn
 * files. Doubtful files stay. Any process may run it at any time, several at once.
 *   ret     may be NULL.
 * Return: 0; -EINVAL, -EPERM, -EMFILE, -ENOMEM; when all else was done, the error of the first
 * step that failed. Since 0.1.
 */
SHMSTORE_API int shmstore_partition_gc_sized(struct shmstore_partition *p, unsigned flags,
					     struct shmstore_gc_report *ret SHMSTORE_RET_SIZE);
#define shmstore_partition_gc(...) SHMSTORE_FILLS(partition_gc, gc_report, __VA_ARGS__)

/*
 * fn is called each 100 ms at least by a put that waits for room (SHMSTORE_WAIT), in its
 * thread and without a lock of the library's; where it returns another value than 0 the call
 * ends with -ECANCELED, and nothing is put. For interpreters, which run handlers of signals
 * then. Of the whole process; NULL: none. Threads: any; of a library that is unloaded it
 * must be taken back. Since 0.2.
 */
SHMSTORE_API void shmstore_on_wait(int (*fn)(void));

/* ---- store ----------------------------------------------------------------------------------- */

/*
 * A handle with SHMSTORE_OPEN_READONLY owns nothing and means the name: it goes on after a fork, in
 * parent and child, and with another store that got the name since (views of the former one stay
 * valid; -ENOENT where nobody has it). It reads objects in place, as the owner does.
 *
 * Opens (makes) the store called name and holds its lock until shmstore_close() or death. Dead
 * stores of the partition that nobody keeps are swept on the way.
 *   options   NULL = SHMSTORE_OPTIONS_INIT.
 * Ownership: *ret is closed with shmstore_close(); it holds a reference to p.
 * Return: 0; -EBUSY (name held by a live owner), -EINVAL (name, options), -EPERM (directory outside
 * the partition; somebody else's), -ENOENT (SHMSTORE_OPEN_READONLY and no such store; another
 * user's is -EPERM without SHMSTORE_OPEN_ANY_USER), -ENOTSUP, -ENOSPC, -EMFILE, -ENOMEM, -ETIMEDOUT
 * (see above; a kept store is kept still). Since 0.1.
 */
SHMSTORE_API int shmstore_open(struct shmstore_partition *p, const char *name,
			       const struct shmstore_options *options, struct shmstore **ret);

/*
 * Closes the store: removes it and its objects unless options.keep; unexpired leases stay
 * until they are taken or end.
 * Ownership: consumes s, also on error. Live views and writers stay valid; a
 * writer can then only be aborted.
 * Return: 0; -EPERM, -EIO, -ETIMEDOUT (see above; something could not be removed, and gc will). s
 * is consumed all the same. NULL is fine. Since 0.1.
 */
SHMSTORE_API int shmstore_close(struct shmstore *s);

/* The store's name and absolute directory. Owned by s. */
SHMSTORE_API const char *shmstore_name(const struct shmstore *s);
SHMSTORE_API const char *shmstore_path(const struct shmstore *s);

/*
 * Makes the store known to peers by an address, e.g. "tcp://10.0.0.1:4711"; replaces an
 * earlier one, "" withdraws it.
 * Return: 0; -EINVAL (over SHMSTORE_ADDRESS_MAX), -ENOSPC, -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_set_address(struct shmstore *s, const char *address);

/*
 * The name of the live store known by that address.
 *   name_size   bytes of ret_name; SHMSTORE_NAME_MAX + 1 always suffices. ret_name
 *               may be NULL with name_size 0.
 * Return: 0; -ENOENT (no live peer here), -EINVAL (too small). Since 0.1.
 */
SHMSTORE_API int shmstore_peer_find(struct shmstore_partition *p, const char *address,
				    char *ret_name, size_t name_size);

/* Sums up this store; stats every name in it. Return: 0; -EPERM, -ENOMEM, -EMFILE. Since 0.1. */
SHMSTORE_API int shmstore_usage_sized(struct shmstore *s,
				      struct shmstore_store_usage *ret SHMSTORE_RET_SIZE);
#define shmstore_usage(...) SHMSTORE_FILLS(usage, store_usage, __VA_ARGS__)

/* ---- objects --------------------------------------------------------------------------------- */

/* put, create, adopt: take the place of an object of that key */
#define SHMSTORE_REPLACE   (1u << 0)
/* put, create: keep an XXH3-128 of the buffers (costs about one read of them) */
#define SHMSTORE_CHECKSUM  (1u << 1)
/* get: buffers are writable, private to this view; nobody else sees the writes */
#define SHMSTORE_COW       (1u << 2)
/* get, adopt: check the buffers' checksum where the object carries one */
#define SHMSTORE_VERIFY    (1u << 3)
/* put, create: a full quota is waited for, options.wait_ms long: -ETIMEDOUT then */
#define SHMSTORE_WAIT      (1u << 4)
/* put, create: the object is never moved to the disk tier (shmstore_pin() undoes it) */
#define SHMSTORE_PIN       (1u << 5)
/* put, create, promote: -ENOSPC at once rather than moving others to the disk tier first */
#define SHMSTORE_NO_EVICT  (1u << 6)
/* create: the buffers may hold at first what deleted objects of this store held */
#define SHMSTORE_UNCLEARED (1u << 7)

/*
 * Stores one object under key: all of it or nothing.
 *   key, key_size         0 to SHMSTORE_KEY_MAX bytes of anything.
 *   header, header_size   the caller's metadata, 0 to SHMSTORE_HEADER_MAX bytes; copied by readers.
 *   buffers, n_buffers    0 to SHMSTORE_BUFFERS_MAX ranges; each lands 64-byte aligned (the first
 *                         one page-aligned from 64 KiB of buffers up) and is what readers map.
 *   flags                 SHMSTORE_REPLACE, SHMSTORE_CHECKSUM, SHMSTORE_WAIT,
 *                         SHMSTORE_PIN, SHMSTORE_NO_EVICT.
 * Where header and all buffers are those of a live view of this store whose pages
 * nobody wrote to, the object gets a second name and no byte is copied; with
 * SHMSTORE_CHECKSUM only if it has a checksum.
 * Return: 0; -EEXIST (key held and no SHMSTORE_REPLACE), -ENOSPC (partition full, or at its limit),
 * -EDQUOT (this store's, its user's or its label's limit), -EFBIG (RLIMIT_FSIZE), -ETIMEDOUT
 * (SHMSTORE_WAIT; see above), -EINVAL, -EMFILE, -ENOMEM, -EPERM. An error leaves nothing behind.
 * Since 0.1.
 */
SHMSTORE_API int shmstore_put(struct shmstore *s, const void *key, size_t key_size,
			      const void *header, size_t header_size, const struct iovec *buffers,
			      size_t n_buffers, unsigned flags);

/*
 * Reserves an object and hands out writable memory for it: the producer writes
 * straight into shared memory.
 *   header_size     bytes of room for the caller's header.
 *   buffer_sizes    n_buffers sizes in bytes.
 *   flags           as shmstore_put()'s, and SHMSTORE_UNCLEARED.
 * The space is taken here: a full partition is -ENOSPC now, never SIGBUS later. An object to be
 * packed (options.pack_max), of 64 KiB at most, has process memory until shmstore_seal() puts it,
 * which may find no room. A deleted object's file that fits is used again. The memory reads as
 * zero; SHMSTORE_UNCLEARED saves a quarter of the time, but buffers may hold bytes of this store's
 * deleted objects: write all of them. A forked child does not inherit the writer's memory.
 * Ownership: *ret is consumed by shmstore_seal() or shmstore_abort(). One
 * thread at a time per writer.
 * Return: as shmstore_put(); -EEXIST is found out by shmstore_seal(). Since 0.1.
 */
SHMSTORE_API int shmstore_create(struct shmstore *s, const void *key, size_t key_size,
				 size_t header_size, const uint64_t *buffer_sizes, size_t n_buffers,
				 unsigned flags, struct shmstore_writer **ret);
SHMSTORE_API void *shmstore_writer_header(struct shmstore_writer *w, size_t *ret_size);
SHMSTORE_API void *shmstore_writer_buffer(struct shmstore_writer *w, size_t i, uint64_t *ret_size);
/* Publishes the object; its memory is no longer writable. Consumes w even on error.
 * Return: as shmstore_put(). */
SHMSTORE_API int shmstore_seal(struct shmstore_writer *w);
/* Drops the object. Consumes w; NULL is fine. */
SHMSTORE_API void shmstore_abort(struct shmstore_writer *w);

#define SHMSTORE_ALLOC_KEPT (1u << 0) /* of shmstore_alloc(): what is kept, or nothing */

/*
 * Memory of the partition for a buffer that may become an object: a shmstore_put() whose only
 * buffer it is, whole, publishes it without a copy, whatever the key and the header, as long as
 * key and header are within a page. Until then it is memory as any other, that no other process
 * sees; it is taken here (never SIGBUS), and what is in it at first may be anything the process
 * wrote before. After the put it is still there, and still writable: what is written from then on
 * is this process's alone, and the object does not change. A forked child has a copy of it, as of
 * all memory; what was allocated before a fork is copied by a put after it. Of memory that the
 * kernel or a device writes to by itself (a read with O_DIRECT, io_uring, RDMA) nothing may be
 * under way at a put or a fork.
 *   size    bytes, 1 at least. From 2 MiB up, on a mount with huge pages, it is worth it.
 *   flags   SHMSTORE_ALLOC_KEPT: only what was freed a short while ago, and is kept with its
 *           pages: makes no system call.
 *   *ret    aligned to the page. Freed by shmstore_free() alone, by any thread, also after the
 *           store was closed, also in a child.
 * It never waits and moves nothing to the disk tier: it is -ENOSPC also while memory is asked for,
 * or where less than a quarter of the partition would be left. The caller has other memory.
 * Return: 0; -ENOSPC, -EDQUOT, -EMFILE (each takes a descriptor: a quarter of them at most),
 * -ENOMEM, -ENOTSUP (the partition is on a disk), -EINVAL, -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_alloc(struct shmstore *s, uint64_t size, unsigned flags, void **ret);
/* Bytes that were asked for; 0: p is none of shmstore_alloc()'s. */
SHMSTORE_API uint64_t shmstore_alloc_size(const void *p);
/* Frees it, published or not; an object stays. Returns what shmstore_alloc_size()
 * did: 0: nothing was done. */
SHMSTORE_API uint64_t shmstore_free(void *p);

/*
 * Maps an object: costs the same whatever its size, and keeps no file descriptor.
 *   flags   SHMSTORE_COW, SHMSTORE_VERIFY.
 * Ownership: *ret has one reference; it stays valid until its last unref even if key,
 * store or partition are gone.
 * Return: 0; -ENOENT, -EBADMSG (no valid object, or SHMSTORE_VERIFY found damage),
 * -EIO (demoted, and the tier is not mounted), -ETIMEDOUT (see above), -EMFILE,
 * -ENOMEM, -EINVAL, -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_get(struct shmstore *s, const void *key, size_t key_size, unsigned flags,
			      struct shmstore_view **ret);
SHMSTORE_API struct shmstore_view *shmstore_view_ref(struct shmstore_view *v);
/* Drops a reference; the last one unmaps. NULL is fine. Returns NULL. */
SHMSTORE_API struct shmstore_view *shmstore_view_unref(struct shmstore_view *v);
/* The object's parts, owned by the view and valid as long as it is. ret_size may be NULL. */
SHMSTORE_API const void *shmstore_view_key(const struct shmstore_view *v, size_t *ret_size);
SHMSTORE_API const void *shmstore_view_header(const struct shmstore_view *v, size_t *ret_size);
/*
 * The owner of the object's file: our user, but for objects handed to us (shmstore_handoff_to())
 * and stores opened with SHMSTORE_OPEN_ANY_USER. Ask before you load a pickle, say. Since 0.1.
 */
SHMSTORE_API uid_t shmstore_view_uid(const struct shmstore_view *v);
/* A number that other values, of this key or another one, do not have but by chance. Since 0.2. */
SHMSTORE_API uint64_t shmstore_view_generation(const struct shmstore_view *v);
SHMSTORE_API size_t shmstore_view_n_buffers(const struct shmstore_view *v);
/* Buffer i, NULL where i is out of range. Writable only with SHMSTORE_COW, else writing faults. */
SHMSTORE_API void *shmstore_view_buffer(const struct shmstore_view *v, size_t i,
					uint64_t *ret_size);

/*
 * Return: 1; 0: at some moment of the call the store had no such key; -EINVAL, -EPERM, -ENOENT
 * (SHMSTORE_OPEN_READONLY: the store is gone), -ETIMEDOUT (it changed each time that it was looked
 * at). A name in the directory counts; the file is not validated.
 */
SHMSTORE_API int shmstore_contains(struct shmstore *s, const void *key, size_t key_size);
/*
 * Waits until the store has the key, or, where generation is not 0, another value of it than the
 * one whose views say that number. Woken by the put, within some ten microseconds; another user's
 * store is looked at each 10 ms. timeout_ms: UINT64_MAX: for ever. Signals are handled meanwhile,
 * and do not end it. Threads: any.
 * Return: 0: it had it; -ETIMEDOUT; -ESTALE: the store's owner is dead, -ENOENT: the store is gone,
 * so that nobody puts the key; -EINVAL, -EPERM, -EMFILE. Since 0.2.
 */
SHMSTORE_API int shmstore_wait(struct shmstore *s, const void *key, size_t key_size,
			       uint64_t generation, uint64_t timeout_ms);
/*
 * The process that owns the store of a handle that reads it, and whether it lives: SHMSTORE_ALIVE,
 * SHMSTORE_DEAD, or SHMSTORE_ALIVE_UNKNOWN (inspect.h). *ret_pid 0: it was closed, and is kept.
 * Return: 0; -ENOENT: the store is gone, and nobody has its name; -EPERM, -EMFILE.
 * Since 0.2.
 */
SHMSTORE_API int shmstore_owner(struct shmstore *s, int *ret_pid, int *ret_alive);

/*
 * Removes the key. The memory is the kernel's again with the last link and the last view, unless
 * the file is kept for the next put (options.recycle_max). Return: 0; -ENOENT, -ETIMEDOUT (see
 * above), -EINVAL, -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_delete(struct shmstore *s, const void *key, size_t key_size);

/*
 * Calls fn for every object, in no order; a return other than 0 ends the walk and is returned.
 * Objects that come or go meanwhile may be missed. fn may call into the library, delete included.
 * Return: 0, fn's value, or -EPERM, -ENOMEM, -EMFILE, -ETIMEDOUT (see above). Since 0.1.
 */
SHMSTORE_API int shmstore_foreach(struct shmstore *s,
				  int (*fn)(const struct shmstore_object_info *info, void *arg),
				  void *arg);

/* ---- between processes ----------------------------------------------------------------------- */

/*
 * Links the object into the store's handoff/ directory for lease_ms milliseconds, or leases it
 * where it is packed, and returns the triplet. From here on the donor may delete the key, close the
 * store or die: one receiver still gets the object until the lease ends.
 *   lease_ms   1 to SHMSTORE_LEASE_MAX.
 * An object that another user handed to us (shmstore_handoff_to) only shmstored can link again: to
 * a store of our own user, for a day at most; -EPERM without it.
 * Return: 0; -ENOENT, -ESTALE (the lease had ended before this call did), -EINVAL, -EBADMSG,
 * -ENOSPC (inodes), -ETIMEDOUT (see above), -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_handoff(struct shmstore *s, const void *key, size_t key_size,
				  uint64_t lease_ms, struct shmstore_ticket *ret);

/*
 * Takes the object of a ticket into this store under key (which may differ from the
 * donor's) and consumes its lease.
 *   flags   SHMSTORE_REPLACE, SHMSTORE_VERIFY.
 * The ticket and the file are input: both are checked, and nothing is linked where anything is
 * wrong. A path to an object in a store's objects/ is taken too, by a link; it stays where it is.
 * Return: 0, also where this very object is held under key already; -EPERM (path outside the
 * partition, or neither a lease nor an object; another user's, but for a lease in our own inbox),
 * -EBADMSG (no regular file, symlink, sizes or checksum wrong), -ESTALE (expired or taken), -EEXIST
 * (key held by another object), -ENOSPC (a key too long for a file name takes a page), -EDQUOT (the
 * store's limit), -ETIMEDOUT (see above), -EXDEV, -EINVAL, -EMFILE, -ENOMEM.
 * Since 0.1.
 */
SHMSTORE_API int shmstore_adopt(struct shmstore *s, const void *key, size_t key_size,
				const struct shmstore_ticket *ticket, unsigned flags);

/*
 * A ticket as one line of printable text, and back.
 * Return: 0; -EINVAL (text_size too small: SHMSTORE_TICKET_TEXT suffices; ticket malformed),
 * -EBADMSG (parse: no ticket).
 */
SHMSTORE_API int shmstore_ticket_format(const struct shmstore_ticket *t, char *ret_text,
					size_t text_size);
SHMSTORE_API int shmstore_ticket_parse(const char *text, struct shmstore_ticket *ret);

/* ---- with shmstored -------------------------------------------------------------------------- */

/*
 * As shmstore_handoff(), for a receiver of another user: shmstored moves the lease to where that
 * user, and nobody else, finds and reads it. The operator's rules say who may hand to whom
 * (shmstored.conf(5)). The file stays its owner's, who alone could change it: the receiver trusts
 * the donor not to. To a third user it goes from its owner only.
 *   receiver   user id. Our own is as shmstore_handoff().
 *   lease_ms   1 to 86,400,000 (a day) for another user.
 * Return: as shmstore_handoff(); -EPERM (no rule allows it, the partition is not shared, the object
 * is another user's, or no daemon), -EDQUOT (the receiver's inbox is full), -ENOTSUP (no access
 * lists here), -ETIMEDOUT (the daemon does not answer). Since 0.1.
 */
SHMSTORE_API int shmstore_handoff_to(struct shmstore *s, const void *key, size_t key_size,
				     uid_t receiver, uint64_t lease_ms,
				     struct shmstore_ticket *ret);

/*
 * Tells how many bytes the daemon asks this store to give back. The library gives back pooled files
 * by itself, at the next call that puts or deletes; the program may evict objects.
 *   ret_bytes   asked for and not given back since, by deletes or the pool; 0: nothing.
 * Return: 1 registered with a daemon, 0 alone, -EPERM. Costs no system call. Since 0.1.
 */
SHMSTORE_API int shmstore_asked(struct shmstore *s, uint64_t *ret_bytes);

/*
 * For event loops: a descriptor that becomes readable when the daemon asks for something, and what
 * to call then. It is the library's; it may change whenever shmstore_daemon_dispatch() returns 0.
 * If others ask for memory, dispatch trims segments, and demotes packed objects for about 100 ms;
 * the daemon says it again if that was too little.
 * Return: fd or -ENOENT (alone); dispatch: 1 registered, 0 alone (call again to look for the
 * daemon: once a second at most it tries), -EPERM. Since 0.1.
 */
SHMSTORE_API int shmstore_daemon_fd(struct shmstore *s);
SHMSTORE_API int shmstore_daemon_dispatch(struct shmstore *s);

/* Describes an error code (negative or positive). Static text, never NULL. */
SHMSTORE_API const char *shmstore_strerror(int error);
/* "major.minor.patch". */
SHMSTORE_API const char *shmstore_version(void);

#ifdef __cplusplus
}
#endif

#include <shmstore/tier.h>

#endif
