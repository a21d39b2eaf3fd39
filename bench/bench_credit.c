/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_credit.c: what does the host daemon's presence cost a put?
 *
 * One partition under one shmstored (its own, with its own socket; $SHMSTORED, else the one of this
 * build), and stores of three kinds that take turns (measure.h): one that never looks for the
 * daemon, one that is registered and has no limit, one that is registered under a limit of its
 * label, so that every fresh byte is charged against credit and every removal looked at. Puts are
 * shown fresh (recycling off) and as they come.
 */
#include <err.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "place.h"
#include "report.h"

#define MIB   (1024ull * 1024)
#define LABEL "limited"

enum kind {
	OFF,
	UNLIMITED,
	LIMITED,
	N_KINDS
};

static const char *const KINDS[N_KINDS] = {"daemon off", "registered", "registered, limited"};
static const char key[] = "k";

struct one {
	struct shmstore *store;
	const void *data;
	size_t size;
};

static int run_put(void *arg)
{
	struct one *o = arg;
	struct iovec buffer = {(void *)(uintptr_t)o->data, o->size};

	return shmstore_put(o->store, key, 1, NULL, 0, &buffer, 1, 0);
}

static int after_put(void *arg)
{
	struct one *o = arg;

	return shmstore_delete(o->store, key, 1);
}

/* ---- the daemon ---- */

static pid_t daemon_pid;

static void stop_daemon(void)
{
	if (daemon_pid <= 0)
		return;
	kill(daemon_pid, SIGTERM);
	waitpid(daemon_pid, NULL, 0);
	daemon_pid = 0;
}

static void start_daemon(const struct place *place, const char *partition)
{
	const char *program = getenv("SHMSTORED");
	char config[128], socket[128];
	FILE *f;

	snprintf(config, sizeof(config), "%s/conf", place->path);
	snprintf(socket, sizeof(socket), "%s/socket", place->path);
	f = fopen(config, "w");
	if (!f)
		err(1, "%s", config);
	fprintf(f,
		"daemon {\n\tsocket = \"%s\"\n}\nhttp {\n\tenabled = no\n}\npartition \"%s\" "
		"{\n\tlabel \"" LABEL "\" {\n\t\tlimit = \"1GiB\"\n\t}\n}\n",
		socket, partition);
	if (fclose(f) != 0)
		err(1, "%s", config);
	setenv("SHMSTORE_SOCKET", socket, 1);
	daemon_pid = fork();
	if (daemon_pid < 0)
		err(1, "fork");
	if (daemon_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		program = program && *program ? program : BENCH_SHMSTORED;
		execl(program, program, "--config", config, (char *)NULL);
		err(127, "%s", program);
	}
	atexit(stop_daemon);
}

/* Waits for the daemon where it has only just been started. */
static struct shmstore *open_store(struct shmstore_partition *p, enum kind kind, bool recycle)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	char name[32];
	int r = -ETIMEDOUT;

	o.daemon = kind == OFF ? SHMSTORE_DAEMON_OFF : SHMSTORE_DAEMON_REQUIRED;
	o.label = kind == LIMITED ? LABEL : NULL;
	o.recycle_max = recycle ? SHMSTORE_RECYCLE_DEFAULT : 0;
	snprintf(name, sizeof(name), "%d-%d", kind, recycle);
	for (int i = 0; i < 1000 && r == -ETIMEDOUT; i++) {
		if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid) {
			daemon_pid = 0;
			errx(1, "shmstored ended");
		}
		r = shmstore_open(p, name, &o, &s);
		if (r == -ETIMEDOUT)
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	if (r < 0)
		errx(1, "store %s: %s", name, shmstore_strerror(r));
	return s;
}

static void bench_size(struct report *r, const struct report_options *options,
		       const struct place *place, struct shmstore_partition *p, size_t size)
{
	static const char *const ways[] = {"put fresh", "put as it comes"};
	struct contender c[2 * N_KINDS];
	struct one ones[2 * N_KINDS];
	const struct contender *failed = NULL;
	char text[16], what[96];
	void *data = measure_memory(size);
	int e;

	if (!data)
		errx(1, "no memory");
	for (unsigned i = 0; i < 2 * N_KINDS; i++) {
		ones[i] = (struct one){open_store(p, i % N_KINDS, i >= N_KINDS), data, size};
		c[i] = (struct contender){.operation = ways[i / N_KINDS],
					  .variant = KINDS[i % N_KINDS],
					  .run = run_put,
					  .after = after_put,
					  .arg = &ones[i]};
	}
	e = place_warm(place, 16 * size);
	if (e == 0)
		e = measure_contenders(c, 2 * N_KINDS, options->rounds, options->quick ? 100 : 1000,
				       50, &failed);
	if (e < 0)
		errx(1, "%zu bytes, %s: %s", size, failed ? failed->variant : "warm",
		     shmstore_strerror(e));
	report_size(size, text, sizeof(text));
	for (unsigned i = 0; i < 2 * N_KINDS; i++) {
		report_row(r, place->label, c[i].operation, c[i].variant, size, &c[i].series);
		snprintf(what, sizeof(what), "%s, %s, %s, %s", c[i].operation, text, place->label,
			 c[i].variant);
		if (i % N_KINDS != OFF)
			report_ratio(r, "9a", what, "x daemon off", REPORT_AT_MOST, 1.05,
				     &c[i].series, &c[i - i % N_KINDS].series);
	}
	for (unsigned i = 0; i < 2 * N_KINDS; i++) {
		shmstore_close(ones[i].store);
		measure_deinit(&c[i].series);
	}
	munmap(data, size);
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r = report_new(argc, argv, "bench_credit",
				      "what does the host daemon's presence cost a put?", &options);
	struct shmstore_partition *p;
	struct place place;
	char path[128];
	int status, e;

	if (!r)
		errx(1, "no memory");
	e = place_open_mount(&place, 2048 * MIB, 0);
	if (e < 0) {
		report_note(r, "no tmpfs of our own (%s): /dev/shm as it is", strerror(-e));
		e = place_open_devshm(&place);
	}
	if (e < 0)
		errx(1, "no place: %s", strerror(-e));
	snprintf(path, sizeof(path), "%s/partition", place.path);
	e = shmstore_partition_open(path, SHMSTORE_CREATE, &p);
	if (e < 0)
		errx(1, "%s: %s", path, shmstore_strerror(e));
	start_daemon(&place, path);
	/* The daemon where the scheduler wants it: it has a CPU of its own where there are two. */
	measure_pin(options.cpu);
	bench_size(r, &options, &place, p, 64 * 1024);
	bench_size(r, &options, &place, p, MIB);
	stop_daemon();
	shmstore_partition_unref(p);
	place_close(&place);
	status = report_print(r);
	report_free(r);
	return status;
}
