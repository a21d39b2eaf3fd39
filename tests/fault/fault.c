/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c: in every scenario, lets each system call fail with each errno that the kernel may give
 * there (once; and for those that last, from there to the end), and each allocation (once; and from
 * there to the end). By default a quarter of these is played: which one changes with the
 * turn, by default the day's. With -a all are.
 *
 *   fault [-a] [-t TURN] [-k calls|allocations] [scenario...]
 *
 * After each: the call returned a code of the closed list, or worked by another way; what it
 * did or did not do agrees with that code; the store works; after close and unref no
 * descriptor, no mapping and no block of the heap is left in the process, and after gc not a
 * name and not a byte on the partition.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocfail.h"
#include "chosen.h"
#include "clock.h"
#include "held.h"
#include "plausible.h"
#include "sandbox.h"
#include "stage.h"
#include "tracer.h"
#include "verify.h"

#define VICTIM_TIMEOUT_MS 20000u
#define FAILURES_MAX      8u

struct options {
	const char *disk;
	bool calls, allocations, all;
	unsigned turn;
	struct chosen chosen;
};

struct fault {
	enum {
		FAULT_NONE,
		FAULT_CALL,
		FAULT_ALLOCATION
	} kind;
	struct tracer_plan plan;
	bool all; /* of allocations */
};

struct play {
	struct stage stage;
	const struct options *options;
	struct tracer_result result;
	struct tracer_call calls[TRACER_CALLS_MAX]; /* undisturbed */
	unsigned n_calls;
	unsigned n_faults, n_passed, n_failed;
};

/* ---- one run --------------------------------------------------------------------------------- */

static const struct fault *the_fault; /* the victim's own */
static const struct world *the_world;

static void on_begin(void)
{
	if (the_fault->kind == FAULT_CALL)
		return;
	allocfail_arm(the_fault->kind == FAULT_ALLOCATION ? the_fault->plan.n : 0, the_fault->all);
}

static void on_end(void)
{
	unsigned long n = allocfail_disarm();
	if (the_fault->kind != FAULT_CALL)
		the_world->shared->n_allocations = n;
}

/* Checks that the call's result agrees with what is there. */
static int check_outcome(struct world *w, int rc)
{
	const struct scenario *sc = w->sc;
	if (!plausible_return(rc))
		return world_fail(w, "returned %d (%s), which is not in the closed list", rc,
				  strerror(-rc));
	if (sc->flags & OWN_PARTITION || !w->p)
		return 0;
	/* A call that opens or takes apart a whole store may stop half way; all
	 * others do all or nothing. */
	bool whole = !(sc->flags & (NO_STORE | CONSUMES));
	return world_check_keys(w, whole ? &rc : NULL);
}

static void victim(struct world *w, const struct fault *f)
{
	static struct held before;
	if (f->kind != FAULT_ALLOCATION && tracer_child(&f->plan) < 0)
		_exit(5);
	the_fault = f;
	the_world = w;
	content_reserve(4u << 20); /* before the look: it stays */
	held_look(w->mount, &before);
	if (scenario_prepare(w) < 0)
		_exit(3);
	w->on_begin = on_begin;
	w->on_end = on_end;
	int rc = scenario_run(w);
	if (f->kind == FAULT_NONE && rc != w->sc->want_rc)
		world_fail(w, "returned %d, not %d", rc, w->sc->want_rc);
	scenario_after(w); /* room again */
	if (w->shared->message[0] == '\0' && check_outcome(w, rc) == 0 && w->s)
		world_check_works(w, w->s);
	int closed = scenario_release(w);
	if (!plausible_return(closed))
		world_fail(w, "close returned %d", closed);
	const char *differs = held_differs(w->mount, &before);
	if (differs)
		world_fail(w, "%s", differs);
	_exit(w->shared->message[0] ? 4 : 0);
}

static int live(struct play *p, const struct fault *f)
{
	struct world *w = &p->stage.world;
	if (scenario_before(w) < 0)
		return -1;
	if ((w->sc->flags & TICKET_IN) && survivor_handoff(&p->stage.survivor, w) < 0)
		return -1;
	if ((w->sc->flags & IS_READ) && survivor_begins_to_read(&p->stage.survivor, w) < 0)
		return -1;
	pid_t pid = fork();
	if (pid < 0)
		return world_fail(w, "fork: %m");
	if (pid == 0)
		victim(w, f);
	int rc = 0;
	if (f->kind == FAULT_ALLOCATION) {
		while (waitpid(pid, &p->result.status, 0) < 0)
			if (errno != EINTR)
				return world_fail(w, "waitpid: %m");
	} else {
		rc = tracer_run(pid, &f->plan, VICTIM_TIMEOUT_MS, &p->result);
	}
	scenario_after(w);
	if (rc < 0)
		return world_fail(w, "the victim hung or could not be traced (%d)", rc);
	if (w->shared->message[0])
		return -1;
	if (!WIFEXITED(p->result.status) || WEXITSTATUS(p->result.status) != 0)
		return world_fail(w, "the victim ended with status 0x%x", p->result.status);
	return 0;
}

