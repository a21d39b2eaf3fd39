/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.h: from a checked packet to its handler, by wire.def. Handlers are in
 * req_<name>.c and know no epoll. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include <stddef.h>
#include <stdint.h>

#include "conn.h"
#include "wire.h"

/* One packet of n bytes. Returns a conn_outcome or <0 (fatal). */
int dispatch(struct conn *c, const void *packet, size_t n);

/*
 * The handlers, one for each message from a client. body is the struct wire_<name>, a
 * private aligned copy; tail is NUL-terminated text of tail_size bytes, the handler's
 * own during the call. Return as dispatch().
 */
#define DISPATCH_HANDLER(name)                                                   \
	int req_##name(struct conn *c, UNUSED uint64_t serial,                   \
		       UNUSED const struct wire_##name *body, UNUSED char *tail, \
		       UNUSED size_t tail_size)
#define FROM_CLIENT(name) DISPATCH_HANDLER(name);
#define FROM_DAEMON(name)
#define WIRE(NAME, name, number, from, tail) FROM_##from(name)
#include "wire.def"
#undef WIRE
#undef FROM_CLIENT
#undef FROM_DAEMON

#endif
