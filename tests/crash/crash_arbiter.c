/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_arbiter.c: a client of the memory arbiter is killed at each system call, before it and
 * after it; each of its system calls fails with each errno that the kernel may give there;
 * each of its allocations fails.
 *
 *   crash_arbiter -d SHMSTORED [-a] [-k kills|calls|allocations|faults] [-v] [scene...]
 *
 * After each kill: who waited for what the dead one held is given it, and once the daemon has taken
 * the dead one apart, its books are empty of it and what it counts as used is what the kernel
 * counts; after all of a scene: as much as before. After each fault: no call hangs, each answers
 * what arbiter.h says, the books are right as soon as its tasks have ended, with its store still
 * open, and nothing is left in the process.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocfail.h"
#include "arbvictim.h"
#include "chosen.h"
#include "clock.h"
#include "held.h"
#include "plausible.h"
#include "tracer.h"

#define VICTIM_TIMEOUT_MS 15000u /* less than the daemon's longest wait */
#define FAILURES_MAX      5u

struct options {
	const char *daemon;
	bool kills, calls, allocations, all, verbose;
	struct chosen chosen;
};

enum kind {
	NOTHING,
	KILL,
	FAIL_CALL,
	FAIL_ALLOCATION
};

struct step {
	enum kind kind;
	struct tracer_plan plan;
	bool all; /* of allocations */
};

struct play {
	struct arbstage st;
	const struct options *options;
	const struct arbscene *scene;
	struct tracer_result result;
	struct tracer_call calls[TRACER_CALLS_MAX]; /* undisturbed */
	unsigned n_calls, n_bad, n_done[FAIL_ALLOCATION + 1], n_passed, n_failed;
	unsigned long *n_allocations; /* shared with the victims */
};

/* ---- one of them ----------------------------------------------------------------------------- */

static void victim(struct play *p, const struct step *step)
{
	static struct held before;
	static struct arbvictim v;
	const char *differs;

	if (step->kind != FAIL_ALLOCATION && tracer_child(NULL) < 0)
		_exit(5);
	v = (struct arbvictim){
		.st = &p->st, .scene = p->scene, .disturbed = step->kind >= FAIL_CALL};
	held_look(p->st.mount, &before);
	if (!arbvictim_prepare(&v))
		_exit(3);
	if (step->kind == FAIL_ALLOCATION || step->kind == NOTHING)
		allocfail_arm(step->plan.n, step->all);
	tracer_begin();
	arbvictim_run(&v);
	tracer_end();
	*p->n_allocations = allocfail_disarm();
	if (step->kind >= FAIL_CALL) {
		arbvictim_leave(&v);
		arbvictim_release(&v);
		differs = held_differs(p->st.mount, &before);
		if (differs)
			arbstage_fail(&p->st, "%s", differs);
	}
	/* else without closing anything: death at the end */
	_exit(p->st.shared->message[0] ? 4 : 0);
}

static bool live_and_die(struct play *p, const struct step *step)
{
	pid_t pid = fork();
	int rc = 0, status;
	bool killed, over;

	if (pid < 0)
		return arbstage_fail(&p->st, "fork: %m");
	if (pid == 0)
		victim(p, step);
	if (step->kind == FAIL_ALLOCATION)
		while (waitpid(pid, &p->result.status, 0) < 0 && errno == EINTR)
			;
	else
		rc = tracer_run(pid, &step->plan, VICTIM_TIMEOUT_MS, &p->result);
	status = p->result.status;
	if (rc < 0)
		return arbstage_fail(&p->st, "the victim hung or could not be traced (%d)", rc);
	killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	over = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (p->st.shared->message[0])
		return false;
	if (step->kind == KILL && p->result.reached ? !killed : !over)
		return arbstage_fail(&p->st, "the victim ended with status 0x%x", (unsigned)status);
	return true;
}

static bool iterate(struct play *p, const struct step *step)
{
	int told;

	if (!live_and_die(p, step) || !arbstage_answer(&p->st, &told))
		return false;
	if (told != SHMSTORE_ARB_OK)
		return arbstage_fail(&p->st, "who waited for the victim was told %d", told);
	return arbstage_settled(&p->st, false);
}

