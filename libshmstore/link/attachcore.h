/* SPDX-License-Identifier: Apache-2.0 */
/* attachcore.h: what attach.c and request.c share: the connection itself. The attach lock
 * is held over each of these. */
#ifndef SHMS_ATTACHCORE_H
#define SHMS_ATTACHCORE_H

#include "attach.h"

#define SHMS_MS          1000000ull
#define SHMS_GREETING_NS (200 * SHMS_MS)
#define SHMS_REQUIRED_NS (2000 * SHMS_MS) /* the greeting of who cannot do without */

int shms_attach_send(struct shms_attach *a, uint16_t type, uint64_t serial, const void *body,
		     const void *tail, size_t tail_size);
/* Alone from here on; not tried again for pause_ns. Requests under way end with -ENOTCONN. */
void shms_attach_end(struct shms_attach *a, uint64_t pause_ns);
/* Takes what has come, without waiting; nobody else reads. */
void shms_attach_read(struct shms_attach *a);
/* Waits until something comes (events: POLLIN, or POLLOUT too), changes, or until_ns. The
 * lock is given up meanwhile. */
void shms_attach_wait(struct shms_attach *a, short events, uint64_t until_ns);
/* Connects and waits for the greeting's end, greeting_ns at most. */
void shms_attach_connect(struct shms_attach *a, uint64_t greeting_ns);
/* A request has ended, and is in no list. */
void shms_request_end(struct shms_attach *a, struct shms_request *q, int error);

#endif
