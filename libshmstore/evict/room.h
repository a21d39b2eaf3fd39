/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.h: memory of the partition for one file. A put, a create and a promotion take it here, by
 * the same steps:
 *
 *   reserve   with the arbiter, where the store has one; may wait, so no lock may be held
 *   charge    against the store's credit and its limit
 *   take      the caller's: the file is written
 *   settle    says whether the memory is there now
 *
 * Refused for want of room, they are taken again, each time after the next of these: the store
 * gives back its pooled files; those of its user's other stores go; what dead stores left goes;
 * what is used least goes to the disk tier; live stores of its user are asked for memory of their
 * segments; the arbiter is asked once more; and with SHMSTORE_WAIT the store waits for credit.
 */
#ifndef SHMS_ROOM_H
#define SHMS_ROOM_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "arbhook.h"
#include "credit.h"

struct shms_room {
	struct shmstore *s;
	uint64_t bytes;  /* of the file */
	unsigned flags;  /* SHMSTORE_NO_EVICT, SHMSTORE_WAIT, and others, which mean nothing here */
	unsigned credit; /* SHMS_CREDIT_RESERVED */
	bool unbooked;   /* s is not its owner's handle: nothing is reserved, nothing charged */
	bool now;        /* where the arbiter would have it wait: -ENOSPC */
	/* One try: where it takes memory, between shms_room_book() and shms_room_settle(). 0, an
	 * outcome of the arbiter's (> 0), -errno. */
	int (*take)(void *arg);
	void *arg;
	/* From here on the ladder's own. */
	bool turn;   /* it is ours to make room by the disk tier */
	bool wait;   /* for credit: nothing else helped */
	int n_again; /* times that the kernel refused what the arbiter had granted */
	struct shms_hold hold;
	struct shms_charge charge;
};

/* Is r the error of a put that room would help? */
static inline bool shms_room_wanted(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/* Calls take() until it has its memory, or nothing helps. Returns what it returned last. No
 * lock of the store is held. */
int shms_room_take(struct shms_room *m);
/* r is the end of a put: counts a want of room, and says which limit refused it, and how far it is,
 * unless that was said. Returns r. */
int shms_room_refused(struct shms_room *m, int r);

/* Does another thread make room, which is to be its own? Then a call that needs memory is refused,
 * and has its turn after earlier ones. Calls that may not evict, or wait for the arbiter, have
 * none. */
bool shms_room_others(const struct shms_room *m);
/* For take(): 0, an outcome, -errno; only after 0 shms_room_settle() is owed. */
int shms_room_reserve(struct shms_room *m);
/* A failure keeps the reservation. */
int shms_room_charge(struct shms_room *m);
/* Reserves and charges; releases the reservation where the charge fails. */
int shms_room_book(struct shms_room *m);
/* taken: the memory is there now; else it was not taken, or has gone back. */
void shms_room_settle(struct shms_room *m, bool taken);
/* taken: the bytes that the file system counts now, of those that were booked. */
void shms_room_settle_part(struct shms_room *m, uint64_t taken);

/* How many bytes may be taken without being booked: all where nobody limits or grants the
 * store's memory, else none. */
static inline uint64_t shms_room_unbooked(const struct shmstore *s)
{
	return shms_hooked(s) || shms_credit_counted(s) ? 0 : UINT64_MAX;
}

#endif
