/* SPDX-License-Identifier: Apache-2.0 */
#include "simworld.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "config.h"
#include "daemon.h"
#include "log.h"
#include "simclock.h"
#include "simloop.h"
#include "simproc.h"
#include "simscanner.h"
#include "simtasks.h"
#include "simtrace.h"

#define STEPS_MAX    2000000u
#define FDS_MAX      256
#define JUMPS_SELDOM 500u /* of so many waits once */
#define HEARD_SELDOM 6u   /* of so many turns once */

static struct simworld world;

/* ---- what is around the daemon --------------------------------------------------------------- */

/* The oldest one of those in the backlog. */
static int accept_one(void *arg)
{
	struct simworld *w = arg;

	if (w->fault_permille && simworld_below(w, 1000) < w->fault_permille) {
		simtrace_now()->n_faults++;
		return -EMFILE;
	}
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		struct simclient *c = &w->clients[i];
		int fd = c->their_fd;

		if (fd < 0)
			continue;
		simproc_connects(fd, c->pid);
		c->their_fd = -1;
		simtrace_say("c%u is accepted", c->number);
		return fd;
	}
	return -EAGAIN;
}

static void killed(pid_t pid, int number)
{
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		if (world.clients[i].state != SIMCLIENT_NONE && world.clients[i].pid == pid) {
			simtrace_say("c%u gets signal %d", i, number);
			world.clients[i].n_steps = 0;
			world.clients[i].next_ns = simclock_now();
		}
	}
}

static void mount_in(const char *base, const char *name, const char *options, char *ret,
		     size_t size)
{
	snprintf(ret, size, "%s/%s", base, name);
	SIM_ENSURE(mkdir(ret, 0755) == 0);
	if (options)
		SIM_ENSURE(mount("tmpfs", ret, "tmpfs", 0, options) == 0);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void configure_daemon(struct simworld *w, const char *base, FILE *f)
{
	static const char *const policies[] = {"off", "lifo", "group", "shm"};

	fprintf(f,
		"daemon { socket = \"%s/socket\" psi = no log-level = %s hello-timeout = 2s\n"
		"  credit = %uKiB credit-idle = %us output-max = 64KiB }\n"
		"http { enabled = no }\n",
		base, simtrace_now()->whole ? "info" : "emergency", 16u << simworld_below(w, 6),
		1 + (unsigned)simworld_below(w, 5));
	w->arbiter = simworld_chance(w, 50);
	fprintf(f, "arbiter { enabled = %s wait = %ums tick = %ums }\n", w->arbiter ? "yes" : "no",
		SIMTASKS_WAIT_MS, 10 + (unsigned)simworld_below(w, 200));
	w->watched = simworld_chance(w, 50);
	fprintf(f,
		"pressure { enabled = %s host-total = %uMiB interval = 100ms preempt = %s\n"
		"  preempt-grace = 500ms preempt-term = 500ms\n"
		"  proc-root = \"%s\" cgroup-root = \"%s\" }\n"
		"profile { directory = none }\n",
		w->watched ? "yes" : "no", 24 + (unsigned)simworld_below(w, 64),
		policies[simworld_below(w, 4)], w->proc, w->cgroup);
	fprintf(f, "stage { wait-ms = %u slots = 2 workers = 2 private = 64MiB total = 100MiB }\n",
		SIMTASKS_STAGE_MS);
}

static void configure_partition(struct simworld *w, FILE *f)
{
	static const char *const queues[] = {"limits", "limits", "host", "first"};

	w->whole.hard = (400 + simworld_below(w, 600)) * SIMSTORE_UNIT;
	fprintf(f,
		"partition \"%s\" { create = yes shared = yes limit = %llu queue = %s\n"
		"  survey-interval = %us\n",
		w->partition, (unsigned long long)w->whole.hard, queues[simworld_below(w, 4)],
		2 + (unsigned)simworld_below(w, 20));
	for (unsigned i = 0; i < SIMWORLD_USERS; i++) {
		w->of_user[i].hard = (96 + simworld_below(w, 400)) * SIMSTORE_UNIT;
		fprintf(f, "  user \"%u\" { limit = %llu }\n", w->users[i],
			(unsigned long long)w->of_user[i].hard);
	}
	fprintf(f, "}\n");
}

static struct config *configure(struct simworld *w, const char *base)
{
	struct config *c = NULL;
	char path[256], *error = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "%s/shmstored.conf", base);
	f = fopen(path, "we");
	SIM_ENSURE(f);
	configure_daemon(w, base, f);
	configure_partition(w, f);
	SIM_ENSURE(fclose(f) == 0);
	if (config_read(path, &c, &error) < 0)
		simtrace_fail("%s", error);
	return c;
}

