/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario.h: one library call (or a short row of them) with all that surrounds it, for the crash
 * test (killed at each system call) and the fault tests (each system call or allocation fails).
 *
 * Three kinds of process meet on the partition:
 *   the victim    prepares, then runs the scenario between the tracer's marks; dies, or
 *                 reports what the call returned
 *   the survivor  (survivor.h) has a store of its own with objects and views, and hands off
 *                 to and adopts from the victim
 *   the verifier  (verify.h) a fresh process that looks at what is left and cleans up
 */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "content.h"

#define VICTIM   "vic"
#define SURVIVOR "survivor"
#define DEAD     "old" /* a store whose owner died before the scenario */

struct world;
struct survivor;

/* Memory that all processes of a run share. */
struct shared {
	bool armed; /* the victim's preparations worked */
	bool ran;   /* the scenario came to its end */
	int rc;     /* and returned this */
	bool have_out;
	struct shmstore_ticket in;   /* survivor to victim */
	struct shmstore_ticket out;  /* victim to survivor */
	uint64_t out_expiry_ms;      /* CLOCK_BOOTTIME: until when out is good */
	unsigned long n_allocations; /* of the victim in the scenario, where they are counted */
	/* by the verifier: seed under scenario.keys[i] after the scenario, 0 = none */
	uint64_t seen[8];
	uint64_t pool;      /* by the verifier: bytes that segments take for no object */
	char message[1024]; /* what a failed check says */
};

/* The scenario may leave keys[i] of its store with the seed before, or with the
 * seed after; 0 = not there. */
struct expect {
	const char *store, *key;
	uint64_t before, after;
};

/* Where an object is put before the scenario. */
enum where {
	IN_MEMORY,
	DEMOTED, /* in the disk tier only */
	CLEAN,   /* demoted and promoted again: its tier file is good still */
	PINNED,  /* in memory, for good */
};

struct object {
	const char *key;
	struct content content;
	enum where where;
};

enum {
	NO_STORE = 1 << 0,   /* the scenario opens the store itself (or needs none) */
	KEEP = 1 << 1,       /* the victim's store is kept */
	NO_RECYCLE = 1 << 2, /* recycle_max = 0 */
	TICKET_IN = 1 << 3,  /* the survivor hands "s1" off to shared.in before each run */
	TICKET_OUT = 1 << 4, /* the survivor adopts shared.out after the victim's end */
	CONSUMES = 1 << 5,   /* the run leaves no usable store handle in world.s */
	/* undisturbed, it puts into a recycled file: else the scenario tests something else */
	WANT_RECYCLED = 1 << 6,
	WANT_ALIAS = 1 << 7, /* undisturbed, it makes a second link */
	/* before the victim's preparations, a process opens DEAD, puts dead[] and dies */
	DEAD_STORE = 1 << 8,
	DEAD_IS_VICTIM = 1 << 9, /* ... and that store is VICTIM */
	DEAD_KEEP = 1 << 10,     /* ... and is kept */
	DEAD_LEASE = 1 << 11,    /* ... and leaves a lease that has just expired */
	NEARLY_FULL = 1 << 12,   /* a foreign file leaves 256 KiB of the mount */
	/* runs on a directory of its own beside the partition, which does not exist yet */
	OWN_PARTITION = 1 << 13,
	/* with TICKET_IN: the survivor hands off an object (seed 104) and deletes its own */
	TICKET_LAST = 1 << 14,
	TIER = 1 << 15,       /* the partition has a disk tier */
	TIER_FSYNC = 1 << 16, /* ... that writes through */
	TIER_RING = 1 << 17,  /* ... by io_uring; all others by plain calls */
	/* with TICKET_IN: the survivor hands off "s4" (seed 104), without a
	 * view, and keeps it. FRESH */
	TICKET_SHARED = 1 << 18,
	/* with TICKET_IN: demoted, and handed over as it is. FRESH unless TICKET_LAST */
	TICKET_TIER = 1 << 19,
	TICKET_TAKEN = 1 << 20, /* with TICKET_IN: the victim's preparations adopt it */
	/* may change where the survivor's objects are: the stage is struck after each run */
	FRESH = 1 << 21,
	/* ... and gives dead[1] the scenario's key, and then takes its own */
	DEAD_RENAMED = 1 << 23,
	/* the victim's store and DEAD pack up to PACK_MAX bytes; see survivor_packs() */
	PACKED = 1 << 22,
	READS = 1 << 24, /* PACKED, and the victim reads the survivor's store */
	/* undisturbed, it moves small objects together, until less than 1 MiB is stranded */
	WANT_MOVED = 1 << 26,
	/* with DEAD_IS_VICTIM: the survivor reads VICTIM before the victim's life
	 * and after it, by one handle */
	IS_READ = 1 << 25,
};

