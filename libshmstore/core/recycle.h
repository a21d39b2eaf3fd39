/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recycle.h: files of deleted objects whose pages wait for the next put.
 *
 * A slot is one file that this store wrote, with its descriptor and, once it was
 * reused, its warm writable mapping:
 *   PUBLISHED  an object of ours; should it be deleted, its file is pooled without a
 *              system call more than the rename
 *   POOLED     a file in recycle/; its object is gone
 *   TAKEN      out of the pool, being written
 * The number of slots bounds the descriptors, recycle.max the bytes that are POOLED, an age how
 * long. A file that goes from objects/ into the pool is of the pool before it is off the ledger's
 * linked bytes, one that comes back is TAKEN until it is in them: at no moment is it in no sum.
 *
 * An open file's memory is its owner's alone to give back, and the owner may make no call for
 * hours. So few are: of what is POOLED the oldest become cold, which is a name in recycle/ and
 * nothing else ("c" and a number). A process of the same user in need of room, or gc, takes a cold
 * file by unlinking it: the kernel frees it with the last link and mapping that somebody may still
 * have. The owner that wants it back renames it first, and of the two calls one fails.
 *
 * A file may be taken for an object that needs up to a third less than it owns. The excess, its
 * slack, lies in the header's unused room; it is given back by a hole when the slot leaves the
 * object (or memory runs out), and is bounded by recycle.max / 4 over all slots: else a file is
 * taken only where no more than a fifth is over.
 */
#ifndef SHMS_RECYCLE_H
#define SHMS_RECYCLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "format.h"
#include "links.h"
#include "name.h"

#define SHMS_RECYCLE_SLOTS  16
#define SHMS_RECYCLE_AGE_NS 10000000000ull
#define SHMS_RECYCLE_MAX    (256ull << 20) /* default bound, also 1/16 of the partition */
#define SHMS_RECYCLE_REOPEN 65536u /* from this size on a file without a slot is worth pooling */
/* ns that an answer about the partition's room is good for */
#define SHMS_RECYCLE_LOOK   5000000ull
#define SHMS_RECYCLE_NAME   32  /* a path in the store's directory: recycle/<number> */
#define SHMS_RECYCLE_COLD   'c' /* how a cold file's name begins; others are digits */

enum shms_slot_state {
	SHMS_SLOT_FREE,
	SHMS_SLOT_PUBLISHED,
	SHMS_SLOT_POOLED,
	SHMS_SLOT_TAKEN
};

struct shms_slot {
	enum shms_slot_state state;
	int fd;         /* read-write; the only writable one there is. -1: POOLED, and cold */
	bool handed;    /* POOLED: it may come back by a lease */
	uint64_t inode; /* 0 = not known yet */
	bool shared;    /* POOLED: somebody else linked or had it open when we looked last */
	uint64_t uses;  /* how often it was taken */
	/* bytes from the begin that are in huge pages; UINT64_MAX: it is not to be */
	uint64_t gathered;
	void *map; /* capacity bytes, shared, writable, not inherited by fork; NULL = not yet */
	uint64_t capacity; /* bytes of whole pages that the file owns */
	uint64_t bytes;    /* that it takes: more than capacity where the mount gives huge pages */
	uint64_t size;     /* the file's size: within the last of these pages */
	uint64_t slack_off, slack_size; /* PUBLISHED: whole pages of the file that hold nothing */
	uint64_t stamp_ns;              /* when it came into this state */
	char pool_name[SHMS_RECYCLE_NAME]; /* POOLED, TAKEN */
	char name[SHMS_NAME_SIZE];         /* PUBLISHED: in objects/ */
};

struct shms_recycle {
	pthread_mutex_t lock; /* all below; never held over a copy */
	uint64_t max;         /* 0 = off */
	uint64_t pooled;      /* bytes POOLED */
	uint64_t warm;        /* of pooled: of files that are open */
	uint64_t taken;       /* bytes TAKEN */
	/* cold files that others took, as far as we noticed; and their bytes */
	uint64_t missed_n, missed;
	uint64_t told; /* what of that the ledger has */
	/* a 16th of the partition or of a tighter limit, shared by the stores there are */
	uint64_t warm_max;
	uint64_t slack;     /* bytes of all slots' slack */
	uint64_t looked_ns; /* when the partition was last asked for room */
	bool scarce;        /* what it said */
	bool let_go;        /* no descriptor of a published object is kept: others may demote it */
	_Atomic uint64_t next_number;
	struct shms_slot slots[SHMS_RECYCLE_SLOTS];
};

