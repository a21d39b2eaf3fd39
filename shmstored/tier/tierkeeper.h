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
#include <stdint.h>

struct account;
struct part;
struct tierplan_step;

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

/* The keeper's part of a partition (part.h). Opens as the configuration says. */
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

#endif