static void say_failure(const struct play *p, const struct step *step)
{
	static const char *const modes[] = {[TRACER_COUNT] = "undisturbed",
					    [TRACER_KILL_BEFORE] = "killed before",
					    [TRACER_KILL_AFTER] = "killed after",
					    [TRACER_FAIL] = "fails",
					    [TRACER_FAIL_ALL] = "and all like it fail",
					    [TRACER_FAIL_DONE] = "is done and fails",
					    [TRACER_SHORT] = "is cut short"};
	unsigned n = step->plan.n;

	if (step->kind == FAIL_ALLOCATION)
		printf("FAIL %s, allocation %u%s: %s\n", p->scene->name, n,
		       step->all ? " and all after it" : "", p->st.shared->message);
	else
		printf("FAIL %s, call %u %s %s %s: %s\n", p->scene->name, n,
		       n >= 1 && n <= p->result.n_calls
			       ? tracer_call_name(p->result.calls[n - 1].nr)
			       : "",
		       modes[step->plan.mode],
		       step->plan.error ? strerrorname_np(step->plan.error) : "",
		       p->st.shared->message);
}

/* After each failure, so that one does not become many. */
static void begin_anew(struct play *p)
{
	arbstage_stop(&p->st);
	if (!arbstage_start(&p->st))
		printf("FAIL %s: beginning anew: %s\n", p->scene->name, p->st.shared->message);
}

static bool try_one(struct play *p, const struct step *step)
{
	p->n_done[step->kind]++;
	if (iterate(p, step))
		return true;
	say_failure(p, step);
	p->n_bad++;
	begin_anew(p);
	return false;
}

/* ---- all of a scene -------------------------------------------------------------------------- */

static void kill_at_calls(struct play *p)
{
	bool reached = true;

	for (unsigned n = 1; reached && p->n_bad < FAILURES_MAX; n++) {
		reached = false;
		for (enum tracer_mode mode = TRACER_KILL_BEFORE; mode <= TRACER_KILL_AFTER;
		     mode++) {
			const struct step step = {.kind = KILL, .plan = {.mode = mode, .n = n}};

			try_one(p, &step);
			reached |= p->result.reached;
		}
	}
}

static void fail_call(struct play *p, unsigned n, const struct plausible *how)
{
	for (size_t i = 0; i < PLAUSIBLE_ERRORS && how->errors[i] && p->n_bad < FAILURES_MAX; i++) {
		const struct step step = {
			.kind = FAIL_CALL,
			.plan = {how->mode, n, how->errors[i], true, p->calls[n - 1].nr}};

		/* Every third error of a call in turn, and none that it takes a second for room to
		 * come after; or with -a all. */
		if (p->options->all ||
		    (how->mode == TRACER_FAIL ? (n + i) % 3 == 0 : how->errors[i] != ENOSPC))
			try_one(p, &step);
	}
}

static void fail_calls(struct play *p)
{
	const struct plausible *how;

	for (unsigned n = 1; n <= p->n_calls; n++)
		for (size_t i = 0; (how = plausible_failure(&p->calls[n - 1], i)); i++)
			fail_call(p, n, how);
}

static void fail_allocations(struct play *p, unsigned long n_allocations)
{
	for (unsigned n = 1; n <= n_allocations && p->n_bad < FAILURES_MAX; n++)
		for (int all = 0; all < 2; all++) {
			const struct step step = {
				.kind = FAIL_ALLOCATION, .plan = {.n = n}, .all = all};

			try_one(p, &step);
		}
}

static void say_calls(const struct play *p)
{
	for (unsigned i = 0; p->options->verbose && i < p->n_calls; i++)
		printf("     %3u %-12s = %lld\n", i + 1, tracer_call_name(p->calls[i].nr),
		       (long long)p->calls[i].result);
}

