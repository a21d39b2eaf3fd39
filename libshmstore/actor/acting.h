/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acting.h: what the files of calls and of places share, and how an actor's state gets from one
 * store to another.
 */
#ifndef SHMS_ACTING_H
#define SHMS_ACTING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "attach.h"
#include "opened.h"

bool shms_acting_is_name(const char *name);
int shms_acting_wrong_name(void);
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
 * Sends a request that the daemon answers at once. 0; -ENOTCONN: there is no daemon, or it ended;
 * -errno: it refused.
 */
int shms_acting_tell(struct shmstore *s, uint16_t type, const void *body, const char *tail,
		     size_t n);
int shms_acting_gone(struct shmstore *s);

/*
 * Hands the object of this key to another store: writes to ret_text, which has size bytes, what
 * shms_state_fetch() takes, and the object's bytes to ret_bytes. The donor may delete the key, or
 * die; the lease ends after lease_ms. Returns the text's length, or -errno.
 */
int shms_state_send(struct shmstore *s, const char *key, uint64_t lease_ms, char *ret_text,
		    size_t size, uint64_t *ret_bytes);
/*
 * Takes the object of that text under this key, in place of what the key held: by a link where both
 * stores are of one partition, by a copy elsewhere. 0, -errno.
 */
int shms_state_fetch(struct shmstore *s, const char *key, const char *text);

/*
 * A place for actors, and the list of the actors that are there.
 *
 * The list is kept for the next daemon. It says which actors are here, in which version, and
 * whether this place is sure to be the only one that has the actor's state (WIRE_ACTOR_SURE). From
 * SAVE or FETCH on that is not sure, until the actor runs something again.
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
/* Does the daemon know options of an actor? */
bool shms_placed_has_options(const struct shmstore_place *p);
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
