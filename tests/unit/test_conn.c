/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: what it answers, what it refuses and says so, what it bounds, and that it goes when
 * nothing of it is in flight. */
#include <criterion/criterion.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fakehost.h"
#include "log.h"

static struct config config = {.max_clients = 16,
			       .max_clients_per_user = 16,
			       .hello_timeout_ns = UINT64_C(3600000000000),
			       .output_max = 65536,
			       .credit = 77};
static struct host h;
static struct conn *c;
static int client;
static uint64_t serial;

/* A few turns of the loop, long enough for one that is slowed (loop_epoll.c): all that is
 * there to be done is done. */
static void turn(void)
{
	fakehost_turn(&h, 4, 1000000);
}

static void begin(void)
{
	fakehost_begin(&h, &config, 99);
	c = fakehost_connect(&h, &(struct conn_peer){getpid(), 4711, 4711}, &client);
	cr_assert_eq(h.n_conns, 1);
}

static void end(void)
{
	fakehost_end(&h);
	close(client);
}

TestSuite(conn, .init = begin, .fini = end);

static void tell(uint16_t type, const void *body)
{
	cr_assert(fakehost_tell(client, type, ++serial, body, NULL, 0));
}

static void hello(void)
{
	struct wire_hello body = {1, 1, 0};

	tell(WIRE_HELLO, &body);
}

/* The next message's type and parts; FAKEHOST_END, FAKEHOST_NONE. */
static int hear(void *ret_body, char *ret_tail, uint64_t *ret_serial)
{
	struct fakehost_packet packet;
	int type = fakehost_hear(client, &packet);

	if (type <= 0)
		return type;
	if (ret_body)
		memcpy(ret_body, packet.body, wire_kind(packet.head.type)->body);
	if (ret_tail)
		memcpy(ret_tail, packet.tail, packet.head.tail + 1);
	if (ret_serial)
		*ret_serial = packet.head.serial;
	return type;
}

static void expect_error(const char *part)
{
	char tail[WIRE_TEXT_MAX + 1];
	struct wire_error body;

	turn();
	cr_assert_eq(hear(&body, tail, NULL), WIRE_ERROR);
	cr_assert(strstr(tail, part), "\"%s\" without \"%s\"", tail, part);
	cr_assert_lt(body.error, 0);
	cr_assert_eq(hear(NULL, NULL, NULL), 0);
	cr_assert(h.n_conns == 0 && h.counters.n_dropped == 1);
	cr_assert_eq(events_count(h.events, EVENT_CLIENT_DROPPED), 1);
}

Test(conn, hello_and_ping_are_answered)
{
	struct wire_welcome welcome;
	struct wire_pong pong;
	uint64_t echoed;

	hello();
	tell(WIRE_PING, &(struct wire_ping){.cookie = 12345}); /* without waiting for WELCOME */
	turn();
	cr_assert_eq(hear(&welcome, NULL, &echoed), WIRE_WELCOME);
	cr_assert(welcome.version == 1 && welcome.epoch == 99 && welcome.credit == 77 &&
		  echoed == serial - 1);
	cr_assert_eq(hear(&pong, NULL, &echoed), WIRE_PONG);
	cr_assert(pong.cookie == 12345 && echoed == serial);
	cr_assert(h.n_conns == 1 && h.counters.n_requests == 2);
}

Test(conn, message_before_hello_is_refused)
{
	tell(WIRE_PING, &(struct wire_ping){1});
	expect_error("HELLO");
}

Test(conn, second_hello_is_refused)
{
	hello();
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_WELCOME);
	hello();
	expect_error("second");
}

Test(conn, version_that_is_not_ours_is_refused)
{
	tell(WIRE_HELLO, &(struct wire_hello){2, 9, 0});
	expect_error("versions 2 to 9");
}

Test(conn, error_comes_after_what_was_answered_before_it)
{
	hello();
	tell(WIRE_PING, &(struct wire_ping){1});
	cr_assert_eq(send(client, "junk", 4, 0), 4);
	tell(WIRE_PING, &(struct wire_ping){2}); /* not answered any more */
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_WELCOME);
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_PONG);
	expect_error("shorter than a header");
}

Test(conn, empty_packet_is_refused)
{
	hello();
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_WELCOME);
	cr_assert_eq(send(client, "", 0, 0), 0);
	expect_error("empty");
}

Test(conn, descriptors_are_refused)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, packet[100];
	struct wire_hello body = {1, 1, 0};
	struct iovec v = {packet, wire_pack(packet, sizeof(packet), WIRE_HELLO, 1, &body, NULL, 0)};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &client, sizeof(int));
	cr_assert_eq(sendmsg(client, &m, 0), (ssize_t)v.iov_len);
	expect_error("descriptors");
}

