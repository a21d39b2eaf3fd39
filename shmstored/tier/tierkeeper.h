/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierkeeper.h: keeps a partition under its watermarks by its disk tier: writes the
 * configured tier into it, demotes what is used least in the background, waits where the disk
 * is full, and tells. Loop's thread only, which is never held up by a disk: work on a disk is
 * a job of the scanner's SCANNER_TIER.
 */
#ifndef TIERKEEPER_H
#define TIERKEEPER_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct account;

enum tierkeeper_state {
	TIERKEEPER_NONE,      /* the partition has no tier */
	TIERKEEPER_READY,     /* below the high mark, or about to begin */
	TIERKEEPER_EVICTING,  /* a worker is at it */
	TIERKEEPER_DISK_FULL, /* tried again at retry_ns */
	/* it could not get below the mark, for another reason (why); tried again at retry_ns */
	TIERKEEPER_STUCK,
	/* its disk is gone, or cannot be used (why); tried again at retry_ns */
	TIERKEEPER_UNAVAILABLE,
};

/* Since the daemon began, by the daemon: without other processes' demotions. Bytes unless n_. */
struct tierkeeper_counters {
	uint64_t n_evictions, n_disk_full, n_damaged;
	struct shmstore_evict_report all; /* their sum */
};

/* How it stands, for reports. */
struct tierkeeper_view {
	enum tierkeeper_state state;
	const char *why;                       /* a sentence; "" = none */
	uint64_t retry_ns;                     /* CLOCK_MONOTONIC; 0: nothing is waited for */
	const struct shmstore_tier_info *info; /* as of the last look; NULL: not known */
	struct tierkeeper_counters counters;   /* the eviction that runs not included */
	uint64_t n_objects, freed, written;    /* by the eviction that runs */
};

/* The keeper's part of a partition. Opens as the configuration says. */
extern const struct part tierkeeper_part;
/* For the arbiter: bytes that demotion could free now, as far as the disk has room; 0: there is no
 * tier, or it rests after a failure. */
uint64_t tierkeeper_room(const struct account *a);
/* Demotes until so many bytes less are used, whatever the marks say; the parts' evicted() is called
 * at the end. False: it cannot begin. */
bool tierkeeper_make_room(struct account *a, uint64_t bytes);
void tierkeeper_view(const struct account *a, struct tierkeeper_view *ret);
/*
 * The users whose objects go first, as of the partition's last survey, and the bytes of each, to
 * come down to low by need bytes. To be freed by the caller; NULL, with *ret_n 0: the library finds
 * whose by itself, as there is no survey yet.
 */
struct tierplan_step *tierusers_steps(const struct account *a, uint64_t low, uint64_t need,
				      size_t *ret_n);
/* "none", "ready", "evicting", "disk-full", "stuck", "unavailable". */
const char *tierkeeper_state_name(enum tierkeeper_state state);

/*
 * Scrubbing reads a partition's tier files now and then, slowly, and says which of them are
 * damaged while their objects can still be made anew. Loop's thread only; the reading is a job of
 * the scanner's SCANNER_SCRUB.
 */

struct tierscrub_view {
	bool running;
	uint64_t bytes; /* by the one that runs, so far */
	/* CLOCK_REALTIME of the end of the last one that came to its end; 0: none did */
	int64_t time_ns;
	uint64_t n_files, n_damaged;  /* by that one */
	uint64_t n_scrubs, bytes_all; /* ever: those that came to their end; bytes read */
};

/* 0, -ENOMEM. */
int tierscrub_open(struct account *a);
/* Idempotent; its job is over, or ends on its own. */
void tierscrub_close(struct account *a);
/* Each second: begins one where it is time. there: the partition has a tier that can be used. */
void tierscrub_tick(struct account *a, bool there);
void tierscrub_view(const struct account *a, struct tierscrub_view *ret);

/*
 * For this room: work on a partition's disk tier, each piece from begin to end in a worker thread:
 * it may take as long as a disk takes. By the public calls of shmstore/tier.h alone. Knows no
 * account.
 */
enum tierwork_kind {
	TIERWORK_SET,   /* write the configuration, then as LOOK */
	TIERWORK_LOOK,  /* what is in the tier */
	TIERWORK_EVICT, /* demote, then as LOOK */
};

