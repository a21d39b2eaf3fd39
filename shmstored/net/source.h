/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: from where somebody connects, as far as one who connects cannot have many of them for nothing. */
#ifndef SOURCE_H
#define SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* The whole address of IPv4, the network of IPv6 (64 bits). Unix sockets are of one source. */
struct source {
	uint64_t network;
	bool v6;
};

struct source source_of(const struct sockaddr *address);
bool source_same(struct source a, struct source b);

#endif
