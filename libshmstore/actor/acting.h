/* SPDX-License-Identifier: Apache-2.0 */
/* acting.h: what calls and places share; and the state of an actor on its way from one store to another. */
#ifndef SHMS_ACTING_H
#define SHMS_ACTING_H

#include <stdbool.h>
#include <stdint.h>

#include "handle.h"
#include "request.h"

#define SHMS_ACTING_MS UINT64_C(1000000)

bool shms_acting_is_name(const char *name);
int shms_acting_wrong_name(void);
/* A name and what follows it. Its length, or -EINVAL, -EFBIG. */
int shms_acting_tail(const char *name, const void *data, size_t n, char tail[WIRE_TEXT_MAX], uint32_t *ret_name);
/* The error of a REFUSED, with its sentence. */
int shms_acting_refused(const struct shms_reply *reply);
/* Sends a request that is answered at once. 0; -ENOTCONN: no daemon, or it ended; -errno: it refused. */
int shms_acting_tell(struct shmstore *s, uint16_t type, const void *body, const char *tail, size_t n);
int shms_acting_gone(const struct shmstore *s);
/* A daemon serves the store, perhaps since now. */
bool shms_acting_attached(struct shmstore *s);
uint64_t shms_acting_until(uint64_t timeout_ms);

/* ---- state.c ------------------------------------------------------------------------------------------------------- */

/*
 * The object of this key, for another store: its bytes, and text from which shms_state_fetch() takes it, of size bytes at most. The donor may delete the key or die; the
 * lease ends after lease_ms. Its length, or -errno.
 */
int shms_state_send(struct shmstore *s, const char *key, uint64_t lease_ms, char *ret_text, size_t size,
		    uint64_t *ret_bytes);
/* By a link where both stores are of one partition, else by a copy. What the key held is replaced. 0, -errno. */
int shms_state_fetch(struct shmstore *s, const char *key, const char *text);

#endif
