/* SPDX-License-Identifier: Apache-2.0 */
/* query.c and socketpath.c against servers that answer well, lie, cut their
 * answers off, hang, or die. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <shmstore/daemon.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "queryserver.h"
#include "socketpath.h"
#include "wire.h"

#define SHORT_MS 150u /* how long a client waits for a server that does not answer */

/* ---- who answers well ---- */

static void echo(int fd, const struct asked *asked)
{
	struct wire_query query;
	char text[WIRE_TEXT_MAX + 64];
	int n;

	memcpy(&query, asked->body, sizeof(query));
	n = snprintf(text, sizeof(text), "{\"what\":%u,\"tail\":\"%s\"}", query.what, asked->tail);
	query_data(fd, asked->h.serial, text, (size_t)n, false);
}

Test(query, answers_come_back)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	char *json;
	size_t n;

	query_server_start(&s, echo);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_str_eq(shmstore_client_path(c), s.path);
	cr_assert_eq(shmstore_client_fd(c), -ENOENT);
	for (int what = SHMSTORE_QUERY_STATUS; what <= SHMSTORE_QUERY_ACTORS; what++) {
		char expected[64];

		if (what == SHMSTORE_QUERY_ARB_LOG + 1)
			what = SHMSTORE_QUERY_MEMORY;
		if (what == SHMSTORE_QUERY_GATE + 1)
			what = SHMSTORE_QUERY_STAGES;
		if (what == SHMSTORE_QUERY_STAGES + 1)
			what = SHMSTORE_QUERY_ACTORS;

		snprintf(expected, sizeof(expected), "{\"what\":%d,\"tail\":\"/p\"}", what);
		cr_assert_eq(shmstore_client_query(c, (enum shmstore_query)what, "/p", &json, &n),
			     0);
		cr_assert_str_eq(json, expected);
		cr_assert_eq(n, strlen(json));
		free(json);
	}
	cr_assert_eq(s.n_connections, 1, "one connection serves them all");
	cr_assert_str_empty(shmstore_client_reason(c));
	shmstore_client_free(c);
	query_server_stop(&s);
}

Test(query, wrong_arguments_are_refused)
{
	struct shmstore_client *c;
	char path[200], *json;
	const char *event;

	cr_assert_eq(shmstore_client_new(NULL, 0, &c), -EINVAL);
	cr_assert_eq(shmstore_client_new(NULL, UINT32_MAX, &c), -EINVAL);
	cr_assert_eq(shmstore_client_new(NULL, 1, NULL), -EINVAL);
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	cr_assert_eq(shmstore_client_new(path, 1, &c), -EINVAL);
	cr_assert_eq(shmstore_client_new("/nonexistent", 1, &c), 0);
	cr_assert_eq(shmstore_client_set_timeout(c, 0), -EINVAL);
	cr_assert_eq(shmstore_client_query(c, 0, NULL, &json, NULL), -EINVAL);
	cr_assert_eq(shmstore_client_query(c, 10, NULL, &json, NULL), -EINVAL);
	cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_client_set(c, NULL), -EINVAL);
	cr_assert_eq(shmstore_client_reap(c, NULL, &json, NULL), -EINVAL);
	cr_assert_eq(shmstore_client_arbiter(c, "/p", NULL), -EINVAL);
	cr_assert_eq(shmstore_client_arbiter(c, "/p", &(struct shmstore_client_arb){.order = 4}),
		     -EINVAL);
	cr_assert_eq(shmstore_client_event(c, 0, NULL, &event), -EINVAL);
	cr_assert_null(shmstore_client_free(c));
	cr_assert_null(shmstore_client_free(NULL));
}

/* Takes what it expects only. */
static void obey(int fd, const struct asked *asked)
{
	struct wire_arb_admin body;

	memcpy(&body, asked->body, sizeof(body));
	if (asked->h.type == WIRE_ARB_ADMIN && body.op == WIRE_ARB_ADMIN_INJECT && body.kind == 2 &&
	    body.flags == WIRE_ARB_ADMIN_TASK && body.target == UINT64_C(0x100000002) &&
	    body.value == 3 && body.skip == 4 && body.pool == 5 && strcmp(asked->tail, "/p") == 0)
		query_say(fd, WIRE_DONE, asked->h.serial, &(struct wire_done){0}, NULL, 0);
	else
		query_say(fd, WIRE_REFUSED, asked->h.serial,
			  &(struct wire_refused){.error = -EINVAL}, "not that", 8);
}

