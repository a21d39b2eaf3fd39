/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierplan.h: when objects are to leave a partition for its disk tier, how many bytes, and whose
 * first. Pure: numbers and time in, decisions out.
 */
#ifndef TIERPLAN_H
#define TIERPLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
	uint64_t freed; /* tierwork.h: by it */
};

/*
 * Shares need out: first who has more than its share, then everybody; in each, the idle before the
 * busy, and the largest first. Reorders users. low: what is to stay. ret_steps: room for 2 * n.
 * Returns how many there are; together they may be less than need.
 */
size_t tierplan_steps(struct tierplan_user *users, size_t n, uint64_t low, uint64_t need,
		      struct tierplan_step *ret_steps);

#endif