static void clients_hear(struct simworld *w)
{
	struct pollfd fds[SIMWORLD_CLIENTS];

	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++)
		fds[i] = (struct pollfd){.fd = w->clients[i].fd, .events = POLLIN};
	SIM_ENSURE(poll(fds, SIMWORLD_CLIENTS, 0) >= 0);
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		if (fds[i].revents)
			simclient_hear(&w->clients[i]);
	}
}

/* Clients hear what it has said now and then, and all of it whenever nothing is ready. */
static bool daemon_turns(struct simworld *w)
{
	bool any;

	simproc_refuse(w->fault_permille); /* the daemon's calls, not those of clients */
	any = simloop_turn(w->host.loop);
	simproc_refuse(0);

	if (any && simworld_below(w, HEARD_SELDOM))
		return true;
	simcheck_step(w);
	clients_hear(w);
	return any;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Now and then a clock jumps: the host sleeps, the daemon is stopped, the time of day is set. */
static void jump(struct simworld *w)
{
	uint64_t ns = (simworld_chance(w, 50) ? 10 : 36000) * simworld_below(w, SECOND);

	switch (simworld_below(w, 3)) {
	case 0:
		simtrace_say("the host sleeps for %llu s", (unsigned long long)(ns / SECOND));
		simclock_suspend(ns);
		return;
	case 1:
		simtrace_say("the daemon is stopped for %llu s", (unsigned long long)(ns / SECOND));
		simclock_pass(ns);
		w->end_ns += ns;
		break;
	default:
		simtrace_say("the clock is set by %llu s", (unsigned long long)(ns / SECOND));
		simclock_set(simworld_chance(w, 50) ? (int64_t)ns : -(int64_t)ns);
		return;
	}
	w->jumped_ns = simclock_now();
}

/* To what comes next. */
static void wait_for(struct simworld *w, uint64_t limit_ns)
{
	uint64_t next = simloop_next_ns(w->host.loop), now = simclock_now();

	if (next > limit_ns)
		next = limit_ns;
	for (unsigned i = 0; !w->ending && i < SIMWORLD_CLIENTS; i++) {
		if (w->clients[i].next_ns < next)
			next = w->clients[i].next_ns;
	}
	if (next > now)
		simclock_pass(next - now);
	if (!w->ending && simworld_below(w, JUMPS_SELDOM) == 0)
		jump(w);
}

static bool clients_step(struct simworld *w)
{
	unsigned first = (unsigned)simworld_below(w, SIMWORLD_CLIENTS);

	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		struct simclient *c = &w->clients[(first + i) % SIMWORLD_CLIENTS];

		if (c->next_ns > simclock_now())
			continue;
		if (c->state != SIMCLIENT_NONE)
			simprogram_step(c);
		else if (c->their_fd < 0 && (!c->store.path[0] || !simstore_is_there(&c->store)))
			simclient_come(c); /* its predecessor's store is gone */
		else
			c->next_ns = simclock_now() + 100 * MS;
		return true;
	}
	return false;
}

