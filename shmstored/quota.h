/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.h: limits, and the credit that is granted against them. Pure: numbers, messages and time in, decisions out; no clock, no I/O.
 *
 * A store takes memory only against credit, so for each limit: used + outstanding <= hard, at every instant, where outstanding is the sum
 * of granted - settled over the stores that it covers (wire.h), and used is
 *     partition   what statfs says (read after the settled totals)
 *     user, label base + the sum of fresh - last over its live stores; base comes of the last survey and of the stores that died since
 * A store's own limit needs no credit: its owner alone fills it and checks it.
 *
 * Requests that wait are served in the order of their arrival; one that a limit holds back holds back the later ones under the same
 * limit, and no others. What is unspent elsewhere is taken back when a request needs it: idle stores first.
 */
#ifndef QUOTA_H
#define QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

struct quota;
struct quota_store;

/* What quota needs of the world; the model in the tests has its own. */
struct quota_ops {
	/* The partition's used bytes, now. */
	uint64_t (*used)(void *arg);
	/* A store's page. NULL: it has none (nothing is granted to it). */
	struct wire_credit *(*credit)(void *arg, struct quota_store *s);
	/* A request that waited has ended: granted (error 0), or refused. */
	void (*answer)(void *arg, struct quota_store *s, uint64_t serial, int error, enum wire_limit limit,
		       uint64_t hard, uint64_t used, uint64_t granted, uint64_t bytes);
	/* Asks a store to give bytes back; 0: no longer. */
	void (*ask)(void *arg, struct quota_store *s, uint64_t bytes);
	/* For events: a limit was passed or is kept again. level 0: below soft, 1: above soft, 2: requests were refused or wait at hard. */
	void (*level)(void *arg, enum wire_limit limit, const char *id, int level, uint64_t used, uint64_t hard,
		      uint64_t soft);
	/* A store's totals do not add up. */
	void (*liar)(void *arg, struct quota_store *s, const char *what);
	void *arg;
};

struct quota_config {
	uint64_t credit;    /* bytes granted ahead at most (64 MiB) */
	uint64_t idle_ns;   /* unspent credit of a store that charged nothing for so long comes back */
	uint32_t waits_max; /* requests of one store that may wait */
};

int quota_new(const struct quota_config *config, const struct quota_ops *ops, struct quota **ret);
struct quota *quota_free(struct quota *q);

/*
 * Sets a limit. id: "" for the partition, the uid in digits, the label, or the store's name; "*" is the default of its kind.
 * hard, soft: bytes, 0 = none. -EINVAL (soft > hard > 0, unknown kind), -ENOMEM. Served waits are answered from within.
 */
int quota_limit(struct quota *q, enum wire_limit kind, const char *id, uint64_t hard, uint64_t soft, uint64_t now_ns);

/* A store that lives. Reads its page: what it holds of an earlier life of the daemon is booked, up to credit. */
int quota_add(struct quota *q, uid_t uid, const char *label, const char *name, void *user, uint64_t now_ns,
	      struct quota_store **ret);
void *quota_user(const struct quota_store *s);
/* It died or closed: what was outstanding is free; its share of used becomes its groups' base until the next survey. */
void quota_remove(struct quota *q, struct quota_store *s, uint64_t now_ns);
/* A reap freed bytes of what that user's / label's dead store had. */
void quota_freed(struct quota *q, uid_t uid, const char *label, uint64_t bytes, uint64_t now_ns);
/* The kernel's word: what user or label takes, by a survey that began at begin (quota_mark() of that moment). */
struct quota_mark;
struct quota_mark *quota_mark(struct quota *q); /* before a survey; freed by quota_rebase() or free() */
void quota_rebase(struct quota *q, struct quota_mark *mark, enum wire_limit kind, const char *id, uint64_t bytes);

/*
 * A request. 0: granted, *ret_granted is the page's new total and *ret_bytes what was added. 1: it waits (deadline_ns; ops.answer
 * ends it). -ENOSPC, -EDQUOT: refused, with the limit that refused it. -EINVAL (more than WIRE_GRANT_MAX), -EMFILE (too many wait).
 */
struct quota_answer {
	uint64_t granted, bytes;
	enum wire_limit limit;
	uint64_t hard, used;
};
int quota_request(struct quota *q, struct quota_store *s, uint64_t serial, uint64_t need, uint64_t ahead, bool wait,
		  uint64_t deadline_ns, uint64_t now_ns, struct quota_answer *ret);
/* -ENOENT: it does not wait. Else ops.answer was called with -ECANCELED. */
int quota_cancel(struct quota *q, struct quota_store *s, uint64_t serial);
/* Time, and room: serves waits, ends those whose deadline passed, takes idle credit back, asks over soft limits. Each second, and
 * whenever memory may have come free. Returns when it wants to be called next (CLOCK_MONOTONIC ns; UINT64_MAX: nothing waits). */
uint64_t quota_tick(struct quota *q, uint64_t now_ns);

/* For reports: each limit that is set or in use. */
struct quota_line {
	enum wire_limit kind;
	const char *id;
	uint64_t hard, soft, used, outstanding;
	uint32_t n_stores, n_waiting;
	uint64_t n_refused;
};
int quota_each(struct quota *q, int (*fn)(const struct quota_line *line, void *arg), void *arg);
uint64_t quota_outstanding(const struct quota_store *s);

#endif
