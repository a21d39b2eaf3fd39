/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: well-formed messages. Pure: shared by the library and shmstored. */
#include "wire.h"

#include <errno.h>
#include <string.h>

#include "hexdigits.h"

#define CLIENT true
#define DAEMON false
static const struct wire_kind KINDS[] = {
#define WIRE(NAME, name, number, from, tail) \
	{#NAME, number, from, sizeof(struct wire_##name), tail},
#include "wire.def"
#undef WIRE
};

#define WIRE(NAME, name, number, from, tail)                                                    \
	_Static_assert(sizeof(struct wire_##name) <= 64 && sizeof(struct wire_##name) % 8 == 0, \
		       #NAME);                                                                  \
	_Static_assert((tail) <= WIRE_DATA_MAX, #NAME);
#include "wire.def"
#undef WIRE

/* Fields of which only some bits have a meaning so far: the others must be zero. */
static const struct {
	uint16_t type, off, size;
	uint32_t known;
} RESERVED[] = {
#define FIELD(NAME, name, field, known)                                 \
	{                                                               \
		WIRE_##NAME, offsetof(struct wire_##name, field),       \
			sizeof(((struct wire_##name *)0)->field), known \
	}
	FIELD(HELLO, hello, features, 0),
	FIELD(REGISTER, register, reserved, 0),
	FIELD(GRANT, grant, flags, WIRE_GRANT_WAIT),
	FIELD(GRANT, grant, reserved, 0),
	FIELD(BYE, bye, reserved, 0),
	FIELD(QUERY, query, reserved, 0),
	FIELD(SET, set, reserved, 0),
	FIELD(REAP, reap, reserved, 0),
	FIELD(ARB, arb, flags,
	      WIRE_ARB_NONBLOCK | WIRE_ARB_SPILL | WIRE_ARB_RELEASED | WIRE_ARB_ALL |
		      WIRE_ARB_RESET | WIRE_ARB_QUIET | WIRE_ARB_DROP),
	FIELD(ARB_ADMIN, arb_admin, flags, WIRE_ARB_ADMIN_TASK),
	FIELD(PROFILE, profile, flags,
	      WIRE_PROFILE_HAS_PRIVATE | WIRE_PROFILE_HAS_SHARED | WIRE_PROFILE_HAS_CPU |
		      WIRE_PROFILE_QUIET),
	FIELD(PROFILE, profile, reserved, 0),
	FIELD(STAGE_QUERY, stage_query, flags, WIRE_STAGE_HAS_NONSHARE),
	FIELD(STAGE_QUERY, stage_query, reserved, 0),
	FIELD(STAGED, staged, flags, WIRE_STAGED_CLAMPED | WIRE_STAGED_DEGRADED),
	FIELD(TASK_ADMIT, task_admit, flags,
	      WIRE_TASK_RETRIABLE | WIRE_TASK_TOLD | WIRE_TASK_WORKER),
	FIELD(TASK_ADMIT, task_admit, reserved, 0),
	FIELD(TASK_RUNS, task_runs, flags, WIRE_TASK_RETRIABLE | WIRE_TASK_TOLD | WIRE_TASK_WORKER),
	FIELD(TASK_RUNS, task_runs, reserved, 0),
	FIELD(TASK_PREEMPT, task_preempt, flags, WIRE_PREEMPT_RETRY | WIRE_PREEMPT_ASKED),
	FIELD(ACTOR_PLACE, actor_place, flags, WIRE_ACTOR_LEAVES),
	FIELD(ACTOR_PLACE, actor_place, reserved, 0),
	FIELD(ACTOR_NEXT, actor_next, reserved, 0),
	FIELD(ACTOR_CALL, actor_call, reserved, 0),
	FIELD(ACTOR_MOVE, actor_move, reserved, 0),
	FIELD(ACTOR_ANSWER, actor_answer, reserved, 0),
	FIELD(REGISTERED, registered, reserved, 0),
	FIELD(DATA, data, flags, WIRE_DATA_MORE),
	FIELD(DATA, data, reserved, 0),
	FIELD(ERROR, error, reserved, 0),
	FIELD(BROKERED, brokered, reserved, 0),
	FIELD(DONE, done, reserved, 0),
	FIELD(ARBED, arbed, reserved, 0),
	FIELD(ARB_CALL, arb_call, reserved, 0),
#undef FIELD
};

static bool reserved_is_zero(uint16_t type, const char *body)
{
	for (size_t i = 0; i < sizeof(RESERVED) / sizeof(RESERVED[0]); i++) {
		uint64_t value = 0;

		if (RESERVED[i].type != type)
			continue;
		if (RESERVED[i].size == sizeof(uint32_t)) {
			uint32_t narrow;

			memcpy(&narrow, body + RESERVED[i].off, sizeof(narrow));
			value = narrow;
		} else {
			memcpy(&value, body + RESERVED[i].off, sizeof(value));
		}
		if (value & ~(uint64_t)RESERVED[i].known)
			return false;
	}
	return true;
}

const struct wire_kind *wire_kind(uint16_t type)
{
	for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
		if (KINDS[i].type == type)
			return &KINDS[i];
	}
	return NULL;
}

/* Its tail is text; of the others, bytes, after a name at most. */
static bool is_text(uint16_t type)
{
	return type != WIRE_DATA && type != WIRE_ACTOR_CALL && type != WIRE_ACTOR_DONE &&
	       type != WIRE_ACTOR_ORDER && type != WIRE_ACTOR_ANSWER;
}

/* Says what is wrong with the packet; NULL: nothing is. */
static const char *fault_of(const void *packet, size_t n, bool from_client)
{
	const struct wire_kind *k;
	struct wire_header h;
	size_t fixed;

	if (n < sizeof(h))
		return "the packet is shorter than a header";
	memcpy(&h, packet, sizeof(h));
	if (h.magic != WIRE_MAGIC)
		return "the packet does not begin as a message of this protocol";
	k = wire_kind(h.type);
	if (!k || k->from_client != from_client)
		return "no such message, or not from this side";
	if (h.flags)
		return "unknown flags in the header";
	if (from_client && !h.serial)
		return "a request needs a serial";
	fixed = sizeof(h) + k->body;
	if (h.size != n || n < fixed || h.tail != n - fixed || h.tail > k->tail)
		return "the size is not that of the message";
	if (!reserved_is_zero(k->type, (const char *)packet + sizeof(h)))
		return "unknown flags, or a reserved field that is not zero";
	if (is_text(k->type) && memchr((const char *)packet + fixed, '\0', h.tail))
		return "a NUL in the text";
	return NULL;
}

int wire_check(const void *packet, size_t n, bool from_client, const char **ret_reason)
{
	const char *fault = fault_of(packet, n, from_client);

	if (fault)
		*ret_reason = fault;
	return fault ? -EBADMSG : 0;
}

size_t wire_pack(void *packet, size_t room, uint16_t type, uint64_t serial, const void *body,
		 const void *tail, size_t tail_size)
{
	const struct wire_kind *k = wire_kind(type);
	struct wire_header h = {.magic = WIRE_MAGIC, .type = type, .serial = serial};
	size_t n;

	if (!k || tail_size > k->tail)
		return 0;
	n = sizeof(h) + k->body + tail_size;
	if (n > room)
		return 0;
	h.size = (uint32_t)n;
	h.tail = (uint32_t)tail_size;
	memcpy(packet, &h, sizeof(h));
	memcpy((char *)packet + sizeof(h), body, k->body);
	if (tail_size)
		memcpy((char *)packet + sizeof(h) + k->body, tail, tail_size);
	return n;
}

/* ---- names of leases ------------------------------------------------------------------------- */

/*
 * The expiry stands in the name, so that anybody can end a
 * lease without asking its donor. It is in CLOCK_BOOTTIME: setting the clock must not end leases,
 * and a tmpfs does not outlive its boot.
 */

#define NONCE_DIGITS  16u
#define EXPIRY_DIGITS 19u /* at most: fits 64 bits */

size_t shms_lease_text(uint64_t expiry_ms, uint64_t nonce, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	/* By hand: printf would cost a tenth of the handoff. */
	char digits[20];
	size_t n = 0, length = 0;

	do {
		digits[n++] = (char)('0' + expiry_ms % 10);
		expiry_ms /= 10;
	} while (expiry_ms);
	while (n)
		ret_name[length++] = digits[--n];
	ret_name[length++] = '-';
	shms_hexdigits_write(nonce, ret_name + length);
	ret_name[length + NONCE_DIGITS] = '\0';
	return length + NONCE_DIGITS;
}

bool shms_lease_parse(const char *name, uint64_t *ret_expiry_ms)
{
	size_t digits = strspn(name, "0123456789");
	uint64_t expiry = 0;

	if (digits == 0 || digits > EXPIRY_DIGITS || name[digits] != '-')
		return false;
	if (strspn(name + digits + 1, "0123456789abcdef") != NONCE_DIGITS ||
	    name[digits + 1 + NONCE_DIGITS] != '\0')
		return false;
	for (size_t i = 0; i < digits; i++)
		expiry = expiry * 10 + (uint64_t)(name[i] - '0');
	*ret_expiry_ms = expiry;
	return true;
}
