/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet.c: one socket to each client; a task's number goes down, its outcome comes back, the
 * socket's end is the client's death. The one that hands out is single-threaded and never
 * waits longer than a situation may take: ten times what one client alone would work, and
 * SLACK_S more, for a machine that does other things too. Then it is a hang: all clients are
 * killed and the next situation begins.
 */
#include "fleet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleetclient.h"
#include "measure.h"

#define RERUNS_MAX 3u
#define JOBS_MAX   (SITUATION_TASKS_MAX * 64u)
#define SLACK_S    10.0
#define IDLE       UINT32_MAX

struct job {
	uint32_t task;
	unsigned n_failures;
};

struct seat {
	pid_t pid; /* 0 = empty */
	int fd;
	bool ready;   /* it has asked for a task and has none */
	uint32_t job; /* IDLE, or what it does */
};

struct fleet {
	const struct fleet_options *options;
	struct fleet_result *result;
	struct fleet_shared *shared;
	struct seat seats[SITUATION_TASKS_MAX];
	struct job jobs[JOBS_MAX];
	unsigned n_jobs, next_job, n_open; /* n_open: handed out or still to be */
	uint32_t n_started;
	bool failed;
};

/* ---- seats ----------------------------------------------------------------------------------- */

static int start(struct fleet *f, unsigned i)
{
	struct seat *seat = &f->seats[i];
	struct fleetclient_options o = {.partition = f->options->partition,
					.shared = f->shared,
					.seat = i,
					.seed = f->options->seed * 1000000 + f->n_started++,
					.kill = f->options->kill,
					.pace = f->options->pace,
					.shrink = f->options->shrink,
					.objects = f->options->objects};
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	*seat = (struct seat){.fd = ends[0], .job = IDLE};
	seat->pid = fork();
	if (seat->pid == 0) {
		for (unsigned k = 0; k < f->options->n_clients; k++) {
			if (k != i && f->seats[k].pid > 0)
				close(f->seats[k].fd);
		}
		close(ends[0]);
		o.fd = ends[1];
		fleetclient_run(&o);
	}
	close(ends[1]);
	if (seat->pid < 0) {
		close(ends[0]);
		seat->pid = 0;
		return -EAGAIN;
	}
	return 0;
}

static void empty(struct seat *seat, bool killed)
{
	if (seat->pid <= 0)
		return;
	close(seat->fd); /* that tells it to end */
	if (killed)
		kill(seat->pid, SIGKILL);
	waitpid(seat->pid, NULL, 0);
	seat->pid = 0;
}

static void put_back(struct fleet *f, struct job job)
{
	if (job.n_failures > RERUNS_MAX || f->n_jobs == JOBS_MAX) {
		f->failed = true;
		f->n_open--;
	} else {
		f->jobs[f->n_jobs++] = job;
	}
}

/* The client's socket has ended: its task begins anew, in another client. */
static int bury(struct fleet *f, unsigned i)
{
	struct seat *seat = &f->seats[i];
	uint32_t job = seat->job;
	bool doomed = atomic_load(&f->shared->seats[i].doomed);

	empty(seat, false);
	f->result->n_kills += doomed;
	f->result->n_broken += !doomed;
	if (!doomed) {
		snprintf(f->result->refused, sizeof(f->result->refused),
			 "a client ended by itself");
		if (f->result->n_broken > f->options->n_clients)
			return -ECHILD; /* it cannot work at all */
	}
	if (job != IDLE)
		put_back(f, f->jobs[job]);
	return start(f, i);
}

static int hear(struct fleet *f, unsigned i)
{
	struct seat *seat = &f->seats[i];
	enum work_outcome o;
	ssize_t n = read(seat->fd, &o, sizeof(o));

	if (n != (ssize_t)sizeof(o))
		return bury(f, i);
	seat->ready = true;
	if (seat->job == IDLE)
		return 0;
	if (o == WORK_OK) {
		f->n_open--;
	} else {
		f->jobs[seat->job].n_failures++;
		f->result->n_failed_tasks++;
		put_back(f, f->jobs[seat->job]);
	}
	seat->job = IDLE;
	return 0;
}

