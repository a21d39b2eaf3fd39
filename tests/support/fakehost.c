/* SPDX-License-Identifier: Apache-2.0 */
#include "fakehost.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "daemon.h"
#include "dispatch.h"
#include "door.h"
#include "log.h"
#include "loop.h"
#include "profiles.h"
#include "scanner.h"
#include "scratch.h"

static void begin_empty(struct host *h, struct config *config, uint64_t epoch)
{
	*h = (struct host){.config = config,
			   .epoch = epoch,
			   .dispatch = dispatch,
			   .parts = start_parts,
			   .actord = &actord_whole};
	ENSURE(loop_new(&h->loop) == 0);
	ENSURE(events_new(&h->events) == 0);
}

void fakehost_begin(struct host *h, struct config *config, uint64_t epoch)
{
	begin_empty(h, config, epoch);
	ENSURE(h->actord->open(h) == 0);
}

void fakehost_begin_whole(struct host *h, struct config *config, const char *store)
{
	ENSURE(scratch_store(store));
	config->partitions[0].path = strdup(scratch_partition_path());
	config->stage.rules = stage_defaults;
	begin_empty(h, config, 1);
	ENSURE(scanner_new(h->loop, &h->scanner) == 0);
	ENSURE(account_open(h, &config->partitions[0], &h->accounts) == 0);
	ENSURE(profiles_new(h, &h->profiles) == 0);
	ENSURE(h->profiles);
	ENSURE(h->actord->open(h) == 0);
}

void fakehost_end(struct host *h)
{
	h->draining = true;
	conn_drop_all(h, "the test ends");
	h->actord->close(h);
	h->loop = loop_free(h->loop);
	ENSURE(!h->n_conns && !h->conns);
	h->events = events_free(h->events);
}

struct stopper {
	struct loop_op op;
	struct loop *loop;
};

static void on_stop(struct loop_op *op, int result, unsigned flags)
{
	(void)result;
	(void)flags;
	loop_stop(((struct stopper *)(void *)op)->loop);
}

void fakehost_turn(struct host *h, unsigned n, uint64_t wait_ns)
{
	static struct stopper stopper = {.op.fn = on_stop}; /* may outlive this call in the loop */

	stopper.loop = h->loop;
	for (unsigned i = 0; i < n; i++) {
		ENSURE(loop_timer(h->loop, &stopper.op, loop_clock() + wait_ns, 0) == 0);
		ENSURE(loop_run(h->loop) == 0);
	}
}

struct conn *fakehost_connect(struct host *h, const struct conn_peer *peer, int *ret_fd)
{
	struct conn *c;
	int fds[2];

	ENSURE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	c = conn_new(h, fds[0], peer);
	ENSURE(c);
	*ret_fd = fds[1];
	return c;
}

int fakehost_hear(int fd, struct fakehost_packet *ret)
{
	static char packet[WIRE_PACKET_MAX + 1];
	const char *reason;
	ssize_t n;

	do
		n = recv(fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
	/* it left something of ours unread; what it said comes after */
	while (n < 0 && errno == ECONNRESET);
	if (n < 0 && errno == EAGAIN)
		return FAKEHOST_NONE;
	ENSURE(n >= 0);
	if (n == 0)
		return FAKEHOST_END;
	ENSURE(wire_check(packet, (size_t)n, false, &reason) == 0);
	packet[n] = '\0';
	memcpy(&ret->head, packet, sizeof(ret->head));
	ret->body = packet + sizeof(ret->head);
	ret->tail = packet + (size_t)n - ret->head.tail;
	return ret->head.type;
}

bool fakehost_tell(int fd, uint16_t type, uint64_t serial, const void *body, const void *tail,
		   size_t tail_size)
{
	static char packet[WIRE_PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, serial, body, tail, tail_size);

	ENSURE(n);
	return send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

void fakehost_hello(int fd)
{
	const struct wire_hello hello = {WIRE_VERSION, WIRE_VERSION, 0};

	ENSURE(fakehost_tell(fd, WIRE_HELLO, 1, &hello, NULL, 0));
}

void fakehost_register(int fd, const char *uuid, const char *store)
{
	struct wire_register reg = {.reserved = 0};

	for (size_t i = 0; i < sizeof(reg.uuid); uuid++) {
		unsigned byte;

		if (*uuid == '-')
			continue;
		ENSURE(sscanf(uuid, "%2x", &byte) == 1);
		reg.uuid[i++] = (uint8_t)byte;
		uuid++;
	}
	ENSURE(fakehost_tell(fd, WIRE_REGISTER, 2, &reg, store, strlen(store)));
}
