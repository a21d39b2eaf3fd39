/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_grant.c: how long is a credit grant's round trip, while the daemon does nothing else, and
 * while it walks a million objects?
 *
 * One process asks for 4 KiB, again and again, one request at a time, and says in its page that it
 * has used them: each is a grant. Another one has the daemon reconcile, one full survey after the
 * other, for the rounds that say so. A round's figures are the median and the 99th percentile of
 * its requests; rounds with and without alternate.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_load.h"
#include "measure.h"
#include "pagewords.h"
#include "place.h"
#include "report.h"
#include "wire.h"

#define OBJECTS  1000000u
#define REQUESTS 20000u
#define STEP     UINT64_C(4096)

struct scene {
	struct place place;
	char config[96], socket[96], partition[96];
	struct shmstore_partition *p;
	struct shmstore *store;
	pid_t daemon;
	int fd;                     /* the asking store's connection */
	struct wire_credit *credit; /* of its page */
	uint64_t serial;
};

static struct scene s;

static void clean_up(void)
{
	if (s.daemon > 0) {
		kill(s.daemon, SIGTERM);
		waitpid(s.daemon, NULL, 0);
	}
	place_close(&s.place);
}

static void write_config(uint64_t limit)
{
	FILE *f = fopen(s.config, "we");

	if (!f)
		err(1, "%s", s.config);
	fprintf(f,
		"daemon {\nsocket = \"%s\"\nlog-level = error\n}\nhttp { enabled = no }\n"
		"partition \"%s\" { limit = %" PRIu64 "\nsurvey-interval = 1h }\n",
		s.socket, s.partition, limit);
	fclose(f);
}

static void start_daemon(const char *program)
{
	s.daemon = fork();
	if (s.daemon == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execl(program, program, "--config", s.config, (char *)NULL);
		err(127, "%s", program);
	}
	for (unsigned i = 0;; i++) {
		int fd = load_connect(s.socket, true);

		if (fd >= 0) {
			close(fd);
			return;
		}
		if (i > 500 || waitpid(s.daemon, NULL, WNOHANG) == s.daemon)
			errx(1, "%s does not answer: %s", program, strerror(-fd));
		nanosleep(&(struct timespec){0, 20000000}, NULL);
	}
}

static void fill(uint32_t n)
{
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	char key[16];
	int r;

	for (uint32_t i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%u", i);
		r = shmstore_put(s.store, key, strlen(key), NULL, 0, &iov, 1, 0);
		if (r < 0)
			errx(1, "object %u: %s", i, shmstore_strerror(r));
	}
}

static void request(int fd, uint16_t type, uint64_t serial, const void *body, const char *tail)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, serial, body, tail,
			     tail ? strlen(tail) : 0);

	if (send(fd, packet, n, MSG_NOSIGNAL) != (ssize_t)n)
		err(1, "send");
}

/* The next packet: its type; its body in ret. Packets of other types are passed over. */
static uint16_t reply(int fd, uint64_t serial, void *ret, size_t size)
{
	unsigned char packet[WIRE_PACKET_MAX];
	struct wire_header h;
	ssize_t n;

	do {
		n = recv(fd, packet, sizeof(packet), 0);
		if (n < (ssize_t)sizeof(h))
			errx(1, "the daemon hung up");
		memcpy(&h, packet, sizeof(h));
	} while (h.serial != serial);
	memcpy(ret, packet + sizeof(h), size);
	return h.type;
}

/* Our store, known to the daemon by this connection, on which we see each packet ourselves. */
static void register_store(void)
{
	struct wire_register body = {0};
	struct wire_registered done;
	char marker[128], line[64] = "";
	FILE *f;

	snprintf(marker, sizeof(marker), "%s/.shmstore", s.partition);
	f = fopen(marker, "re");
	while (f && strncmp(line, "uuid ", 5) != 0 && fgets(line, sizeof(line), f))
		continue;
	if (!f)
		err(1, "%s", marker);
	fclose(f);
	for (size_t i = 0, at = 5; i < 16; i++, at += 2) {
		unsigned byte;

		at += line[at] == '-';
		sscanf(line + at, "%2x", &byte);
		body.uuid[i] = (uint8_t)byte;
	}
	s.fd = load_connect(s.socket, true);
	if (s.fd < 0)
		errx(1, "%s: %s", s.socket, strerror(-s.fd));
	request(s.fd, WIRE_REGISTER, ++s.serial, &body, "stores/grant");
	if (reply(s.fd, s.serial, &done, sizeof(done)) != WIRE_REGISTERED)
		errx(1, "the daemon does not register our store");
}

