/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleetclient.c: taskwork.h by the library. Memory is either reserved and released by name, or put
 * into a store that reserves by itself (SHMSTORE_OPEN_ARBITRATE) and deleted again.
 *
 * A doomed operation is killed by a timer while it runs or waits, and right after it where it is
 * quicker than that: SIGKILL, as from outside.
 */
#include "fleetclient.h"

#include <err.h>
#include <errno.h>
#include <shmstore/arbiter.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "twister.h"

#define DIES_WITHIN_US 5000u

struct client {
	const struct fleetclient_options *options;
	struct fleet_seat *seat;
	struct shmstore *store;
	struct twister random;
	struct shmstore_arb_reservation reservations[SITUATION_SLOTS_MAX];
	void *data; /* what objects are made of */
};

static void die(int signal)
{
	(void)signal;
	kill(getpid(), SIGKILL);
}

static bool doom(struct client *c)
{
	struct itimerval soon = {0};

	if (c->options->kill <= 0 || twister_real(&c->random) >= c->options->kill)
		return false;
	atomic_store(&c->seat->doomed, true);
	soon.it_value.tv_usec = (suseconds_t)(1 + twister_below(&c->random, DIES_WITHIN_US));
	setitimer(ITIMER_REAL, &soon, NULL);
	return true;
}

static enum work_outcome outcome(struct client *c, int r, const char *what)
{
	switch (r) {
	case SHMSTORE_ARB_OK:
		return WORK_OK;
	case SHMSTORE_ARB_RETRY:
		return WORK_RETRY;
	case SHMSTORE_ARB_SPLIT:
		return WORK_SPLIT;
	case SHMSTORE_ARB_TOOBIG:
		return WORK_TOOBIG;
	case SHMSTORE_ARB_NOMEM:
		return WORK_FAILED;
	default:
		c->seat->n_refused++;
		snprintf(c->seat->refused, sizeof(c->seat->refused), "%s: %s", what,
			 r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r));
		return WORK_FAILED;
	}
}

static uint64_t shrunk(const struct client *c, uint64_t bytes)
{
	bytes >>= c->options->shrink;
	return bytes ? bytes : 1;
}

static int put(struct client *c, uint32_t slot, uint64_t bytes)
{
	struct iovec data = {c->data, bytes};

	return shmstore_put(c->store, &slot, sizeof(slot), NULL, 0, &data, 1, 0);
}

static enum work_outcome client_reserve(void *arg, uint32_t slot, uint64_t bytes,
					uint64_t *ret_handle)
{
	struct client *c = arg;
	bool doomed = doom(c);
	int r;

	*ret_handle = slot;
	bytes = shrunk(c, bytes);
	if (c->options->objects)
		r = put(c, slot, bytes);
	else
		r = shmstore_arb_reserve(c->store, SHMSTORE_ARB_PARTITION, bytes, NULL,
					 &c->reservations[slot]);
	if (doomed)
		die(0);
	return outcome(c, r, c->options->objects ? "put" : "reserve");
}

static enum work_outcome client_release(void *arg, uint64_t handle)
{
	struct client *c = arg;
	uint32_t slot = (uint32_t)handle;
	bool doomed = doom(c);
	int r;

	if (c->options->objects)
		r = shmstore_delete(c->store, &slot, sizeof(slot));
	else
		r = shmstore_arb_release(c->store, &c->reservations[slot]);
	if (doomed)
		die(0);
	return outcome(c, r, c->options->objects ? "delete" : "release");
}

static enum work_outcome client_pin(void *arg, uint64_t handle)
{
	struct client *c = arg;

	return outcome(c, shmstore_arb_pin(c->store, &c->reservations[handle], NULL), "pin");
}

static enum work_outcome client_unpin(void *arg, uint64_t handle)
{
	struct client *c = arg;

	return outcome(c, shmstore_arb_unpin(c->store, &c->reservations[handle]), "unpin");
}

