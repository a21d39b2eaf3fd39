/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.h: limits, and the credit that is granted against them. Pure: numbers, messages and time
 * in, decisions out; no clock, no I/O.
 *
 * A store takes memory only against credit, so for each limit: used + outstanding <= hard, at
 * every instant, where outstanding is the sum of granted - settled over the stores that it
 * covers (wire.h), and used is
 *     partition   what statfs says (read after the settled totals)
 *     user, label base + the sum of fresh - last over its live stores; base comes of the last
 *     survey and of the stores that died since;
 *                 and never more than what statfs says: what was freed is free in
 *                 that moment, whoever freed it
 * A store's own limit needs no credit: its owner alone fills it and checks it.
 *
 * Requests that wait are served in the order of their arrival; one that a limit holds back holds
 * back the later ones under the same limit, and no others. Unspent credit is taken back from other
 * stores when a request needs it: idle stores first.
 *
 * Where the configuration has it so, they wait by the rules of createqueue.h instead. An object is
 * made in memory and goes to the disk from there, so a put has no place on the disk itself: what
 * that queue calls the fallback gives nothing, and ends the wait. "Spilling" is the disk tier's
 * demotion, "the disk is full" what the tier says.
 */
#ifndef QUOTA_H
#define QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "createqueue.h"
#include "pagewords.h"
#include "wire.h"

#define QUOTA_ID_MAX 255u
#define QUOTA_MAX    (UINT64_C(1) << 56) /* bytes of a limit */

struct quota;
struct quota_store;

struct quota_answer {
	uint64_t granted, bytes;
	enum wire_limit limit; /* where error is set: which one */
	const char *id;        /* of that limit: lives as long as the store */
	uint64_t hard, used;   /* used: outstanding credit included */
};

/* A limit, for reports and events. */
struct quota_line {
	enum wire_limit kind;
	const char *id;
	uint64_t hard, soft, used, outstanding;
	uint32_t n_stores, n_waiting;
	uint64_t n_refused;
	int level; /* 0: below soft, 1: above soft, 2: requests were refused or wait at hard */
};

/* "partition", "user", "label", "store". */
const char *quota_kind_name(enum wire_limit kind);

/* Bytes that a store could give back. */
struct quota_share {
	uint64_t linked, pool, reserved;
};

/* Calls to the caller, or a test's model. used, credit and share must not call back. */
struct quota_ops {
	/* The partition's used bytes, now. */
	uint64_t (*used)(void *arg);
	/* A store's page. NULL: it has none (nothing is granted to it). */
	struct wire_credit *(*credit)(void *arg, struct quota_store *s);
	/* As its ledger says. */
	void (*share)(void *arg, struct quota_store *s, struct quota_share *ret);
	/* A request that waited has ended: granted (error 0), or refused; by -ENOBUFS where it had
	 * no room on the disk either (createqueue.h). */
	void (*answer)(void *arg, struct quota_store *s, uint64_t serial, int error,
		       const struct quota_answer *a);
	/* Asks a store to give bytes back (asked_n, asked_bytes of its page are this
	 * one's to write); 0: no longer. */
	void (*ask)(void *arg, struct quota_store *s, uint64_t bytes);
	/* A limit's level has changed. */
	void (*level)(void *arg, const struct quota_line *line);
	/* A store's totals do not add up: it is granted nothing more. */
	void (*liar)(void *arg, struct quota_store *s, const char *what);
	void *arg;
	/* More than that nobody uses, by the kernel's count, now; UINT64_MAX, or NULL: it does not
	 * say. As used it must not call back. */
	uint64_t (*most)(void *arg);
	/* Of puts that wait by createqueue.h. Makes room for so many bytes, 0: none, only asks;
	 * true: it is under way. Is the disk full that it would need? */
	bool (*spill)(void *arg, uint64_t bytes);
	bool (*disk_full)(void *arg);
};

struct quota_config {
	uint64_t epoch;  /* of this daemon's life: not 0 */
	uint64_t credit; /* bytes granted ahead at most (64 MiB) */
	/* unspent credit of a store that charged nothing for so long comes back */
	uint64_t idle_ns;
	/* what a request needed is not taken back for so long: who got it is about to charge it */
	uint64_t pledge_ns;
	uint32_t waits_max; /* requests of one store that may wait */
	/* in ns; NULL: requests wait under the limit that holds them back */
	const struct createqueue_config *puts;
};

int quota_new(const struct quota_config *config, const struct quota_ops *ops, struct quota **ret);
struct quota *quota_free(struct quota *q);

#define QUOTA_DEFAULT UINT64_MAX /* as "*" of its kind says */

/*
 * Sets a limit. id: "" for the partition, the uid in digits, the label, or the store's name; "*" is
 * the default of its kind. hard, soft: bytes, 0 = none, QUOTA_DEFAULT. low: over soft, stores are
 * asked to give back until it is below low; 0: 15/16 of soft. -EINVAL (soft > hard > 0, low > soft,
 * over QUOTA_MAX, unknown kind, id too long), -ENOMEM. Served waits are answered from within.
 */
