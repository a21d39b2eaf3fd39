/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packed.h: a store's packed objects beside its files (docs/segments.md "A store's packed
 * objects").
 *
 * A key is a file's name in objects/, or a packed object's, never both. Two places keep that
 * rule, each with store.names held exclusively: shms_packed_put() leaves a key that is a
 * file's to files, and publish.c, through which every file gets its name, takes the packed
 * object away that had the key. All else follows: what only files can do, a packed object does
 * after it has become a file (put.c).
 *
 * The pack is made at the first put that goes there, or when a store is opened with segments. Other
 * stores pay a load.
 */
#ifndef SHMS_PACKED_H
#define SHMS_PACKED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "opened.h"
#include "pack.h"

struct shms_keyname;

/* store.names is held exclusively, but for pool. */
struct shms_packedmem {
	uint64_t max;          /* bound of the pool, bytes: a part of the partition */
	_Atomic uint64_t pool; /* what of it the ledger has */
	uint32_t n_calls;      /* since the pool was looked at, */
	uint64_t freed;        /* and bytes of objects that were deleted */
	bool tight;            /* what the pack was told last */
	uint64_t looked_ms;    /* when the partition was asked for room, */
	bool scarce;           /* and what it said */
	uint64_t began_ms;     /* of a time in which the pool was never smaller than least */
	uint64_t least;
};

struct shms_packed {
	uint64_t max; /* bytes of header and buffers; 0: files alone */
	int dir_fd;   /* segments/ */
	struct shms_packedmem mem;
	/* a thread gives what others asked for, or nobody may yet, or any more (packgive.h) */
	atomic_flag giving;
	pthread_mutex_t lock; /* while the pack is made, and over a fork */
};

/* May an object of so many bytes, header and buffers, be packed? */
bool shms_packed_fits(const struct shmstore *s, uint64_t bytes);

void shms_packed_init(struct shms_packed *x);
/*
 * Of a store that is being opened, whose objects are its ledger's already. read: it may have packed
 * objects, which are looked for. 0; -EBUSY: children of its last process have views of them.
 */
int shms_packed_open(struct shmstore *s, uint64_t max, bool read);
/* The handle closes: views stay. Before the store's directory is taken apart. */
void shms_packed_retire(struct shmstore *s, bool keep);

static inline struct shms_pack *shms_packed_pack(const struct shmstore *s)
{
	/* acquire: who sees the pack sees all of it. */
	return atomic_load_explicit(&s->pack, memory_order_acquire);
}

/*
 * Is the key a file's, whole or a stub? Where it is a packed object's as well, the file is what it
 * means: its owner was killed before it took the packed object away. 1, 0, -errno.
 */
int shms_packed_as_file(const struct shmstore *s, const struct shms_keyname *k);
/* An error counts as a file: the code for files reports it. */
static inline bool shms_packed_is_file(const struct shmstore *s, const struct shms_keyname *k)
{
	return shms_packed_as_file(s, k) != 0;
}

/*
 * Puts a packed object. io: as of shms_pack_put(). 1: done; 0: a file is to be made,
 * which says why where that cannot be either, unless io->wanted says that more memory
 * would do; -EEXIST; -ETIMEDOUT.
 */
int shms_packed_put(struct shmstore *s, const struct shms_keyname *k,
		    const struct shms_segobject *what, bool replace, struct shms_seggrow *io);
/*
 * The reader of a store that was opened to be read, made where there is none of this process. 0;
 * -ENOENT: the store has no packed objects; -errno.
 */
int shms_packed_reader(struct shmstore *s, struct shms_pack **ret);
/* As shms_pack_get(); the view goes to shms_pack_unget(). */
int shms_packed_get(struct shmstore *s, const struct shms_keyname *k, struct shms_pack_view *ret);
bool shms_packed_has(const struct shmstore *s, const struct shms_keyname *k);
/* store.names is held exclusively. ret_bytes: what it took; NULL is fine. -ENOENT: the
 * key is no packed object's. */
int shms_packed_delete(struct shmstore *s, const struct shms_keyname *k, uint64_t *ret_bytes);
/*
 * Takes the object of a packed object's ticket. may: as of shms_pack_adopt(). 0; -ENOTSUP: it has
 * to be copied (shms_packcopy_read()): it has other sizes or another key, our key is a file's, or
 * there is no place in its segment; or as shms_pack_adopt(); -ETIMEDOUT.
 */
int shms_packed_adopt(struct shmstore *s, const struct shms_keyname *k,
		      const struct shms_packticket *ticket, const struct shms_pack_sizes *expect,
		      bool replace, uint64_t may);
/*
 * For publish.c, with store.names held exclusively, before a file gets the key. 0; -EEXIST: it
 * is held, and not to be replaced; -EAGAIN: the file is to take the place of one packed object,
 * and the key means that no more.
 */
int shms_packed_in_the_way(const struct shmstore *s, const struct shms_keyname *k, bool replace);

/*
 * packedmem.c: the memory of a store's segments, under the same limits as that of its files.
 *
 * Memory is granted before a segment grows (room.h), never for an object: a put into memory that is
 * there charges nothing, as one into a recycled file. Segment memory without an object is the
 * store's pool (docs/segments.md "Memory"): it has a bound and an age, and goes when memory is
 * wanted.
 */
#define SHMS_PACKEDMEM_CALLS 64u /* of that many one looks at the pool */
/* a pool that is smaller is not worth a trim, unless somebody asks for it */
#define SHMS_PACKEDMEM_LEAST (UINT64_C(1) << 20)
/* After a call that put, took or dropped a packed object, where there may be something to do. */
void shms_packedmem_tend(struct shmstore *s, struct shms_pack *pack, uint64_t now_ms);
/* Tells the daemon's words what went back to the kernel. */
void shms_packedmem_gave(struct shmstore *s, struct shms_pack *pack);
/* Gives memory of segments back that no object needs. Returns bytes. No
 * lock of the pack is held. */
uint64_t shms_packedmem_trim(struct shmstore *s);
/* Would a trim give more than the last one left? */
bool shms_packedmem_any(struct shmstore *s);

#endif