Test(conn, who_closes_is_gone_without_a_word)
{
	hello();
	close(client);
	client = -1;
	turn();
	cr_assert(h.n_conns == 0 && h.counters.n_dropped == 0);
	cr_assert_eq(events_count(h.events, EVENT_CLIENT_DROPPED), 0);
}

Test(conn, who_says_nothing_is_dropped_in_time)
{
	turn();
	conn_tick(&h, false);
	cr_assert_eq(h.counters.n_dropped, 0);
	config.hello_timeout_ns = 0;
	turn();
	conn_tick(&h, false);
	expect_error("HELLO within");
}

/* Asks until no more is taken. */
static unsigned ask_without_reading(void)
{
	unsigned sent = 0, refused = 0;

	while (refused < 3 && sent < 100000) {
		if (fakehost_tell(client, WIRE_PING, ++serial, &(struct wire_ping){sent}, NULL,
				  0)) {
			sent++;
			refused = 0;
		} else {
			refused++;
			turn();
		}
	}
	return sent;
}

Test(conn, who_reads_nothing_is_not_read_and_goes_on_when_it_does)
{
	unsigned sent, heard = 0;
	int type;

	hello();
	sent = ask_without_reading();
	cr_assert_lt(sent, 3000); /* two sockets full, and what waits here */
	cr_assert(h.n_conns == 1 && h.counters.n_dropped == 0);
	while (heard <= sent) {
		turn();
		while ((type = hear(NULL, NULL, NULL)) > 0) {
			cr_assert_eq(type, heard ? WIRE_PONG : WIRE_WELCOME);
			heard++;
		}
	}
	tell(WIRE_PING, &(struct wire_ping){1});
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_PONG);
}

Test(conn, who_reads_nothing_for_long_is_dropped)
{
	hello();
	ask_without_reading();
	conn_tick(&h, false);
	cr_assert_eq(h.counters.n_dropped, 0);
	config.hello_timeout_ns = 0;
	turn();
	conn_tick(&h, false);
	loop_settle(h.loop);
	cr_assert_eq(h.counters.n_dropped, 1);
	/* Its ERROR cannot go out; it does not stay for that. */
	while (h.n_conns) {
		turn();
		conn_tick(&h, false);
	}
}

Test(conn, who_closes_while_it_is_not_read_is_gone)
{
	hello();
	ask_without_reading();
	close(client);
	client = -1;
	turn();
	cr_assert(h.n_conns == 0 && h.counters.n_dropped == 0);
}

Test(conn, what_it_did_not_ask_for_is_bounded_too)
{
	static const char tail[4000];
	struct wire_event event = {1};
	unsigned n = 0;

	while (n < 100000 && conn_send(c, WIRE_EVENT, 0, &event, tail, sizeof(tail)) == CONN_OK) {
		n++;
		turn();
	}
	cr_assert(n > 10 && n < 200, "%u", n);
}

static unsigned order[4], n_told;
struct told {
	struct conn_end end;
	unsigned id;
};

static void on_end(struct conn_end *e, struct conn *ending)
{
	cr_assert_eq(ending, c);
	order[n_told++] = ((struct told *)(void *)e)->id;
	/* A message that a hook sends goes nowhere, and harms nobody. */
	cr_assert_neq(conn_send(c, WIRE_DONE, 1, &(struct wire_done){0}, NULL, 0), CONN_OK);
	conn_drop(c, CONN_E_LIMIT, "again");
}

Test(conn, its_end_is_told_once_in_order)
{
	struct told told[4] = {
		{{.fn = on_end}, 1}, {{.fn = on_end}, 2}, {{.fn = on_end}, 3}, {{.fn = on_end}, 4}};

	for (int i = 0; i < 4; i++)
		conn_on_end(c, &told[i].end);
	conn_off_end(c, &told[1].end);
	conn_drop(c, CONN_E_LIMIT, "for a test");
	cr_assert_neq(conn_send(c, WIRE_DONE, 1, &(struct wire_done){0}, NULL, 0), CONN_OK);
	cr_assert_eq(n_told, 0, "the handler that runs goes on");
	loop_settle(h.loop);
	cr_assert_eq(n_told, 3);
	cr_assert(order[0] == 1 && order[1] == 3 && order[2] == 4);
	expect_error("for a test");
	cr_assert_eq(n_told, 3);
}