static void run_until(struct simworld *w, bool (*over)(const struct simworld *w))
{
	for (unsigned n = 0; !over(w); n++) {
		if (n == STEPS_MAX)
			simtrace_fail("%u steps, and no end of it", n);
		if (!w->ending && simworld_chance(w, 60) && clients_step(w))
			continue;
		if (daemon_turns(w) || (!w->ending && clients_step(w)))
			continue;
		simcheck_quiet(w);
		wait_for(w, w->end_ns > simclock_now() ? w->end_ns : UINT64_MAX);
	}
}

static bool time_is_over(const struct simworld *w)
{
	return simclock_now() >= w->end_ns;
}

/* The same, and surveys have found what nobody had told of: all is as it was at the beginning. */
static bool all_is_over(const struct simworld *w)
{
	return time_is_over(w) && (simcheck_is_idle(w) || simclock_now() > w->end_ns + 60 * SECOND);
}

/* ---- one run --------------------------------------------------------------------------------- */

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < FDS_MAX; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void begin(struct simworld *w, uint32_t seed, const char *base)
{
	struct config *config;
	int r;

	memset(w, 0, sizeof(*w));
	twister_init(&w->random, seed);
	simclock_begin();
	mount_in(base, "part", "size=16m,mode=1777", w->partition, sizeof(w->partition));
	mount_in(base, "proc", NULL, w->proc, sizeof(w->proc));
	mount_in(base, "cgroup", NULL, w->cgroup, sizeof(w->cgroup));
	simproc_begin(w->proc, &w->random, killed);
	simloop_begin(&w->random, accept_one, w);
	simscanner_begin(&w->random);
	for (unsigned i = 0; i < SIMWORLD_USERS; i++)
		w->users[i] = i ? 1000 + i : 0;
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++)
		w->clients[i] =
			(struct simclient){.world = w,
					   .number = i,
					   .fd = -1,
					   .their_fd = -1,
					   .store = {.lock_fd = -1},
					   .next_ns = simclock_now() + simworld_below(w, SECOND)};
	config = configure(w, base);
	w->overhead = UINT64_C(4096) * (SIMWORLD_CLIENTS + 16);
	r = host_start(&w->host, config, &actord_none);
	if (r < 0)
		simtrace_fail("the daemon does not start: %d", r);
}

static void everybody_goes(struct simworld *w)
{
	w->ending = true;
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		struct simclient *c = &w->clients[i];

		if (c->state != SIMCLIENT_NONE && simworld_chance(w, 50))
			simclient_die(c);
		else if (c->state != SIMCLIENT_NONE)
			simclient_leave(c);
	}
}

void simworld_run(uint32_t seed, const char *base)
{
	struct simworld *w = &world;
	struct simloop_counts n;
	int n_fds = count_fds();

	begin(w, seed, base);
	/* what the daemon does by itself at its start */
	w->ending = true;
	w->end_ns = simclock_now() + 2 * SECOND;
	run_until(w, time_is_over);
	n = simloop_counts(w->host.loop);
	w->n_polls = n.n_polls;
	w->n_timers = n.n_timers;
	w->used = simcheck_used(w);
	w->ending = false;
	w->fault_permille = simworld_chance(w, 15) ? 1 + (unsigned)simworld_below(w, 20) : 0;
	w->end_ns =
		simclock_now() + (simworld_chance(w, 90) ? SECOND + simworld_below(w, 4 * SECOND)
							 : simworld_below(w, 20 * SECOND));
	run_until(w, time_is_over);
	w->fault_permille = 0;
	everybody_goes(w);
	w->end_ns = simclock_now() + 6 * SECOND;
	run_until(w, all_is_over);
	simcheck_end(w);
	host_stop(&w->host);
	if (count_fds() != n_fds)
		simtrace_fail("%d descriptors are open, %d were before", count_fds(), n_fds);
	simtrace_say("the end: %llu answers", (unsigned long long)simtrace_now()->n_answers);
}