void shms_recycle_init(struct shms_recycle *r);
/* Drops every slot and its file in recycle/ (dir_fd, the store's, -1:
 * descriptors and mappings only). */
void shms_recycle_deinit(struct shms_recycle *r, int dir_fd);
/* In a forked child: closes the descriptors; the mappings were not inherited. The parent's side
 * of the fork held the lock. */
void shms_recycle_forked(struct shms_recycle *r);

/* A fresh name for a file in recycle/. */
void shms_recycle_name(struct shmstore *s, char ret_name[SHMS_RECYCLE_NAME]);

/*
 * Takes a pooled file with room for an object that is laid out so, and put with those flags, and
 * little more, that nobody else links, has open or maps: mapped and ready to be written. *io_layout
 * is laid out anew for the file's room. NULL: there is none, or the object is to be pinned, and so
 * gets a file of its own, which the pool does not get back. Of several it is the one that was used
 * last, whose pages the CPU's caches may still hold. Give it back by one of the three that follow.
 */
struct shms_slot *shms_recycle_take_for(struct shmstore *s, unsigned flags, const uint64_t *sizes,
					struct shms_layout *io_layout);
/*
 * Makes the taken slot's file size bytes long, which is within its last page. Before
 * anything is written: what is behind the end of a file the kernel clears when that end
 * moves. -errno: the slot is given back.
 */
int shms_recycle_fit(struct shmstore *s, struct shms_slot *slot, uint64_t size);
void shms_recycle_published(struct shmstore *s, struct shms_slot *slot, const char *name,
			    const struct shms_layout *l);
void shms_recycle_untake(struct shmstore *s, struct shms_slot *slot);
void shms_recycle_discard(struct shmstore *s, struct shms_slot *slot);
/* Offers the file of size bytes, which takes so many, of an object just published under name. Takes
 * *fd (sets it to -1) if it wants it. */
void shms_recycle_offer(struct shmstore *s, int *fd, uint64_t size, uint64_t bytes,
			const char *name);
/*
 * The object called name is to be deleted: moves its file to recycle/ if it is worth keeping. The
 * caller holds s->names exclusively. With SHMS_LINKS_OTHERS it is none for the pool. 1: moved; 0:
 * the caller unlinks; -errno. *io_bytes: the pages of its size, UINT64_MAX where that is not known;
 * then what it takes, UINT64_MAX where the caller has to look.
 */
int shms_recycle_delete(struct shmstore *s, const char *name, enum shms_links_of links,
			uint64_t *io_bytes);
/* A file of ours that lost its name in objects/ now stands as pool_name in recycle/ (it was
 * replaced there by an exchange). Returns what it takes. */
uint64_t shms_recycle_replaced(struct shmstore *s, const char *name, const char *pool_name,
			       enum shms_links_of links);
/* A name in objects/ means this inode now, which others link too: if it is a pooled file it is none
 * any more. store.names is held. */
void shms_recycle_adopted(struct shmstore *s, uint64_t inode);
/* name means another file from now on, or none. */
void shms_recycle_forget(struct shmstore *s, const char *name);
/* The published object's file of that inode goes to another user, and never comes
 * back: it gives its slack up. */
void shms_recycle_give_away(struct shmstore *s, uint64_t inode);
/* From now on published objects have no slots: an open file of ours would keep a demoted object's
 * memory, and look like a user. */
void shms_recycle_let_go(struct shmstore *s);
/*
 * Until shms_recycle_release() no file goes into the pool or comes out of it.
 * Returns what is POOLED or TAKEN: who adds the ledger's linked bytes, read
 * meanwhile, misses nothing of the store's.
 */
uint64_t shms_recycle_hold(struct shmstore *s);
void shms_recycle_release(struct shmstore *s);
/* Would shms_recycle_trim() give anything? */
bool shms_recycle_any(struct shmstore *s);
/* Gives memory back: all of the pool, slack, kept drafts and the pool of segments
 * (packed.h). Returns bytes of the files dropped and the holes. */
uint64_t shms_recycle_trim(struct shmstore *s);

/*
 * slots.c: the slots, one step each. In all of these the pool's lock is held; the sums of the pool
 * and the ledger's are changed here alone.
 */
