/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash.c: kills the victim of every scenario at its system calls, before the call and after it,
 * and looks at what is left, in three ways (gc first; the name opened again first; the name opened
 * again and its objects taken over). By default every seventh kill is played, in one of the ways:
 * which changes with the turn, by default the day's. With -a every kill is, in all ways.
 *
 *   crash [-a] [-t TURN] [-l] [-v] [scenario...]
 *
 * After each kill: no published object is lost, the object of the killed call is there whole or not
 * at all (or, where it replaces, is the old or the new one), the survivor's objects and views have
 * their bytes, good tickets are good, the name can be opened and works, and once leases have ended
 * nothing differs from before: not a name, not a byte.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "chosen.h"
#include "clock.h"
#include "sandbox.h"
#include "stage.h"
#include "tracer.h"
#include "verify.h"

#define VICTIM_TIMEOUT_MS 20000u
#define PART              7u /* by default one kill of so many is played */
#define FAILURES_MAX      5u /* shown (and stages rebuilt) of one scenario */

struct options {
	const char *disk;
	bool all, list, verbose;
	unsigned turn;
	struct chosen chosen;
};

struct play {
	struct stage stage;
	const struct options *options;
	struct tracer_result result;
	struct tracer_call calls[TRACER_CALLS_MAX]; /* undisturbed */
	unsigned n_kills, n_passed, n_failed;
};

static void victim(struct world *w, const struct tracer_plan *plan)
{
	if (tracer_child(plan) < 0)
		_exit(5);
	if (scenario_prepare(w) < 0)
		_exit(3);
	scenario_run(w);
	if (plan->mode == TRACER_COUNT)
		scenario_took_its_way(w);
	_exit(w->shared->message[0] ? 4 : 0); /* without closing anything: death at the end */
}

/* One victim's life. 0, or -1 with a message. */
static int live_and_die(struct play *p, const struct tracer_plan *plan)
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
		victim(w, plan);
	int rc = tracer_run(pid, plan, VICTIM_TIMEOUT_MS, &p->result);
	scenario_after(w);
	if (rc < 0)
		return world_fail(w, "the victim hung or could not be traced (%d)", rc);
	bool killed = WIFSIGNALED(p->result.status) && WTERMSIG(p->result.status) == SIGKILL;
	bool over = WIFEXITED(p->result.status) && WEXITSTATUS(p->result.status) == 0;
	if (w->shared->message[0])
		return -1;
	if (p->result.reached ? !killed : !over)
		return world_fail(w, "the victim ended with status 0x%x", p->result.status);
	if (!p->result.reached && w->shared->rc != w->sc->want_rc)
		return world_fail(w, "returned %d, not %d", w->shared->rc, w->sc->want_rc);
	return 0;
}

/* One iteration: 0, or -1 with a message. */
static int iterate(struct play *p, const struct tracer_plan *plan, enum verify_path path)
{
	struct world *w = &p->stage.world;
	if (live_and_die(p, plan) < 0 ||
	    ((w->sc->flags & IS_READ) && (survivor_reads_on(&p->stage.survivor, w) < 0 ||
					  survivor_ends_reading(&p->stage.survivor, w) < 0)) ||
	    survivor_verify(&p->stage.survivor, w) < 0 ||
	    verify_look(w, path, p->result.reached ? NULL : &w->shared->rc) < 0)
		return -1;
	if (w->shared->have_out && survivor_adopt(&p->stage.survivor, w) < 0)
		return -1;
	if (verify_settled(w) < 0 || survivor_verify(&p->stage.survivor, w) < 0)
		return -1;
	return stage_check_same(&p->stage);
}

static void say_failure(const struct play *p, const struct tracer_plan *plan, enum verify_path path)
{
	const struct world *w = &p->stage.world;
	static const char *const modes[] = {"undisturbed", "killed before", "killed after"};
	const char *call = plan->n >= 1 && plan->n <= p->result.n_calls
				   ? tracer_call_name(p->result.calls[plan->n - 1].nr)
				   : "";
	printf("FAIL %s, %s call %u %s, %s: %s\n", w->sc->name, modes[plan->mode], plan->n, call,
	       verify_path_name[path], w->shared->message);
}

static bool try_one(struct play *p, const struct tracer_plan *plan, enum verify_path path,
		    unsigned *n_bad)
{
	if (stage_build(&p->stage) < 0) {
		printf("FAIL %s: the stage: %s\n", p->stage.world.sc->name,
		       p->stage.world.shared->message);
		stage_burn(&p->stage);
		++*n_bad;
		return false;
	}
	p->n_kills += plan->mode != TRACER_COUNT;
	if (iterate(p, plan, path) == 0)
		return true;
	say_failure(p, plan, path);
	stage_burn(&p->stage);
	++*n_bad;
	return false;
}

