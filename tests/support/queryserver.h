/* SPDX-License-Identifier: Apache-2.0 */
/* queryserver.h: a server that a client of the daemon asks, and that answers as a test wants: well,
 * with lies, or not at all. For criterion. */
#ifndef QUERYSERVER_H
#define QUERYSERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define LONG_MS 20000u

/* One request, checked. */
struct asked {
	struct wire_header h;
	unsigned char body[64];
	char tail[WIRE_TEXT_MAX + 1];
};

typedef void serve_fn(int fd, const struct asked *asked);

struct server {
	char dir[64], path[96];
	int listener;
	serve_fn *serve; /* what it does to a request after HELLO */
	serve_fn *greet; /* NULL: as it should */
	pthread_t thread;
	_Atomic int n_connections;
};

/* A query of status to a server that does that: its result. The rest is the caller's to look at. */
struct result {
	int r;
	char *json;
	size_t n;
	char reason[256];
	bool connected; /* afterwards */
};

void query_say(int fd, uint16_t type, uint64_t serial, const void *body, const void *tail,
	       size_t n);
void query_data(int fd, uint64_t serial, const char *text, size_t n, bool more);
void query_server_start(struct server *s, serve_fn *serve);
/* After the last client went. */
void query_server_stop(struct server *s);
struct result query_ask(serve_fn *serve, uint32_t timeout_ms);
/* It lied: the client says so, has nothing, and has hung up. */
void query_assert_bad(serve_fn *serve);

#endif