static void map_page(void)
{
	char path[128];
	char *page;
	int fd;

	snprintf(path, sizeof(path), "%s/stores/grant/" WIRE_PAGE_FILE, s.partition);
	fd = open(path, O_RDWR | O_CLOEXEC);
	page = fd < 0 ? MAP_FAILED
		      : mmap(NULL, WIRE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		err(1, "%s", path);
	close(fd);
	s.credit = (struct wire_credit *)(void *)(page + WIRE_CREDIT_OFF);
}

static uint64_t grant(void)
{
	struct wire_grant body = {.need = STEP};
	struct wire_granted got;
	uint64_t t0 = measure_now_ns();

	request(s.fd, WIRE_GRANT, ++s.serial, &body, NULL);
	if (reply(s.fd, s.serial, &got, sizeof(got)) != WIRE_GRANTED)
		errx(1, "the daemon refuses");
	t0 = measure_now_ns() - t0;
	if (got.bytes != STEP || !wire_credit_charge(s.credit, STEP))
		errx(1, "the daemon granted %" PRIu64 " bytes", got.bytes);
	wire_credit_settle(s.credit, STEP, 0);
	return t0;
}

/* Has the daemon reconcile, over and over; a byte to fd for each. */
static void reconcile_for_ever(int fd)
{
	struct wire_query body = {.what = WIRE_QUERY_RECONCILE};
	int c = load_connect(s.socket, true);

	if (c < 0)
		_exit(1);
	for (uint64_t serial = 1;; serial++) {
		struct wire_data data = {.flags = WIRE_DATA_MORE};

		request(c, WIRE_QUERY, serial, &body, NULL);
		while (data.flags & WIRE_DATA_MORE)
			reply(c, serial, &data, sizeof(data));
		if (write(fd, "", 1) != 1)
			_exit(0);
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

struct figures {
	struct measure_series median, p99, worst;
};

static void note(struct measure_series *series, uint64_t ns)
{
	measure_add(series, ns);
	measure_end_round(series);
}

/* Requests until REQUESTS are done, and where fd >= 0, until a survey has
 * ended that began after we did. */
static void run_round(int fd, struct figures *ret)
{
	static uint64_t times[REQUESTS * 64];
	size_t n = 0, n_surveys = 0;
	char byte;

	while (n < sizeof(times) / sizeof(times[0]) &&
	       (n < REQUESTS || (fd >= 0 && n_surveys < 2))) {
		times[n++] = grant();
		if (fd >= 0 && n % 64 == 0 &&
		    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0)
			n_surveys += read(fd, &byte, 1) == 1;
	}
	qsort(times, n, sizeof(times[0]), by_size);
	note(&ret->median, times[n / 2]);
	note(&ret->p99, times[n - n / 100 - 1]);
	note(&ret->worst, times[n - 1]);
}

static void run_round_reconciling(struct figures *ret)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		err(1, "pipe");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		reconcile_for_ever(ends[1]);
	}
	close(ends[1]);
	run_round(ends[0], ret);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ends[0]);
}

static void print_rows(struct report *r, const char *variant, const struct figures *f)
{
	report_row(r, s.place.label, "grant, median", variant, 0, &f->median);
	report_row(r, s.place.label, "grant, p99", variant, 0, &f->p99);
	report_row(r, s.place.label, "grant, worst", variant, 0, &f->worst);
}

static void set_scene(uint32_t n_objects, const char *program)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	uint64_t size = (uint64_t)n_objects * 4096 + (UINT64_C(1) << 30);
	int r = place_open_mount(&s.place, size, n_objects + 1000);

	if (r == -EPERM)
		r = place_open_devshm(&s.place);
	if (r < 0)
		errx(1, "no place: %s", strerror(-r));
	atexit(clean_up);
	snprintf(s.partition, sizeof(s.partition), "%s/partition", s.place.path);
	snprintf(s.config, sizeof(s.config), "%s/conf", s.place.path);
	snprintf(s.socket, sizeof(s.socket), "%s/socket", s.place.path);
	o.daemon = SHMSTORE_DAEMON_OFF;
	r = shmstore_partition_open(s.partition, SHMSTORE_CREATE, &s.p);
	if (r == 0)
		r = shmstore_open(s.p, "grant", &o, &s.store);
	if (r < 0)
		errx(1, "%s: %s", s.partition, shmstore_strerror(r));
	fill(n_objects);
	write_config(size - (UINT64_C(64) << 20));
	start_daemon(program);
	register_store();
	map_page();
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r = report_new(argc, argv, "bench_grant",
				      "a credit grant while a survey runs", &options);
	const char *program = getenv("SHMSTORED");
	struct figures idle = {0}, busy = {0};
	struct measure_stat p99;
	int e;

	if (!r)
		err(1, "out of memory");
	set_scene(options.quick ? OBJECTS / 10 : OBJECTS, program ? program : BENCH_SHMSTORED);
	report_note(
		r,
		"%u objects; one store asks for 4 KiB, again and again; not pinned, %ld processors",
		options.quick ? OBJECTS / 10 : OBJECTS, sysconf(_SC_NPROCESSORS_ONLN));
	for (unsigned i = 0; i < options.rounds; i++) {
		run_round(-1, &idle);
		run_round_reconciling(&busy);
	}
	print_rows(r, "idle", &idle);
	print_rows(r, "reconciling", &busy);
	p99 = measure_stat(&busy.p99);
	report_target(r,
		      &(struct report_target){.id = "2",
					      .what = "p99 of a grant while objects are reconciled",
					      .unit = "us",
					      .relation = REPORT_AT_MOST,
					      .target = 1000,
					      .value = p99.median / 1000,
					      .min = p99.min / 1000,
					      .max = p99.max / 1000});
	e = report_print(r);
	report_free(r);
	shmstore_close(s.store);
	shmstore_partition_unref(s.p);
	return e;
}
