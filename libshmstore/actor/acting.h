/* SPDX-License-Identifier: Apache-2.0 */
/* acting.h: calls of actors, and a place for actors with the list of those that are there. */
#ifndef SHMS_ACTING_H
#define SHMS_ACTING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "attach.h"
#include "opened.h"

/* Writes the name, and the data behind it, to tail. Returns their length; -EINVAL, -EFBIG. */
int shms_acting_tail(const char *name, const void *data, size_t n, char tail[WIRE_TEXT_MAX],
		     uint32_t *ret_name);
/* A request with a tail of n bytes; n may be 0. */
static inline struct shms_call shms_acting_call(uint16_t type, uint16_t answer, const void *body,
						const char *tail, size_t n)
{
	return (struct shms_call){
		.type = type, .answer = answer, .body = body, .tail = tail, .tail_size = n};
}

/*
 * The list of a place's actors is kept for the next daemon. It says which actors are here, in which
 * version, and whether this place is sure to be the only one that has the actor's state
 * (WIRE_ACTOR_SURE). From SAVE or FETCH on that is not sure, until the actor runs something again.
 *
 * Threads: the functions of the list are called with the place's lock held.
 */

#define SHMS_PLACED_KEY (WIRE_ACTOR_NAME + 33u) /* bytes of a key, with its NUL */

enum shms_placed_stage {
	SHMS_PLACED_FETCHED, /* its state is in the store; another place still has the actor */
	SHMS_PLACED_LOADED,
	SHMS_PLACED_LIVE,
};

struct shms_placed {
	struct shms_placed *next;
	char name[WIRE_ACTOR_NAME + 1], parent[WIRE_ACTOR_NAME + 1];
	char more[WIRE_ACTOR_OPTIONS + 1]; /* its options; "": none */
	struct wire_actor_born said;       /* version and flags (with SURE) are kept up to date */
	uint64_t object; /* the version of the state that is in the store; 0: none is */
	enum shms_placed_stage stage;
};

struct shmstore_place {
	struct shmstore *s;
	char name[WIRE_ACTOR_NAME + 1];
	uint64_t room;
	pthread_mutex_t lock; /* protects entries */
	struct shms_placed *entries;
	atomic_bool asking;  /* a thread is in shmstore_actor_next() */
	bool asked;          /* ACTOR_NEXT is under way, as q */
	uint64_t generation; /* of the connection whose daemon knows entries */
	struct shms_request q;
	struct shms_reply reply;
	char data[WIRE_TEXT_MAX + 1]; /* of the order that the program has */
};

/* The key under which a version of an actor's state is put into the store. Returns ret. */
const char *shms_placed_key(const char *name, uint64_t version, char ret[SHMS_PLACED_KEY]);

struct shms_placed *shms_placed_find(const struct shmstore_place *p, const char *name);
/* Finds or makes an entry. NULL: out of memory. */
struct shms_placed *shms_placed_add(struct shmstore_place *p, const char *name, const char *parent);
/* Writes what ACTOR_BORN has after its body, as far as the daemon knows of it. Returns its
 * length. */
int shms_placed_tail(const struct shmstore_place *p, const struct shms_placed *e,
		     char tail[WIRE_TEXT_MAX]);
/* Deletes the state's object from the store, if there is one. */
void shms_placed_drop_object(struct shmstore_place *p, struct shms_placed *e);
/* Removes the entry, and its object. */
void shms_placed_del(struct shmstore_place *p, struct shms_placed *e);

/*
 * Tells the daemon the place's name and room. Does not need the lock. 0; -ENOTCONN; -errno: it
 * refused.
 */
int shms_placed_announce(struct shmstore_place *p);

#endif
