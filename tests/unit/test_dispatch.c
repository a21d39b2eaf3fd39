/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: what is well-formed, and that everything else is refused with a reason, for
 * every type, size and field. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "wire.h"

static const struct wire_kind *const *all(size_t *ret_n)
{
	static const struct wire_kind *kinds[64];
	size_t n = 0;

	for (unsigned type = 0; type < 65536; type++) {
		if (wire_kind((uint16_t)type))
			kinds[n++] = wire_kind((uint16_t)type);
	}
	*ret_n = n;
	return kinds;
}

static char packet[WIRE_PACKET_MAX + 8];

static size_t make(const struct wire_kind *k, size_t tail_size)
{
	static const char body[64];
	static char tail[WIRE_DATA_MAX];
	size_t n;

	memset(tail, 't', sizeof(tail));
	n = wire_pack(packet, sizeof(packet), k->type, 7, body, tail, tail_size);
	cr_assert_eq(n, sizeof(struct wire_header) + k->body + tail_size);
	return n;
}

static void refused(const struct wire_kind *k, size_t n, const char *what)
{
	const char *reason = NULL;

	cr_assert_eq(wire_check(packet, n, k->from_client, &reason), -EBADMSG, "%s: %s, %zu bytes",
		     k->name, what, n);
	cr_assert(reason && reason[0]);
}

#define EACH_KIND(k)                                          \
	size_t n_kinds;                                       \
	const struct wire_kind *const *kinds = all(&n_kinds); \
	for (const struct wire_kind *k; n_kinds && (k = kinds[n_kinds - 1]); n_kinds--)

Test(dispatch, well_formed_is_accepted_from_its_side_only)
{
	const char *reason;

	EACH_KIND(k)
	{
		size_t tails[] = {0, k->tail ? 1 : 0, k->tail};

		for (size_t i = 0; i < 3; i++) {
			size_t n = make(k, tails[i]);

			cr_assert_eq(wire_check(packet, n, k->from_client, &reason), 0, "%s: %s",
				     k->name, reason);
			cr_assert_eq(wire_check(packet, n, !k->from_client, &reason), -EBADMSG);
		}
	}
}

Test(dispatch, every_other_size_is_refused)
{
	EACH_KIND(k)
	{
		size_t n = make(k, k->tail ? 5 : 0);
		struct wire_header h;

		for (size_t cut = 0; cut < n; cut++)
			refused(k, cut, "truncated");
		refused(k, n + 1, "longer than it says");
		memcpy(&h, packet, sizeof(h));
		for (uint32_t size = 0; size < n + 20; size++) {
			h.size = size;
			memcpy(packet, &h, sizeof(h));
			if (size != n)
				refused(k, n, "a wrong size");
		}
		h.size = (uint32_t)n;
		for (uint32_t tail = 0; tail < n + 20; tail++) {
			h.tail = tail;
			memcpy(packet, &h, sizeof(h));
			if (tail != (k->tail ? 5 : 0))
				refused(k, n, "a wrong tail");
		}
		h.tail = UINT32_MAX;
		memcpy(packet, &h, sizeof(h));
		refused(k, n, "a wrong tail");
	}
}

Test(dispatch, a_tail_longer_than_its_type_has_is_not_made_and_not_taken)
{
	EACH_KIND(k)
	{
		static const char body[64], tail[WIRE_DATA_MAX + 1];
		struct wire_header h = {
			.magic = WIRE_MAGIC, .type = k->type, .serial = 1, .tail = k->tail + 1};

		cr_assert_eq(wire_pack(packet, sizeof(packet), k->type, 1, body, tail, k->tail + 1),
			     0);
		h.size = (uint32_t)(sizeof(h) + k->body + h.tail);
		memset(packet, 'x', sizeof(packet));
		memset(packet + sizeof(h), 0, k->body);
		memcpy(packet, &h, sizeof(h));
		refused(k, h.size, "a long tail");
	}
}

