/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.h: a store's packed objects, found by key: its own segments, and its places in other stores'
 * (docs/segments.md "A store's packed objects").
 *
 * Threads: any; there is a lock inside. Times are ms of CLOCK_BOOTTIME.
 */
#ifndef SHMS_PACK_H
#define SHMS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglook.h"
#include "segment.h"
#include "segown.h"
#include "segslot.h"

struct shms_pack;
struct shms_packticket;

struct shms_pack_options {
	int root_fd;      /* the partition */
	const char *path; /* of the store's segments/ beneath it: what tickets say */
	int dir_fd;       /* that directory */
	/* The store's, where its index is. All three are borrowed, and outlive the pack; a
	 * reader has the first alone. */
	int store_fd;
	uint8_t uuid[16]; /* the store's, the same whenever a kept store is opened */
	bool kept;        /* names outlive the process */
	bool huge;        /* the partition gives pages of up to 2 MiB */
};

/* A referenced object. Its bytes stay as they are until shms_pack_unget(). */
struct shms_pack_view {
	struct shms_pack *pack;
	const struct shms_segment *segment;
	struct shms_segpacked object;
	uint32_t slot, generation;
	uint32_t number; /* of the segment, in the store */
};

#define SHMS_PACK_TICKET 4096u /* bytes of a ticket's path with its NUL */

/*
 * Opens a store's packed objects; a kept store finds its own again. 0; -EBUSY: a child of its last
 * process lives; -ENOMEM, -EMFILE, …
 */
int shms_pack_open(const struct shms_pack_options *options, struct shms_pack **ret);
/*
 * The store closes: its names go, unless keep, and segments where it has no views are left. Views
 * stay valid until _close(); besides it only shms_pack_unget() may follow.
 */
void shms_pack_retire(struct shms_pack *p, bool keep, uint64_t now_ms);
/*
 * Call it when all views were given back. A store that is not kept gives all of its names up;
 * objects that other stores have stay theirs. NULL is fine.
 */
void shms_pack_close(struct shms_pack *p, uint64_t now_ms);
/*
 * Packed objects and fork(). A child inherits views, and the parent must know how long the child
 * may use them: each segment with live views has a byte that the children lock together. prepare,
 * before the fork, takes the pack's lock, and takes the byte's lock for the children. parent gives
 * both back. In the child only views are left.
 */
void shms_pack_fork_prepare(struct shms_pack *p);
void shms_pack_fork_parent(struct shms_pack *p);
void shms_pack_fork_child(struct shms_pack *p);

/*
 * 0; -EEXIST: the key is held, and replace is false; -EFBIG: the object is too large for a segment,
 * or has too many buffers; -ENOSPC, -ENOMEM, …
 * io: says what the put may take, and then what it took, whatever is returned; if it may take no
 * more, -ENOSPC, with wanted and least (segmem.h).
 */
int shms_pack_put(struct shms_pack *p, const struct shms_segobject *what, bool replace,
		  uint64_t now_ms, struct shms_seggrow *io);
/* 0, -ENOENT, -EBADMSG. */
int shms_pack_get(struct shms_pack *p, const void *key, size_t key_size,
		  struct shms_pack_view *ret);
/* A view of the object of which the store has a view already, and whose first byte is there. 0,
 * -ENOENT, -EBADMSG, -ENOMEM. */
int shms_pack_at(struct shms_pack *p, const void *address, struct shms_pack_view *ret);
/*
 * Maps the buffers of a view that the caller has, for writes that nobody else sees. The map has its
 * neighbours' bytes of the first and the last page. Returns where the buffers begin; NULL: there is
 * no map to be had.
 */
void *shms_pack_map(const struct shms_pack_view *v);
/* now_ms: 0: the clock is asked where that matters, which it does for few views. */
void shms_pack_unget(struct shms_pack *p, const struct shms_pack_view *v, uint64_t now_ms);
/* ret_bytes: of its extent. 0, -ENOENT. */
int shms_pack_delete(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms,
		     uint64_t *ret_bytes);
/*
 * ret_path: beneath the partition. ret_object: what it is, of one moment with the
 * lease. 0; -ENOENT; -EAGAIN: all leases of the object are out; -EINVAL: a lease of more than 190
 * days, or the path is too long.
 */
int shms_pack_handoff(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms,
		      uint64_t lease_ms, char *ret_path, size_t size,
		      struct shms_segpacked *ret_object);
/* Is a lease of the object out, that has not ended? */
bool shms_pack_promised(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms);
/* Is the ticket one of the object that the key means? */
bool shms_pack_is_ticket_of(struct shms_pack *p, const void *key, size_t key_size,
			    const struct shms_packticket *t);
