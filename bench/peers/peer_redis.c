/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_redis.c: Redis over a Unix socket of its own, nothing written to disk: SET, GET, DEL. The
 * server is a third process on the same CPU; we start it and end it.
 */
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "peer.h"

struct redis_state {
	char socket[100];
	redisContext *context;
};

static void be_server(const char *socket, pid_t parent)
{
	int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || null < 0)
		_exit(127);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	close_range(3, ~0u, 0);
	execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
	       "--appendonly", "no", "--daemonize", "no", "--dir", "/", (char *)NULL);
	_exit(127);
}

static int connect_redis(struct peer_run *run)
{
	struct redis_state *s = run->state;

	s->context = redisConnectUnix(s->socket);
	if (s->context && s->context->err == 0)
		return 0;
	if (s->context)
		redisFree(s->context);
	s->context = NULL;
	return -ECONNREFUSED;
}

/* Waits until the server answers, or is gone. */
static int await_server(struct peer_run *run)
{
	for (int i = 0; i < 500; i++) {
		if (waitpid(run->server, NULL, WNOHANG) == run->server) {
			run->server = 0;
			return peer_refuse(run, -ENOENT,
					   "redis-server is not installed or does not start");
		}
		if (connect_redis(run) == 0)
			return 0;
		poll(NULL, 0, 10);
	}
	return peer_refuse(run, -ETIMEDOUT, "redis-server does not answer");
}

static int prepare(struct peer_run *run)
{
	struct redis_state *s = calloc(1, sizeof(*s));
	pid_t parent = getpid();
	int r;

	if (!s || place_path(run->place, "redis", s->socket, sizeof(s->socket)) < 0)
		return peer_refuse(run, -ENOMEM, "out of memory");
	run->state = s;
	run->server = fork();
	if (run->server == 0)
		be_server(s->socket, parent);
	if (run->server < 0) {
		run->server = 0;
		return peer_refuse(run, -errno, "fork: %s", strerror(errno));
	}
	r = await_server(run);
	if (r == 0) {
		redisFree(s->context); /* each side connects for itself */
		s->context = NULL;
	}
	return r;
}

static int check(redisReply *reply, int type)
{
	int r = reply && reply->type == type ? 0 : -EIO;

	if (reply)
		freeReplyObject(reply);
	return r;
}

static int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct redis_state *s = run->state;

	m->bytes[0] = 'k';
	m->size = 1;
	return check(redisCommand(s->context, "SET k %b", data, size), REDIS_REPLY_STATUS);
}

static int take(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	struct redis_state *s = run->state;
	redisReply *reply = redisCommand(s->context, "GET %b", message, message_size);

	(void)fd;
	if (reply && reply->type == REDIS_REPLY_STRING)
		measure_touch(reply->str, reply->len);
	return check(reply, REDIS_REPLY_STRING);
}

static int drop(struct peer_run *run)
{
	struct redis_state *s = run->state;

	return check(redisCommand(s->context, "DEL k"), REDIS_REPLY_INTEGER);
}

static void finish(struct peer_run *run)
{
	struct redis_state *s = run->state;

	if (s && s->context)
		redisFree(s->context);
	free(s);
	if (run->server > 0) {
		kill(run->server, SIGKILL);
		while (waitpid(run->server, NULL, 0) < 0 && errno == EINTR)
			;
	}
	run->server = 0;
}

const struct peer peer_redis = {.prepare = prepare,
				.consumer = connect_redis,
				.producer = connect_redis,
				.put = put,
				.take = take,
				.drop = drop,
				.finish = finish};