/*
 * Opens an object's file for writing. It has no name that anybody else looks at. A descriptor,
 * -EPERM (it was handed to another user), -ETIMEDOUT (somebody is just handing it over), -errno.
 */
int shms_slot_open(const struct shmstore *s, int dir_fd, const char *name);
/* The unit in which a file of that capacity gives back slack. */
uint64_t shms_slack_unit(const struct shmstore *s, uint64_t capacity);
/* Closes and unmaps what the slot has: it is FREE. Its file stays. */
void shms_slot_free(struct shms_recycle *r, struct shms_slot *slot);
/* The slot is in this state from now on. Not for POOLED. */
void shms_slot_state(struct shms_slot *slot, enum shms_slot_state state);
/* Into the pool, and out of it. handed: others may link it. */
void shms_slot_pool(struct shmstore *s, struct shms_slot *slot, bool handed);
void shms_slot_unpool(struct shmstore *s, struct shms_slot *slot, enum shms_slot_state state);
/* A pooled file is removed. */
void shms_slot_drop(struct shmstore *s, struct shms_slot *slot);
/* Opens a cold file again. False: it was taken meanwhile, or cannot be opened; the slot is free. */
bool shms_slot_warm(struct shmstore *s, struct shms_slot *slot);
/* The slot that came into this state first; NULL: none is in it. warm: with an open file. */
struct shms_slot *shms_slot_oldest(struct shms_recycle *r, enum shms_slot_state state, bool warm);
/* The slot leaves its published object alone. Returns what the object gave back. */
uint64_t shms_slot_unpublish(struct shmstore *s, struct shms_slot *slot);
/* A slot to use: a free one, else that of the object published longest ago, else that of the oldest
 * pooled file. NULL: all are being written. */
struct shms_slot *shms_slot_claim(struct shmstore *s);

/* The mapping of a taken slot's file: the taker's own, no lock is held. */
/* slot->map is there, capacity bytes, and can be written to. false: it cannot be had. It may be
 * taken out of the slot, which it outlives: to be unmapped, or given back by the next. */
bool shms_slotmap_ready(const struct shmstore *s, struct shms_slot *slot);
/*
 * The slot has the mapping again, at an address that nobody was told: who still has the old one
 * meets nothing there. 0; -ENOMEM: it is the caller's still.
 */
int shms_slotmap_return(struct shms_slot *slot, void *map);

/*
 * Memory of the partition in which a buffer is made before it is an object
 * (shmstore_alloc()). A put of that buffer gives the file a name instead of copying it.
 */

/* bytes before the buffer: the object's header, when there is one */
#define SHMS_DRAFT_HEAD SHMS_FORMAT_PAGE

/* Of a store. */
struct shms_drafts {
	uint64_t kept;     /* bytes of freed drafts that wait for the next */
	uint64_t keep_max; /* bytes */
	uint64_t n;        /* drafts, kept ones too */
	bool closed;       /* none is made, and none is in the books, from here on */
};

/* A draft on its way to being an object. */
struct shms_draft_claim {
	struct shms_draft *d;
	/* of the file, which nobody writes to any more but by this; shms_draft_end() closes
	 * it unless it was taken (-1) */
	int fd;
	uint64_t size; /* the buffer's bytes */
};

/* Is that the whole buffer of a draft of the store that may still be
 * published? A look, no promise. */
bool shms_draft_is(struct shmstore *s, const void *buffer, uint64_t size);
/*
 * From here on the file has the bytes that the buffer has now: what is written to the buffer later
 * stays private to the process, at the same address. Once for each draft. false: there is none, or
 * it cannot be done; the buffer is memory as any other.
 */
bool shms_draft_claim(struct shmstore *s, const void *buffer, uint64_t size,
		      struct shms_draft_claim *ret);
/* Cuts the file to size bytes: what a larger draft had behind its buffer goes. 0, -errno. */
int shms_draft_cut(const struct shms_draft_claim *c, uint64_t size);
/* published: the file is an object's, and in the store's books as such. */
void shms_draft_end(struct shms_draft_claim *c, bool published);

/* Gives back what is kept: all, or what is older than the bound. Bytes. */
uint64_t shms_draft_trim(struct shmstore *s, bool all);
bool shms_draft_any_kept(struct shmstore *s);
/* The handle goes: memory that is in use stays with the process. */
void shms_draft_close(struct shmstore *s);

#endif
