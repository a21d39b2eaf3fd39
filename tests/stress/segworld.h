/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segworld.h: stores that share segments, for tests that kill them. A store here is a directory,
 * its segments, and a journal in shared memory that says what its process is about, so that whoever
 * looks after a kill knows what must be there, what may be, and what must not.
 *
 * Objects tell their number by key, metadata and every byte. The clock is the board's:
 * leases end when the test says so.
 */
#ifndef SEGWORLD_H
#define SEGWORLD_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dice.h"
#include "seglook.h"
#include "segown.h"
#include "segslot.h"

enum {
	SEGWORLD_MAIL = 16,
	SEGWORLD_JOURNAL = 48,
	SEGWORLD_JOINED = 24,
	SEGWORLD_STORES = 6,
	SEGWORLD_LEASE_MS = 400000
};

/* A ticket on its way. */
enum segmail_state {
	SEGMAIL_EMPTY,
	SEGMAIL_POSTED,
	SEGMAIL_TAKING /* its taker is about to adopt */
};
struct segmail {
	_Atomic uint32_t state;
	uint32_t donor; /* whose link it names */
	uint8_t segment[16];
	struct shms_segticket ticket;
	uint64_t id;
};

/* An object of a store. The name may be there in all states but NONE and
 * VIEWED; in HAVE it must be. */
enum segentry_state {
	SEGENTRY_NONE,
	SEGENTRY_PUTTING,
	SEGENTRY_ADOPTING,
	SEGENTRY_HAVE,
	SEGENTRY_DROPPING,
	SEGENTRY_VIEWED /* by its view bit only */
};
struct segentry {
	_Atomic uint32_t state;
	uint32_t slot, generation;
	uint8_t segment[16];
	uint64_t id;
};

struct segboard {
	_Atomic uint64_t clock_ms;
	_Atomic uint64_t next_id;
	_Atomic uint32_t stop;
	_Atomic uint32_t failed;
	_Atomic uint64_t n_ops, n_adopted, n_put, n_dropped;
	char text[512]; /* of the first failure */
	struct segmail mail[2][SEGWORLD_MAIL];
	struct segentry journal[SEGWORLD_STORES][SEGWORLD_JOURNAL];
};

struct segstore {
	struct segboard *board;
	struct segentry *journal;
	uint32_t number; /* its directory */
	uint8_t uuid[16];
	bool kept;
	bool small; /* it puts small objects only */
	int root_fd, dir_fd;
	bool has_own;
	struct shms_segown own;
	bool is_joined[SEGWORLD_JOINED];
	struct shms_segfile joined[SEGWORLD_JOINED];
	struct dice dice;
};

struct segboard *segworld_board(void);
/* Says what is wrong, once, and ends the process. */
_Noreturn void segworld_fail(struct segboard *b, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void segworld_uuid(uint32_t number, uint8_t ret[16]);
void segworld_path(uint32_t number, char ret[32]);
/* Makes the directories. */
void segworld_directory(int root_fd, uint32_t number);
/* Opens the store, a kept one with its segments; checks that it has what its
 * journal says, and nothing else. */
void segstore_open(struct segstore *s, struct segboard *b, int root_fd, uint32_t number, bool kept,
		   uint64_t seed);
/* One random operation. mine: the mail that it takes from; yours: that it posts to. */
void segstore_step(struct segstore *s, struct segmail *mine, struct segmail *yours);
/* The operations. False: there was nothing to do. */
bool segstore_put(struct segstore *s, uint64_t size);
bool segstore_post(struct segstore *s, struct segmail *to);
bool segstore_take(struct segstore *s, struct segmail *from);
bool segstore_drop(struct segstore *s);
bool segstore_look(struct segstore *s);
void segstore_leave_orphans(struct segstore *s);
/* Everything goes in good order. */
void segstore_end(struct segstore *s);

/* Collects the segments of a store whose process is dead, as gc does. gone: the store goes, else
 * only its dead are recovered. Links that are left. */
unsigned segworld_gc(struct segboard *b, int root_fd, uint32_t number, bool gone);
/* All stores are dead: the place of that one in each of its segments is given
 * back, and the links stay. */
void segworld_retire(struct segboard *b, int root_fd, uint32_t number);
void segworld_forget(struct segboard *b, uint32_t number);
/* All are dead, recovered and gone, and no lease stands: in no segment of that store's
 * directory anything is left. */
void segworld_check(struct segboard *b, int root_fd, uint32_t number);

#endif
