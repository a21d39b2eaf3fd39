/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actors.h: users' actors as a service (docs/actors.md): where each is, the calls that wait for it and the one that runs, its moves. The decisions are actor.h's; here
 * they become messages. Loop's thread only.
 *
 * A place is a connection that takes actors. What it shall do waits in a line until it asks (ACTOR_NEXT), so nothing is sent to one that does not read. An actor ends with
 * its place's connection, unless its state has been saved and is under way to another.
 *
 * Nothing of this outlives the daemon. Those who call are told by the end of the connection; places tell the next daemon what they have, and as which version. While a
 * move is under way two places may have an actor's state, and neither runs anything of it: nothing runs but by an order. Whoever has run something since is sure of being the
 * only one. A sure claim is believed at once; of others the highest version is, SETTLE_MS after the first. Everybody else is told to drop theirs.
 */
#ifndef ACTORS_H
#define ACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

#define ACTORS_SETTLE_MS 2000u
#define ACTORS_PER_PLACE 1024u
#define ACTORS_CALLS     1024u /* of one connection, not answered */
#define ACTORS_ORDERS    8192u /* that one place has not asked for: it is hung up on */

struct actors;
struct conn;
struct host;

/* NULL: no memory. */
struct actors *actors_new(struct host *h);
/* After the connections were dropped. Returns NULL. */
struct actors *actors_free(struct actors *a);

/*
 * Of a connection's requests. Names are checked by the caller (actors_is_name()), and end in a NUL. Below 0: refused, nothing has changed. After each of them the caller
 * answers, and then calls actors_flush().
 */
bool actors_is_name(const char *name);
/* 0; -EEXIST: another of the user's places is called so; -EBUSY: this one has another name; -ENOMEM. */
int actors_place(struct actors *a, struct conn *c, const char *name, uint64_t room);
/* 0; -ENOENT: it is no place. */
int actors_leave(struct actors *a, struct conn *c);
/* 0; -ENOENT: no place; parent is not known; -EEXIST; -EINVAL: it can not both save and load, and that was to be strict; -EMFILE; -ENOMEM. */
int actors_born(struct actors *a, struct conn *c, const struct wire_actor_born *w, const char *name,
		const char *parent);
/* 0: answered when there is something; -ENOENT: no place; -EBUSY: it asks already. */
int actors_next(struct actors *a, struct conn *c, uint64_t serial);
/* 0; -ENOENT: no such actor here; -ESTALE: nobody asked for that, or not any more. */
int actors_done(struct actors *a, struct conn *c, const struct wire_actor_done *w, const char *name, const char *data,
		size_t n);
/* 0: answered later; -ENOENT: no such actor; -EMFILE: too many of this connection, or for that actor; -ENOMEM. */
int actors_call(struct actors *a, struct conn *c, uint64_t serial, const char *name, const char *data, size_t n);
/* place "": one is looked for. 0: answered later; -ENOENT: no such actor; -ESTALE: no such place, or it is there; -EPERM, -EBUSY: as actor_preempt(). */
int actors_move(struct actors *a, struct conn *c, uint64_t serial, const char *name, const char *place);
/* The actors of a process that may be ended for its memory; of these, those that may be moved, and for which another process has room. */
struct actors_leaving {
	size_t n, n_movable;
};
void actors_leaving(const struct actors *a, pid_t pid, struct actors_leaving *ret);
/* Those go there: they are suspended now, and sent by actors_flush(). */
void actors_evacuate(struct actors *a, pid_t pid);
/* Who waits for the answer to this request waits no more, and gets none; what it asked for is done all the same. False: nobody does. */
bool actors_cancel(struct actors *a, struct conn *c, uint64_t serial);
/* Sends what is to be sent. handling: the connection whose request is being handled; its own failure is returned. CONN_OK, CONN_E_SLOW. */
int actors_flush(struct actors *a, struct conn *handling);

/* For those who show it. */
struct actors_books {
	size_t n_places, n_actors, n_calls;
	uint64_t n_answered, n_lost, n_moves, n_failed; /* ever */
};
void actors_books(const struct actors *a, struct actors_books *ret);

#endif
