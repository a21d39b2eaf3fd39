/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhost.h: the arbiter of one partition under watch: its core (arbiter/arbiter.h), and the
 * clients, pages, file system and disk tier that the core decides about. Loop's thread only;
 * nothing of it blocks, but for one fstatvfs().
 *
 * Ids in the core: a client's own 32 bits below its number, which no two clients of a daemon's life
 * have; the partition's pool is 1. With the top bit: reservations of ours.
 */
#ifndef ARBHOST_H
#define ARBHOST_H

#include "account.h"
#include "arbiter.h"
#include "config.h"
#include "conn.h"
#include "hash.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "pagewords.h"
#include "wire.h"

/*
 * The arbiter's part of a partition. Opening makes a->arb where the arbiter is on, after
 * a->quota, a->tier and a->tick are set. When a store comes, leases of an earlier daemon in its
 * page may not be spent any more. When it leaves, its page is still mapped: its reservations are
 * free, and its waiting calls get no answer.
 */
extern const struct part arbhost_part;

#define ARB_OURS      (UINT64_C(1) << 63)
#define ARB_OBJECTS   (ARB_OURS | 1) /* what the kernel counts and nothing can give back */
#define ARB_EVICTABLE (ARB_OURS | 2) /* what the disk tier or recycled files can give back */
/* what dead stores left behind and their reaping will give back */
#define ARB_COMING    (ARB_OURS | 3)
#define ARB_GHOSTS    0xffu /* arb_ours(): deleted files that the client maps still */

struct arblease {
	bool open; /* the core knows it */
	bool liar;
	/* as struct wire_lease, and never what the page says of granted */
	uint64_t granted, booked, settled;
	uint64_t held, unspent;           /* as read last */
	uint64_t core_held, core_unspent; /* as booked in the core */
};

struct arbguest {
	UT_hash_handle hh; /* by number */
	uint32_t number;
	struct arbhost *host;
	struct member *member;  /* registered */
	struct arb_group group; /* what it named and the core knows */
	struct arblease leases[WIRE_LEASES];
	/* Of the partition's pool. */
	uint64_t going[2];     /* of group.bytes: reservations that are about to end */
	uint64_t materialized; /* of the others, as far as the kernel counts them too */
	uint64_t ghosts;       /* by the last survey */
	uint64_t core_ghosts;
	/* For arbhost_settle(): on its list, and why. */
	struct arbguest *todo_prev, *todo_next;
	bool todo;
	bool ended;       /* its calls get no answer */
	bool leaving;     /* its connection has ended: nothing that it took is its own */
	unsigned recalls; /* leases that the core wants back: bits */
	/* Up-calls. */
	struct conn *serve;
	struct conn_end serve_end;
	bool failed;         /* it did not answer one in time */
	struct arbcall {     /* for group.called, unless that went meanwhile */
		uint32_t id; /* 0: none is out */
		uint64_t deadline_ns;
	} call;
};

/* The bytes that were read, and (core_) those that the core was told. */
struct arbkernel {
	uint64_t capacity, core_capacity;
	uint64_t used, drift, materialized, ghosts;
	uint64_t objects, core_objects;
	uint64_t evictable, core_evictable;
	uint64_t coming, core_coming;
	uint64_t recyclable, demotable; /* evictable is of these */
	uint64_t linked, mapped;        /* by the ledgers */
	uint64_t looked_ns;             /* when used was read */
};

/* The spill of evictable: arbkernel.c. */
struct arbevict {
	uint64_t wanted;         /* asked for by the core and not begun yet */
	bool running;            /* the core waits for its end */
	bool demoting;           /* the tier is at it */
	uint64_t goal;           /* used bytes at which it is done */
	uint64_t asked_until_ns; /* stores were asked for recycled files; 0: none */
	uint64_t rest_until_ns;  /* the last one gave nothing: not offered before */
};

struct arbhost {
	struct account *account;
	struct arb *core;
	struct loop_op timer;
	uint64_t due_ns; /* of timer */
	bool closed, settling;
	bool coming_wanted;       /* the core waits for ARB_COMING */
	struct arbguest *clients; /* hash */
	struct arbguest *todo;    /* a list: something is left to do for them */
	uint32_t last_number, last_call;
	struct arbkernel kernel;
	struct arbevict evict;
	uint32_t n_calls; /* that are out */
	uint32_t level;
	uint64_t level_until_ns;
	bool wanted;                /* pages say that somebody waits */
	struct account_wait survey; /* that we asked for */
};

/* A request while it is handled; out: what its ARBED says besides the outcome. */
struct arbrequest {
	struct arbguest *client;
	const struct wire_arb *w;
	const char *tail;
	uint64_t serial;
	uint64_t bytes;
	char *text; /* to be freed */
};

static inline uint64_t arb_id(const struct arbguest *c, uint32_t own)
{
	return own ? (uint64_t)c->number << 32 | own : 0;
}

static inline uint64_t arb_pool_id(const struct arbguest *c, uint32_t pool)
{
	return pool == WIRE_ARB_PARTITION ? WIRE_ARB_PARTITION : arb_id(c, pool);
}

static inline uint64_t arb_ours(const struct arbguest *c, uint32_t what)
{
	return ARB_OURS | (uint64_t)c->number << 8 | what;
}

static inline const struct config_arbiter *arb_config(const struct arbhost *h)
{
	return &h->account->host->config->arbiter;
}

static inline uint64_t arb_now(const struct arbhost *h)
{
	return loop_now(h->account->host->loop);
}

