/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packsegs.h: the segments of a store, by number, and what the store has in each of their slots:
 * its name, which a bit of the slot says, and its views, which are counted here. The caller holds
 * the pack's lock.
 */
#ifndef SHMS_PACKSEGS_H
#define SHMS_PACKSEGS_H

#include <stdatomic.h>

#include "hash.h"
#include "lightlock.h"
#include "pack.h"
#include "packindex.h"
#include "packlines.h"

struct shms_packseg {
	struct shms_segown *own;   /* its owner's part; NULL: another store's segment */
	struct shms_segfile *file; /* NULL: this number is free */
	bool large;                /* for objects over SHMS_PACK_SMALL */
	/* a bit for each slot of an own one: a get since the search for
	 * victims came by (packtrim.c) */
	uint8_t *used;
	uint32_t n_held;   /* slots with a name or views of ours */
	uint32_t n_viewed; /* slots with views of ours, or of our children */
	bool inherited;    /* there are slots with SHMS_PACK_INHERITED */
	bool unsure;       /* some lock of children was not to be had: they count for ever */
	unsigned from;     /* a reader's: the place of the store that it reads */
	uint64_t asked_ms; /* when it was asked last whether the owner lives, or a child */
	/* leases were out when it was to be left: not to be looked at again before */
	uint64_t again_ms;
	void *children; /* during a fork: a page that children keep (packopen.c) */
};

#define SHMS_PACK_MARKED      (1u << 31) /* the view bit stands */
#define SHMS_PACK_INHERITED   (1u << 30) /* children may have views that they inherited */
#define SHMS_PACK_COUNT       (SHMS_PACK_INHERITED - 1)
#define SHMS_PACK_SMALL       8192u
#define SHMS_PACK_CHILDREN_MS 100u
/* what was refused for want of a number or a map is tried again after so long */
#define SHMS_PACK_AGAIN_MS    1000u

/*
 * The key that was named last, and its place. A handoff follows a put, a get and a delete follow an
 * adoption: such a call needs neither hash nor index, whose lines other work took out of the
 * caches. Lookups do not note their key: random gets would write one line more, which no cache
 * holds.
 */
struct shms_packlast {
	uint64_t words[2], hash;
	size_t size; /* 0: there is none. Longer keys than fit into a slot are not kept */
	struct shms_packplace place;
};

/* The fields that every get, put and delete needs stand first, together. */
struct shms_pack {
	struct shms_lightlock lock;
	struct shms_packindex index;
	struct shms_packlines lines; /* the index's memory */
	/* while names are read: the index that the store's last process left */
	struct shms_packlines left;
	struct shms_packlast last;
	struct shms_packviews views; /* of each slot that has any: how many, and the flags above */
	/* numbers that were ever in use: the ones behind need not be looked at */
	uint32_t n_segments;
	uint32_t next;   /* the number that is tidied next */
	uint32_t looked; /* the number that shms_pack_is_there() looks at next */
	unsigned turn;   /* which lease is tried first */
	/* names are not read yet: segments where there seem to be none may have some */
	bool opening;
	bool child;          /* of a fork */
	bool reader;         /* packread.c: it has no names, and no link of any segment */
	atomic_bool ended;   /* a reader's: nothing more is found */
	atomic_bool retired; /* only views are left, and no bits are cleared any more */
	struct shms_pack_sum sum;
	struct shms_packtold told;        /* where the sum is told */
	struct shms_seggrow grow;         /* of all own segments */
	uint64_t refused_ms, unjoined_ms; /* until then no own, or others', segment is added */
	char *path;
	struct shms_pack_options options;
	struct shms_packplace hand;   /* where the search for victims goes on */
	uint64_t trimmed, trimmed_ms; /* what a trim left of the pool, and when */
	/* what was stranded still when objects were moved together last, and when */
	uint64_t unmoved, unmoved_ms;
	/* A reader's: the store that it reads, and its own number of the store's segment of each
	 * number, if the uuid is that. */
	uint8_t store_uuid[16];
	uint8_t numbers[SHMS_PACKINDEX_SEGMENTS];
	struct shms_pack *former; /* the reader before this one: its views are there still */
	struct shms_packseg segments[SHMS_PACKINDEX_SEGMENTS];
};

static inline struct shms_segslot shms_packseg_slot(const struct shms_packseg *g, uint32_t slot)
{
	return shms_segslot_at(&g->file->segment, slot);
}

/* Is it any slot's place? Other processes of the user can write into the index. */
static inline bool shms_packseg_has(const struct shms_pack *p, struct shms_packplace place)
{
	return place.segment < SHMS_PACKINDEX_SEGMENTS && p->segments[place.segment].file &&
	       place.slot < p->segments[place.segment].file->segment.shape.n_slots;
}

/* Each segment that the pack has, which may leave it meanwhile.
 * NOLINTBEGIN(bugprone-macro-parentheses): g is a name. */