struct quota_limits {
	uint64_t hard, soft, low;
};
int quota_limit(struct quota *q, enum wire_limit kind, const char *id,
		const struct quota_limits *limits, uint64_t now_ns);
/* Returns the limits that are set; -ENOENT: there are none. */
int quota_limit_get(struct quota *q, enum wire_limit kind, const char *id,
		    struct quota_limits *ret);

/*
 * A store that lives. Reads its page: what it holds of an earlier life of the daemon is booked, and
 * what it may charge beyond that is cut to 4 * credit.
 */
int quota_add(struct quota *q, uid_t uid, const char *label, const char *name, void *user,
	      uint64_t now_ns, struct quota_store **ret);
void *quota_user(const struct quota_store *s);
/* We watch it no longer, and it lives: nothing is left of it here, its page stays as it is. */
void quota_forget(struct quota *q, struct quota_store *s);
/* It died or closed: what was outstanding is free; its share of used becomes its groups' base until
 * the next survey. Its waits end unanswered. */
void quota_remove(struct quota *q, struct quota_store *s, uint64_t now_ns);
/*
 * A reap freed bytes of what that user's / label's dead store had. books: quota_books() before it
 * began: where a survey ended meanwhile, what it freed is left to the next one.
 */
uint64_t quota_books(const struct quota *q);
void quota_freed(struct quota *q, uint64_t books, uid_t uid, const char *label, uint64_t bytes,
		 uint64_t now_ns);
/*
 * At the start: a store of a dead owner was found. bytes: what it has; page: a copy of
 * its credit section, NULL = none. The page's sum counts where it is more, as others may
 * have linked the store's objects.
 */
void quota_found(struct quota *q, uid_t uid, const char *label, uint64_t bytes,
		 const struct wire_credit *page);
/*
 * The kernel's word: what each user and label takes, by a survey that began at the
 * mark (the last one, where several were made). quota_rebase() for each of them, then
 * quota_rebased(): groups not named take nothing.
 */
void quota_mark(struct quota *q);
void quota_rebase(struct quota *q, enum wire_limit kind, const char *id, uint64_t bytes);
void quota_rebased(struct quota *q, uint64_t now_ns);
/* The survey did not come to its end. Idempotent. */
void quota_unmark(struct quota *q);
/* A survey that began after them is over: requests that waited for one are served, or refused. */
void quota_looked(struct quota *q, uint64_t now_ns);
/* May the sums count what is not there? A store died or was reaped, lied, or counted
 * before a limit was in force. */
bool quota_unsure(const struct quota *q);
/* Would a survey free room that the sums, which are upper bounds, do not see? */
bool quota_stale(const struct quota *q);

/*
 * A request. 0: granted, ret->granted is the page's new total and ret->bytes what was added (0:
 * what was there is enough). 1: it waits (deadline_ns; ops.answer ends it). -ENOSPC, -EDQUOT:
 * refused, with the limit that refused it; none: others were before it. -EINVAL (need is 0 or more
 * than WIRE_GRANT_MAX; serial waits already), -EMFILE (too many wait), -ENOMEM, -EPERM (a liar, or
 * a store without a page). A request that may not wait overtakes only where a waiting one might.
 */
struct quota_want {
	uint64_t serial, need, ahead;
	bool wait;
	uint64_t deadline_ns; /* of wait and look */
	/* without wait: it waits for the survey that the caller has made (quota_looked()), and is
	 * refused then, or at the deadline */
	bool look;
	/* without wait: the asker waits elsewhere, and asks again: a refusal is not counted */
	bool probe;
};
int quota_request(struct quota *q, struct quota_store *s, const struct quota_want *want,
		  uint64_t now_ns, struct quota_answer *ret);
/* -ENOENT: it does not wait. Else ops.answer was called with -ECANCELED. */
int quota_cancel(struct quota *q, struct quota_store *s, uint64_t serial);
/* All of a store's, unanswered. */
void quota_cancel_all(struct quota *q, struct quota_store *s);
/* Time, and room: serves waits, ends those whose deadline passed (-ETIMEDOUT), takes idle credit
 * back, asks over soft limits. Each second. */
void quota_tick(struct quota *q, uint64_t now_ns);
/* Only serves waits and ends those whose deadline passed: at the deadline, and whenever
 * memory may have come free. */
void quota_serve(struct quota *q, uint64_t now_ns);
/* When the next deadline is (CLOCK_MONOTONIC ns; UINT64_MAX: nothing waits). */
uint64_t quota_deadline(const struct quota *q);
/* The puts that wait by createqueue.h; NULL: they wait under their limits. */
const struct createqueue *quota_puts(const struct quota *q);

/* Each limit that is set or in use. */
int quota_each(struct quota *q, int (*fn)(const struct quota_line *line, void *arg), void *arg);
uint64_t quota_outstanding(const struct quota_store *s);

#endif