/* ---- arbstep.c ---- */

/* The client of that number. NULL: there is none. */
struct arbguest *arbguest_find(struct arbhost *h, uint64_t number);
bool arbguest_has_pool(const struct arbguest *c, uint32_t pool); /* the partition's too */

/* One message to the core; what it sets free is sent, or noted for arbhost_settle().
 * enum arb_outcome, or -ENOMEM. */
int arbstep_do(struct arbhost *h, const struct arb_message *m);
/* The same of a message that names a reservation and nothing more. */
int arbstep_about(struct arbhost *h, enum arb_op op, unsigned flags, uint64_t reservation);
/* Makes a reservation of ours, whatever the pool has. enum arb_outcome, or -ENOMEM. */
int arbstep_make(struct arbhost *h, uint64_t pool, uint64_t reservation, uint64_t bytes,
		 bool reclaimable);
/* A reservation of ours is so large now, whatever the pool has: told if that is more than it was;
 * where raise is false, if it is less. */
void arbstep_set(struct arbhost *h, uint64_t reservation, uint64_t *io_bytes, uint64_t bytes,
		 bool raise);
/* The time at which a call with that timeout_ms ends. */
uint64_t arbstep_deadline(const struct arbhost *h, uint64_t timeout_ms);
uint64_t arbstep_capacity(const struct arbhost *h, uint64_t pool);
/* The event of an outcome, where it has one. why: NULL = none. */
void arbstep_tell(struct arbguest *c, uint32_t context, int outcome, uint64_t pool, uint64_t bytes,
		  const char *why);

/* ---- arbhost.c ---- */

/* Carries out what the steps left to do. Not from within a step's replies. */
void arbhost_settle(struct arbhost *h);
/* m's client, made where it is new. NULL: no memory. */
struct arbguest *arbhost_guest(struct arbhost *h, struct member *m);
/* 0 nobody waits in that pool, 1 somebody does, 2 somebody was rolled back: in the partition
 * lately, in a private pool and is not back. */
uint32_t arbhost_level(const struct arbhost *h, const struct arb_pool_info *i);

/* ---- arbbytes.c: requests. enum arb_outcome, or -errno ---- */

int arbscope_begin(struct arbrequest *q);
int arbscope_end(struct arbrequest *q);
int arbscope_bind(struct arbrequest *q);
int arbscope_unbind(struct arbrequest *q);
/* Calls that only name a context or a task: READY, RETRY_BEGIN, …, CANCEL, INJECT. */
int arbscope_plain(struct arbrequest *q);
int arbbytes_pool(struct arbrequest *q);
int arbbytes_reserve(struct arbrequest *q);
int arbbytes_change(struct arbrequest *q); /* RELEASE, RESIZE, SEAL, PIN, UNPIN, SPILLED */
/* STATE, STATS. */
int arbstate_make(struct arbrequest *q);

/* ---- arbkernel.c ---- */

/* Reads what the kernel, the ledgers and the leases say, of one client or (NULL)
 * of all, and tells the core. */
void arbkernel_refresh(struct arbhost *h, struct arbguest *only);
/* The same for c that wants so many bytes more, and wrote nothing: where the last look is fresh and
 * they are few, that will do. */
void arbkernel_glance(struct arbhost *h, struct arbguest *c, uint64_t bytes);
/* By the last look, a request of so many bytes can be granted at once. */
bool arbkernel_fits(const struct arbhost *h, uint64_t bytes);
/* Asks for a survey where somebody waits for what foreign files may have left since the last
 * one. */
void arbkernel_survey_if_old(struct arbhost *h);
/* The foreign files and ghosts of a survey. */
void arbkernel_surveyed(struct arbhost *h, const struct survey *s);

/* ---- arbpage.c ---- */

/* Begins that lease, with what its page has of an earlier daemon's. False: it cannot be. */
bool arbpage_begin(struct arbguest *c, unsigned slot);
void arbpage_end(struct arbguest *c, unsigned slot);
void arbpage_read(struct arbguest *c, unsigned slot);
/* Tells the core, one direction at a time: raise first, so that nothing is
 * free in between that is not. */
void arbpage_tell(struct arbguest *c, unsigned slot, bool raise);
/* The core wants it back. */
void arbpage_recall(struct arbguest *c, unsigned slot);
/* LEASE, LEASE_CALLED. */
int arbpage_request(struct arbrequest *q);
/* Leases of an earlier daemon may not be spent any more. */
void arbpage_cut(struct member *m);
/* Tells the pages whether somebody waits; unspent bytes are free meanwhile. Steps. */
void arbpage_wanted(struct arbguest *c, bool wanted);

/* Begins what is wanted, ends what is done. */
void arbevict_look(struct arbhost *h);

/* ---- arbstep.c: up-calls ---- */

/* Sends the next call that is due, answers the core for clients that cannot be called. */
void arbcall_next(struct arbguest *c);
/* Calls whose deadline has passed. */
void arbcall_tick(struct arbhost *h);
/* It may go, as its owner says; offered to the core where the client can be called. */
int arbcall_offer(struct arbguest *c, struct arb_hold *r);
void arbcall_end(struct arbguest *c);
void arbcall_pressure(struct arbhost *h, uint32_t level);
/* SERVE and EVICTED, on a connection without a store. */
int arbcall_serve(struct conn *conn, uint64_t serial, const struct wire_arb *w);
int arbcall_evicted(struct conn *conn, uint64_t serial, const struct wire_arb *w);

#endif
