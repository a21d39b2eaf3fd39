/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actors.h: users' actors as a service (docs/actors.md): where each actor is, which calls wait for
 * it, which one runs, and its moves. actor.h has the decisions; this room makes messages of them.
 * Loop's thread only.
 *
 * A place is a connection that takes actors. Its orders wait in a queue until it asks (ACTOR_NEXT),
 * so that nothing is sent to a place that does not read. An actor ends with its place's connection,
 * unless its state has been saved and is on its way to another place.
 *
 * Nothing of this outlives the daemon. The end of the connection tells callers of it; places tell
 * the next daemon which actors they have, and in which version. During a move two places may have
 * an actor's state. Neither runs anything of it, because a place runs nothing without an order. A
 * place that has run something since is sure to be the only one. The next daemon believes such a
 * claim at once; of other claims it believes the highest version, SETTLE_MS after the first claim,
 * and tells the other places to drop theirs.
 */
#ifndef ACTORS_H
#define ACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "actor.h"
#include "actord.h"
#include "ckptplan.h"
#include "config.h"
#include "conn.h"
#include "hash.h"
#include "log.h"
#include "loop.h"
#include "peers.h"
#include "wire.h"

#define ACTORS_SETTLE_MS 2000u
#define ACTORS_PER_PLACE 1024u
#define ACTORS_HEARD     65536u /* so many are known, and what peers say of others is ignored */
#define ACTORS_CALLS     1024u  /* of one connection, not answered */
#define ACTORS_ORDERS    8192u  /* that one place has not asked for: it is hung up on */

/* NULL: out of memory. */
struct actors *actors_new(struct host *h);
/* To be called after the connections were dropped. Returns NULL. */
struct actors *actors_free(struct actors *a);

/*
 * The functions below carry out requests of a connection. The caller checks names
 * (actors_is_name()), which end in a NUL, and answers. A negative value refuses the request, and
 * nothing has changed.
 */
bool actors_is_name(const char *name);
/*
 * 0; -EEXIST: another place of the user has this name; -EBUSY: this place has another name;
 * -ENOMEM.
 */
int actors_place(struct actors *a, struct conn *c, const char *name, uint64_t room);
/* 0; -ENOENT: it is no place. */
int actors_leave(struct conn *c);
/*
 * parent "": none; options: as ACTOR_BORN has them; "": none. 0; -ENOENT: the connection is no
 * place; parent is not known; -EEXIST; -EINVAL: the actor cannot both save and load, and said
 * STRICT; or, with why, options; -EMFILE; -ENOMEM.
 */
struct actors_birth {
	const struct wire_actor_born *said;
	const char *name, *parent, *options;
};
int actors_born(struct actors *a, struct conn *c, const struct actors_birth *b,
		char why[CONFIG_WHY]);
/*
 * 0: answered when there is an order; -ENOENT: the connection is no place; -EBUSY: it has asked
 * already.
 */
int actors_next(struct conn *c, uint64_t serial);
/*
 * 0; -ENOENT: no such actor is here; -ESTALE: the answer was not asked for, or is not wanted any
 * more.
 */
int actors_done(struct actors *a, struct conn *c, const struct wire_actor_done *w, const char *name,
		const char *data, size_t n);
/*
 * 0: answered later; -ENOENT: no such actor; -EMFILE: too many calls of this connection, or for
 * that actor; -ENOMEM.
 */
int actors_call(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *data, size_t n);
/*
 * place: a place here, or another daemon; "": this daemon finds a place here. 0: answered later;
 * -ENOENT: no such actor; -ESTALE: no such place, or the actor is there; -EPERM, -EBUSY: as
 * actor_preempt(); -EPERM also: it has a parent or children, and was to go to another daemon.
 */
int actors_move(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *place);
/* For the governor, and CANCEL: as the members of these names of struct actord. */
void actors_leaving(const struct host *h, pid_t pid, struct actord_want want,
		    struct actord_leaving *ret);
struct conn *actors_place_next(const struct host *h, const struct conn *after);
void actors_evacuate(const struct host *h, pid_t pid, struct actord_want want);
struct conn *actors_stuck(const struct host *h, uint64_t ms, const struct conn *after);
bool actors_cancel(struct conn *c, uint64_t serial);

/* Figures for reports: what there is now; what was since the daemon's start. */
struct actors_books {
	uint64_t n_places, n_actors, n_calls;
	/* n_lost: calls; n_died: actors */
	uint64_t n_answered, n_lost, n_moves, n_failed, n_died, n_restarts;
};
void actors_books(const struct actors *a, struct actors_books *ret);

/* ---- actors, places, calls and what waits to be sent, for this room's files ------------------ */

#define ACTORS_MS 1000000

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
	/* With other daemons (below). */
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

/* ---- actorsbook.c: what connections are sent ------------------------------------------------- */

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

/* ---- actorsfar.c: one leaves for its memory -------------------------------------------------- */

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

/* ---- actors.c: connections ------------------------------------------------------------------- */

