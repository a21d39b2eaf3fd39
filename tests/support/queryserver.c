/* SPDX-License-Identifier: Apache-2.0 */
/* queryserver.c: see queryserver.h. */
#include "queryserver.h"

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

#include "socketpath.h"
#include "wire.h"

void query_say(int fd, uint16_t type, uint64_t serial, const void *body, const void *tail, size_t n)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t size = wire_pack(packet, sizeof(packet), type, serial, body, tail, n);

	cr_assert_neq(size, 0);
	send(fd, packet, size, MSG_NOSIGNAL);
}

static void welcome(int fd, const struct asked *asked)
{
	query_say(fd, WIRE_WELCOME, asked->h.serial,
		  &(struct wire_welcome){.version = WIRE_VERSION, .pid = 1, .epoch = 1}, NULL, 0);
}

void query_data(int fd, uint64_t serial, const char *text, size_t n, bool more)
{
	query_say(fd, WIRE_DATA, serial, &(struct wire_data){.flags = more ? WIRE_DATA_MORE : 0},
		  text, n);
}

/* False: the client went. Its packets must be well-formed. */
static bool hear(int fd, struct asked *ret)
{
	unsigned char packet[WIRE_PACKET_MAX];
	ssize_t n = recv(fd, packet, sizeof(packet), 0);
	const char *why = "";
	size_t body;

	if (n <= 0)
		return false;
	cr_assert_eq(wire_check(packet, (size_t)n, true, &why), 0, "%s", why);
	memset(ret, 0, sizeof(*ret));
	memcpy(&ret->h, packet, sizeof(ret->h));
	body = (size_t)n - sizeof(ret->h) - ret->h.tail;
	memcpy(ret->body, packet + sizeof(ret->h), body);
	memcpy(ret->tail, packet + sizeof(ret->h) + body, ret->h.tail);
	return true;
}

static void *run(void *arg)
{
	struct server *s = arg;
	struct asked asked;
	int fd;

	while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
		s->n_connections++;
		while (hear(fd, &asked)) {
			if (asked.h.type != WIRE_HELLO)
				s->serve(fd, &asked);
			else if (s->greet)
				s->greet(fd, &asked);
			else
				welcome(fd, &asked);
		}
		close(fd);
	}
	return NULL;
}

void query_server_start(struct server *s, serve_fn *serve)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	s->serve = serve;
	strcpy(s->dir, "/tmp/shmstore-query-XXXXXX");
	cr_assert(mkdtemp(s->dir));
	snprintf(s->path, sizeof(s->path), "%s/socket", s->dir);
	strcpy(address.sun_path, s->path);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(s->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(s->listener, 4), 0);
	cr_assert_eq(pthread_create(&s->thread, NULL, run, s), 0);
}

/* After the last client went. */
void query_server_stop(struct server *s)
{
	shutdown(s->listener, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->listener);
	unlink(s->path);
	rmdir(s->dir);
}

struct result query_ask(serve_fn *serve, uint32_t timeout_ms)
{
	struct server s = {.greet = NULL};
	struct shmstore_client *c;
	struct result result = {.json = NULL};

	query_server_start(&s, serve);
	cr_assert_eq(shmstore_client_new(s.path, timeout_ms, &c), 0);
	result.r = shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, &result.json, &result.n);
	snprintf(result.reason, sizeof(result.reason), "%s", shmstore_client_reason(c));
	result.connected = shmstore_client_fd(c) >= 0;
	shmstore_client_free(c);
	query_server_stop(&s);
	return result;
}

/* It lied: the client says so, has nothing, and has hung up. */
void query_assert_bad(serve_fn *serve)
{
	struct result result = query_ask(serve, LONG_MS);

	cr_assert_eq(result.r, -EBADMSG, "%d: %s", result.r, result.reason);
	cr_assert_null(result.json);
	cr_assert(result.reason[0]);
	cr_assert_not(result.connected);
}