static void say_calls(const struct play *p)
{
	if (!p->options->verbose)
		return;
	for (unsigned i = 0; i < tracer_recorded(&p->result); i++)
		printf("     %3u %-12s = %lld\n", i + 1, tracer_call_name(p->result.calls[i].nr),
		       (long long)p->result.calls[i].result);
}

/*
 * Whether the kill at call n is played, and looked at on this path. By default every PARTth kill
 * is, on one path in turn, and of a loop's turns between the second and the last every second one
 * of these: which of them changes from day to day.
 */
static bool looked_at(const struct play *p, unsigned n_calls, unsigned n, enum tracer_mode mode,
		      enum verify_path path)
{
	unsigned kill = 2 * n + (mode == TRACER_KILL_AFTER) + p->options->turn;

	if (p->options->all)
		return true;
	return kill % (tracer_is_one_more_turn(p->calls, n_calls, n) ? 2 * PART : PART) == 0 &&
	       kill / PART % VERIFY_N_PATHS == (unsigned)path;
}

static void play_scenario(struct play *p, const struct scenario *sc)
{
	p->stage.world.sc = sc;
	unsigned n_bad = 0, n_kills = p->n_kills, n_calls = 0;
	for (enum verify_path path = VERIFY_GC; path < VERIFY_N_PATHS && n_bad == 0; path++) {
		const struct tracer_plan plan = {.mode = TRACER_COUNT};
		try_one(p, &plan, path, &n_bad);
		if (path == VERIFY_GC) {
			n_calls = tracer_recorded(&p->result);
			memcpy(p->calls, p->result.calls, sizeof(p->calls));
			say_calls(p);
		}
	}
	/* that was reached: a run may make more than the undisturbed one */
	unsigned last = n_bad == 0 ? n_calls : 0;
	for (unsigned n = 1; last && n <= last + 3 && n_bad < FAILURES_MAX; n++) {
		for (enum verify_path path = VERIFY_GC; path < VERIFY_N_PATHS; path++)
			for (enum tracer_mode mode = TRACER_KILL_BEFORE; mode <= TRACER_KILL_AFTER;
			     mode++) {
				if (!looked_at(p, n_calls, n, mode, path))
					continue;
				struct tracer_plan plan = {.mode = mode, .n = n};
				tracer_aim(&plan, p->calls, n_calls);
				try_one(p, &plan, path, &n_bad);
				if (tracer_missed(&plan, &p->result))
					try_one(p, &plan, path, &n_bad);
				if (p->result.reached && n > last)
					last = n;
			}
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
	printf("%s %-24s %3u calls, %4u kills\n", n_bad ? "not ok" : "ok    ", sc->name, n_calls,
	       p->n_kills - n_kills);
	fflush(stdout);
}

static int body(const char *mount, void *arg)
{
	int rc = tracer_supported();
	if (rc < 0) {
		printf("SKIP ptrace does not work here: %s\n", strerror(-rc));
		return 77;
	}
	static struct play p;
	p.options = arg;
	if (stage_init(&p.stage, mount, p.options->disk) < 0)
		return 2;
	double begin = clock_s();
	const struct scenario *sc;
	for (size_t i = 0; (sc = scenario_at(i)); i++)
		if (chosen_has(&p.options->chosen, sc->name) &&
		    (p.options->disk || !(sc->flags & TIER)))
			play_scenario(&p, sc);
	double s = clock_s() - begin;
	printf("crash: %u kills in %.1f s, %.1f ms each; ", p.n_kills, s,
	       p.n_kills ? s * 1000 / p.n_kills : 0.0);
	printf(p.options->all ? "all of them\n" : "the seventh of turn %u\n", p.options->turn);
	return chosen_status(&p.options->chosen, "crash", p.n_passed, p.n_failed);
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
	case 'l':
		o->list = true;
		return 0;
	case 'v':
		o->verbose = true;
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
		{"all", 'a', NULL, 0, "Play every kill, and look at it in all three ways", 0},
		{"turn", 't', "TURN", 0,
		 "Which seventh of the kills is played; the day's by default", 0},
		{"list", 'l', NULL, 0, "List the scenarios and end", 0},
		{"verbose", 'v', NULL, 0, "Show each scenario's system calls", 0},
		{0},
	};
	static const struct argp argp = {known,
					 on_option,
					 "[SCENARIO...]",
					 "Kills a process at every system call of the library.",
					 NULL,
					 NULL,
					 NULL};
	struct options options = {.turn = (unsigned)(time(NULL) / 86400)};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.list) {
		for (size_t i = 0; scenario_at(i); i++)
			puts(scenario_at(i)->name);
		return 0;
	}
	options.disk = sandbox_disk();
	if (!options.disk)
		printf("SKIP the scenarios of the disk tier: no directory on a disk: %s\n",
		       strerror(errno));
	return sandbox_run("size=64m,huge=within_size,nr_inodes=10000", body, &options);
}