Test(query, orders_to_the_arbiter_arrive_whole)
{
	struct shmstore_client_arb what = {.order = SHMSTORE_ARB_ORDER_INJECT,
					   .kind = 2,
					   .task = true,
					   .target = UINT64_C(0x100000002),
					   .value = 3,
					   .skip = 4,
					   .pool = 5};
	struct server s = {.greet = NULL};
	struct shmstore_client *c;

	query_server_start(&s, obey);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_eq(shmstore_client_arbiter(c, "/p", &what), 0);
	what.task = false;
	cr_assert_eq(shmstore_client_arbiter(c, "/p", &what), -EINVAL);
	cr_assert_str_eq(shmstore_client_reason(c), "not that");
	shmstore_client_free(c);
	query_server_stop(&s);
}

Test(query, a_request_that_is_too_long_is_refused_and_the_connection_stays)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	char *text = malloc(WIRE_TEXT_MAX + 2), *json;

	query_server_start(&s, echo);
	memset(text, 'x', WIRE_TEXT_MAX + 1);
	text[WIRE_TEXT_MAX + 1] = '\0';
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, text, &json, NULL), -EINVAL);
	text[WIRE_TEXT_MAX] = '\0';
	cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, text, &json, NULL), 0);
	cr_assert_eq(s.n_connections, 1);
	free(json);
	free(text);
	shmstore_client_free(c);
	query_server_stop(&s);
}

static void in_pieces(int fd, const struct asked *asked)
{
	char piece[WIRE_DATA_MAX];

	memset(piece, 'y', sizeof(piece));
	query_data(fd, asked->h.serial, "", 0, true);
	for (int i = 0; i < 100; i++)
		query_data(fd, asked->h.serial, piece, sizeof(piece), true);
	query_data(fd, asked->h.serial, "z", 1, true);
	query_data(fd, asked->h.serial, "", 0, false);
}

Test(query, a_document_is_put_together)
{
	struct result result = query_ask(in_pieces, LONG_MS);

	cr_assert_eq(result.r, 0);
	cr_assert_eq(result.n, 100u * WIRE_DATA_MAX + 1);
	cr_assert_eq(strlen(result.json), result.n);
	cr_assert_eq(result.json[result.n - 1], 'z');
	free(result.json);
}

/* ---- refusals ---- */

static void refuse(int fd, const struct asked *asked)
{
	static const char why[] = "limits are root's to set";

	if (asked->h.type == WIRE_QUERY)
		echo(fd, asked);
	else
		query_say(fd, WIRE_REFUSED, asked->h.serial,
			  &(struct wire_refused){.error = -EPERM}, why, strlen(why));
}

Test(query, a_refusal_hands_out_the_daemons_sentence_and_the_connection_stays)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	char *json;

	query_server_start(&s, refuse);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_eq(shmstore_client_set(c, "limit=1"), -EPERM);
	cr_assert_str_eq(shmstore_client_reason(c), "limits are root's to set");
	cr_assert_eq(shmstore_client_reap(c, "/p/stores/s", &json, NULL), -EPERM);
	cr_assert_eq(shmstore_client_watch(c, 0, NULL), -EPERM);
	cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, &json, NULL), 0);
	free(json);
	cr_assert_eq(s.n_connections, 1);
	shmstore_client_free(c);
	query_server_stop(&s);
}

static void refuse_with_success(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_REFUSED, asked->h.serial, &(struct wire_refused){.error = 0}, "fine", 4);
}

Test(query, a_refusal_is_never_a_success)
{
	struct result result = query_ask(refuse_with_success, LONG_MS);

	cr_assert_eq(result.r, -EBADMSG);
}