struct tierwork {
	/* in */
	enum tierwork_kind kind;
	struct shmstore_partition *partition;
	/* SET; path NULL: the tier is taken away. The path is owned */
	struct shmstore_tier_config config;
	struct tierplan_step *steps; /* EVICT: these users first, in this order. Owned */
	size_t n_steps;
	uint64_t low; /* EVICT: down to so many bytes used */
	bool background;
	unsigned n_threads;
	int fd; /* of the partition's file system */
	/* Now and then, from the worker: true ends it. */
	bool (*stop)(void *arg);
	void *arg;
	/* While it runs: what it did so far, to be read by anybody. Relaxed: figures to look at. */
	_Atomic uint64_t n_objects, freed, written;
	/* out */
	int result; /* SET: as shmstore_tier_set(). EVICT: as shmstore_partition_evict() */
	struct shmstore_evict_report report; /* the sum of all steps; duration_ns: of the whole */
	/* shmstore_error_detail() and _path() of what failed; "" = none */
	char why[512], path[4096];
	int look_result;                /* as shmstore_tier_info() */
	struct shmstore_tier_info info; /* where that is 0. Its config.path is disk */
	char disk[4096];
	uint64_t look_ns; /* how long the look took */
};

void tierwork_run(struct tierwork *w);
/* Bytes used of the file system of fd; 0: it does not say. */
uint64_t tierwork_used(int fd);
/* Adds the report of an eviction to the sum of those before it. */
void tierwork_add(struct shmstore_evict_report *sum, const struct shmstore_evict_report *r);
/* Frees what it owns and clears it: ready to be filled again. */
void tierwork_deinit(struct tierwork *w);

/* The results of a piece of work on the disk tier are told as events. Users' names and keys are not
 * in them. */

/* An eviction demoted something. */
void tiersay_demoted(struct account *a, const struct tierwork *w);
/* An eviction ended for want of disk; tried again after retry_ns. */
void tiersay_disk_full(struct account *a, const struct tierwork *w, uint64_t retry_ns);
/* A tier file, or the disk below it, is damaged. path: NULL or "": not known, or no
 * memory for it. error: -errno. */
void tiersay_damage(struct account *a, const char *path, const char *what, int error);

/*
 * Stores with packed objects are told that room is needed: only their own processes can give these
 * up (docs/segments.md "Packed objects and the disk tier").
 *
 * need: bytes that are to go, of used (not 0). Each registered store is asked for its packed
 * objects' share, by its page and by a message, which wakes an event loop. The eviction's own
 * asking (libshmstore/evict/packgive.h) finds it done, and waits for what is given.
 */
void tierask(struct account *a, uint64_t need, uint64_t used);

/*
 * The plan: when objects are to leave a partition for its disk tier, how many bytes, and whose
 * first. Pure: numbers and time in, decisions out.
 */

/* In bytes used of the partition. high 0: its size is not known, nothing is ever demoted. */
struct tierplan_marks {
	uint64_t high; /* begin above */
	uint64_t low;  /* end here */
	/* from here on not at idle priority: before this it gives way to
	 * whatever else the host does */
	uint64_t urgent;
};

/* size: of the file system; hard: the partition's limit; 0: none. high, low: percent
 * of the smaller of the two. */
struct tierplan_marks tierplan_marks(uint64_t size, uint64_t hard, unsigned high, unsigned low);

/* One partition's memory of how it went so far. Zeroed: nothing yet. */
struct tierplan {
	uint64_t above_since_ns; /* 0: it is below */
	uint64_t not_before_ns;
	unsigned n_failed; /* in a row */
};

/* The present state. pool: bytes of recycled files that the stores will give back soon. */
struct tierplan_now {
	uint64_t used, pool, ns;
};

/* Is it time to begin? To be asked whenever used was looked at. */
bool tierplan_due(struct tierplan *p, const struct tierplan_marks *m,
		  const struct tierplan_now *now);
/* Another look at used before the next second is over: when? UINT64_MAX: that second's look is
 * enough. before: a second ago, or so. */
uint64_t tierplan_next_look(const struct tierplan_marks *m, const struct tierplan_now *before,
			    const struct tierplan_now *now);
/* It did what it should: the next one may begin at once. */
void tierplan_succeeded(struct tierplan *p);
/* It could not: the next one waits, twice as long each time. Returns how long (ns). */
uint64_t tierplan_failed(struct tierplan *p, uint64_t now_ns);
/* The configuration has changed: a job that failed may work now. */
void tierplan_forget(struct tierplan *p);

struct tierplan_user {
	uid_t uid;
	uint64_t bytes; /* of objects that it has in memory */
	/* what it may have: its soft or hard limit; 0: an equal part of what is to stay */
	uint64_t share;
	bool idle; /* none of its stores did anything lately */
};

struct tierplan_step {
	uid_t uid;
	uint64_t bytes;
	uint64_t freed; /* by it */
};

/*
 * Shares need out: first who has more than its share, then everybody; in each, the idle before the
 * busy, and the largest first. Reorders users. low: what is to stay. ret_steps: room for 2 * n.
 * Returns how many there are; together they may be less than need.
 */
size_t tierplan_steps(struct tierplan_user *users, size_t n, uint64_t low, uint64_t need,
		      struct tierplan_step *ret_steps);

#endif
