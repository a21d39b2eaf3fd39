/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_wire.c: arbitrary packets to a daemon in this process: its real connection, dispatch,
 * handlers, accounts and workers, on a partition with one store.
 *
 * Input: a byte of mode, then packets, each a byte of type, two of size, and so many bytes. RAW:
 * they are the packet. Else they are body and tail of a message of that type, whose header is made
 * right, so that handlers are reached. Invariants: every answer is well-formed; a fault is answered
 * by ERROR, once, and nothing after it; when the client has gone, its connection is.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "account.h"
#include "admit.h"
#include "fakehost.h"
#include "log.h"
#include "pressure.h"
#include "scratch.h"

enum {
	NO_ADMIN = 1,
	NO_HELLO = 2,
	REGISTERED = 4,
};
#define RAW             0x80u
#define FIRST_OF_DAEMON 64u                  /* a client's types are below, */
#define FIRST_UNUSED    (WIRE_ARB_ADMIN + 1) /* and below this each number is one */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct config_partition partition = {.survey_interval_ns = UINT64_C(3600000000000),
					    .ghost_age_ns = UINT64_C(3600000000000)};
static char none[] = "none";
static struct config config = {
	.max_clients = 16,
	.max_clients_per_user = 16,
	.hello_timeout_ns = UINT64_C(3600000000000),
	.output_max = 1 << 20,
	.credit = 1 << 20,
	.credit_idle_ns = UINT64_C(3600000000000),
	.arbiter = {.enabled = true,
		    .wait_ns = UINT64_C(3600000000000),
		    .tick_ns = 1000000,
		    .call_ns = 1000000,
		    .lease = 1 << 20,
		    .lease_small = 65536,
		    .max_bypass = 2,
		    .suspect_ticks = 1,
		    .split_ticks = 2,
		    .retry_limit = 5,
		    .early_detect = true,
		    .max_contexts = 8,
		    .max_tasks = 8,
		    .max_reservations = 8,
		    .max_pools = 2},
	.profile = {.strategy = {.strategy = PROFILE_HISTOGRAM, .eps_ppm = PROFILE_EPS_PPM},
		    .directory = none,
		    .interval_ns = 1000000,
		    .save_ns = 1000000,
		    .max_kinds = 4},
	.stage = {.rules = {.enabled = true,
			    .shared_enabled = true,
			    .private_ratio = {2, 1},
			    .shared_ratio = {1, 2},
			    .fallen_threshold = {1, 2},
			    .whole_shared_div = 10,
			    .wait_ms = 1},
		  .conflict = STAGE_CONFLICT_HOST,
		  .base_private = 64 << 20,
		  .total = 100 << 20,
		  .slots = 2,
		  .workers = 2},
	.pressure = {.enabled = true,
		     .interval_ns = 1000000,
		     .host_total = 1 << 27,
		     .window = 3,
		     .hold = 1,
		     .ramp = 1,
		     .ramp_max = 4},
	.partitions = &partition,
	.n_partitions = 1};
static struct host h;
static unsigned long n_answered, n_faults;

static void report(void)
{
	fprintf(stderr, "accepted: %lu messages answered, %lu faults\n", n_answered, n_faults);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	log_init(-1);
	fakehost_begin_whole(&h, &config, "a");
	ENSURE(pressure_new(&h, &h.pressure) == 0 && admit_new(&h, &h.admit) == 0 && h.admit);
	atexit(report);
	return 0;
}

static void turn(void)
{
	fakehost_turn(&h, 3, 0);
}

/* Takes what the daemon said. *error: it said ERROR, in this call or an earlier one. false: it
 * has ended the connection. */
static bool listen_to(int fd, bool *error)
{
	struct fakehost_packet packet;
	int type;

	while ((type = fakehost_hear(fd, &packet)) > 0) {
		ENSURE(!*error);
		*error = type == WIRE_ERROR;
		n_faults += *error;
		n_answered += !*error && packet.head.serial;
	}
	ENSURE(type == FAKEHOST_NONE || *error);
	return type == FAKEHOST_NONE;
}

/* One packet of the input; returns what is left of it, NULL = nothing. */
static const uint8_t *send_next(int fd, const uint8_t *data, const uint8_t *end, uint64_t serial)
{
	static const uint8_t zeros[64];
	const struct wire_kind *k;
	size_t size;
	uint8_t type;

	if (end - data < 3)
		return NULL;
	type = data[0];
	size = data[1] | (size_t)data[2] << 8;
	data += 3;
	if (size > (size_t)(end - data))
		size = (size_t)(end - data);
	k = wire_kind(type % FIRST_OF_DAEMON);
	if (!k)
		k = wire_kind(type % FIRST_UNUSED);
	if (type & RAW || !k) {
		send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		return data + size;
	}
	if (size >= k->body && size - k->body <= k->tail)
		fakehost_tell(fd, k->type, serial, data, data + k->body, size - k->body);
	else
		fakehost_tell(fd, k->type, serial, zeros, NULL, 0);
	return data + size;
}

static void greet(int fd, uint8_t mode)
{
	if (mode & NO_HELLO)
		return;
	fakehost_hello(fd);
	if (mode & REGISTERED)
		fakehost_register(fd, h.accounts->uuid, "stores/a");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	struct conn_peer peer = {getpid(), getuid(), getgid()};
	uint64_t serial = 10;
	bool error = false;
	int fd;

	if (!size)
		return 0;
	if (*data & NO_ADMIN)
		peer.uid = 4711;
	fakehost_connect(&h, &peer, &fd);
	greet(fd, *data++);
	while (data && data < end) {
		data = send_next(fd, data, end, serial++);
		if (serial % 4 == 0) {
			turn();
			if (!listen_to(fd, &error))
				break;
		}
	}
	turn();
	listen_to(fd, &error);
	close(fd);
	for (unsigned i = 0; h.n_conns && i < 1000; i++)
		turn();
	ENSURE(h.n_conns == 0 && h.failed == 0);
	return 0;
}