/* Sizes that a ticket states beside its path. */
struct shms_pack_sizes {
	uint64_t header, buffer; /* as shms_pack_header_size(), and of all buffers */
	bool verify;             /* not the ticket's: buffers must match their checksum, if any */
};
/*
 * Takes the object of a ticket, under its own key. expect: NULL: whatever its sizes are. may: bytes
 * that the index may grow by. 0, also where the store has it already; -ESTALE: the ticket was used,
 * has ended, or its object is gone; -EEXIST: the key has another object, and replace is false;
 * -ENOTSUP: the object has other sizes, or another key; -EAGAIN: its segment has no free place, or
 * the store no free number for it; -EBADMSG; -EPERM. A call that fails changes nothing.
 */
int shms_pack_adopt(struct shms_pack *p, const struct shms_packticket *ticket,
		    const struct shms_pack_sizes *expect, const void *key, size_t key_size,
		    bool replace, uint64_t now_ms, uint64_t may);
/* The objects that the store has by name, and the memory of their extents. */
struct shms_pack_sum {
	uint64_t n, bytes;
};
struct shms_pack_sum shms_pack_sum(struct shms_pack *p);
/* Words to which each change of the sum is added, and one that has the sum's bytes.
 * All NULL: nobody is told. */
struct shms_packtold {
	_Atomic uint64_t *n, *bytes, *bytes_max;
	_Atomic uint64_t *packed;
	_Atomic uint64_t *changes; /* odd while a key may get another slot */
};
/* From now on, under the pack's lock, until shms_pack_retire(). */
void shms_pack_tell(struct shms_pack *p, const struct shms_packtold *told);
/*
 * Returns the pool: memory of the store's own segments besides held objects. Nothing changes until
 * shms_pack_release(), and the words of shms_pack_tell() agree with it.
 */
uint64_t shms_pack_hold(struct shms_pack *p);
void shms_pack_release(struct shms_pack *p);
/* The pool; what these segments take in all; and how much of the pool the last trim had to
 * leave. */
uint64_t shms_pack_pool(struct shms_pack *p, uint64_t *ret_memory, uint64_t *ret_trimmed);
/* Gives the pool back to the kernel as far as pages are free. Returns bytes. */
uint64_t shms_pack_trim(struct shms_pack *p, uint64_t now_ms);
/* tight: free memory goes back at once, page by page. */
void shms_pack_tight(struct shms_pack *p, bool tight);
/* Has the file of an own segment its name still? One of them at a call, by turn. */
bool shms_pack_is_there(struct shms_pack *p);
/* Gives own segments' files the present time. */
void shms_pack_touch(struct shms_pack *p);
/* How many bytes went back to the kernel since this was asked last. */
uint64_t shms_pack_gave(struct shms_pack *p);
/* How many slots a search for victims may look at still. */
struct shms_packsearch {
	uint64_t left;
	uint32_t now; /* leases that ended before are none */
};
/* The search goes twice around at most: an object that was used is passed once. */
struct shms_packsearch shms_pack_search(struct shms_pack *p, uint64_t now_ms);
/*
 * The next object that is this store's alone, of its own segments, without leases and views, and
 * that nobody has got since the search came by: its memory is free once it is deleted. The view
 * goes to shms_pack_unget(). -ENOENT: there is none left.
 */
int shms_pack_victim(struct shms_pack *p, struct shms_packsearch *io, struct shms_pack_view *ret);
/*
 * Says whether the object may leave memory. 0, also where it was said before; -ENOENT; -EXDEV: it
 * is another store's object, whose slot that store alone changes.
 */
int shms_pack_pin(struct shms_pack *p, const void *key, size_t key_size, bool pin);
/* The view's key, as long as the view. */
const void *shms_pack_view_key(const struct shms_pack_view *v);
/* Does the key still mean the object that the view shows, pinned or not as it was then? */
bool shms_pack_is(struct shms_pack *p, const void *key, size_t key_size,
		  const struct shms_pack_view *v);
bool shms_pack_has(struct shms_pack *p, const void *key, size_t key_size);
/* A number that other objects, packed or not, do not have but by chance. */
uint64_t shms_pack_view_generation(const struct shms_pack_view *v);
/* Do the buffers in that extent match their checksum? True also where there is none. */
bool shms_pack_verify(const struct shms_segpacked *o, const uint8_t *extent);
/* Size of the header that a file has before the buffers of an object of that shape. */
uint64_t shms_pack_header_size(const struct shms_segpacked *o);

/*
 * A packed object's ticket: its path, which is the donor's link beneath the
 * partition, and what of the segment is meant; and the ticket's object for a store that cannot have
 * a place in its segment, or wants it under another key: the bytes are copied while the lease
 * stands, and the lease is taken when the copy is an object of the store.
 */