static int iterate(struct play *p, const struct fault *f)
{
	struct world *w = &p->stage.world;
	if (live(p, f) < 0 ||
	    ((w->sc->flags & IS_READ) && (survivor_reads_on(&p->stage.survivor, w) < 0 ||
					  survivor_ends_reading(&p->stage.survivor, w) < 0)) ||
	    survivor_verify(&p->stage.survivor, w) < 0)
		return -1;
	int rc = w->shared->rc;
	if ((w->sc->flags & OWN_PARTITION) && verify_look(w, VERIFY_GC, &rc) < 0)
		return -1;
	if ((w->sc->flags & TICKET_IN) && verify_ticket(w, &rc) < 0)
		return -1;
	if (w->shared->have_out && survivor_adopt(&p->stage.survivor, w) < 0)
		return -1;
	return verify_settled(w) < 0 ? -1 : stage_check_same(&p->stage);
}

static void say_failure(const struct play *p, const struct fault *f)
{
	const struct world *w = &p->stage.world;
	const char *all = f->plan.mode == TRACER_FAIL_ALL || f->all ? " and all after it" : "";
	if (f->kind == FAULT_CALL)
		printf("FAIL %s, call %u %s%s: %s: %s\n", w->sc->name, f->plan.n,
		       tracer_call_name(p->calls[f->plan.n - 1].nr), all,
		       f->plan.mode == TRACER_SHORT ? "cut short" : strerrorname_np(f->plan.error),
		       w->shared->message);
	else if (f->kind == FAULT_ALLOCATION)
		printf("FAIL %s, allocation %u%s: %s\n", w->sc->name, f->plan.n, all,
		       w->shared->message);
	else
		printf("FAIL %s, undisturbed: %s\n", w->sc->name, w->shared->message);
}

static bool try_one(struct play *p, const struct fault *f, unsigned *n_bad)
{
	if (stage_build(&p->stage) < 0) {
		printf("FAIL %s: the stage: %s\n", p->stage.world.sc->name,
		       p->stage.world.shared->message);
		stage_burn(&p->stage);
		++*n_bad;
		return false;
	}
	p->n_faults += f->kind != FAULT_NONE;
	if (iterate(p, f) == 0)
		return true;
	say_failure(p, f);
	stage_burn(&p->stage);
	++*n_bad;
	return false;
}

/* ---- all of a scenario ----------------------------------------------------------------------- */

static void fail_call(struct play *p, unsigned n, const struct plausible *how, unsigned *n_bad)
{
	const struct tracer_call *call = &p->calls[n - 1];

	for (size_t i = 0; i < PLAUSIBLE_ERRORS && how->errors[i] && *n_bad < FAILURES_MAX; i++) {
		struct fault f = {.kind = FAULT_CALL,
				  .plan = {how->mode, n, how->errors[i], true, call->nr}};

		/* A quarter in turn; of the tier's errors that do not last, a sixth. */
		unsigned part = p->stage.world.sc->flags & TIER && how->mode == TRACER_FAIL ? 6 : 4;
		if (!p->options->all && (n + i + p->options->turn) % part != 0)
			continue;
		/* A call that finds the name taken does not first find the directory full. */
		if (how->errors[i] == ENOSPC && call->result == -EEXIST)
			continue;
		tracer_aim(&f.plan, p->calls, p->n_calls);
		try_one(p, &f, n_bad);
		if (tracer_missed(&f.plan, &p->result))
			try_one(p, &f, n_bad);
	}
}

static void fail_calls(struct play *p, unsigned *n_bad)
{
	const struct plausible *how;

	for (unsigned n = 1; n <= p->n_calls; n++)
		for (size_t i = 0;
		     (p->options->all || !tracer_is_one_more_turn(p->calls, p->n_calls, n)) &&
		     (how = plausible_failure(&p->calls[n - 1], i));
		     i++)
			fail_call(p, n, how, n_bad);
}

static void fail_allocations(struct play *p, unsigned long n_allocations, unsigned *n_bad)
{
	for (unsigned long n = 1; n <= n_allocations && *n_bad < FAILURES_MAX; n++)
		for (int all = 0; all < 2; all++) {
			const struct fault f = {
				.kind = FAULT_ALLOCATION, .plan = {.n = (unsigned)n}, .all = all};

			if (p->options->all || (n + 2 * (unsigned)all + p->options->turn) % 4 == 0)
				try_one(p, &f, n_bad);
		}
}