Test(dispatch, unknown_types_flags_magic_and_no_serial_are_refused)
{
	EACH_KIND(k)
	{
		size_t n = make(k, 0);
		struct wire_header good, h;

		memcpy(&good, packet, sizeof(good));
		for (unsigned type = 0; type < 65536; type++) {
			h = good;
			h.type = (uint16_t)type;
			memcpy(packet, &h, sizeof(h));
			if (!wire_kind(h.type) || wire_kind(h.type)->from_client != k->from_client)
				refused(k, n, "an unknown type");
		}
		for (unsigned bit = 0; bit < 16; bit++) {
			h = good;
			h.flags = (uint16_t)(1u << bit);
			memcpy(packet, &h, sizeof(h));
			refused(k, n, "an unknown flag");
		}
		for (unsigned bit = 0; bit < 32; bit++) {
			h = good;
			h.magic ^= 1u << bit;
			memcpy(packet, &h, sizeof(h));
			refused(k, n, "another magic");
		}
		h = good;
		h.serial = 0;
		memcpy(packet, &h, sizeof(h));
		if (k->from_client)
			refused(k, n, "no serial");
	}
}

/* The rest of the tail, after a name at most, is bytes. */
static bool has_bytes(const struct wire_kind *k)
{
	return k->type == WIRE_ACTOR_CALL || k->type == WIRE_ACTOR_DONE ||
	       k->type == WIRE_ACTOR_ORDER || k->type == WIRE_ACTOR_ANSWER;
}

Test(dispatch, a_nul_in_the_text_is_refused)
{
	EACH_KIND(k)
	{
		size_t n;

		if (!k->tail || k->type == WIRE_DATA)
			continue;
		for (size_t at = 0; at < 5; at++) {
			n = make(k, 5);
			packet[n - 5 + at] = '\0';
			if (has_bytes(k)) {
				const char *reason;

				cr_assert_eq(wire_check(packet, n, k->from_client, &reason), 0,
					     "%s", k->name);
			} else {
				refused(k, n, "a NUL");
			}
		}
	}
}

#define RESERVED(NAME, name, field, known)                                                      \
	do {                                                                                    \
		for (unsigned bit = 0; bit < 8 * sizeof(((struct wire_##name *)0)->field);      \
		     bit++) {                                                                   \
			struct wire_##name body = {0};                                          \
			const char *reason;                                                     \
			size_t n;                                                               \
                                                                                                \
			body.field |= (__typeof__(body.field))1 << bit;                         \
			n = wire_pack(packet, sizeof(packet), WIRE_##NAME, 1, &body, NULL, 0);  \
			cr_assert_eq(wire_check(packet, n, wire_kind(WIRE_##NAME)->from_client, \
						&reason),                                       \
				     ((UINT64_C(1) << bit) & (known)) ? 0 : -EBADMSG,           \
				     #NAME ", bit %u", bit);                                    \
		}                                                                               \
	} while (0)

Test(dispatch, every_reserved_bit_must_be_zero)
{
	RESERVED(HELLO, hello, features, 0);
	RESERVED(REGISTER, register, reserved, 0);
	RESERVED(GRANT, grant, flags, WIRE_GRANT_WAIT);
	RESERVED(GRANT, grant, reserved, 0);
	RESERVED(BYE, bye, reserved, 0);
	RESERVED(QUERY, query, reserved, 0);
	RESERVED(SET, set, reserved, 0);
	RESERVED(REAP, reap, reserved, 0);
	RESERVED(ACTOR_PLACE, actor_place, flags, WIRE_ACTOR_LEAVES);
	RESERVED(ACTOR_PLACE, actor_place, reserved, 0);
	RESERVED(ACTOR_NEXT, actor_next, reserved, 0);
	RESERVED(ACTOR_CALL, actor_call, reserved, 0);
	RESERVED(ACTOR_MOVE, actor_move, reserved, 0);
	RESERVED(ACTOR_ANSWER, actor_answer, reserved, 0);
	RESERVED(REGISTERED, registered, reserved, 0);
	RESERVED(DATA, data, flags, WIRE_DATA_MORE);
	RESERVED(DATA, data, reserved, 0);
	RESERVED(ERROR, error, reserved, 0);
	RESERVED(BROKERED, brokered, reserved, 0);
	RESERVED(DONE, done, reserved, 0);
}
