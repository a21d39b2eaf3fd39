/* SPDX-License-Identifier: Apache-2.0 */
/* actorsbook.h: actors, places, calls and what waits to be sent, for this room's files. */
#ifndef ACTORSBOOK_H
#define ACTORSBOOK_H

#include "actor.h"
#include "actors.h"
#include "config.h"
#include "conn.h"
#include "events.h"
#include "hash.h"
#include "loop.h"
#include "peers.h"

#define ACTORS_MS 1000000

struct actors_advert;
struct actors_copy;
struct actors_free;
struct actors_guest;
struct actors_kept;
struct actors_one;

/* An order for a place. */
struct actors_order {
	struct actors_order *prev, *next;
	struct wire_actor_order body;
	char name[WIRE_ACTOR_NAME + 1];
	bool orphan;   /* DROP, of a child whose parent has died */
	uint64_t call; /* RUN, STOP: of this one, if it still is */
	size_t n_text;
	char text[]; /* FETCH: the ticket */
};

/* The connection of a place, or of a caller. */
struct actors_guest {
	struct actors_guest *prev, *next;
	struct actors *of;
	struct conn *conn;
	struct conn_end end;
	char place[WIRE_ACTOR_NAME + 1]; /* "": none */
	uint64_t room;
	uint64_t asked; /* the serial of its ACTOR_NEXT; 0: it has not asked */
	struct actors_order *orders;
	uint32_t n_orders, n_calls, n_actors;
	uint64_t orphans_ms; /* since when it has not dropped such children; 0: there are none */
	bool leaves;         /* it said so: its actors end, and did not die */
	struct actors_call *calls;
};

struct actors_call {
	UT_hash_handle hh; /* by id */
	uint64_t id, serial;
	struct actors_guest *from; /* NULL: nobody here wants the answer */
	struct actors_call *prev, *next;
	struct actors_call *next_held;
	char asker[PEERS_NAME + 1]; /* the daemon that wants it; "": none */
	uint64_t asker_id;
	uint32_t hops;            /* daemons that passed it on */
	char via[PEERS_NAME + 1]; /* the daemon that was asked; "": it waits here */
	bool begun;
	struct actors_one *of;
	size_t n;
	char data[];
};

/* A place that has the actor's state, and is not sure to be the only one. */
struct actors_claim {
	struct actors_claim *next;
	struct actors_guest *place;
	struct wire_actor_born said;
};

struct actors_key {
	uint32_t uid;
	char name[WIRE_ACTOR_NAME + 1]; /* zeros after it */
};

struct actors_one {
	UT_hash_handle hh; /* by key */
	struct actors *of;
	struct actors_one *tprev, *tnext; /* of those that are touched */
	struct actors_key key;
	char parent[WIRE_ACTOR_NAME + 1]; /* "": none */
	struct wire_actor_born said;      /* what it can, and how it wants it */
	struct config_copies *own;        /* NULL: copies are made of it as configured */
	char *words;                      /* as its program said that */
	uint32_t restarts;                /* that are left; UINT32_MAX: all */
	struct actor *core;               /* NULL: it is not settled where it is */
	struct actors_claim *claims;
	uint64_t settle_ms;           /* UINT64_MAX: it is, or nobody claims it */
	struct actors_guest *at, *to; /* NULL: its connection has ended; to: of a move only */
	char home[WIRE_ACTOR_NAME + 1];
	uint64_t version, last_version; /* that it has; that were given */
	uint64_t step;                  /* that is under way */
	struct {
		bool is, ok;
	} instant; /* it is done already */
	bool places, failed, touched;
	struct actord_want want; /* of its move */
	bool goes_far;           /* it is moved to another daemon */
	uint64_t copy_version; /*   in the state of this copy, which is there; 0: in that of now */
	/* its move has so long to save it; then a copy goes on; UINT64_MAX: as long as it takes */
	uint64_t stale_ms;
	enum actor_state failed_in;
	uint64_t bytes; /* of what was saved, and the ticket of that */
	char *ticket;
	/* With other daemons (actorspeers.h). */
	struct actors_copy *copy;      /* of one that lives here */
	struct actors_kept *kept;      /* of one that does not */
	struct actors_advert *adverts; /* copies at other daemons */
	char far[PEERS_NAME + 1];      /* the daemon where it lives; "": none that is known */
	uint64_t far_version;
	char to_daemon[PEERS_NAME + 1]; /* goes_far: there */
	bool recovering;                /* its process has died, and a keeper was asked */
	char asked[PEERS_NAME + 1];     /* this one */
	bool asks_here;                 /* one of our places is the keeper */
	uint64_t ask_until_ms;
	bool orphan;                          /* its parent has died */
	bool died;                            /* it was not ended */
	struct actors_call *held, **held_end; /* calls that wait until it is somewhere */
	struct actors_guest *mover;
	uint64_t mover_serial;
};

struct actors {
	struct host *host;
	struct actors_guest *guests;
	struct actors_one *all;
	struct actors_call *calls;
	struct actors_one *touched; /* a list: on_after() goes on with them */
	struct loop_later after;
	struct loop_op timer;
	uint64_t due_ms, last_call;
	bool closing;
	struct actors_books books;
	struct peers_service service;
	struct actors_free *frees;
	uint64_t tick_ms;
};