static void play_scenario(struct play *p, const struct scenario *sc)
{
	p->stage.world.sc = sc;
	unsigned n_bad = 0, n_faults = p->n_faults;
	const struct fault none = {.kind = FAULT_NONE};
	unsigned long n_allocations = 0;
	if (try_one(p, &none, &n_bad)) {
		p->n_calls = tracer_recorded(&p->result);
		memcpy(p->calls, p->result.calls, sizeof(p->calls));
		n_allocations = p->stage.world.shared->n_allocations;
		if (p->options->calls)
			fail_calls(p, &n_bad);
		if (p->options->allocations)
			fail_allocations(p, n_allocations, &n_bad);
	}
	if (p->stage.built && stage_strike(&p->stage) < 0) {
		printf("FAIL %s: in the end: %s\n", sc->name, p->stage.world.shared->message);
		stage_burn(&p->stage);
		n_bad++;
	}
	if (n_bad)
		p->n_failed++;
	else
		p->n_passed++;
	printf("%s %-24s %3u calls, %3lu allocations, %4u faults\n", n_bad ? "not ok" : "ok    ",
	       sc->name, p->n_calls, n_allocations, p->n_faults - n_faults);
	fflush(stdout);
}

/* Once through the library in this process, so that what libc allocates at first
 * use is not taken for a leak. */
static void warm_up(const char *mount)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/warm", mount);
	struct shmstore_partition *p = NULL;
	struct shmstore *s = NULL;
	struct shmstore_view *v = NULL;
	struct shmstore_usage u;
	struct content c = {1, 100000};
	if (shmstore_partition_open(path, SHMSTORE_CREATE, &p) == 0 &&
	    shmstore_open(p, "warm", NULL, &s) == 0 && content_put(s, "k", 1, c, 0) == 0 &&
	    shmstore_get(s, "k", 1, 0, &v) == 0) {
		shmstore_view_unref(v);
		shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);
		shmstore_partition_gc(p, 0, NULL);
	}
	shmstore_close(s);
	shmstore_partition_unref(p);
	sandbox_wipe(mount);
}

static int body(const char *mount, void *arg)
{
	if (!allocfail_works()) {
		printf("SKIP a sanitizer's own system calls would fail too\n");
		return 77;
	}
	int rc = tracer_supported();
	if (rc < 0) {
		printf("SKIP ptrace does not work here: %s\n", strerror(-rc));
		return 77;
	}
	static struct play p;
	p.options = arg;
	if (stage_init(&p.stage, mount, p.options->disk) < 0)
		return 2;
	warm_up(mount);
	double begin = clock_s();
	const struct scenario *sc;
	for (size_t i = 0; (sc = scenario_at(i)); i++)
		if (chosen_has(&p.options->chosen, sc->name) &&
		    (p.options->disk || !(sc->flags & TIER)))
			play_scenario(&p, sc);
	double s = clock_s() - begin;
	printf("fault: %u faults in %.1f s, %.1f ms each; ", p.n_faults, s,
	       p.n_faults ? s * 1000 / p.n_faults : 0.0);
	printf(p.options->all ? "all of them\n" : "the quarter of turn %u\n", p.options->turn);
	return chosen_status(&p.options->chosen, "fault", p.n_passed, p.n_failed);
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'a':
		o->all = true;
		return 0;
	case 't':
		o->turn = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 'k':
		o->calls = strcmp(arg, "calls") == 0;
		o->allocations = strcmp(arg, "allocations") == 0;
		if (!o->calls && !o->allocations)
			argp_error(state, "-k takes calls or allocations");
		return 0;
	case ARGP_KEY_ARGS:
		chosen_take(&o->chosen, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"all", 'a', NULL, 0,
		 "Every error of each call, in each turn of a loop too, and every allocation", 0},
		{"turn", 't', "TURN", 0,
		 "Which quarter of the failures is played; the day's by default", 0},
		{"kind", 'k', "KIND", 0, "Only calls or only allocations", 0},
		{0},
	};
	static const struct argp argp = {
		known,
		on_option,
		"[SCENARIO...]",
		"Lets each system call and each allocation of the library fail.",
		NULL,
		NULL,
		NULL};
	struct options options = {
		.calls = true, .allocations = true, .turn = (unsigned)(time(NULL) / 86400)};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	options.disk = sandbox_disk();
	if (!options.disk)
		printf("SKIP the scenarios of the disk tier: no directory on a disk: %s\n",
		       strerror(errno));
	return sandbox_run("size=64m,huge=within_size,nr_inodes=10000", body, &options);
}
