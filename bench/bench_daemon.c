/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_daemon.c: how many requests does shmstored answer, does a client that means harm slow the
 * others, and does it keep anything of those who came and went?
 *
 * Eight processes ask PING and wait for PONG, one request each at a time, not pinned. The floor in
 * the same rounds: the same packets, echoed by a bare server. Then the same clients while one
 * harmful process (of another user, where root runs this) does what it can; the figure is the time
 * per request of the others, with it and without it in the same round. A harmful process uses the
 * processor too: what it takes of that by itself is what "a process that only spins" shows.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_load.h"
#include "measure.h"
#include "report.h"

struct daemon {
	char dir[64], config[96], socket[96], echo[96];
	pid_t pid;
};

static struct daemon d;

static void clean_up(void)
{
	char command[160];

	if (d.pid > 0) {
		kill(d.pid, SIGTERM);
		waitpid(d.pid, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", d.dir);
	if (d.dir[0] && system(command) != 0)
		warnx("%s stays", d.dir);
}

static void nap(uint64_t ns)
{
	nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

static void write_config(void)
{
	FILE *f = fopen(d.config, "we");

	if (!f)
		err(1, "%s", d.config);
	fprintf(f,
		"daemon {\nsocket = \"%s\"\nsocket-mode = 0666\nmax-clients = "
		"1024\nmax-clients-per-user = 512\n"
		"hello-timeout = 1s\nlog-level = error\n}\nhttp { enabled = no }\npartition "
		"\"%s/partition\" { create "
		"= yes }\n",
		d.socket, d.dir);
	fclose(f);
}

static void start_daemon(const char *program)
{
	strcpy(d.dir, "/dev/shm/shmstore-bench-XXXXXX");
	if (!mkdtemp(d.dir) || chmod(d.dir, 0755) < 0)
		err(1, "%s", d.dir);
	atexit(clean_up);
	snprintf(d.config, sizeof(d.config), "%s/conf", d.dir);
	snprintf(d.socket, sizeof(d.socket), "%s/socket", d.dir);
	snprintf(d.echo, sizeof(d.echo), "%s/echo", d.dir);
	write_config();
	d.pid = fork();
	if (d.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		execl(program, program, "--config", d.config, (char *)NULL);
		err(127, "%s", program);
	}
	for (unsigned i = 0;; i++) {
		int fd = load_connect(d.socket, true);

		if (fd >= 0) {
			close(fd);
			return;
		}
		if (i > 500 || waitpid(d.pid, NULL, WNOHANG) == d.pid)
			errx(1, "%s does not answer: %s", program, strerror(-fd));
		nap(20000000);
	}
}

/* The part of it that is its own, in bytes. */
static uint64_t private_memory(void)
{
	char path[64], line[128];
	uint64_t sum = 0, kib;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", d.pid);
	f = fopen(path, "re");
	if (!f)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Private_Clean: %lu", &kib) == 1 ||
		    sscanf(line, "Private_Dirty: %lu", &kib) == 1)
			sum += kib * 1024;
	}
	fclose(f);
	return sum;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct contest {
	struct measure_series time, p99; /* per request */
};

/* One round: the clients run for window_ns. */
static void run_window(struct load *l, uint64_t window_ns, struct contest *ret)
{
	struct load_counts a, b;
	uint64_t t0, t1;

	load_run(l, true);
	nap(window_ns / 5); /* until all run */
	load_counts(l, &a);
	t0 = measure_now_ns();
	nap(window_ns);
	load_counts(l, &b);
	t1 = measure_now_ns();
	load_run(l, false);
	if (l->failed)
		errx(1, "a client failed: %s", strerror(l->failed));
	if (b.n == a.n)
		errx(1, "no request was answered in %.1f s", (double)(t1 - t0) / 1e9);
	measure_add(&ret->time, (t1 - t0) / (b.n - a.n));
	measure_end_round(&ret->time);
	measure_add(&ret->p99, (uint64_t)load_quantile(&a, &b, 0.99));
	measure_end_round(&ret->p99);
}

static void spin(const char *path)
{
	(void)path;
	for (;;)
		__asm__ volatile("");
}

static const struct harm spinner = {"only spins", spin};

static void run_harmed(struct load *l, const struct harm *h, uint64_t window_ns,
		       struct contest *ret)
{
	pid_t pid = load_harm(h, d.socket);

	if (pid < 0)
		errx(1, "fork: %s", strerror((int)-pid));
	nap(50000000);
	run_window(l, window_ns, ret);
	load_kill(pid);
	nap(50000000);
}

static void put(struct report *r, const char *variant, struct contest *c)
{
	report_row(r, "socket", "request", variant, 0, &c->time);
	report_row(r, "socket", "request, p99", variant, 0, &c->p99);
}

static void bench_requests(struct report *r, const struct report_options *options)
{
	const uint64_t window = options->quick ? 200000000 : 700000000;
	static struct contest quiet, echo, harmed[16], spun;
	struct load *l, *bare;
	struct measure_stat s;
	pid_t server = load_echo_server(d.echo);
	char what[128];
	int e = load_start(d.socket, &l);

	if (e == 0 && server > 0)
		e = load_start(d.echo, &bare);
	if (e < 0 || server < 0)
		errx(1, "clients: %s", strerror(e < 0 ? -e : (int)-server));
	for (unsigned i = 0; i < options->rounds; i++) {
		run_window(bare, window, &echo);
		run_window(l, window, &quiet);
		for (unsigned k = 0; k < load_n_harms; k++)
			run_harmed(l, &load_harms[k], window, &harmed[k]);
		run_harmed(l, &spinner, window, &spun);
	}
	load_stop(bare);
	load_stop(l);
	load_kill(server);
	put(r, "bare echo", &echo);
	put(r, "shmstored", &quiet);
	put(r, "beside one that only spins", &spun);
	s = measure_stat(&quiet.time);
	report_target(r, &(struct report_target){"9b", "PING, 8 clients", "requests/s",
						 REPORT_AT_LEAST, 50000, 1e9 / s.median,
						 1e9 / s.max, 1e9 / s.min});
	for (unsigned k = 0; k < load_n_harms; k++) {
		put(r, load_harms[k].name, &harmed[k]);
		snprintf(what, sizeof(what), "time per request beside one that %s",
			 load_harms[k].name);
		report_ratio(r, "9e", what, "x without", REPORT_AT_MOST, 1.10, &harmed[k].time,
			     &quiet.time);
	}
}

/* ---- what each costs by itself --------------------------------------------------------------- */

static uint64_t processor_ns(pid_t pid)
{
	char path[64];
	uint64_t ns;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%lu", &ns) != 1)
		err(1, "%s", path);
	fclose(f);
	return ns;
}

/* The part of one processor that the daemon spends on a harmful client while nobody else is there:
 * does not depend on who else computes. */
static void bench_cost(struct report *r, const struct report_options *options)
{
	const uint64_t window = options->quick ? 500000000 : 2000000000;

	for (unsigned k = 0; k < load_n_harms; k++) {
		pid_t pid = load_harm(&load_harms[k], d.socket);
		uint64_t t0, before;
		char what[128];

		if (pid < 0)
			errx(1, "fork: %s", strerror((int)-pid));
		nap(500000000); /* what may come at once has come */
		t0 = measure_now_ns();
		before = processor_ns(d.pid);
		nap(window);
		snprintf(what, sizeof(what), "of a processor, by the daemon, for one that %s",
			 load_harms[k].name);
		report_target(
			r, &(struct report_target){"9d", what, "%", REPORT_AT_MOST, 10,
						   100.0 * (double)(processor_ns(d.pid) - before) /
							   (double)(measure_now_ns() - t0),
						   0, 0});
		load_kill(pid);
		nap(100000000);
	}
}

/* ---- those who came and went ----------------------------------------------------------------- */

static void come_and_go(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int fd = load_connect(d.socket, true);

		if (fd < 0)
			errx(1, "connection %u: %s", i, strerror(-fd));
		close(fd);
	}
}

static void bench_growth(struct report *r, const struct report_options *options)
{
	const unsigned n = options->quick ? 10000 : 100000;
	uint64_t before, after, t0;
	char what[96];

	come_and_go(2000);
	nap(300000000);
	before = private_memory();
	t0 = measure_now_ns();
	come_and_go(n);
	report_seconds(r, "socket", "connect, HELLO, close", "shmstored", n,
		       (double)(measure_now_ns() - t0) / 1e9);
	nap(300000000);
	after = private_memory();
	snprintf(what, sizeof(what), "private memory more after %u connections (%s before)", n,
		 report_size(before, (char[32]){0}, 32));
	report_target(r, &(struct report_target){
				 "9c", what, "KiB", REPORT_AT_MOST, 64,
				 after > before ? (double)(after - before) / 1024 : 0, 0, 0});
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r = report_new(argc, argv, "bench_daemon",
				      "requests to shmstored, and who disturbs them", &options);
	const char *program = getenv("SHMSTORED");
	int e;

	if (!r)
		err(1, "out of memory");
	/* A write to a connection that was dropped must not end this process. */
	signal(SIGPIPE, SIG_IGN);
	start_daemon(program ? program : BENCH_SHMSTORED);
	report_note(r, "%u clients, not pinned, on %ld processors; %s", LOAD_CLIENTS,
		    sysconf(_SC_NPROCESSORS_ONLN),
		    geteuid() == 0 ? "the harmful ones are another user's"
				   : "the harmful ones are the same user's");
	bench_growth(r, &options);
	bench_cost(r, &options);
	bench_requests(r, &options);
	e = report_print(r);
	report_free(r);
	return e;
}