/*
 * Messages of daemons to each other about actors, and this room's files that do so.
 *
 *   home     the daemon at one of whose places an actor lives
 *   copy     its state as of some version, at a place of the same user
 *            under another daemon (the keeper)
 *   far      an actor that lives at another daemon: calls go there, answers come back
 *
 * Versions order copies. A recovery begins a new life of the actor: the upper half of its versions
 * goes up by one. So what an earlier life saves, or where an earlier life comes back, is older.
 *
 * Each daemon tells each other one: how much room its users' places have (FREE), which actors live
 * there (LIVE, DEAD), and which copies are there (COPY, GONE). A peer's statements are forgotten
 * when its connection ends; it repeats them when it comes back. So nothing needs to be numbered,
 * and nothing is said twice as news.
 *
 * Recovery. If an actor's process dies and the home lives, the home asks the best keeper (RECOVER).
 * If the home is gone, or knows nothing of it, each keeper finds by the same rule which of them has
 * the best copy (ckptbook_recover()), and that one begins it. Daemons that have lost each other may
 * both begin it. When they meet again, the lesser life goes.
 */

enum actors_peers_type {
	ACTORS_FREE = PEERS_ACTORS,
	ACTORS_LIVE,
	ACTORS_DEAD,
	ACTORS_COPY,
	ACTORS_GONE,
	ACTORS_RECOVER,
	ACTORS_CALL,
	ACTORS_ANSWER,
	ACTORS_STATE, /* a bulk: the file of an object */
	ACTORS_TYPES_END,
};

/* of a struct wire_actor_born: those that are known */
#define ACTORS_FLAGS                                                                \
	((unsigned)(WIRE_ACTOR_CAN_SAVE | WIRE_ACTOR_CAN_LOAD | WIRE_ACTOR_STRICT | \
		    WIRE_ACTOR_NEW | WIRE_ACTOR_SURE))
#define ACTORS_LIFE  32u   /* bits of a version that count within one life */
#define ACTORS_HOPS  3u    /* daemons that pass a call on */
#define ACTORS_TICK  500u  /* ms between what is told of room */
#define ACTORS_STALE 5000u /* what a peer said of its room holds for so long */

/* FREE: of one user. */
struct actors_say_free {
	uint64_t free;
	uint32_t uid, reserved;
};

/* LIVE, DEAD, COPY, GONE, RECOVER. */
struct actors_say {
	uint64_t version, bytes;
	uint32_t uid;
	uint32_t ended; /* of DEAD: it has ended, and copies of it are of no use */
	char name[WIRE_ACTOR_NAME + 1];
	char home[PEERS_NAME + 1]; /* of COPY */
};

/* CALL: the actor's name and what it is told follow; ANSWER: the answer follows. */
struct actors_say_call {
	uint64_t id; /* the asking daemon's */
	uint32_t uid, hops;
	char name[WIRE_ACTOR_NAME + 1];
};
struct actors_say_answer {
	uint64_t id;
	uint32_t how, reserved;
};

/* STATE's meta; the actor's options follow, where it has some (actors_options_write()). */
struct actors_say_state {
	uint64_t version, header_size, buffer_size;
	struct wire_actor_born said;
	uint32_t uid, reserved;
	char name[WIRE_ACTOR_NAME + 1], parent[WIRE_ACTOR_NAME + 1];
};

/* A peer's statement of its free room. */
struct actors_free {
	struct actors_free *next;
	char peer[PEERS_NAME + 1];
	uint32_t uid;
	uint64_t free, until_ms;
};

/* A copy at another daemon. */
struct actors_advert {
	struct actors_advert *next;
	char peer[PEERS_NAME + 1];
	uint64_t version, bytes;
	uint64_t saved_ms; /* 0: not known */
};

/* Of an actor that lives here: its state on its way to the others. */
struct actors_copy {
	struct ckpt_cast cast;
	bool dirty;       /* it ran something since it was saved */
	uint64_t next_ms; /* not before that */
	uint64_t saved_ms;
	int fd; /* -1: nothing is on its way */
	struct actors_say_state meta;
	uint64_t size;
	struct ckpt_peer *peers; /* as they were when it was saved */
	size_t n_peers;
};

/* A copy that is kept here, of an actor that lives elsewhere, or here and is begun
 * again; and one that comes. */
struct actors_kept {
	struct actors_guest *place; /* NULL: there is neither */
	uint64_t version, bytes;    /* 0: none is kept */
	struct actors_say_state meta;
	bool loading, wanted;       /* wanted: it shall be begun when what comes is there */
	uint64_t step, deadline_ms; /* of FETCH or LOAD */
	struct {
		bool is;
		struct actors_say_state meta;
		uint64_t id, bytes;
		char peer[PEERS_NAME + 1]; /* "": from a place here */
	} coming;
	uint64_t alone_ms; /* since when it is nowhere; 0: it is somewhere */
};

/* ---- actorsbook.c: what is said, and what they said ------------------------------------------ */

