/* SPDX-License-Identifier: Apache-2.0 */
/* How many may come and how fast; and what one client may keep waiting. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "conn.h"
#include "wire.h"

#define SECOND UINT64_C(1000000000)

static struct crowd c;
static uint64_t now = 5 * SECOND;

static enum crowd_verdict enter(uid_t uid, uint32_t all, uint32_t user, bool admin)
{
	return crowd_enter(&c, uid, &(struct crowd_limits){all, user, admin}, now);
}

static void end(void)
{
	crowd_deinit(&c);
}

TestSuite(crowd, .fini = end);

Test(crowd, each_user_has_its_share)
{
	for (int i = 0; i < 5; i++)
		cr_assert_eq(enter(1, 100, 5, false), CROWD_WELCOME);
	cr_assert_eq(enter(1, 100, 5, false), CROWD_USER_FULL);
	cr_assert_eq(enter(2, 100, 5, false), CROWD_WELCOME);
	cr_assert_eq(enter(1, 100, 5, false), CROWD_USER_FULL);
	crowd_leave(&c, 1);
	cr_assert_eq(enter(1, 100, 5, false), CROWD_WELCOME);
	for (int i = 0; i < 5; i++)
		crowd_leave(&c, 1);
	crowd_leave(&c, 2);
	crowd_leave(&c, 2); /* nobody's: nothing */
	for (int i = 0; i < 5; i++)
		cr_assert_eq(enter(2, 100, 5, false), CROWD_WELCOME);
}

Test(crowd, administrators_find_a_place_when_all_others_are_taken)
{
	uid_t uid = 1;

	while (enter(uid, 64, 4, false) == CROWD_WELCOME)
		uid++;
	cr_assert_eq(uid, 61);
	cr_assert_eq(enter(1000, 64, 4, false), CROWD_FULL);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(enter(0, 64, 4, true), CROWD_WELCOME);
	cr_assert_eq(enter(0, 64, 4, true), CROWD_FULL);
}

Test(crowd, a_flood_is_slowed_to_the_rate)
{
	unsigned n = 0;

	while (crowd_ready_ns(&c) <= now) {
		cr_assert_eq(enter(1, 100000, 100000, false), CROWD_WELCOME);
		n++;
	}
	cr_assert(n >= CROWD_BURST && n <= CROWD_BURST + 1, "%u", n);
	/* Those who wait until they may, for ten seconds. */
	n = 0;
	for (uint64_t last = now + 10 * SECOND; now < last; n++) {
		if (crowd_ready_ns(&c) > now)
			now = crowd_ready_ns(&c);
		enter(1, 100000, 100000, false);
		crowd_leave(&c, 1);
	}
	cr_assert(n >= 10 * CROWD_RATE - 10 && n <= 10 * CROWD_RATE + 10, "%u", n);
	/* A second later it may again come at once. */
	now += SECOND;
	cr_assert_leq(crowd_ready_ns(&c), now);
}

Test(crowd, the_refused_and_dropped_cost_more)
{
	unsigned n = 0;

	cr_assert_eq(enter(1, 100, 1, false), CROWD_WELCOME);
	while (crowd_ready_ns(&c) <= now && n < 100000) {
		cr_assert_eq(enter(1, 100, 1, false), CROWD_USER_FULL);
		n++;
	}
	cr_assert(n <= CROWD_BURST / CROWD_FAULT + 1, "%u", n);
}

Test(crowd, one_that_is_dropped_delays_the_next)
{
	unsigned n = 0;

	while (crowd_ready_ns(&c) <= now && n < 100000) {
		cr_assert_eq(enter(1, 100, 100, false), CROWD_WELCOME);
		crowd_leave(&c, 1);
		crowd_fault(&c, now);
		n++;
	}
	cr_assert(n <= CROWD_BURST / CROWD_FAULT + 1, "%u", n);
}

/* ---- output ---------------------------------------------------------------------------------- */

static uint64_t serial_of(const struct iovec *v)
{
	struct wire_header h;

	cr_assert_geq(v->iov_len, sizeof(h));
	memcpy(&h, v->iov_base, sizeof(h));
	cr_assert_eq(h.size, v->iov_len);
	return h.serial;
}

Test(output, packets_leave_in_order_and_stay_in_place_until_sent)
{
	struct output o = {0};
	struct iovec first[3], again[64];
	char copy[64];
	struct wire_pong body = {1};

	for (uint64_t i = 1; i <= 3; i++)
		cr_assert_eq(output_add(&o, 0, WIRE_PONG, i, &body, NULL, 0), 0);
	cr_assert_eq(output_next(&o, first, 3), 3);
	memcpy(copy, first[0].iov_base, first[0].iov_len);
	/* More come, so that the filling buffer grows and moves: those
	 * that were handed out do not. */
	for (uint64_t i = 4; i <= 1000; i++)
		cr_assert_eq(output_add(&o, 0, WIRE_PONG, i, &body, NULL, 0), 0);
	cr_assert_eq(memcmp(copy, first[0].iov_base, first[0].iov_len), 0);
	output_sent(&o, 1);
	for (uint64_t expected = 2; expected <= 1000;) {
		unsigned n = output_next(&o, again, 64);

		cr_assert_gt(n, 0);
		for (unsigned i = 0; i < n; i++)
			cr_assert_eq(serial_of(&again[i]), expected++);
		output_sent(&o, n);
	}
	cr_assert_eq(output_next(&o, again, 1), 0);
	cr_assert(output_empty(&o));
	cr_assert_leq(o.fills.size + o.goes.size, 2 * OUTPUT_SMALL); /* a burst is not kept */
	output_deinit(&o);
}

Test(output, the_bound_holds)
{
	struct output o = {0};
	struct wire_pong body = {1};
	unsigned n = 0;

	while (output_add(&o, 10000, WIRE_PONG, 1, &body, NULL, 0) == 0)
		n++;
	cr_assert(n > 100 && n * sizeof(struct wire_pong) <= 10000);
	cr_assert_eq(output_add(&o, 10000, WIRE_PONG, 1, &body, NULL, 0), -ENOBUFS);
	cr_assert_eq(output_add(&o, 0, WIRE_ERROR, 1, &(struct wire_error){0}, "why", 3), 0);
	cr_assert_eq(output_add(&o, 0, WIRE_PONG, 1, &body, "tail", 4), -EMSGSIZE);
	output_deinit(&o);
	cr_assert(output_empty(&o));
}