static void play_scene(struct play *p, const struct arbscene *scene)
{
	const struct step nothing = {.kind = NOTHING};
	double t0 = clock_s();

	p->scene = scene;
	p->n_bad = 0;
	memset(p->n_done, 0, sizeof(p->n_done));
	if (try_one(p, &nothing)) {
		unsigned long n_allocations = *p->n_allocations;

		p->n_calls = tracer_recorded(&p->result);
		memcpy(p->calls, p->result.calls, sizeof(p->calls));
		say_calls(p);
		if (p->options->kills)
			kill_at_calls(p);
		if (p->options->calls)
			fail_calls(p);
		if (p->options->allocations)
			fail_allocations(p, n_allocations);
	}
	if (!p->n_bad && !arbstage_settled(&p->st, true)) {
		printf("FAIL %s: in the end: %s\n", scene->name, p->st.shared->message);
		p->n_bad++;
		begin_anew(p);
	}
	if (p->n_bad)
		p->n_failed++;
	else
		p->n_passed++;
	printf("%s %-16s %3u calls, %4u kills, %4u calls and %3u allocations that fail, %.1f s\n",
	       p->n_bad ? "not ok" : "ok    ", scene->name, p->n_calls, p->n_done[KILL],
	       p->n_done[FAIL_CALL], p->n_done[FAIL_ALLOCATION], clock_s() - t0);
	fflush(stdout);
}

/* Once in this process, so that what libraries allocate at first use is not taken for a leak. */
static bool warm_up(struct play *p)
{
	for (size_t i = 0; i < n_arbscenes; i++) {
		struct arbvictim v = {.st = &p->st, .scene = &arbscenes[i]};
		int told;

		if (!arbvictim_prepare(&v))
			return false;
		arbvictim_run(&v);
		arbvictim_leave(&v);
		arbvictim_release(&v);
		if (!arbstage_answer(&p->st, &told))
			return false;
	}
	return p->st.shared->message[0] == '\0';
}

static int body(const char *mount, void *arg)
{
	static struct play p;
	int rc = allocfail_works() ? tracer_supported() : -ENOTSUP;

	if (rc < 0) {
		printf("SKIP ptrace does not work here, or a sanitizer does: %s\n", strerror(-rc));
		return 77;
	}
	p.options = arg;
	p.n_allocations = mmap(NULL, sizeof(*p.n_allocations), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p.n_allocations == MAP_FAILED || !arbstage_init(&p.st, mount, p.options->daemon))
		return 2;
	if (!arbstage_start(&p.st) || !warm_up(&p)) {
		printf("FAIL before the first scene: %s\n", p.st.shared->message);
		p.n_failed++;
	}
	for (size_t i = 0; i < n_arbscenes && !p.n_failed; i++)
		if (chosen_has(&p.options->chosen, arbscenes[i].name))
			play_scene(&p, &arbscenes[i]);
	if (!arbstage_stop(&p.st)) {
		printf("FAIL in the end: %s\n", p.st.shared->message);
		p.n_failed++;
	}
	arbstage_deinit(&p.st);
	return chosen_status(&p.options->chosen, "crash_arbiter", p.n_passed, p.n_failed);
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'a':
		o->all = true;
		return 0;
	case 'd':
		o->daemon = arg;
		return 0;
	case 'k':
		o->kills = strcmp(arg, "kills") == 0;
		o->calls = strcmp(arg, "calls") == 0 || strcmp(arg, "faults") == 0;
		o->allocations = strcmp(arg, "allocations") == 0 || strcmp(arg, "faults") == 0;
		return 0;
	case 'v':
		o->verbose = true;
		return 0;
	case ARGP_KEY_ARGS:
		chosen_take(&o->chosen, state);
		return 0;
	case ARGP_KEY_END:
		if (!o->daemon)
			argp_error(state, "which daemon? (-d)");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"all", 'a', NULL, 0, "Each error of each call", 0},
		{"daemon", 'd', "PATH", 0, "The shmstored to test with", 0},
		{"kind", 'k', "KIND", 0, "Only kills, calls, allocations, or faults: both of these",
		 0},
		{"verbose", 'v', NULL, 0, "Show each scene's system calls", 0},
		{0},
	};
	static const struct argp argp = {
		known,        on_option,
		"[SCENE...]", "Kills a client of the memory arbiter, and lets its calls fail.",
		NULL,         NULL,
		NULL};
	struct options options = {.kills = true, .calls = true, .allocations = true};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return sandbox_run("size=" ARBSTAGE_SIZE, body, &options);
}
