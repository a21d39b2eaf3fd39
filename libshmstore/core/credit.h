/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credit.h: the owner's half of a page's credit section (wire.h): memory is charged before it is
 * taken, settled or given back after.
 *
 * Only fresh memory is charged: a put into a recycled file, an alias and an adopted object take
 * none. The store's own page, its directories and the sidecars of long keys, a page each, are not
 * charged: the kernel's count has them, and so the next grant. Where no daemon ever wrote to the
 * page all this is one relaxed load.
 */
#ifndef SHMS_CREDIT_H
#define SHMS_CREDIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "opened.h"
#include "pagewords.h"

struct shms_credit {
	uint64_t wait_ms;
	/* bytes of puts under way that the ledger does not show, under a limit of the store */
	_Atomic uint64_t writing;
	_Atomic uint32_t n_waiting; /* threads that wait for room: the pool gives way */
	_Atomic uint64_t ask_n; /* the last asked_n that was seen, and given_bytes at that time */
	_Atomic uint64_t ask_base;
};

/* The bytes that a put has charged; all 0 = nothing. */
struct shms_charge {
	uint64_t bytes;
	uint64_t writing;
};

#define SHMS_CREDIT_WAIT     (1u << 0) /* until there is room, or options.wait_ms are over */
#define SHMS_CREDIT_RESERVED (1u << 1) /* the ledger's reserved has these bytes already */

/* Not a daemon's business any more, or not yet: the page is not ours to use. */
void shms_credit_off(struct shmstore *s);

/* Could size bytes be charged without asking anybody? A hint. */
bool shms_credit_has(const struct shmstore *s, uint64_t size);
/* Memory that an ended charge had brought, or any, went back to the kernel. */
void shms_credit_gave(struct shmstore *s, uint64_t bytes);
/* Must somebody look what a name's removal frees? */
bool shms_credit_counts_last(const struct shmstore *s);
/* Call before the removal of a name, or, where that is "", of what dir_fd has open: the bytes that
 * it frees, if counted, else 0; then shms_credit_gave(). */
uint64_t shms_credit_freed_by(const struct shmstore *s, int dir_fd, const char *name);
/* The least of the limits that the store shares with others: the partition's, its user's, its
 * label's. UINT64_MAX: there is none. */
uint64_t shms_credit_tightest(const struct shmstore *s);
/* Is the memory of pooled files wanted elsewhere? */
bool shms_credit_pressed(struct shmstore *s);
/* Before bytes of somebody else's memory are linked: under the store's own limit alone. *ret goes
 * to shms_credit_end(). 0, -EDQUOT. */
int shms_credit_take_linked(struct shmstore *s, uint64_t bytes, struct shms_charge *ret);

/* The memory that a file of size bytes takes. */
uint64_t shms_credit_cost(const struct shmstore *s, uint64_t size);

static inline bool shms_credit_counted(const struct shmstore *s)
{
	return atomic_load_explicit(&s->credit->epoch, memory_order_relaxed) != 0;
}

int shms_credit_take_counted(struct shmstore *s, uint64_t size, unsigned flags,
			     struct shms_charge *ret);
/* Before size bytes of a file are taken; *ret goes to shms_credit_end(). 0, -ENOSPC, -EDQUOT;
 * -ETIMEDOUT with SHMS_CREDIT_WAIT. */
static inline int shms_credit_take(struct shmstore *s, uint64_t size, unsigned flags,
				   struct shms_charge *ret)
{
	*ret = (struct shms_charge){0};
	return shms_credit_counted(s) ? shms_credit_take_counted(s, size, flags, ret) : 0;
}

void shms_credit_end_counted(struct shmstore *s, const struct shms_charge *charge, uint64_t taken);
/* taken: how much of the memory the file system counts now; 0: it was not taken, or has gone
 * back. */
static inline void shms_credit_end_part(struct shmstore *s, const struct shms_charge *charge,
					uint64_t taken)
{
	if (charge->bytes || charge->writing)
		shms_credit_end_counted(s, charge, taken);
}

/* taken: all of it. */
static inline void shms_credit_end(struct shmstore *s, const struct shms_charge *charge, bool taken)
{
	shms_credit_end_part(s, charge, taken ? charge->bytes : 0);
}

void shms_credit_tend_counted(struct shmstore *s);
/* At calls that put or delete: answers what the daemon asks, and looks for it where it is away. */
static inline void shms_credit_tend(struct shmstore *s)
{
	if (shms_credit_counted(s))
		shms_credit_tend_counted(s);
}

/* Credit where no daemon answers: limits hold all the same. */

/*
 * The store is short of credit for n bytes and has no daemon: raises its own granted, by what is
 * given ahead if there is so much room, else by what is missing. 0: try again (also where a daemon
 * is there after all); -ENOSPC (the partition's limit), -EDQUOT (the user's, the label's); as
 * -ENOSPC or -EDQUOT where a daemon lives but does not answer us.
 */
int shms_alone_grant(struct shmstore *s, uint64_t n);
/*
 * The store was just opened, and the daemon is dead: takes the limits that it left in the pages of
 * others, so that they hold for this one too. Not where a daemon lives: it will find the store.
 */
void shms_alone_inherit(struct shmstore *s);
/*
 * The page of the store in the directory storefd is about to go, or to begin anew, after freed
 * bytes went: memory that others have of it, and others' that it gave back, are in the sums of its
 * user and label from here on by the pages of the stores that stay.
 */
void shms_alone_leave(struct shmstore_partition *p, int storefd, uint64_t freed);
/* The error of a store that may not be granted more, whatever the reason. */
int shms_alone_refusal(const struct shmstore *s);

#endif