static void error(int fd, const struct asked *asked)
{
	(void)asked;
	query_say(fd, WIRE_ERROR, 0, &(struct wire_error){.error = -EMFILE}, "too many requests",
		  17);
	shutdown(fd, SHUT_RDWR);
}

Test(query, an_error_ends_the_connection_with_its_reason)
{
	struct result result = query_ask(error, LONG_MS);

	cr_assert_eq(result.r, -EMFILE);
	cr_assert_str_eq(result.reason, "too many requests");
	cr_assert_not(result.connected);
}

/* ---- liars ---- */

static void other_serial(int fd, const struct asked *asked)
{
	query_data(fd, asked->h.serial + 1, "{}", 2, false);
}

static void other_type(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_DONE, asked->h.serial, &(struct wire_done){0}, NULL, 0);
}

static void unasked_event(int fd, const struct asked *asked)
{
	(void)asked;
	query_say(fd, WIRE_EVENT, 0, &(struct wire_event){.sequence = 1}, "{}", 2);
}

static void unknown_flag(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_DATA, asked->h.serial, &(struct wire_data){.flags = 2}, "{}", 2);
}

static void nul_inside(int fd, const struct asked *asked)
{
	query_data(fd, asked->h.serial, "{\0}", 3, false);
}

static void from_the_other_side(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_PING, asked->h.serial, &(struct wire_ping){.cookie = 1}, NULL, 0);
}

static void no_end(int fd, const struct asked *asked)
{
	char piece[WIRE_DATA_MAX];

	memset(piece, ' ', sizeof(piece));
	for (size_t n = 0; n <= SHMSTORE_CLIENT_JSON_MAX; n += sizeof(piece))
		query_data(fd, asked->h.serial, piece, sizeof(piece), true);
}

Test(query, lies_are_told_from_answers)
{
	query_assert_bad(other_serial);
	query_assert_bad(other_type);
	query_assert_bad(unasked_event);
	query_assert_bad(unknown_flag);
	query_assert_bad(nul_inside);
	query_assert_bad(from_the_other_side);
	query_assert_bad(no_end);
}

static size_t cut; /* bytes that are sent of an answer */

static void truncated(int fd, const struct asked *asked)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), WIRE_DATA, asked->h.serial,
			     &(struct wire_data){0}, "{}", 2);

	send(fd, packet, cut < n ? cut : n, MSG_NOSIGNAL);
}

Test(query, an_answer_cut_at_any_byte_is_none)
{
	size_t whole = sizeof(struct wire_header) + sizeof(struct wire_data) + 2;

	for (cut = 1; cut < whole; cut++)
		query_assert_bad(truncated);
}

static size_t flipped; /* the byte of an answer that is changed */

static void damaged(int fd, const struct asked *asked)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), WIRE_DATA, asked->h.serial,
			     &(struct wire_data){0}, "{}", 2);

	packet[flipped] ^= 0x10;
	send(fd, packet, n, MSG_NOSIGNAL);
}

Test(query, a_header_damaged_at_any_byte_is_none)
{
	for (flipped = 0; flipped < sizeof(struct wire_header); flipped++)
		query_assert_bad(damaged);
}

static void oversized(int fd, const struct asked *asked)
{
	static unsigned char packet[2 * WIRE_PACKET_MAX];

	memset(packet, 0xff, sizeof(packet));
	wire_pack(packet, sizeof(packet), WIRE_DATA, asked->h.serial, &(struct wire_data){0}, "{}",
		  2);
	send(fd, packet, sizeof(packet), MSG_NOSIGNAL);
}

Test(query, a_packet_larger_than_any_is_none)
{
	query_assert_bad(oversized);
}

/* ---- silence and death ---- */

static void nothing(int fd, const struct asked *asked)
{
	(void)fd;
	(void)asked;
}

static void half(int fd, const struct asked *asked)
{
	query_data(fd, asked->h.serial, "{", 1, true);
}

static void hang_up(int fd, const struct asked *asked)
{
	(void)asked;
	shutdown(fd, SHUT_RDWR);
}

static void half_and_hang_up(int fd, const struct asked *asked)
{
	half(fd, asked);
	shutdown(fd, SHUT_RDWR);
}

