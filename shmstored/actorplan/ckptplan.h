/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckptplan.h: copies of an actor's state on other daemons: how many, on which, and when
 * each is sent. Pure: peers, versions and time in, sends out; no clock, no I/O.
 * docs/actors.md has the options.
 *
 * A peer is another daemon, known by its name. Each period begins with a choice of peers;
 * strategy ALL sends to each of them, ROUND_ROBIN to one, the next of the order. A send that
 * fails is tried again n times, then that peer is missed in this period. A version that was sent
 * is not sent again by a later period.
 */
#ifndef CKPTPLAN_H
#define CKPTPLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amount.h"

#define CKPT_NAME  63u
#define CKPT_PEERS 256u
#define CKPT_NUM   47u /* bytes of a number of copies as text */

struct ckpt_peer {
	char name[CKPT_NAME + 1];
	uint64_t free; /* bytes that it would take */
};

/* How many peers: K, or a share of those that there are, at least min. */
struct ckpt_num {
	bool share, all;
	uint64_t k, min; /* up to UINT32_MAX */
	struct ratio of;
	bool panic; /* fewer peers than that is an error, else all that there are will do */
	char text[CKPT_NUM + 1]; /* as it was read */
};

/* "explicit:3", "explicit:max", "frac:0.5,min=2,short=panic", "frac:max".
 * false: it is none of these. */
bool ckpt_num_read(const char *text, struct ckpt_num *ret);
/* Of so many peers. -1: there are too few of them, and that is an error. Never
 * more than n_peers otherwise. */
int64_t ckpt_num_of(const struct ckpt_num *num, size_t n_peers);

enum ckpt_selection {
	CKPT_RESOURCE,
	CKPT_FIXED,
	CKPT_RANDOM
};
enum ckpt_strategy {
	CKPT_ROUND_ROBIN,
	CKPT_ALL
};

struct ckpt_config {
	struct ckpt_num num;
	enum ckpt_selection selection;
	const char *fixed; /* FIXED: names with commas between them; borrowed */
	uint64_t seed;     /* RANDOM */
	enum ckpt_strategy strategy;
	uint64_t frequency_ms;
	uint32_t retry;
	uint64_t reserve; /* RESOURCE: what must be free beyond the copy */
};

extern const struct ckpt_config ckpt_defaults;

/* The chosen ones, as places in peers, in the order of sending. */
struct ckpt_choice {
	size_t n;
	uint16_t of[CKPT_PEERS];
	bool degraded; /* fewer than were asked for */
};

/* Where an actor of so many bytes could go: most free first, then by name. NULL: nowhere. */
const struct ckpt_peer *ckpt_destination(const struct ckpt_peer *peers, size_t n, uint64_t bytes);

/* One period's sends, one after the other. */
struct ckpt_cast {
	struct ckpt_config config;
	uint64_t version, sent_version; /* of this period; of the last that was not skipped */
	uint64_t next_ms;               /* the next period */
	uint64_t n_periods;             /* that sent something */
	struct ckpt_choice choice;      /* of the last period */
	size_t at, end; /* of the choice: the one that is sent to, and where this period ends */
	uint32_t n_tried;
	uint32_t n_missed; /* of the last period */
};

/*
 * A period begins. Versions begin at 1. Return: 1: ckpt_cast_next() says whom to send to; 0: the
 * version was sent already, it is skipped; -1: too few peers, and that is an error.
 */
int ckpt_cast_begin(struct ckpt_cast *c, const struct ckpt_peer *peers, size_t n, uint64_t version,
		    uint64_t bytes, uint64_t now_ms);
/* The place of the peer to send to now. false: the period is over. */
bool ckpt_cast_next(const struct ckpt_cast *c, size_t *ret);
/* It did, or did not. true: that peer is done with, one way or the other. */
bool ckpt_cast_result(struct ckpt_cast *c, bool ok);

/*
 * Where copies of one actor's state are, and of which versions; from which it recovers; which may
 * go; and whether a stale one will do where memory is wanted at once.
 */

/* At most one copy for each peer: the newest one replaces the older. */
struct ckpt_copy {
	char peer[CKPT_NAME + 1];
	uint64_t version, bytes;
};

struct ckptbook {
	size_t n;
	struct ckpt_copy copies[CKPT_PEERS];
};

/* A copy has arrived; one that is older than what the peer has is no news. false:
 * no room for another peer. */
bool ckptbook_add(struct ckptbook *b, const char *peer, uint64_t version, uint64_t bytes);

/* The highest version whose peer is there; of several the peer with the most free, then the first
 * by name. NULL: none is there. */
const struct ckpt_copy *ckptbook_recover(const struct ckptbook *b, const struct ckpt_peer *peers,
					 size_t n);

/* May a copy that is older than its actor be used when the actor is preempted? */
enum ckpt_stale_policy {
	CKPT_NEVER,
	CKPT_ALWAYS,
	CKPT_TIMEOUT,
	CKPT_MAXAGE
};

struct ckpt_stale {
	enum ckpt_stale_policy policy;
	/* TIMEOUT: so long a fresh one is waited for. MAXAGE: a stale one that is younger will
	 * do */
	uint64_t ms;
};

#define CKPT_NONE      UINT64_MAX
#define CKPT_STALE_MAX 32u /* bytes of a policy as text, with its NUL */

enum ckpt_use {
	CKPT_USE_FRESH,
	CKPT_USE_STALE,
	CKPT_USE_NOTHING
};

/* "never", "always", "timeout:MS", "maxage:MS". false: none of these. */
bool ckpt_stale_read(const char *text, struct ckpt_stale *ret);
/* As ckpt_stale_read() takes it. */
void ckpt_stale_write(const struct ckpt_stale *s, char ret[CKPT_STALE_MAX]);
/*
 * The copy that a preemption takes, and how long it waits for it. last_age_ms: of the newest one;
 * fresh_takes_ms: until there is a fresh one; CKPT_NONE: there is none, or will be none. NOTHING:
 * neither can be had.
 */
enum ckpt_use ckpt_stale_use(const struct ckpt_stale *s, uint64_t last_age_ms,
			     uint64_t fresh_takes_ms, uint64_t *ret_delay_ms);

#endif
