/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_shmstored.c: the daemon is killed at each of its system calls, before it and after it,
 * while a client's requests to the arbiter are served and another one waits.
 *
 *   crash_shmstored -d SHMSTORED [-v]
 *
 * After each kill: both are told DOWN, or had been given what they wanted; nobody hangs;
 * the client's store works on; when both have gone nothing of them is in the partition;
 * and the next daemon, which is the next one to be killed, begins with nobody in its
 * books, and what the kernel counts.
 *
 * Only a tracer may let a tracee go on: so this process follows the daemon,
 * and a driver does all the rest.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arbvictim.h"
#include "clock.h"
#include "content.h"
#include "ownbooks.h"
#include "tracer.h"

#define LIFE_MS      30000u /* of a daemon */
#define SETTLE_MS    10000u
#define ASK_MS       10000u
#define FAILURES_MAX 5u

struct options {
	const char *daemon;
	bool verbose;
};

struct play {
	struct arbstage st;
	const struct options *options;
	struct tracer_result result;
	unsigned n_kills, n_bad;
};

/* ---- the driver ------------------------------------------------------------------------------ */

static bool meet(struct arbstage *st)
{
	struct own_books books;
	const char *wrong = own_daemon_connect(&st->daemon, st->socket, ASK_MS);

	if (!wrong)
		wrong = own_books_settle(st->daemon.client, st->path, false, SETTLE_MS, &books);
	st->daemon.client = shmstore_client_free(st->daemon.client);
	return wrong ? arbstage_fail(st, "the next daemon: %s", wrong)
		     : arbstage_start_neighbour(st);
}

/* Without a daemon, or with one. */
static bool works(struct arbvictim *v)
{
	struct content c = {4242, 100000}, got = {0, 0};
	int e = content_put(v->s, "works?", 6, c, SHMSTORE_REPLACE);

	if (e == 0)
		e = content_get(v->s, "works?", 6, &got, NULL);
	if (e == 0)
		e = shmstore_delete(v->s, "works?", 6);
	return e == 0 && got.seed == c.seed
		       ? true
		       : arbstage_fail(v->st, "the store does not work: %d", e);
}

