/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lease.c: what does a reservation cost its client: out of a lease, and
 * by a round trip to the daemon?
 *
 * Beside the round trip stand a bare one: two processes and a SOCK_SEQPACKET pair, messages of the
 * same size; and one through a server that only echoes, with epoll, as a daemon must that has more
 * than one client. All are on one CPU, and take turns (measure.h).
 */
#include <err.h>
#include <errno.h>
#include <shmstore/arbiter.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon_load.h"
#include "exchange.h"
#include "hostdaemon.h"
#include "measure.h"
#include "place.h"
#include "report.h"
#include "wire.h"

#define SMALL  UINT64_C(4096)
#define LARGE  (UINT64_C(64) << 20) /* more than is served from a lease */
#define POOL   (UINT64_C(1) << 30)
#define PAIRS  1000u /* of small ones, timed together: a clock's reading costs as much as one */
#define PACKET (sizeof(struct wire_header) + sizeof(struct wire_arb))

static struct {
	struct place own, partition;
	struct hostdaemon daemon;
	pid_t echo;
	int echo_fd;
	struct exchange bare;
	struct shmstore *store;
	struct shmstore_arb_reservation small[PAIRS], large;
} s;

static void clean_up(void)
{
	exchange_stop(&s.bare);
	if (s.echo > 0)
		load_kill(s.echo);
	hostdaemon_stop(&s.daemon);
	place_close(&s.partition);
	place_close(&s.own);
}

/* ---- contenders ------------------------------------------------------------------------------ */

static int error_of(int r)
{
	return r > 0 ? -EPROTO : r;
}

static int reserve_small(void *arg)
{
	int r = 0;

	(void)arg;
	for (unsigned i = 0; i < PAIRS && r == 0; i++)
		r = shmstore_arb_reserve(s.store, SHMSTORE_ARB_PARTITION, SMALL, NULL, &s.small[i]);
	return error_of(r);
}

static int release_small(void *arg)
{
	int r = 0;

	(void)arg;
	for (unsigned i = 0; i < PAIRS && r == 0; i++)
		r = shmstore_arb_release(s.store, &s.small[i]);
	return error_of(r);
}

static int cycle_small(void *arg)
{
	int r = 0;

	(void)arg;
	for (unsigned i = 0; i < PAIRS && r == 0; i++) {
		r = shmstore_arb_reserve(s.store, SHMSTORE_ARB_PARTITION, SMALL, NULL, &s.small[0]);
		if (r == 0)
			r = shmstore_arb_release(s.store, &s.small[0]);
	}
	return error_of(r);
}

static int reserve_large(void *arg)
{
	(void)arg;
	return error_of(
		shmstore_arb_reserve(s.store, SHMSTORE_ARB_PARTITION, LARGE, NULL, &s.large));
}

/* A release is not answered: what is asked after it makes sure that the daemon has dealt with it,
 * outside of what is timed. */
static int release_large(void *arg)
{
	struct shmstore_arb_pool_info info;
	int r = shmstore_arb_release(s.store, &s.large);

	(void)arg;
	if (r == 0)
		r = shmstore_arb_pool_info(s.store, SHMSTORE_ARB_PARTITION, &info);
	return error_of(r);
}

static int bare_exchange(void *arg)
{
	static const char message[PACKET];

	(void)arg;
	return exchange_call(&s.bare, message, sizeof(message), -1);
}

static int echo(void *arg)
{
	char message[PACKET] = {0};

	(void)arg;
	if (send(s.echo_fd, message, sizeof(message), MSG_NOSIGNAL) != (ssize_t)sizeof(message) ||
	    recv(s.echo_fd, message, sizeof(message), 0) != (ssize_t)sizeof(message))
		return -errno;
	return 0;
}

static int take(void *arg, const void *message, size_t size, int fd)
{
	(void)arg, (void)message, (void)size, (void)fd;
	return 0;
}

/* ---- the scene ------------------------------------------------------------------------------- */