struct shms_packticket {
	const char *path;   /* the caller's; it begins with the link, beneath the partition */
	size_t link_length; /* in path */
	uint8_t uuid[16];
	struct shms_segticket what;
};

/* path: length bytes, and a NUL. 0; -EBADMSG: that is no packed object's ticket. */
int shms_packticket_parse(const char *path, size_t length, struct shms_packticket *ret);
/* Where the store's directory ends in path, which is the link's without /segments/ and the name. */
size_t shms_packticket_store(const struct shms_packticket *ticket);

struct shms_packcopy {
	uint8_t *extent; /* a copy; malloc() */
	struct shms_segpacked object;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS]; /* of its buffers */
};

/*
 * 0; -ESTALE: the ticket was used, has ended, or its object is gone; -EBADMSG; -EPERM; -ENOMEM. On
 * success extent is the caller's to free.
 */
int shms_packcopy_read(int root_fd, const struct shms_packticket *ticket, uint64_t now_ms,
		       struct shms_packcopy *ret);
/* Takes the lease, so that the ticket is used. -ESTALE: another process was quicker. */
int shms_packcopy_end(int root_fd, const struct shms_packticket *ticket);

/*
 * packread.c: another store's packed objects for a process of the same user that only reads them
 * (docs/segments.md "Readers").
 *
 * A reader finds keys by the store's own index, and takes a place in each segment where it finds an
 * object: a holder that has views, and never a name. It is a struct shms_pack without names, so
 * that views, forks and the end of both are those of any store.
 * Threads: any. Views go to shms_pack_unget(), and the reader to shms_pack_close().
 */

/*
 * options: of the store that is read: uuid, root_fd, path. No directory is kept open. former: NULL,
 * or the reader before this one, which is closed with it. 0, -ENOMEM.
 */
int shms_packread_open(const struct shms_pack_options *options, struct shms_pack *former,
		       struct shms_pack **ret);
/*
 * The store is gone, or this process is a child that has another reader: no more is found by this
 * one, but its views stay. Gives back what has none.
 */
void shms_packread_end(struct shms_pack *p);
bool shms_packread_ended(const struct shms_pack *p);
/*
 * ret: NULL: for an answer alone. 0: *ret is to be given back; -ENOENT: at some moment of the call
 * the store had no packed object of that key; -ENOTSUP: it has no index that this process may map,
 * or the object's segment has no place for it: shms_packlook() tells; -ESTALE: after _end(), or in
 * a child; -ETIMEDOUT: the store changed without an end; -ENOMEM, -EMFILE, -EBADMSG.
 */
int shms_packread_get(struct shms_pack *p, const void *key, size_t key_size,
		      struct shms_pack_view *ret);
/* Takes an object's view, which is given back when it returns; the segment's inode; how many names
 * in stores and leases the object has. */
typedef int shms_packread_fn(const struct shms_pack_view *v, uint64_t inode, uint64_t n_links,
			     void *arg);
/*
 * Calls fn for each key that the store has, once, until fn returns another value than 0, which is
 * returned. Keys that come or go meanwhile may be there or not. *io_from, at first 0: of keys with
 * a lower hash (its lower 32 bits) all are told. 0, or as _get().
 */
int shms_packread_each(struct shms_pack *p, uint64_t *io_from, shms_packread_fn *fn, void *arg);

/*
 * A store's packed objects as seen from its directory, by any process of its user, with
 * or without the store's own handle. Nothing is written, and nobody is waited for: an object that
 * changes while it is read is read again, and left out if it has gone.
 */

struct shms_packlook {
	const void *key; /* a copy */
	size_t key_size;
	struct shms_segpacked object;
	const struct shms_segment *segment;
	uint64_t inode;      /* the segment's */
	uid_t uid;           /* whose the segment is */
	uint64_t n_links;    /* names in stores, and leases */
	const uint8_t *copy; /* of the extent, where it was asked for; else NULL */
	uint32_t slot, generation;
	int error;        /* not 0: a segment that cannot be read, of which only file is told */
	const char *file; /* its name */
};

/*
 * Calls fn for each object that the store of that uuid has in the segments of dir_fd,
 * until fn returns another value than 0, which is returned. All that fn is given is valid during
 * the call. key: only objects of that key, with a copy of their extents; NULL: all of them.
 * store: NULL: fn is told of nothing but of segments that may not be read.
 * Segments that are damaged are left out; of one that may not be read (-EPERM: another user's;
 * -EACCES) fn is told, and the look goes on. 0, -ENOMEM, -EMFILE.
 */
int shms_packlook(int dir_fd, const uint8_t store[16], const void *key, size_t key_size,
		  int (*fn)(const struct shms_packlook *object, void *arg), void *arg);

#endif