Test(query, silence_times_out)
{
	struct result result = query_ask(nothing, SHORT_MS);

	cr_assert_eq(result.r, -ETIMEDOUT);
	cr_assert_not(result.connected, "a late answer must not be taken for the next one's");
	cr_assert_eq(query_ask(half, SHORT_MS).r, -ETIMEDOUT);
}

Test(query, an_end_is_no_daemon)
{
	cr_assert_eq(query_ask(hang_up, LONG_MS).r, -ENOENT);
	cr_assert_eq(query_ask(half_and_hang_up, LONG_MS).r, -ENOENT);
}

static void other_version(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_WELCOME, asked->h.serial,
		  &(struct wire_welcome){.version = WIRE_VERSION + 1, .epoch = 1}, NULL, 0);
}

static void no_welcome(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_DONE, asked->h.serial, &(struct wire_done){0}, NULL, 0);
}

Test(query, a_greeting_must_be_one)
{
	static const struct {
		serve_fn *greet;
		int error;
	} cases[] = {{other_version, -ENOTSUP},
		     {no_welcome, -EBADMSG},
		     {nothing, -ETIMEDOUT},
		     {hang_up, -ENOENT}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct server s = {.greet = cases[i].greet};
		struct shmstore_client *c;

		query_server_start(&s, nothing);
		cr_assert_eq(shmstore_client_new(
				     s.path, cases[i].error == -ETIMEDOUT ? SHORT_MS : LONG_MS, &c),
			     0);
		cr_assert_eq(shmstore_client_connect(c), cases[i].error, "%zu", i);
		cr_assert_eq(shmstore_client_fd(c), -ENOENT);
		shmstore_client_free(c);
		query_server_stop(&s);
	}
}

Test(query, no_daemon_is_said)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;

	query_server_start(&s, nothing);
	query_server_stop(&s);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_eq(shmstore_client_connect(c), -ENOENT);
	cr_assert_str_eq(shmstore_client_reason(c), "there is no such socket");
	shmstore_client_free(c);
}

static void echo_once(int fd, const struct asked *asked)
{
	echo(fd, asked);
	shutdown(fd, SHUT_RDWR);
}

Test(query, a_client_outlives_a_restart)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	char *json;

	query_server_start(&s, echo_once);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	for (int i = 1; i <= 5; i++) {
		cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, &json, NULL), 0);
		free(json);
		cr_assert_eq(s.n_connections, i);
		/* Until the end of the connection has arrived here. */
		struct pollfd end = {.fd = shmstore_client_fd(c), .events = POLLIN};
		char byte;
		cr_assert_eq(poll(&end, 1, (int)LONG_MS), 1);
		cr_assert_eq(recv(end.fd, &byte, 1, MSG_PEEK), 0,
			     "the end, and no answer that nobody asked for");
	}
	shmstore_client_free(c);
	query_server_stop(&s);
}

/* ---- watching ---- */

static void three_events(int fd, const struct asked *asked)
{
	struct wire_watch watch;

	memcpy(&watch, asked->body, sizeof(watch));
	cr_assert_eq(asked->h.type, WIRE_WATCH);
	cr_assert_eq(watch.since, 7);
	cr_assert_str_eq(asked->tail, "store-came,liar");
	query_say(fd, WIRE_DONE, asked->h.serial, &(struct wire_done){0}, NULL, 0);
	for (uint64_t i = 8; i <= 10; i++)
		query_say(fd, WIRE_EVENT, 0, &(struct wire_event){.sequence = i},
			  "{\"event\":\"liar\"}", 16);
	shutdown(fd, SHUT_WR);
}