static enum work_outcome client_ready(void *arg)
{
	struct client *c = arg;
	bool doomed = doom(c);
	int r = shmstore_arb_ready(c->store, NULL);

	if (doomed)
		die(0);
	return outcome(c, r, "ready");
}

static enum work_outcome client_attempt_begin(void *arg)
{
	struct client *c = arg;

	return outcome(c, shmstore_arb_retry_begin(c->store, NULL), "retry_begin");
}

static enum work_outcome client_attempt_end(void *arg, bool succeeded)
{
	struct client *c = arg;

	return outcome(c, shmstore_arb_retry_end(c->store, NULL, succeeded), "retry_end");
}

static enum work_outcome client_work(void *arg, uint64_t ns)
{
	struct client *c = arg;
	uint64_t real_ns = (uint64_t)((double)ns * c->options->pace);
	struct timespec t = {(time_t)(real_ns / 1000000000), (long)(real_ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		continue;
	return WORK_OK;
}

static uint64_t client_now(void *arg)
{
	const struct client *c = arg;

	return (uint64_t)((double)measure_now_ns() / c->options->pace);
}

static const struct work_calls client_calls = {.reserve = client_reserve,
					       .release = client_release,
					       .pin = client_pin,
					       .unpin = client_unpin,
					       .ready = client_ready,
					       .attempt_begin = client_attempt_begin,
					       .attempt_end = client_attempt_end,
					       .work = client_work,
					       .now = client_now};

static enum work_outcome run_task(struct client *c, const struct situation_task *work)
{
	enum work_outcome o = WORK_FAILED;
	uint32_t task;

	if (outcome(c, shmstore_arb_task_begin(c->store, NULL, &task), "task_begin") != WORK_OK)
		return o;
	if (outcome(c, shmstore_arb_bind(c->store, NULL, task), "bind") == WORK_OK)
		o = work_run(work, &client_calls, c, &c->seat->counts);
	if (outcome(c, shmstore_arb_task_end(c->store, task), "task_end") != WORK_OK)
		o = WORK_FAILED;
	return o;
}

static void open_store(struct client *c)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_arb_pool_info info;
	struct shmstore_partition *p;
	char name[48];
	int r;

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	o.recycle_max = 0; /* what is deleted is free at once */
	o.flags |= c->options->objects ? SHMSTORE_OPEN_ARBITRATE : 0;
	snprintf(name, sizeof(name), "fleet-%u-%d", c->options->seat, getpid());
	r = shmstore_partition_open(c->options->partition, SHMSTORE_CREATE, &p);
	if (r == 0)
		r = shmstore_open(p, name, &o, &c->store);
	if (r < 0)
		errx(1, "store %s in %s: %s", name, c->options->partition, shmstore_strerror(r));
	r = shmstore_arb_pool_info(c->store, SHMSTORE_ARB_PARTITION, &info);
	if (r != 0)
		errx(1, "the arbiter of %s: %s", c->options->partition,
		     r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r));
	c->seat->capacity = info.capacity;
}

_Noreturn void fleetclient_run(const struct fleetclient_options *o)
{
	static struct client c;
	uint32_t number;
	enum work_outcome result = WORK_OK;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 1);
	signal(SIGALRM, die);
	c.options = o;
	c.seat = &o->shared->seats[o->seat];
	atomic_store(&c.seat->doomed, false);
	twister_init(&c.random, o->seed);
	if (o->objects) {
		c.data = mmap(NULL, (UINT64_C(8) << 30) >> o->shrink, PROT_READ,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (c.data == MAP_FAILED)
			err(1, "memory to put");
	}
	open_store(&c);
	while (write(o->fd, &result, sizeof(result)) == (ssize_t)sizeof(result) &&
	       read(o->fd, &number, sizeof(number)) == (ssize_t)sizeof(number))
		result = run_task(&c, &o->shared->situation.tasks[number]);
	shmstore_close(c.store);
	_exit(0);
}