#define SHMS_PACKSEGS_EACH(p, g)                                                                   \
	for (__typeof__(&(p)->segments[0]) g = (p)->segments; g < (p)->segments + (p)->n_segments; \
	     g++)                                                                                  \
		if (g->file)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline uint32_t shms_packseg_number(const struct shms_pack *p, const struct shms_packseg *g)
{
	return (uint32_t)(g - p->segments);
}

/* A description of its own of the segment's file, for locks. Returns a
 * descriptor; -1 with errno. */
int shms_packseg_open(const struct shms_pack *p, const struct shms_packseg *g);
bool shms_packseg_named(const struct shms_packseg *g, uint32_t slot);
/* Has the pack a key or a view of the segment? Takes a look at all of them. */
bool shms_packseg_is_meant(const struct shms_pack *p, const struct shms_packseg *g);
/*
 * A free number for one more segment, with memory for its file, and, if it is an own one, for its
 * owner's part, after those that nobody needs were left. The caller fills that in, and then calls
 * _add(). now_ms: 0: not known yet. 0; -EAGAIN: none is free; -ENOMEM.
 */
int shms_packsegs_new(struct shms_pack *p, bool own, uint64_t now_ms, struct shms_packseg **ret);
/*
 * The segment is filled in, if r is 0; else, and where this fails, the number is free again, and a
 * place that was taken is given back. Returns r, or 0; -EAGAIN: the segment has more slots than the
 * index can tell; -ENOMEM.
 */
int shms_packsegs_add(struct shms_pack *p, struct shms_packseg *g, int r, uint64_t now_ms);
/*
 * After something of ours went there: leaves another store's segment where we have nothing
 * any more, if its owner is dead or closed, and no lease is out, for which the link has to
 * stay. An owner that lives may send more, and the place is kept for that. g may have no
 * file, and has none after it was left.
 */
void shms_packseg_tidy_idle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms);
static inline void shms_packseg_tidy(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	if (g->file && !g->own && !g->n_held && !g->inherited)
		shms_packseg_tidy_idle(p, g, now_ms);
}
/* Gives up the memory kept for children's views, once no child has views any more. */
void shms_packseg_settle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms);
/* The same for owners that died after our last object went, and children that ended: one
 * number in each call, by turn. */
static inline void shms_packsegs_tidy_next(struct shms_pack *p, uint64_t now_ms)
{
	struct shms_packseg *g;

	if (++p->next >= p->n_segments)
		p->next = 0;
	g = &p->segments[p->next];
	if (g->inherited && now_ms - g->asked_ms >= SHMS_PACK_CHILDREN_MS) {
		g->asked_ms = now_ms;
		shms_packseg_settle(p, g, now_ms);
	}
	shms_packseg_tidy(p, g, now_ms);
}
/* A reader's: its store's directory; segments/ in it where part is "/segments". A descriptor for
 * the caller, or -errno. */
int shms_packsegs_dir(const struct shms_pack *p, const char *part);
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
/*
 * Until _unhold() the ticket's object stays as it is, and the segment is not left. The store may
 * get the object by name meanwhile. Returns as shms_segment_stands().
 */
int shms_packseg_hold(struct shms_pack *p, struct shms_packplace place,
		      const struct shms_segticket *ticket);
void shms_packseg_unhold(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
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

/* Have all children that inherited views of that segment ended? */
bool shms_packseg_childless(struct shms_pack *p, struct shms_packseg *g);

/* Of pack.c, for packput.c, packshare.c and packtrim.c. The pack's lock is held. */
bool shms_pack_find(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace *ret);
/* The same without the hash, which is not needed if the key is the last one. */
bool shms_pack_find_object(struct shms_pack *p, const void *key, size_t key_size,
			   struct shms_packplace *ret);
/* The store has got that slot by name, or gives it up. _lose() returns its bytes. */
void shms_pack_gain(struct shms_pack *p, struct shms_packplace place);
uint64_t shms_pack_lose(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
/* Before _name() and _rename(), which cannot fail. 0, -ENOMEM. */
int shms_pack_reserve(struct shms_pack *p);
/* Makes the index a file, which others find; where that cannot be, they find that there is none. */
void shms_pack_share(struct shms_pack *p);
/* The store has got that slot, and the key means it. */
void shms_pack_name(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace place);
/* The same of a key that meant old, where that is not NULL. Killed before the old one goes, the key
 * has two: the index says which of them readers have found. */
void shms_pack_rename(struct shms_pack *p, const struct shms_packhashed *key,
		      const struct shms_packplace *old, struct shms_packplace place,
		      uint64_t now_ms);
/*
 * Around a call in which a key may get another slot: whoever looks at all slots, without the index,
 * may miss it in both, and looks again. The lock is held.
 */
void shms_pack_changing(struct shms_pack *p);
void shms_pack_changed(struct shms_pack *p);
/* Describes the object of a slot that is held. 0, -EBADMSG. _view() counts a view of it as well;
 * -ENOMEM. */
int shms_pack_describe(struct shms_pack *p, struct shms_packplace place,
		       struct shms_pack_view *ret);
int shms_pack_view(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret);

#endif