/* ---- actorsbook.c: names, options, calls ----------------------------------------------------- */

struct actors_one *actors_one_find(const struct actors *a, uint32_t uid, const char *name);
/* NULL: no memory. */
struct actors_one *actors_one_new(struct actors *a, uint32_t uid, const char *name);
/* The one that a peer speaks of, which may be new. NULL: no memory, or ACTORS_HEARD are known. */
struct actors_one *actors_one_heard(struct actors *a, uint32_t uid, const char *name);
/*
 * It has changed: it takes its next steps after the handler that runs, and goes if it is over. To
 * be called after each call of the core.
 */
void actors_touch(struct actors_one *k);
/* How willing it is: ACTOR_NEVER also where it cannot both be saved and loaded. */
int actors_one_level(const struct actors_one *k);
/* Has it a parent, or children that live? */
bool actors_one_has_family(const struct actors_one *k);
/* The event. to: the place; daemon: another one, where it went; or NULL. */
void actors_tell(const struct actors_one *k, enum event what, const char *to, const char *daemon);
/* It is not begun any more. */
void actors_one_lost(const struct actors_one *k);
/* As its program said, else as configured. */
const struct config_copies *actors_options(const struct actors_one *k);
/* "3 num=explicit:2"; "": none. 0; -EINVAL, with why; -ENOMEM. */
int actors_options_read(struct actors_one *k, const char *text, char why[CONFIG_WHY]);
/* As that takes it; restarts are those that are left. Returns its length. */
int actors_options_write(const struct actors_one *k, char ret[WIRE_ACTOR_OPTIONS + 1]);
void actors_options_free(struct actors_one *k);

struct actors_call *actors_call_find(const struct actors *a, uint64_t id);
/* A call of nobody so far. NULL: out of memory. */
struct actors_call *actors_call_new(struct actors_one *k, const char *data, size_t n);
void actors_call_free(struct actors_call *l);
/* Answers the call, which is gone afterwards. */
void actors_call_answer(struct actors_call *l, enum wire_actor_how how, const char *data, size_t n);
/* Nobody here wants the answer any more. */
void actors_call_orphan(struct actors_call *l);

/* ---- actorsguest.c: what connections are sent ------------------------------------------------ */

/* The user's place of that name. NULL: none. */
struct actors_guest *actors_guest_place(const struct actors *a, uint32_t uid, const char *name);
/* The bytes of state that the place would take. */
uint64_t actors_guest_room(const struct actors_guest *g);
/* The user's places in other processes here; other: of other partitions
 * only. Returns their number. */
size_t actors_places(const struct actors_one *k, bool other, struct ckpt_peer ret[CKPT_PEERS]);
/* Queues an order for this actor. If memory is out, or too many wait, the connection ends. text: of
 * FETCH, else NULL. */
void actors_guest_order(struct actors_guest *g, const struct actors_one *k,
			const struct wire_actor_order *o, const char *text);
/* Tells the place to drop its state of the actor. */
void actors_guest_drop(struct actors_guest *g, const struct actors_one *k, uint64_t version);
/* Sends the first order, if the place has asked. */
void actors_guest_pump(struct actors_guest *g);

/* ---- actorsone.c: one actor ------------------------------------------------------------------ */

/* The actor is at this place, and active. 0, -ENOMEM. */
int actors_one_begin(struct actors_one *k, struct actors_guest *g, const struct wire_actor_born *w);
/* Takes all steps that can be taken at once. If it is over, it is gone afterwards. */
void actors_one_settle(struct actors_one *k);
/*
 * A place says that it has the actor's state. The claim is believed, or waits for other claims. 0,
 * -ENOMEM.
 */
int actors_one_claim(struct actors_one *k, struct actors_guest *g, const struct wire_actor_born *w);
/* Another daemon has begun it, which is where it is moved: from now on its calls go there.
 * False: it is not moved there. */
bool actors_one_departed(struct actors_one *k, const struct peer *p, uint64_t version);
/* That daemon will not begin it. */
void actors_one_refused(struct actors_one *k, const struct peer *p);
/* The connection has ended. */
void actors_one_left(struct actors_one *k, const struct actors_guest *g);
void actors_one_tick(struct actors_one *k, uint64_t now_ms);
/* Forgets it; its place is not told. */
void actors_one_free(struct actors_one *k);

/* ---- actorsleave.c: one leaves for its memory ------------------------------------------------ */

/* A place, or (*ret_far) a daemon, as wanted; NULL: there is none. Valid until the next call. */
const char *actors_destination(const struct actors_one *k, const struct actord_want *want,
			       bool *ret_far);
/* May the actor be moved now, and is there a place as wanted, or a copy that will do? */
bool actors_one_may_leave(const struct actors_one *k, const struct actord_want *want);
/* Moves it for its memory. */
void actors_one_leave(struct actors_one *k, struct actord_want want);
/* The time for a fresh state is over: the actor goes on as a copy, if there is one and
 * its state is not saved yet. */
void actors_one_want_copy(struct actors_one *k);

/* ---- actorsplace.c: connections -------------------------------------------------------------- */

/* NULL: the connection has none. */
struct actors_guest *actors_guest_find(const struct conn *c);
/* NULL: out of memory. */
struct actors_guest *actors_guest_get(struct actors *a, struct conn *c);

#endif
