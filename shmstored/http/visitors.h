/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visitors.h: the connections of HTTP: where each is from, and since when it owes a request's headers. Pure, but for shutdown().
 *
 * There are VISITORS_MOST of them. When the last place is taken, one that owes headers has to go, so that the next finds a place: of
 * the source that has the most connections, the one that owes them for the longest. A connection
 * has little time for its first headers, and more between two requests.
 */
#ifndef VISITORS_H
#define VISITORS_H

#include <stdbool.h>
#include <stdint.h>

#include "source.h"

#define VISITORS_MOST 64u

struct visitor {
	int fd;
	bool here, asks,
		asked; /* asks: its headers are there, and the answer is under way; asked: it has had an answer */
	bool sent_away;
	struct source from;
	uint64_t since_ns; /* of owing headers */
};
struct visitors {
	struct visitor all[VISITORS_MOST];
	unsigned n;
};

/* One has come. NULL: there is no place. fd stays whose it is. */
struct visitor *visitors_come(struct visitors *v, int fd, const struct sockaddr *from, uint64_t now_ns);
void visitors_go(struct visitors *v, struct visitor *one);
void visitors_ask(struct visitor *one);
void visitors_answered(struct visitor *one, uint64_t now_ns);
/* Time has passed: ends those that owe headers for too long. */
void visitors_tick(struct visitors *v, uint64_t now_ns);

#endif