/* Says it to one peer; NULL: to all. */
void actors_say(const struct actors_one *k, struct peer *p, enum actors_peers_type type,
		const struct actors_say *more);
void actors_say_room(const struct actors *a, struct peer *to);
/* FREE came. False: it is no such message. */
bool actors_take_free(struct actors *a, const struct peer *p, const char *body, size_t n);
/* Of that peer (NULL: none), and all that is too old. */
void actors_forget_frees(struct actors *a, const struct peer *p, uint64_t now_ms);
/* The peers that are up and where this user has a place, at most CKPT_PEERS. */
size_t actors_peers_list(const struct actors *a, uint32_t uid, struct ckpt_peer ret[CKPT_PEERS]);
/* Time has passed. Returns when to come again. */
uint64_t actors_peers_tick(struct actors *a, uint64_t now_ms);
/* COPY came. */
void actors_take_copy(struct actors_one *k, const struct peer *p, const struct actors_say *m);
/* That peer's copy. NULL: it has none. */
struct actors_advert *actors_advert_of(const struct actors_one *k, const char *peer);
void actors_advert_remove(struct actors_one *k, const char *peer);

/* ---- actorscopy.c: copies of an actor that lives here ---------------------------------------- */

/* 0, -ENOMEM. */
int actors_copy_begin(struct actors_one *k);
void actors_copy_end(struct actors_one *k);
/* Are copies made of it at other daemons? */
bool actors_copied(const struct actors_one *k);
/* Saves it, if that is due. Returns when to come again. */
uint64_t actors_copy_tick(struct actors_one *k, uint64_t now_ms);
/* It was saved: text is where. The file is taken over from its lease. False: it cannot be had. */
bool actors_copy_saved(struct actors_one *k, const char *text);
/* Nobody takes the state that was saved last: its lease goes, and its memory with it. */
void actors_copy_revoke(const struct actors_one *k);
/* And goes on: the copies are sent. */
void actors_copy_send(struct actors_one *k);
/* It was saved, and moves to that daemon: its state is sent there. False: it cannot be. */
bool actors_copy_depart(struct actors_one *k, const char *daemon);
/* It does not move there after all. */
void actors_copy_recall(struct actors_one *k, const char *daemon);

/* ---- actorskeep.c: copies of actors, at places here ------------------------------------------ */

/* The directory of a store's leases, or -errno. */
int actors_handoff(const struct member *m);
/* The place that keeps a copy of an actor that lives here, or shall. NULL: there is none. */
struct actors_guest *actors_keep_place(const struct actors_one *k);
/* It was saved: that place takes a copy. text: where the state is. */
void actors_keep_here(struct actors_one *k, const struct actors_say_state *m, const char *text);

int actors_keep_begin(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
		      int *ret_fd);
void actors_keep_arrived(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
			 int fd);
#define ACTORS_LOADED     1
#define ACTORS_KEEP_STEPS (UINT64_C(1) << 62) /* its steps begin there, and those of moves do not */
/* The place says how FETCH or LOAD ended. 0; ACTORS_LOADED: it has made the actor of the copy;
 * -ESTALE. */
int actors_keep_done(struct actors_one *k, const struct wire_actor_done *w);
/* The place's connection has ended, or the actor moves there: the copy there is none any more. */
void actors_keep_left(struct actors_one *k, const struct actors_guest *g);
/* The copy is none any more, and the others are told. */
void actors_keep_forget(struct actors_one *k);
/* And its place drops it. */
void actors_keep_drop(struct actors_one *k);
/* Makes the actor of the copy. False: there is none of that version. */
bool actors_keep_recover(struct actors_one *k, uint64_t version);
uint64_t actors_keep_tick(struct actors_one *k, uint64_t now_ms);

/* ---- actorsfar.c: actors that live elsewhere, or may again ----------------------------------- */

/* A call for an actor that does not live here. 0: taken; -ENOENT. */
int actors_far_call(struct actors_one *k, struct actors_call *l);
void actors_far_hold(struct actors_one *k, struct actors_call *l);
/* Is it known that there may be such an actor, so that calls wait? */
bool actors_far_may_come(const struct actors_one *k);
/* Calls that waited: it lives here now; there; or nowhere. */
void actors_far_release(struct actors_one *k);
/* The best copy whose daemon is up; own: of ours, too. NULL: there is none.
 * Valid until the next call. */
const struct ckpt_copy *actors_far_best(const struct actors_one *k, bool own);
/* Its process has died: is there a copy to begin it from? Then it is being recovered. */
bool actors_far_recover(struct actors_one *k);
/* The state is at the daemon where it moves: that daemon is asked to begin it. False: it is
 * gone. */
bool actors_far_begin(struct actors_one *k);
/* The best copy is asked to begin. */
void actors_far_ask(struct actors_one *k);
uint64_t actors_far_tick(struct actors_one *k, uint64_t now_ms);
/* The service of messages. */
void actors_peers_begin(struct actors *a);

#endif