#define PACK_MAX (1u << 20)

struct scenario {
	const char *name;
	unsigned flags;
	struct object dead[3];
	struct object pre[4];           /* put by the victim's preparations */
	void (*setup)(struct world *w); /* after that; may be NULL */
	int (*run)(struct world *w);    /* between the marks */
	/* gives back what setup or run took (not after a kill); may be NULL */
	void (*undo)(struct world *w);
	const char *key; /* parameters of the shared run functions */
	struct content content;
	unsigned op_flags;
	int want_rc;    /* undisturbed */
	int want_where; /* undisturbed: SHMSTORE_IN_… of key after it; 0 = any */
	/* objects that scenario_subject()'s store holds besides keys[];
	 * IS_READ: the dead store puts them */
	unsigned n_more;
	struct expect keys[6];
};

struct world {
	const struct scenario *sc;
	const char *mount; /* of the tmpfs */
	const char *disk;  /* a directory that is not in memory; NULL: none */
	char path[256];    /* of the partition */
	struct shared *shared;
	struct survivor *survivor;
	struct shmstore_partition *p;
	struct shmstore *s;
	struct shmstore_view *view;
	struct shmstore_writer *writer;
	void (*on_begin)(void); /* besides the tracer's marks; may be NULL */
	void (*on_end)(void);
};

extern const struct scenario scenarios[];
extern const size_t n_scenarios;
extern const struct scenario tier_scenarios[]; /* all TIER */
extern const size_t n_tier_scenarios;
extern const struct scenario packed_scenarios[]; /* all PACKED */
extern const size_t n_packed_scenarios;

/* All of them, from 0; NULL after the last. */
const struct scenario *scenario_at(size_t i);

/* Are the survivor's objects packed? Then it has a pool: what its segments take besides them. */
static inline bool survivor_packs(const struct scenario *sc)
{
	return (sc->flags & PACKED) && (sc->flags & (TICKET_IN | TICKET_OUT | READS));
}

/* The store that the scenario is about. */
const char *scenario_subject(const struct scenario *sc);

/* The victim's steps. prepare: 0, or -1 with a message. run: begin mark, run, end mark;
 * its rc is in shared.rc too. */
int scenario_prepare(struct world *w);
int scenario_run(struct world *w);
/* Undoes, closes, drops: gives every resource back. Returns shmstore_close()'s. */
int scenario_release(struct world *w);
/* Puts an object where it says. Return: the failing call's. */
int scenario_put(struct shmstore *s, const struct object *o);
/* The parent calls these before and after a run, outside the victim. */
int scenario_before(struct world *w);
void scenario_after(struct world *w);
/* After an undisturbed run: did it take the way that the scenario is named
 * after? false with a message. */
bool scenario_took_its_way(struct world *w);

/* Sets shared.message (first one wins) and returns -1. */
__attribute__((format(printf, 2, 3))) int world_fail(struct world *w, const char *format, ...);
/* The keys of world.sc in their stores, through read-only handles; shared.seen is filled. Either of
 * before and after where rc is NULL, else what *rc means. 0, or -1 with a message. */
int world_check_keys(struct world *w, const int *rc);
/* Puts, gets and deletes in store s. 0, or -1 with a message. */
int world_check_works(struct world *w, struct shmstore *s);
uint64_t world_now_boot_ms(void);

#endif
