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

#include "actord.h"
#include "config.h"
#include "wire.h"

#define ACTORS_SETTLE_MS 2000u
#define ACTORS_PER_PLACE 1024u
#define ACTORS_HEARD     65536u /* so many are known, and what peers say of others is ignored */
#define ACTORS_CALLS     1024u  /* of one connection, not answered */
#define ACTORS_ORDERS    8192u  /* that one place has not asked for: it is hung up on */

struct actors;
struct conn;
struct host;

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

#endif
