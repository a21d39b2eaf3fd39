/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acting.h: what the files of calls and of places share, and how an actor's state gets from one
 * store to another.
 */
#ifndef SHMS_ACTING_H
#define SHMS_ACTING_H

#include <stdbool.h>
#include <stdint.h>

#include "handle.h"
#include "request.h"

#define SHMS_ACTING_MS UINT64_C(1000000)

bool shms_acting_is_name(const char *name);
int shms_acting_wrong_name(void);
/* Writes the name, and the data behind it, to tail. Returns their length; -EINVAL, -EFBIG. */
int shms_acting_tail(const char *name, const void *data, size_t n, char tail[WIRE_TEXT_MAX],
		     uint32_t *ret_name);
/* Returns the error of a REFUSED reply, and keeps its sentence as the error's detail. */
int shms_acting_refused(const struct shms_reply *reply);
/*
 * Sends a request that the daemon answers at once. 0; -ENOTCONN: there is no daemon, or it ended;
 * -errno: it refused.
 */
int shms_acting_tell(struct shmstore *s, uint16_t type, const void *body, const char *tail,
		     size_t n);
int shms_acting_gone(struct shmstore *s);
uint64_t shms_acting_until(uint64_t timeout_ms);

/* ---- state.c --------------------------------------------------------------------------------- */

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

#endif
