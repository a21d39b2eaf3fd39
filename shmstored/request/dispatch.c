/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch.c: one packet to its handler. The table is made of wire.def: a message that is there and
 * has no handler does not link.
 *
 * A handler gets a copy of the body in its own struct, and text that ends in a NUL: what it sees
 * cannot change, and cannot be read past.
 */
#include "dispatch.h"

#include <string.h>

_Static_assert(LOOP_PACKET_MAX >= sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX,
	       "a client's packet is cut");
_Static_assert(WIRE_PATH_MAX <= WIRE_TEXT_MAX, "dispatch() has room for a text");

#define FROM_CLIENT(name)                                                                     \
	static int call_##name(struct conn *c, uint64_t serial, const void *body, char *tail, \
			       size_t tail_size)                                              \
	{                                                                                     \
		struct wire_##name copy;                                                      \
                                                                                              \
		memcpy(&copy, body, sizeof(copy));                                            \
		return req_##name(c, serial, &copy, tail, tail_size);                         \
	}
#define FROM_DAEMON(name)
#define WIRE(NAME, name, number, from, tail) FROM_##from(name)
#include "wire.def"
#undef WIRE
#undef FROM_CLIENT
#undef FROM_DAEMON

typedef int handler(struct conn *c, uint64_t serial, const void *body, char *tail,
		    size_t tail_size);

static handler *find_handler(uint16_t type)
{
	switch ((enum wire_type)type) {
#define FROM_CLIENT(NAME, name) \
	case WIRE_##NAME:       \
		return call_##name;
#define FROM_DAEMON(NAME, name)              case WIRE_##NAME:
#define WIRE(NAME, name, number, from, tail) FROM_##from(NAME, name)
#include "wire.def"
#undef WIRE
		break;
	}
	return NULL;
}

int dispatch(struct conn *c, const void *packet, size_t n)
{
	char text[WIRE_TEXT_MAX + 1];
	const char *reason;
	struct wire_header h;
	size_t body;
	handler *call;

	if (wire_check(packet, n, true, &reason) < 0)
		return conn_fault(c, "%s", reason);
	memcpy(&h, packet, sizeof(h));
	if (h.type != WIRE_HELLO && !c->greeted)
		return conn_fault(c, "the first message must be HELLO");
	call = find_handler(h.type);
	if (!call)
		return conn_fault(c, "no such message from this side");
	body = n - sizeof(h) - h.tail;
	text[0] = '\0';
	if (h.tail) {
		memcpy(text, (const char *)packet + sizeof(h) + body, h.tail);
		text[h.tail] = '\0';
	}
	return call(c, h.serial, (const char *)packet + sizeof(h), text, h.tail);
}