static void hand_out(struct fleet *f)
{
	for (unsigned i = 0; i < f->options->n_clients && f->next_job < f->n_jobs; i++) {
		struct seat *seat = &f->seats[i];
		uint32_t task = f->jobs[f->next_job].task;

		if (!seat->ready)
			continue;
		seat->ready = false;
		seat->job = f->next_job++;
		f->result->n_tasks++;
		/* Where it is dead already its socket says so next. */
		if (send(seat->fd, &task, sizeof(task), MSG_NOSIGNAL) < 0)
			continue;
	}
}

/* ---- situations ------------------------------------------------------------------------------ */

/* 1 = all tasks have ended; 0 = not in time; -errno */
static int run_tasks(struct fleet *f, double limit_s)
{
	uint64_t end_ns = measure_now_ns() + (uint64_t)(limit_s * 1e9);
	struct pollfd p[SITUATION_TASKS_MAX];

	while (f->n_open > 0) {
		uint64_t now_ns = measure_now_ns();

		hand_out(f);
		for (unsigned i = 0; i < f->options->n_clients; i++)
			p[i] = (struct pollfd){.fd = f->seats[i].fd, .events = POLLIN};
		if (now_ns >= end_ns)
			return 0;
		if (poll(p, f->options->n_clients, (int)((end_ns - now_ns) / 1000000) + 1) < 0)
			return -errno;
		for (unsigned i = 0; i < f->options->n_clients; i++) {
			int r = p[i].revents ? hear(f, i) : 0;

			if (r < 0)
				return r;
		}
	}
	return 1;
}

static void wait_until_ready(struct fleet *f)
{
	for (unsigned i = 0; i < f->options->n_clients; i++) {
		while (f->seats[i].pid > 0 && !f->seats[i].ready) {
			if (hear(f, i) < 0)
				return;
		}
	}
}

static int run_situation(struct fleet *f)
{
	double work_s = (double)situation_work_ns(&f->shared->situation) / 1e9 * f->options->pace;
	uint64_t began_ns;
	int r;

	f->next_job = 0;
	f->n_jobs = f->n_open = f->shared->situation.n_tasks;
	f->failed = false;
	for (unsigned i = 0; i < f->n_jobs; i++)
		f->jobs[i] = (struct job){i, 0};
	/* a client's start is no part of a situation's time, unless another one died */
	wait_until_ready(f);
	began_ns = measure_now_ns();
	r = run_tasks(f, 10 * work_s + SLACK_S);
	if (r < 0)
		return r;
	f->result->makespan_s += (double)(measure_now_ns() - began_ns) / 1e9 / f->options->pace;
	f->result->n_failed_situations += f->failed;
	f->result->n_hangs += r == 0;
	for (unsigned i = 0; r == 0 && i < f->options->n_clients; i++) {
		int e;

		empty(&f->seats[i], true);
		e = start(f, i);
		if (e < 0)
			return e;
	}
	return 0;
}

static void add_up(struct fleet *f)
{
	for (unsigned i = 0; i < f->options->n_clients; i++) {
		const struct fleet_seat *s = &f->shared->seats[i];
		struct work_counts *sum = &f->result->work;

		sum->n_retries += s->counts.n_retries;
		sum->n_splits += s->counts.n_splits;
		sum->n_toobig += s->counts.n_toobig;
		sum->lost_ns += s->counts.lost_ns;
		f->result->n_refused += s->n_refused;
		f->result->capacity = s->capacity;
		if (s->refused[0])
			memcpy(f->result->refused, s->refused, sizeof(s->refused));
	}
}

int fleet_run(const struct fleet_options *o, struct fleet_result *ret)
{
	struct fleet *f = calloc(1, sizeof(*f));
	struct twister random;
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (!f)
		return -ENOMEM;
	f->options = o;
	f->result = ret;
	f->shared = mmap(NULL, sizeof(*f->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f->shared == MAP_FAILED) {
		free(f);
		return -ENOMEM;
	}
	twister_init(&random, o->seed);
	for (unsigned i = 0; i < o->n_clients && r == 0; i++)
		r = start(f, i);
	for (uint32_t i = 0; i < o->n_situations && r == 0; i++) {
		situation_make(&random, &o->rules, &f->shared->situation);
		r = run_situation(f);
	}
	for (unsigned i = 0; i < o->n_clients; i++)
		empty(&f->seats[i], r < 0);
	add_up(f);
	munmap(f->shared, sizeof(*f->shared));
	free(f);
	return r;
}
