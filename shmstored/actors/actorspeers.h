/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorspeers.h: what daemons say to each other of actors, and this room's files that do so.
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
#ifndef ACTORSPEERS_H
#define ACTORSPEERS_H

#include "actorsbook.h"
#include "ckptplan.h"
#include "peers.h"

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

/* ---- actorsroom.c: what is said, and what they said ------------------------------------------ */

/* Says it to one peer; NULL: to all. */
void actors_say(const struct actors *a, struct peer *p, enum actors_peers_type type,
		const struct actors_one *k, const struct actors_say *more);
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

/* ---- actorspeers.c: the service -------------------------------------------------------------- */

void actors_peers_begin(struct actors *a);
void actors_peers_end(struct actors *a);

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
bool actors_keeps(const struct actors_one *k);

/* ---- actorsfar.c: actors that live elsewhere, or may again ----------------------------------- */

/* It lives at that peer. */
void actors_far_live(struct actors_one *k, struct peer *p, uint64_t version);
/* It lives there no longer. */
void actors_far_dead(struct actors_one *k, const struct peer *p, bool ended);
/* The peer is gone. */
void actors_far_down(struct actors_one *k, const struct peer *p);
/* A call for an actor that does not live here. 0: taken; -ENOENT. */
int actors_far_call(struct actors_one *k, struct actors_call *l);
void actors_far_hold(struct actors_one *k, struct actors_call *l);
/* A peer asks. */
bool actors_far_asked(struct actors *a, struct peer *p, const char *body, size_t n);
bool actors_far_answered(struct actors *a, struct peer *p, const char *body, size_t n);
/* Is it known that there may be such an actor, so that calls wait? */
bool actors_far_may_come(const struct actors_one *k);
/* Calls that waited: it lives here now; there; or nowhere. */
void actors_far_release(struct actors_one *k);
/* The best copy whose daemon is up; own: of ours, too. NULL: there is none.
 * Valid until the next call. */
const struct ckpt_copy *actors_far_best(const struct actors_one *k, bool own);
/* The newest copy elsewhere, if it will do where memory is wanted. fresh_ms: ckpt_stale_use(). */
const struct actors_advert *actors_far_stale(const struct actors_one *k, uint64_t fresh_ms);
/* Its process has died: is there a copy to begin it from? Then it is being recovered. */
bool actors_far_recover(struct actors_one *k);
/* The state is at the daemon where it moves: that daemon is asked to begin it. False: it is
 * gone. */
bool actors_far_begin(struct actors_one *k);
/* The best copy is asked to begin. */
void actors_far_ask(struct actors_one *k);
uint64_t actors_far_tick(struct actors_one *k, uint64_t now_ms);

#endif
