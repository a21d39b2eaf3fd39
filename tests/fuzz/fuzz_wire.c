/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_wire.c: arbitrary packets to a daemon in this process: its real connection, dispatch, handlers, accounts and workers, on a
 * partition with one store.
 *
 * Input: a byte of mode, then packets, each a byte of type, two of size, and so many bytes. RAW: they are the packet. Else they are body
 * and tail of a message of that type, whose header is made right, so that handlers are reached. What must hold: every answer is well-formed;
 * a fault is answered by ERROR, once, and nothing after it; when the client has gone, its connection is.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "account.h"
#include "config.h"
#include "conn.h"
#include "events.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "rules.h"
#include "scanner.h"
#include "scratch.h"
#include "wire.h"

enum {
	NO_ADMIN = 1,
	NO_HELLO = 2,
	REGISTERED = 4,
};
#define RAW 0x80u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct config_partition partition = {.survey_interval_ns = UINT64_C(3600000000000),
					    .ghost_age_ns = UINT64_C(3600000000000)};
static struct config config = {.max_clients = 16,
			       .max_clients_per_user = 16,
			       .hello_timeout_ns = UINT64_C(3600000000000),
			       .output_max = 1 << 20,
			       .credit = 1 << 20,
			       .credit_idle_ns = UINT64_C(3600000000000),
			       .partitions = &partition,
			       .n_partitions = 1};
static struct host h;
static unsigned long n_answered, n_faults;
static uint8_t uuid[16];

static void report(void)
{
	fprintf(stderr, "accepted: %lu messages answered, %lu faults\n", n_answered, n_faults);
}

static void parse_uuid(const char *text)
{
	for (size_t i = 0; i < sizeof(uuid); text++) {
		unsigned byte;

		if (*text == '-')
			continue;
		ENSURE(sscanf(text, "%2x", &byte) == 1);
		uuid[i++] = (uint8_t)byte;
		text++;
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	ENSURE(scratch_store("a"));
	log_init(-1);
	partition.path = strdup(scratch_partition_path());
	h = (struct host){.config = &config, .epoch = 1};
	ENSURE(rules_new(&config.rules) == 0);
	ENSURE(events_new(&h.events) == 0);
	ENSURE(loop_new(16, &h.loop) == 0);
	ENSURE(scanner_new(h.loop, &h.scanner) == 0);
	ENSURE(account_open(&h, &partition, &h.accounts) == 0);
	parse_uuid(h.accounts->uuid);
	atexit(report);
	return 0;
}

static void on_stop(struct loop_op *op, int result, unsigned flags)
{
	(void)op;
	(void)result;
	(void)flags;
	loop_stop(h.loop);
}

static void turn(void)
{
	static struct loop_op op = {.fn = on_stop};

	for (int i = 0; i < 3; i++) {
		ENSURE(loop_timer(h.loop, &op, loop_clock(), 0) == 0);
		ENSURE(loop_run(h.loop) == 0);
	}
}

/* Takes what the daemon said. *error: it said ERROR, in this call or an earlier one. false: it has ended the connection. */
static bool listen_to(int fd, bool *error)
{
	static char packet[WIRE_PACKET_MAX + 1];

	for (;;) {
		ssize_t n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
		struct wire_header head;
		const char *reason;

		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0 && errno == ECONNRESET)
			continue;
		if (n <= 0) {
			ENSURE(*error);
			return false;
		}
		ENSURE(!*error);
		ENSURE(wire_check(packet, (size_t)n, false, &reason) == 0);
		memcpy(&head, packet, sizeof(head));
		*error = head.type == WIRE_ERROR;
		n_faults += *error;
		n_answered += !*error && head.serial;
	}
}

/* One packet of the input; returns what is left of it, NULL = nothing. */
static const uint8_t *send_next(int fd, const uint8_t *data, const uint8_t *end, uint64_t serial)
{
	static const uint8_t zeros[64];
	static char packet[LOOP_PACKET_MAX * 2];
	const struct wire_kind *k;
	size_t size, n;
	uint8_t type;

	if (end - data < 3)
		return NULL;
	type = data[0];
	size = data[1] | (size_t)data[2] << 8;
	data += 3;
	if (size > (size_t)(end - data))
		size = (size_t)(end - data);
	k = wire_kind(type % 12);
	if (type & RAW || !k) {
		send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		return data + size;
	}
	if (size >= k->body && size - k->body <= k->tail)
		n = wire_pack(packet, sizeof(packet), k->type, serial, data, data + k->body, size - k->body);
	else
		n = wire_pack(packet, sizeof(packet), k->type, serial, zeros, NULL, 0);
	ENSURE(n);
	send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	return data + size;
}

static void greet(int fd, uint8_t mode)
{
	const struct wire_hello hello = {WIRE_VERSION, WIRE_VERSION, 0};
	struct wire_register reg = {.reserved = 0};
	char packet[256];
	size_t n;

	if (mode & NO_HELLO)
		return;
	n = wire_pack(packet, sizeof(packet), WIRE_HELLO, 1, &hello, NULL, 0);
	ENSURE(send(fd, packet, n, 0) == (ssize_t)n);
	if (!(mode & REGISTERED))
		return;
	memcpy(reg.uuid, uuid, sizeof(uuid));
	n = wire_pack(packet, sizeof(packet), WIRE_REGISTER, 2, &reg, "stores/a", strlen("stores/a"));
	ENSURE(send(fd, packet, n, 0) == (ssize_t)n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	struct conn_peer peer = {getpid(), getuid(), getgid()};
	uint64_t serial = 10;
	bool error = false;
	int fds[2];

	if (!size)
		return 0;
	if (*data & NO_ADMIN)
		peer.uid = 4711;
	ENSURE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	ENSURE(conn_new(&h, fds[0], &peer));
	greet(fds[1], *data++);
	while (data && data < end) {
		data = send_next(fds[1], data, end, serial++);
		if (serial % 4 == 0) {
			turn();
			if (!listen_to(fds[1], &error))
				break;
		}
	}
	turn();
	listen_to(fds[1], &error);
	close(fds[1]);
	for (unsigned i = 0; h.n_conns && i < 1000; i++)
		turn();
	ENSURE(h.n_conns == 0 && h.failed == 0);
	return 0;
}