Test(conn, document_comes_whole_while_others_overtake_it)
{
	size_t size = 5 * WIRE_DATA_MAX + 123, at = 0;
	char *text = malloc(size), *got = malloc(size + WIRE_DATA_MAX), tail[WIRE_DATA_MAX + 1];
	struct wire_data body = {.flags = WIRE_DATA_MORE};
	unsigned n_pongs = 0;
	uint64_t of;

	for (size_t i = 0; i < size; i++)
		text[i] = (char)('a' + i * i % 23);
	hello();
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_WELCOME);
	cr_assert_eq(conn_send_document(c, 5, text, size), CONN_OK);
	cr_assert_eq(conn_send_document(c, 6, "", 0), CONN_OK);
	tell(WIRE_PING, &(struct wire_ping){1});
	while (body.flags & WIRE_DATA_MORE) {
		int type;

		turn();
		while ((type = hear(&body, tail, &of)) > 0) {
			if (type == WIRE_PONG) {
				n_pongs++;
				body.flags = WIRE_DATA_MORE;
				continue;
			}
			cr_assert_eq(type, WIRE_DATA);
			if (of == 6) {
				cr_assert(!tail[0] && !body.flags);
				break;
			}
			cr_assert_leq(at + strlen(tail), size);
			memcpy(got + at, tail, strlen(tail));
			at += strlen(tail);
			cr_assert_eq(!!(body.flags & WIRE_DATA_MORE), at < size);
			body.flags = WIRE_DATA_MORE; /* the other document follows */
		}
	}
	cr_assert(at == size && memcmp(text, got, size) == 0 && n_pongs == 1);
	free(text);
	free(got);
}

Test(conn, an_error_is_the_last_word_also_within_a_document)
{
	size_t size = 20 * WIRE_DATA_MAX;
	char *text = malloc(size);
	int type;

	memset(text, 'x', size);
	hello();
	turn();
	cr_assert_eq(hear(NULL, NULL, NULL), WIRE_WELCOME);
	cr_assert_eq(conn_send_document(c, 5, text, size), CONN_OK);
	free(text);
	cr_assert_eq(send(client, "junk", 4, 0), 4);
	do {
		turn();
		type = hear(NULL, NULL, NULL);
		cr_assert_neq(type, 0);
	} while (type != WIRE_ERROR);
	do {
		turn();
		type = hear(NULL, NULL, NULL);
		cr_assert_leq(type, 0);
	} while (type < 0);
	cr_assert_eq(h.n_conns, 0);
}

Test(conn, documents_that_nobody_reads_are_bounded)
{
	size_t size = 4u << 20;
	char *text = calloc(1, size);
	int r = CONN_OK;
	unsigned n = 0;

	memset(text, 'x', size);
	while (r == CONN_OK && n++ < 100)
		r = conn_send_document(c, n, text, size);
	cr_assert_eq(r, CONN_E_SLOW);
	cr_assert_leq(n, 6);
	free(text);
}

Test(conn, an_ask_that_would_wait_is_left_out)
{
	struct wire_ask ask = {100};
	unsigned n = 0;

	for (int i = 0; i < 10000; i++) {
		cr_assert_eq(conn_send(c, WIRE_ASK, 0, &ask, NULL, 0), CONN_OK);
		if (i % 10 == 0)
			turn();
	}
	cr_assert_eq(h.counters.n_dropped, 0);
	while (hear(NULL, NULL, NULL) == WIRE_ASK)
		n++;
	cr_assert(n > 100 && n <= 1001, "%u", n);
}

Test(conn, a_refusal_says_what_and_how_much)
{
	struct wire_refused body;
	char tail[WIRE_TEXT_MAX + 1], much[6000];

	memset(much, 'y', sizeof(much) - 1);
	much[sizeof(much) - 1] = '\0';
	cr_assert_eq(conn_refuse_limit(c, 8, -EDQUOT, WIRE_LIMIT_USER, 100, 99, "no %s", "more"),
		     CONN_OK);
	cr_assert_eq(conn_refuse_limit(c, 9, -EDQUOT, WIRE_LIMIT_USER, 100, 99, "%s", much),
		     CONN_OK);
	turn();
	cr_assert_eq(hear(&body, tail, NULL), WIRE_REFUSED);
	cr_assert(body.error == -EDQUOT && body.limit == WIRE_LIMIT_USER && body.hard == 100 &&
		  body.used == 99);
	cr_assert_str_eq(tail, "no more");
	cr_assert_eq(hear(&body, tail, NULL), WIRE_REFUSED);
	cr_assert_eq(strlen(tail), WIRE_TEXT_MAX);
}
