/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h: what tasks of one kind have used so far: their peaks, averages and
 * distributions, and when in their lives. Pure: numbers in, numbers out; no clock, no I/O.
 * docs/governor.md says what it is for.
 *
 * A key is language, function and group (empty, a class, or class#instance). Of each resource
 * it has the number of tasks, their sum and peak, the last PROFILE_RING values, and a histogram
 * with logarithmic steps; of their lifetimes the last values; and of private memory the peak in
 * each of PROFILE_PHASES equal parts of a lifetime, and by how much a task of some age may
 * still grow. A kind whose tasks were killed for want of memory is estimated higher until
 * PROFILE_RING others have ended well.
 *
 * The number of keys is bounded: beyond max_keys the one that was fed longest ago goes.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROFILE_RING    128u
#define PROFILE_PHASES  8u
#define PROFILE_BUCKETS 128u                /* 32 powers of two, each in four parts */
#define PROFILE_NAME    255u                /* bytes of each part of a key's name */
#define PROFILE_MOST    (UINT64_C(1) << 47) /* larger values count as this */
#define PROFILE_WARM    5u                  /* as many tasks say how the next one will be */
#define PROFILE_AGES    16u                 /* 8 ms, 16 ms, … 4 minutes: PROFILE_AGE() */
#define PROFILE_AGE(i)  (UINT64_C(8) << (i))
#define PROFILE_GREW    8u /* as many tasks of an age say how those of that age grow */

enum profile_resource {
	PROFILE_PRIVATE,
	PROFILE_SHARED,
	PROFILE_CPU,
	PROFILE_RESOURCES
};

/* The part of the past that an estimate uses. */
/* Each bolder than the one before. */
enum profile_strategy {
	PROFILE_NONE,
	PROFILE_PEAK,
	PROFILE_P95,
	PROFILE_HISTOGRAM,
	PROFILE_AVERAGE
};

struct profile_name {
	const char *lang, *func, *group;
};

/* Has each part at most PROFILE_NAME bytes? */
bool profile_name_fits(const struct profile_name *name);
/* Makes ret a copy, in memory that is returned, to be freed. NULL: out of memory. */
char *profile_name_copy(const struct profile_name *name, struct profile_name *ret);

/* One task that has ended. */
struct profile_task {
	uint64_t used[PROFILE_RESOURCES]; /* bytes at most, bytes created, ms */
	bool has[PROFILE_RESOURCES];
	uint64_t life_ms;                /* 0: not known */
	uint64_t phases[PROFILE_PHASES]; /* private bytes at most, by parts of its life */
	unsigned n_phases;               /* 0: not known */
	/* private bytes that it had had at least once before it was so old */
	uint64_t by_age[PROFILE_AGES];
	unsigned n_ages; /* as many ages it reached; 0: not known */
};

struct profile_stat {
	/* average: rounded down; p95: nearest rank of the last PROFILE_RING */
	uint64_t n, peak, average, p95;
};

/* NULL: no memory. max_keys: at least 1. */
struct profile *profile_new(uint32_t max_keys);
/* Returns NULL. */
struct profile *profile_free(struct profile *p);
void profile_reset(struct profile *p);
uint32_t profile_n_keys(const struct profile *p);

/* NULL: nothing is known of it. Good until the next call that changes p. */
struct profile_key *profile_find(const struct profile *p, const struct profile_name *name);
/* In the order of their names' hashes: NULL begins; NULL: there are no more. */
struct profile_key *profile_next(const struct profile *p, const struct profile_key *k);
struct profile_name profile_name_of(const struct profile_key *k);

/* A task has ended. Return: 0; -EINVAL: a name is too long; -ENOMEM. */
int profile_feed(struct profile *p, const struct profile_name *name,
		 const struct profile_task *task);
/* A task was killed for want of memory when it had so many private bytes. Return: as above. */
int profile_killed(struct profile *p, const struct profile_name *name, uint64_t had);
/* One was preempted: until PROFILE_RING others have ended well profile_was_preempted()
 * says so. Return: as above. */
int profile_preempted(struct profile *p, const struct profile_name *name);
bool profile_was_preempted(const struct profile_key *k);

/* k may be NULL here and below: nothing is known. */
struct profile_stat profile_stat(const struct profile_key *k, enum profile_resource r);
/*
 * Estimates the next task's use: declared, else fallback, where nothing is known; max(declared, 5/4
 * peak) of fewer than PROFILE_WARM tasks; then what strategy says (HISTOGRAM: p95 is what is
 * shown). Never less than 3/2 of what a killed one had. NONE: the past says nothing.
 */
uint64_t profile_estimate(const struct profile_key *k, enum profile_resource r,
			  enum profile_strategy strategy, uint64_t declared, uint64_t fallback);
/* The most that a task of this age will still use, by its phases. Beyond the usual life, or where
 * these are not known: the peak. */
uint64_t profile_remaining(const struct profile_key *k, uint64_t age_ms);
/*
 * The most that a task of this age will use in its life, where it has had so many bytes at most so
 * far: as much more as the one of its kind that grew most from that age on. The last PROFILE_RING
 * to 2 * PROFILE_RING tasks count. UINT64_MAX: that is not known.
 */
uint64_t profile_at_most(const struct profile_key *k, uint64_t age_ms, uint64_t had);
/* The lesser of both, where nothing contradicts the phases. UINT64_MAX: that is not known. */
uint64_t profile_bound(const struct profile_key *k, uint64_t age_ms, uint64_t had);
/*
 * Were there too few tasks to know the kind? The first of them to end are those that live shortest,
 * and say least of what the others have.
 */
bool profile_is_new(const struct profile_key *k, enum profile_resource r);
/* The last values, PROFILE_RING at most; returns how many. Fewer than PROFILE_WARM, or a killed
 * one: 0, as they do not say enough. */
size_t profile_values(const struct profile_key *k, enum profile_resource r,
		      uint64_t ret[PROFILE_RING]);
/* For charts: the count of each step, and where step i begins. */
const uint32_t *profile_histogram(const struct profile_key *k, enum profile_resource r);
uint64_t profile_bucket_from(enum profile_resource r, unsigned i);
/* The median of lifetimes, and the peak of each phase. Returns how many phases. */
unsigned profile_phases(const struct profile_key *k, uint64_t *ret_life_ms,
			uint64_t ret_peaks[PROFILE_PHASES]);

/* Adds what another profile knows: n and sums add, peaks are the larger, the last values alternate.
 * Return: 0; -ENOMEM: into is as it was in part. */
int profile_merge(struct profile *into, const struct profile *from);

/*
 * The profile as text: a line "shmstore-profile 1", a line for each key, a line "crc32c HEX".
 * Ownership: free() it. NULL: no memory.
 */
char *profile_text(const struct profile *p, size_t *ret_length);
/*
 * Replaces what p has by a text's content; nothing changes unless all of it is right. prior: as a
 * prior of a new session: n and the last values are halved, at least one remains, and the peak will
 * approach that of the new session. ret_why: what is wrong, a static text; may be NULL. Return: 0;
 * -EBADMSG: truncated, changed, or not possible; -EPROTONOSUPPORT: another version; -ENOMEM.
 */
int profile_load(struct profile *p, const char *text, size_t length, bool prior,
		 const char **ret_why);

/* The words of configurations for what a profile is used for. */

#define PROFILE_EPS_PPM 10000u /* histogram: one in a hundred times it may be too much */

struct profile_choice {
	enum profile_strategy strategy;
	uint32_t eps_ppm; /* HISTOGRAM */
	bool adaptive;    /* strategy is where it begins: gate.h */
};

/*
 * "none", "conservative", "conservative=peak", "conservative=p95", "aggressive", "histogram",
 * "histogram:EPS" (0.05), "adaptive". false: none of these.
 */
bool profile_choice_read(const char *text, struct profile_choice *ret);
/* "none", "peak", "p95", "hist", "avg" */
const char *profile_strategy_name(enum profile_strategy s);

/* The checksum of iSCSI and ext4 (Castagnoli's polynomial), as profiles have it. It tells damage
 * from content; it keeps nobody from forging. */
uint32_t crc32c(const void *bytes, size_t n);

/*
 * A running task's private memory over its life, in a bounded number of parts, until it ends as a
 * task of a profile. The caller says what time it is.
 *
 * A life has PROFILETRACK_PARTS parts at most. Where it lasts longer each two become one, so that a
 * part is a power of two ms. Between two samples a task has what it had at the first of them.
 */

#define PROFILETRACK_PARTS 64u

struct profiletrack {
	uint64_t part_ms; /* a power of two */
	uint64_t now, peak;
	uint32_t n_samples;
	unsigned at; /* the part of the last sample */
	uint64_t parts[PROFILETRACK_PARTS];
	uint64_t by_age[PROFILE_AGES];
	unsigned n_ages; /* as many are known */
};

void profiletrack_init(struct profiletrack *t);
/* At this age it has so many bytes. An age before the last one's counts as that. */
void profiletrack_note(struct profiletrack *t, uint64_t age_ms, uint64_t bytes);
/*
 * It has ended: its life, its phases, and what it had had at what age. Fewer
 * samples than phases say nothing about these. At an age it has what the samples
 * before that age say, so never too much.
 */
void profiletrack_end(const struct profiletrack *t, uint64_t life_ms, struct profile_task *ret);

#endif
