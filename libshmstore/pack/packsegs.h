/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packsegs.h: the segments of a store, by number, and what the store has in each of their slots:
 * its name, which a bit of the slot says, and its views, which are counted here. The caller holds
 * the pack's lock.
 */
#ifndef SHMS_PACKSEGS_H
#define SHMS_PACKSEGS_H

#include <stdatomic.h>

#include "lightlock.h"
#include "pack.h"
#include "packindex.h"
#include "packviews.h"

struct shms_packseg {
	struct shms_segown *own;   /* its owner's part; NULL: another store's segment */
	struct shms_segfile *file; /* NULL: this number is free */
	bool large;                /* for objects over SHMS_PACK_SMALL */
	uint8_t *
		used; /* a bit for each slot of an own one: a get since the search for victims came by (packvictim.c) */
	uint32_t n_held;   /* slots with a name or views of ours */
	uint32_t n_viewed; /* slots with views of ours, or of our children */
	bool inherited;    /* there are slots with SHMS_PACK_INHERITED */
	bool unsure;       /* some child's lock was not to be had: they count for ever */
	uint64_t asked_ms; /* when it was asked last whether the owner lives */
	uint64_t again_ms; /* leases were out when it was to be left: not to be looked at again before */
	void *children;    /* during a fork: a page that children keep (packfork.c) */
};

#define SHMS_PACK_MARKED    (1u << 31) /* the view bit stands */
#define SHMS_PACK_INHERITED (1u << 30) /* children may have views that they inherited */
#define SHMS_PACK_COUNT     (SHMS_PACK_INHERITED - 1)
#define SHMS_PACK_SMALL     8192u

/* The aliases of the store, found by their own places and by those of the objects (packalias.h). */
struct shms_packaliases {
	struct shms_packalias *aliases;
	struct shms_packaliased *objects;
};

/*
 * The key that was named last, and its place. What was just put is handed off, and what was just adopted is got, and often deleted: such a call asks
 * neither for the hash nor for the index, whose lines other work took out of the caches meanwhile. A key that is found is not noted: of gets at random that
 * is a line more to write, and each store's is in no cache.
 */
struct shms_packlast {
	uint64_t words[2], hash;
	size_t size; /* 0: there is none. Longer keys than fit into a slot are not kept */
	struct shms_packplace place;
};

/* What every get, put and delete needs stands first, together. */
struct shms_pack {
	struct shms_lightlock lock;
	struct shms_packindex index;
	struct shms_packlast last;
	struct shms_packviews views; /* of each slot that has any: how many, and the flags above */
	struct shms_packaliases aliases;
	uint32_t n_segments; /* numbers that were ever in use: the ones behind need not be looked at */
	uint32_t next;       /* the number that is tidied next */
	unsigned turn;       /* which lease is tried first */
	bool opening;        /* names are not read yet: segments where there seem to be none may have some */
	bool child;          /* of a fork */
	atomic_bool retired; /* only views are left, and no bits are cleared any more */
	struct shms_pack_sum sum;
	struct shms_packtold told; /* where the sum is told */
	struct shms_seggrow grow;  /* of all own segments */
	char *path;
	struct shms_pack_options options;
	struct shms_packplace hand;   /* where the search for victims goes on */
	uint64_t trimmed, trimmed_ms; /* what a trim left of the pool, and when */
	struct shms_packseg segments[SHMS_PACKINDEX_SEGMENTS];
};

static inline struct shms_segslot shms_packseg_slot(const struct shms_packseg *g, uint32_t slot)
{
	return shms_segslot_at(&g->file->segment, slot);
}

/* A description of its own of the segment's file, for locks. Returns a descriptor; -1 with errno. */
int shms_packseg_open(const struct shms_pack *p, const struct shms_packseg *g);
bool shms_packseg_named(const struct shms_packseg *g, uint32_t slot);
/*
 * Gives that segment, as its owner or by its file, a free number. 0; -EAGAIN: none is free, or the
 * segment has more slots than the index can tell; -ENOMEM.
 */
int shms_packsegs_add(struct shms_pack *p, struct shms_segown *own, struct shms_segfile *file, uint32_t *ret_number,
		      uint64_t now_ms);
/*
 * After something of ours went there: leaves another store's segment where we have nothing any more, if its owner is dead or
 * closed, and no lease is out, for which the link has to stay. An owner that lives may send more, and the place is kept for that.
 * g may have no file, and has none after it was left.
 */
void shms_packseg_tidy_idle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms);
static inline void shms_packseg_tidy(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	if (g->file && !g->own && !g->n_held && !g->inherited)
		shms_packseg_tidy_idle(p, g, now_ms);
}
/* The same for owners that died after our last object went: one number in each call, by turn. */
static inline void shms_packsegs_tidy_next(struct shms_pack *p, uint64_t now_ms)
{
	if (++p->next >= p->n_segments)
		p->next = 0;
	shms_packseg_tidy(p, &p->segments[p->next], now_ms);
}
/* Finds the store's segment of that uuid. False: it has none. */
bool shms_packsegs_find(struct shms_pack *p, const uint8_t uuid[16], uint32_t *ret_number);
/* Frees the memory of a number. The caller has seen to the file. */
void shms_packsegs_free(struct shms_packseg *g);
/*
 * came, drop: the store's name comes to the slot, or goes. view, unview: a view more, for which
 * shms_packviews_reserve() made room, or one less.
 */
void shms_packseg_came(struct shms_pack *p, struct shms_packplace place);
void shms_packseg_drop(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
void shms_packseg_view(struct shms_pack *p, struct shms_packplace place);
void shms_packseg_unview(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
/* Only of own ones it is noted. */
static inline void shms_packseg_use(struct shms_packseg *g, uint32_t slot)
{
	if (g->used)
		g->used[slot / 8] |= (uint8_t)(1u << slot % 8);
}
static inline void shms_packseg_unuse(struct shms_packseg *g, uint32_t slot)
{
	if (g->used)
		g->used[slot / 8] &= (uint8_t) ~(1u << slot % 8);
}
/*
 * If no child has views any more, gives up what was kept for them. Does nothing where no child may
 * have any.
 */
void shms_packseg_settle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms);
/* The key of the object o, which was read out of its slot. */
const void *shms_packseg_key(const struct shms_packseg *g, const struct shms_segpacked *o);

/* Of packfork.c. Have all children that inherited views of that segment ended? */
bool shms_packseg_childless(struct shms_pack *p, const struct shms_packseg *g);

#endif