static bool drive(struct play *p, bool undisturbed)
{
	struct arbvictim v = {.st = &p->st, .scene = &arbscene_many};
	int pidfd = (int)syscall(SYS_pidfd_open, p->st.daemon.pid, 0), told;

	if (pidfd < 0 || !meet(&p->st) || !arbvictim_prepare(&v))
		return arbstage_fail(&p->st, "the driver: %m");
	v.deserted = !undisturbed;
	tracer_mark(p->st.daemon.pid);
	arbvictim_run(&v);
	if (!arbstage_answer(&p->st, &told))
		return false;
	tracer_mark(p->st.daemon.pid);
	if (told != SHMSTORE_ARB_OK &&
	    (undisturbed || (told != SHMSTORE_ARB_DOWN && told != -ENOTSUP)))
		return arbstage_fail(&p->st, "who waits was told %d", told);
	/* else what it puts is reserved, where there is a daemon */
	shmstore_arb_task_end(v.s, v.task);
	if (p->st.shared->message[0] || !works(&v))
		return false;
	arbvictim_release(&v);
	arbstage_end_neighbour(&p->st);
	syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
	return p->st.shared->message[0] == '\0';
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void be_daemon(const struct arbstage *st)
{
	if (tracer_child(NULL) < 0)
		_exit(126);
	execl(st->daemon.program, st->daemon.program, "--config", st->config, (char *)NULL);
	_exit(127);
}

/* Both are gone. */
static bool nothing_is_left(struct play *p)
{
	struct sandbox_used used = sandbox_used(p->st.mount);

	if (!p->st.bare.inodes)
		p->st.bare = used;
	if (used.bytes == p->st.bare.bytes && used.inodes == p->st.bare.inodes)
		return true;
	return arbstage_fail(&p->st, "statfs: %lld bytes and %lld inodes too many",
			     (long long)(used.bytes - p->st.bare.bytes),
			     (long long)(used.inodes - p->st.bare.inodes));
}

static bool iterate(struct play *p, const struct tracer_plan *plan)
{
	pid_t driver;
	int rc, status = -1;
	bool killed, over;

	p->st.shared->message[0] = '\0';
	p->st.daemon.pid = fork();
	if (p->st.daemon.pid == 0)
		be_daemon(&p->st);
	driver = fork();
	if (driver == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(drive(p, plan->mode == TRACER_COUNT) ? 0 : 1);
	}
	if (p->st.daemon.pid < 0 || driver < 0)
		return arbstage_fail(&p->st, "fork: %m");
	rc = tracer_run(p->st.daemon.pid, plan, LIFE_MS, &p->result);
	while (waitpid(driver, &status, 0) < 0 && errno == EINTR)
		;
	if (rc < 0)
		arbstage_fail(&p->st, "the daemon could not be traced, or did not end (%d)", rc);
	killed = WIFSIGNALED(p->result.status) && WTERMSIG(p->result.status) == SIGKILL;
	over = WIFEXITED(p->result.status) && WEXITSTATUS(p->result.status) == 0;
	if (p->result.reached ? !killed : !over)
		arbstage_fail(&p->st, "the daemon ended with status 0x%x",
			      (unsigned)p->result.status);
	if (status != 0)
		arbstage_fail(&p->st, "the driver ended with status 0x%x", (unsigned)status);
	return p->st.shared->message[0] ? false : nothing_is_left(p);
}

static bool try_one(struct play *p, const struct tracer_plan *plan)
{
	static const char *const modes[] = {"undisturbed", "killed before", "killed after"};
	unsigned n = plan->n;

	p->n_kills += plan->mode != TRACER_COUNT;
	if (iterate(p, plan))
		return true;
	printf("FAIL the daemon %s call %u %s: %s\n", modes[plan->mode], n,
	       n >= 1 && n <= p->result.n_calls ? tracer_call_name(p->result.calls[n - 1].nr) : "",
	       p->st.shared->message);
	fflush(stdout);
	p->n_bad++;
	sandbox_wipe(p->st.mount);
	return false;
}

static void play(struct play *p)
{
	const struct tracer_plan undisturbed = {.mode = TRACER_COUNT, .outside = true};
	bool reached = try_one(p, &undisturbed);

	for (unsigned i = 0; p->options->verbose && i < tracer_recorded(&p->result); i++)
		printf("     %3u %-12s = %lld\n", i + 1, tracer_call_name(p->result.calls[i].nr),
		       (long long)p->result.calls[i].result);
	for (unsigned n = 1; reached && p->n_bad < FAILURES_MAX; n++) {
		reached = false;
		for (enum tracer_mode mode = TRACER_KILL_BEFORE; mode <= TRACER_KILL_AFTER;
		     mode++) {
			const struct tracer_plan plan = {.mode = mode, .n = n, .outside = true};

			try_one(p, &plan);
			reached |= p->result.reached;
		}
	}
}

static int body(const char *mount, void *arg)
{
	static struct play p;
	double begin, s;
	int rc = tracer_supported();

	if (rc < 0) {
		printf("SKIP ptrace does not work here: %s\n", strerror(-rc));
		return 77;
	}
	p.options = arg;
	if (!arbstage_init(&p.st, mount, p.options->daemon))
		return 2;
	begin = clock_s();
	play(&p);
	s = clock_s() - begin;
	arbstage_deinit(&p.st);
	printf("crash_shmstored: %u kills in %.1f s\n", p.n_kills, s);
	printf("crash_shmstored: %u passed, %u failed\n", p.n_bad ? 0 : 1u, p.n_bad ? 1u : 0);
	return p.n_bad ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'd':
		o->daemon = arg;
		return 0;
	case 'v':
		o->verbose = true;
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
		{"daemon", 'd', "PATH", 0, "The shmstored to test", 0},
		{"verbose", 'v', NULL, 0, "Show its system calls", 0},
		{0},
	};
	static const struct argp argp = {
		known, on_option,
		NULL,  "Kills the daemon at every system call while its arbiter is used.",
		NULL,  NULL,
		NULL};
	struct options options = {0};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return sandbox_run("size=" ARBSTAGE_SIZE, body, &options);
}