static void start_echo(void)
{
	char path[HOSTDAEMON_PATH];

	snprintf(path, sizeof(path), "%s/echo", s.own.path);
	s.echo = load_echo_server(path);
	if (s.echo < 0)
		errx(1, "%s: %s", path, strerror((int)-s.echo));
	s.echo_fd = load_connect(path, false);
	if (s.echo_fd < 0)
		errx(1, "%s: %s", path, strerror(-s.echo_fd));
}

static void open_store(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	uint32_t task;
	int r = shmstore_partition_open(s.daemon.partition, SHMSTORE_CREATE, &p);

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	if (r == 0)
		r = shmstore_open(p, "lease", &o, &s.store);
	if (r == 0)
		r = shmstore_arb_task_begin(s.store, NULL, &task);
	if (r == 0)
		r = shmstore_arb_bind(s.store, NULL, task);
	if (r != 0)
		errx(1, "%s: %s", s.daemon.partition,
		     r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r));
	shmstore_partition_unref(p);
}

static bool set_scene(struct report *r)
{
	struct hostdaemon_options o = {.program = BENCH_SHMSTORED,
				       .more = "arbiter {\n\tlease = \"16MiB\"\n}\n"};
	const struct exchange_consumer consumer = {.take = take};
	char partition[HOSTDAEMON_PATH];
	int e = place_open_devshm(&s.own);

	if (e == 0)
		e = place_open_mount(&s.partition, POOL, 0);
	if (e < 0) {
		report_skip(r, "all",
			    e == -EPERM ? "needs root, for a tmpfs of its own" : strerror(-e));
		return false;
	}
	snprintf(partition, sizeof(partition), "%s/partition", s.partition.path);
	o.directory = s.own.path;
	o.partition = partition;
	e = exchange_start(&s.bare, &consumer);
	if (e < 0)
		errx(1, "a second process: %s", strerror(-e));
	start_echo();
	hostdaemon_start(&s.daemon, &o);
	open_store();
	return true;
}

static void measure(struct report *r, const struct report_options *options)
{
	struct contender c[] = {
		{.operation = "1000 reserves of 4 KiB",
		 .variant = "lease",
		 .run = reserve_small,
		 .after = release_small},
		{.operation = "1000 reserve + release", .variant = "lease", .run = cycle_small},
		{.operation = "reserve 64 MiB",
		 .variant = "round trip",
		 .run = reserve_large,
		 .after = release_large},
		{.operation = "round trip", .variant = "bare pair", .run = bare_exchange},
		{.operation = "round trip", .variant = "bare epoll server", .run = echo},
	};
	const size_t n = sizeof(c) / sizeof(c[0]);
	const struct contender *failed = NULL;
	struct measure_stat lease;
	int e = measure_contenders(c, n, options->rounds, options->quick ? 200 : 2000, 100,
				   &failed);

	if (e < 0)
		errx(1, "%s, %s: %s", failed ? failed->operation : "",
		     failed ? failed->variant : "", strerror(-e));
	for (size_t i = 0; i < n; i++)
		report_row(r, s.partition.label, c[i].operation, c[i].variant, 0, &c[i].series);
	lease = measure_stat(&c[0].series);
	report_target(r, &(struct report_target){.id = "11j",
						 .what = "reserve of 4 KiB out of a lease",
						 .unit = "ns",
						 .relation = REPORT_AT_MOST,
						 .target = 200,
						 .value = lease.median / PAIRS,
						 .min = lease.min / PAIRS,
						 .max = lease.max / PAIRS});
	report_ratio(r, "11k", "reserve by a round trip against a bare one", "x bare",
		     REPORT_AT_MOST, 1.5, &c[2].series, &c[3].series);
	for (size_t i = 0; i < n; i++)
		measure_deinit(&c[i].series);
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r =
		report_new(argc, argv, "bench_lease", "what a reservation costs", &options);
	double load[1] = {0};
	int e;

	if (!r)
		err(1, "out of memory");
	atexit(clean_up);
	getloadavg(load, 1);
	report_note(r, "all on CPU %d; the machine's load before: %.1f", measure_pin(options.cpu),
		    load[0]);
	if (set_scene(r))
		measure(r, &options);
	e = report_print(r);
	report_free(r);
	shmstore_close(s.store);
	return e;
}
