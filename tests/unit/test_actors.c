/* SPDX-License-Identifier: Apache-2.0 */
/* test_actors.c: the options of one actor in the daemon: as text, as its program begins it, and
 * what reports show of them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors.h"
#include "fakehost.h"

static struct config config = {
	.max_clients = 16,
	.max_clients_per_user = 16,
	.hello_timeout_ns = UINT64_C(3600000000000),
	.output_max = 65536,
	.peers = {.copies = {.num = {.k = 1, .text = "explicit:1"}, .retry = 3}}};
static struct host h;
static int place;
static uint64_t serial;

static void tell(uint16_t type, const void *body, const char *tail)
{
	cr_assert(fakehost_tell(place, type, ++serial, body, tail, strlen(tail)));
	fakehost_turn(&h, 4, 1000000);
}

static void begin(void)
{
	fakehost_begin(&h, &config, 99);
	fakehost_connect(&h, &(struct conn_peer){getpid(), 4711, 4711}, &place);
	fakehost_hello(place);
	tell(WIRE_ACTOR_PLACE, &(struct wire_actor_place){.free = 1 << 20}, "p");
}

static void end(void)
{
	fakehost_end(&h);
	close(place);
}

TestSuite(actors, .init = begin, .fini = end);

/* 0, or the error of the last answer that the place got. */
static int born(const char *tail, uint16_t flags)
{
	struct fakehost_packet packet;
	struct wire_refused refused;
	int error = -EPROTO;

	tell(WIRE_ACTOR_BORN,
	     &(struct wire_actor_born){.at_once = 1, .flags = flags | WIRE_ACTOR_NEW}, tail);
	while (fakehost_hear(place, &packet) > 0) {
		memcpy(&refused, packet.body,
		       packet.head.type == WIRE_REFUSED ? sizeof(refused) : 0);
		if (packet.head.serial == serial)
			error = packet.head.type == WIRE_REFUSED ? refused.error : 0;
	}
	return error;
}

#define BOTH (WIRE_ACTOR_CAN_SAVE | WIRE_ACTOR_CAN_LOAD)

Test(actors, options_are_as_the_program_said_and_else_as_configured)
{
	const struct actors_one *k;
	char text[WIRE_ACTOR_OPTIONS + 1];

	cr_assert_eq(born("plain", 0), 0);
	k = actors_one_find(h.actors, 4711, "plain");
	cr_assert(k && actors_options(k) == &config.peers.copies &&
		  actors_options_write(k, text) == 0);
	cr_assert_eq(born("own\nplain\n3   retry=7  num=explicit:2", BOTH), 0);
	k = actors_one_find(h.actors, 4711, "own");
	cr_assert(k && actors_options(k)->retry == 7 && actors_options(k)->num.k == 2 &&
		  k->restarts == 3);
	cr_assert_str_eq(k->parent, "plain");
	cr_assert_eq(actors_options_write(k, text), (int)strlen("3 retry=7  num=explicit:2"));
	cr_assert_str_eq(text, "3 retry=7  num=explicit:2");
	cr_assert_eq(config.peers.copies.retry, 3u);
	cr_assert_eq(born("always\n\n4294967295", BOTH), 0);
	k = actors_one_find(h.actors, 4711, "always");
	cr_assert(k && k->restarts == UINT32_MAX && !*k->parent && !k->own);
}

Test(actors, wrong_options_are_refused_and_nothing_begins)
{
	static const char *const wrong[] = {"a\n\nx",          "a\n\n1 retry", "a\n\n-1",
					    "a\n\n4294967296", "a\n\n1 x=1",   "a\n",
					    "a\n\n1\nretry=1", "a\nnobody\n1", "a\n\n retry=1"};
	char longer[2 * WIRE_ACTOR_OPTIONS];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		cr_assert_lt(born(wrong[i], BOTH), 0, "%s", wrong[i]);
	cr_assert_eq(born("a\n\n1", WIRE_ACTOR_CAN_SAVE), -EINVAL, "it cannot be loaded");
	snprintf(longer, sizeof(longer), "a\n\n1 %*s", (int)WIRE_ACTOR_OPTIONS - 1, "retry=1");
	cr_assert_eq(born(longer, BOTH), -EINVAL, "%zu bytes", strlen(longer));
	longer[strlen("a\n\n1 ")] = '\0';
	strcat(longer, "retry=1");
	cr_assert_eq(born(longer, BOTH), 0);
	cr_assert_eq(born("b\na", BOTH), 0);
}

Test(actors, options_that_are_read_again_take_the_place_of_the_first)
{
	struct actors_one *k;
	char why[CONFIG_WHY] = "", text[WIRE_ACTOR_OPTIONS + 1];

	cr_assert_eq(born("a\n\n2 retry=1", BOTH), 0);
	k = actors_one_find(h.actors, 4711, "a");
	cr_assert_eq(actors_options_read(k, "5 retry=2 selection=fixed:x", why), 0);
	cr_assert(k->restarts == 5 && actors_options(k)->retry == 2);
	cr_assert_eq(actors_options_read(k, "5 retry=many", why), -EINVAL);
	cr_assert(strstr(why, "retry"), "%s", why);
	cr_assert_eq(actors_options(k)->retry, 2u);
	cr_assert_eq(actors_options_read(k, "", why), 0);
	cr_assert_eq(actors_options_write(k, text), 0);
	cr_assert_eq(actors_options(k), &config.peers.copies);
}