Test(query, events_come_one_by_one_until_the_end)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	const char *json;
	uint64_t sequence;
	char *answer;

	query_server_start(&s, three_events);
	cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
	cr_assert_eq(shmstore_client_watch(c, 7, "store-came,liar"), 0);
	cr_assert_eq(shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, &answer, NULL), -EINVAL,
		     "it watches");
	cr_assert_eq(shmstore_client_watch(c, 7, NULL), -EINVAL);
	for (uint64_t i = 8; i <= 10; i++) {
		cr_assert_eq(shmstore_client_event(c, (int)LONG_MS, &sequence, &json), 1);
		cr_assert_eq(sequence, i);
		cr_assert_str_eq(json, "{\"event\":\"liar\"}");
	}
	cr_assert_eq(shmstore_client_event(c, -1, &sequence, &json), -ENOENT);
	cr_assert_eq(shmstore_client_fd(c), -ENOENT);
	shmstore_client_free(c);
	query_server_stop(&s);
}

static void quiet_watch(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_DONE, asked->h.serial, &(struct wire_done){0}, NULL, 0);
}

static void false_event(int fd, const struct asked *asked)
{
	quiet_watch(fd, asked);
	query_say(fd, WIRE_EVENT, 5, &(struct wire_event){.sequence = 1}, "{}", 2);
}

Test(query, a_quiet_watch_is_no_event_and_a_false_one_no_daemon)
{
	static serve_fn *const serves[] = {quiet_watch, false_event};

	for (size_t i = 0; i < 2; i++) {
		struct server s = {.greet = NULL};
		struct shmstore_client *c;
		const char *json;

		query_server_start(&s, serves[i]);
		cr_assert_eq(shmstore_client_new(s.path, LONG_MS, &c), 0);
		cr_assert_eq(shmstore_client_watch(c, SHMSTORE_WATCH_NEW, NULL), 0);
		if (i == 0)
			cr_assert_eq(shmstore_client_event(c, 0, NULL, &json), 0);
		else
			cr_assert_eq(shmstore_client_event(c, -1, NULL, &json), -EBADMSG);
		shmstore_client_free(c);
		query_server_stop(&s);
	}
}

/* ---- where the socket is ---- */

static void of(struct shmstore_client *c, const char *path)
{
	shmstore_client_connect(c);
	cr_assert_str_eq(shmstore_client_path(c), path);
}

Test(socketpath, the_nearest_to_the_asker_wins)
{
	char path[SHMS_SOCKET_PATH], dir[] = "/tmp/shmstore-query-XXXXXX", own[128];
	struct shmstore_client *named, *by_default;

	cr_assert(mkdtemp(dir));
	snprintf(own, sizeof(own), "%s/.socket", dir);
	unsetenv("SHMSTORE_SOCKET");
	setenv("SHMSTORE_PARTITION", dir, 1);
	cr_assert_eq(shmstore_client_new(dir, LONG_MS, &named), 0);
	cr_assert_eq(shmstore_client_new(NULL, LONG_MS, &by_default), 0);
	cr_assert_eq(shms_socket_path(NULL, dir, path), 0);
	cr_assert_str_eq(path, WIRE_SOCKET, "there is none of one's own");
	of(named, WIRE_SOCKET);
	cr_assert_eq(mknod(own, S_IFREG | 0600, 0), 0);
	cr_assert_eq(shms_socket_path(NULL, dir, path), 0);
	cr_assert_str_eq(path, WIRE_SOCKET, "no daemon made that");
	unlink(own);
	cr_assert_eq(mknod(own, S_IFSOCK | 0600, 0), 0);
	cr_assert_eq(shms_socket_path(NULL, dir, path), 0);
	cr_assert_str_eq(path, own);
	cr_assert_eq(shms_socket_connect(path, 0), -ECONNREFUSED);
	of(named, own);
	of(by_default, own);
	if (geteuid() == 0) {
		cr_assert_eq(lchown(own, 1, 1), 0);
		cr_assert_eq(shms_socket_path(NULL, dir, path), 0);
		cr_assert_str_eq(path, WIRE_SOCKET, "another user's is none of ours");
	}
	setenv("SHMSTORE_SOCKET", "/x", 1);
	cr_assert_eq(shms_socket_path("", dir, path), 0);
	cr_assert_str_eq(path, "/x");
	of(named, "/x");
	cr_assert_eq(shms_socket_path("/y", dir, path), 0);
	cr_assert_str_eq(path, "/y");
	shmstore_client_free(named);
	shmstore_client_free(by_default);
	unlink(own);
	rmdir(dir);
}
