/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbiter_kills.c: clients of the memory arbiter that are killed, and what is left of them.
 *
 *   arbiter_kills -d SHMSTORED [-t seconds] [-s seed] [-r headroom]
 *
 * Eight processes on a partition that is too small for them reserve, put, delete, hand over
 * and adopt, and fill private pools whose unpinned part they are asked to give back; on RETRY
 * and SPLIT they roll back. One operation in a hundred is killed by SIGKILL: while it runs or
 * waits, or right after it. No operation may last longer than twice the daemon's longest
 * wait; and when all have ended, the arbiter's books must be empty of them, and what it
 * counts as used what the kernel says.
 */
#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <shmstore/arbiter.h>
#include <shmstore/daemon.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "ownbooks.h"
#include "owndaemon.h"
#include "sandbox.h"

#define WORKERS     8u
#define KEYS        4u
#define PARTITION   "48m"
#define PUT_MAX     (6u << 20)
#define OWN_POOL    (4u << 20)
#define WAIT_S      5u
#define HANG_MS     (2u * WAIT_S * 1000u)
#define SETTLE_MS   20000u
#define ASK_MS      20000u
#define LEASE_MS    500u
#define DIES_WITHIN 3000u /* microseconds */
#define ONE_IN      100u

struct seat {
	_Atomic uint64_t since_ms; /* of its operation; 0 = between two */
	_Atomic unsigned op;
	_Atomic bool doomed;
};

struct shared {
	struct seat seats[WORKERS];
	_Atomic bool stop;
	_Atomic uint64_t n_ops, n_retries, n_splits, n_full, n_late, n_other;
	_Atomic int other; /* the last outcome that nobody expects */
	struct {
		_Atomic bool full;
		struct shmstore_ticket ticket;
	} mail[WORKERS];
};

struct options {
	const char *daemon, *headroom;
	unsigned seconds;
	uint64_t seed;
};

struct run {
	const struct options *options;
	const char *mount;
	char partition[256], socket[300], config[300];
	struct shared *shared;
	pid_t pids[WORKERS];
	struct own_daemon daemon;
	uint64_t random;
	unsigned n_kills;
	bool failed;
};

static unsigned pick(uint64_t *x, unsigned n)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (unsigned)(*x % n);
}

static __attribute__((format(printf, 2, 3))) bool fail(struct run *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("FAIL arbiter kills: ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	r->failed = true;
	return false;
}

/* ---- a worker -------------------------------------------------------------------------------- */

struct worker {
	struct run *run;
	unsigned id;
	uint64_t random;
	struct shmstore *s;
	uint32_t own; /* its private pool */
	struct shmstore_arb_reservation reserved, kept[2];
	pthread_mutex_t lock; /* of kept: the thread that serves up-calls takes them, too */
};

static char bytes[PUT_MAX];

static void die(int signal)
{
	(void)signal;
	kill(getpid(), SIGKILL);
}

static unsigned key_of(struct worker *w, char ret[16])
{
	return (unsigned)snprintf(ret, 16, "k%u", pick(&w->random, KEYS));
}

static int do_put(struct worker *w)
{
	struct iovec data = {bytes, pick(&w->random, PUT_MAX) + 1};
	char key[16];
	unsigned n = key_of(w, key);
	int e = shmstore_put(w->s, key, n, NULL, 0, &data, 1, SHMSTORE_REPLACE);

	return e == -EEXIST ? 0 : e;
}

static int do_delete(struct worker *w)
{
	char key[16];
	unsigned n = key_of(w, key);
	int e = shmstore_delete(w->s, key, n);

	return e == -ENOENT ? 0 : e;
}

static int do_release(struct worker *w)
{
	int e = w->reserved.bytes ? shmstore_arb_release(w->s, &w->reserved) : 0;

	w->reserved = (struct shmstore_arb_reservation){0};
	return e;
}

static int do_reserve(struct worker *w)
{
	int e = do_release(w);

	if (e)
		return e;
	return shmstore_arb_reserve(w->s, SHMSTORE_ARB_PARTITION, pick(&w->random, PUT_MAX) + 1,
				    NULL, &w->reserved);
}

/* Half a ticket, by two donors at once, is one that is refused; one that has ended, or whose
 * donor has, is no fault either. */
static int do_mail(struct worker *w)
{
	struct shared *sh = w->run->shared;
	unsigned to = pick(&w->random, WORKERS);
	char key[16];
	unsigned n = key_of(w, key);
	int e = 0;

	if (!atomic_load(&sh->mail[to].full) &&
	    shmstore_handoff(w->s, key, n, LEASE_MS, &sh->mail[to].ticket) == 0)
		atomic_store(&sh->mail[to].full, true);
	if (atomic_exchange(&sh->mail[w->id].full, false)) {
		n = key_of(w, key);
		e = shmstore_adopt(w->s, key, n, &sh->mail[w->id].ticket, SHMSTORE_REPLACE);
	}
	return e < 0 ? 0 : e;
}

/* Both do not fit: the one that is unpinned is asked for. */
static int do_own(struct worker *w)
{
	unsigned i = pick(&w->random, 2);
	struct shmstore_arb_reservation r = {0};
	int e = 0;

	pthread_mutex_lock(&w->lock);
	if (w->kept[i].bytes)
		e = shmstore_arb_release(w->s, &w->kept[i]);
	w->kept[i].bytes = 0;
	pthread_mutex_unlock(&w->lock);
	if (e == 0)
		e = shmstore_arb_reserve(w->s, w->own, OWN_POOL / 8 * 5, NULL, &r);
	if (e)
		return e;
	pthread_mutex_lock(&w->lock);
	w->kept[i] = r;
	e = shmstore_arb_unpin(w->s, &w->kept[i]);
	pthread_mutex_unlock(&w->lock);
	return e;
}

static uint64_t evict(void *ctx, uint32_t pool, uint64_t n, uint32_t reservation)
{
	struct worker *w = ctx;
	uint64_t gone = 0;

	(void)pool;
	(void)n;
	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < 2; i++) {
		if (!w->kept[i].bytes || w->kept[i].id != reservation)
			continue;
		gone = w->kept[i].bytes;
		(void)shmstore_arb_release(w->s, &w->kept[i]);
		w->kept[i].bytes = 0;
	}
	pthread_mutex_unlock(&w->lock);
	return gone;
}

static void *serve(void *arg)
{
	struct worker *w = arg;

	while (shmstore_arb_serve(w->s, 100) >= 0)
		continue;
	return NULL;
}

static void begin_operation(struct worker *w, unsigned op)
{
	struct seat *seat = &w->run->shared->seats[w->id];
	struct itimerval soon = {0};

	atomic_store(&seat->op, op);
	atomic_store(&seat->since_ms, clock_ms());
	if (pick(&w->random, ONE_IN))
		return;
	atomic_store(&seat->doomed, true);
	soon.it_value.tv_usec = (suseconds_t)(1 + pick(&w->random, DIES_WITHIN));
	setitimer(ITIMER_REAL, &soon, NULL);
}

static void end_operation(struct worker *w)
{
	struct shared *sh = w->run->shared;

	if (atomic_load(&sh->seats[w->id].doomed))
		die(0);
	atomic_store(&sh->seats[w->id].since_ms, 0);
	atomic_fetch_add_explicit(&sh->n_ops, 1, memory_order_relaxed);
}

static void roll_back(struct worker *w)
{
	char key[16];

	(void)do_release(w);
	for (unsigned i = 0; i < KEYS; i++)
		(void)shmstore_delete(w->s, key, (size_t)snprintf(key, sizeof(key), "k%u", i));
	begin_operation(w, 99);
	(void)shmstore_arb_ready(w->s, NULL);
	end_operation(w);
}

/* 0: go on; else the attempt is over. */
static int judge(struct worker *w, int e)
{
	struct shared *sh = w->run->shared;

	switch (e) {
	case SHMSTORE_ARB_OK:
		return 0;
	case SHMSTORE_ARB_RETRY:
		atomic_fetch_add(&sh->n_retries, 1);
		return e;
	case SHMSTORE_ARB_SPLIT:
		atomic_fetch_add(&sh->n_splits, 1);
		return e;
	case SHMSTORE_ARB_TIMEDOUT:
	case SHMSTORE_ARB_NOMEM:
		atomic_fetch_add(&sh->n_late, 1);
		return e;
	case -ENOSPC:
		atomic_fetch_add(&sh->n_full, 1);
		return e;
	default:
		atomic_store(&sh->other, e);
		atomic_fetch_add(&sh->n_other, 1);
		return e;
	}
}

static void run_task(struct worker *w)
{
	static int (*const ops[])(struct worker *) = {do_put,     do_put,  do_delete, do_reserve,
						      do_release, do_mail, do_own};
	uint32_t task;
	int e;

	if (shmstore_arb_task_begin(w->s, NULL, &task) != 0 ||
	    shmstore_arb_bind(w->s, NULL, task) != 0)
		return;
	for (unsigned i = 0; i < 20; i++) {
		unsigned op = pick(&w->random, sizeof(ops) / sizeof(ops[0]));

		begin_operation(w, op);
		e = ops[op](w);
		end_operation(w);
		if (judge(w, e))
			roll_back(w);
	}
	begin_operation(w, 98);
	(void)shmstore_arb_task_end(w->s, task);
	end_operation(w);
	w->reserved = (struct shmstore_arb_reservation){0}; /* it went with the task */
}

static int open_store(struct worker *w)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	const struct shmstore_arb_upcalls calls = {.evict = evict, .ctx = w};
	struct shmstore_partition *p;
	char name[32];
	pthread_t thread;
	int e = shmstore_partition_open(w->run->partition, 0, &p);

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	o.recycle_max = 0; /* what is deleted is free at once */
	o.flags |= SHMSTORE_OPEN_ARBITRATE;
	snprintf(name, sizeof(name), "w%u-%d", w->id, getpid());
	if (e == 0)
		e = shmstore_open(p, name, &o, &w->s);
	if (e == 0)
		e = shmstore_arb_pool_create(w->s, "own", OWN_POOL, 0, &w->own);
	if (e == 0)
		e = shmstore_arb_set_upcalls(w->s, &calls);
	return e ? e : -pthread_create(&thread, NULL, serve, w);
}

static int worker(struct run *r, unsigned id)
{
	static struct worker w = {.lock = PTHREAD_MUTEX_INITIALIZER};
	int e;

	w.run = r;
	w.id = id;
	w.random = r->random * (2 * id + 3) + 1;
	signal(SIGALRM, die);
	e = open_store(&w);
	if (e) {
		printf("FAIL arbiter kills: worker %u: %s\n", id,
		       e < 0 ? shmstore_strerror(e) : shmstore_arb_outcome_name(e));
		fflush(stdout);
		return 1;
	}
	while (!atomic_load(&r->shared->stop))
		run_task(&w);
	return 0; /* with its store open: the daemon takes it apart */
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void start(struct run *r, unsigned i)
{
	pid_t pid;

	pick(&r->random, 2);
	fflush(stdout);
	atomic_store(&r->shared->seats[i].since_ms, 0);
	atomic_store(&r->shared->seats[i].doomed, false);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(worker(r, i));
	}
	r->pids[i] = pid;
}

/* A worker has ended. false: not as it may. */
static bool bury(struct run *r, unsigned i, int status)
{
	r->pids[i] = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL ||
	    !atomic_load(&r->shared->seats[i].doomed))
		return fail(r, "worker %u ended with status 0x%x", i, (unsigned)status);
	r->n_kills++;
	return true;
}

static bool hangs(struct run *r)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		uint64_t since_ms = atomic_load(&r->shared->seats[i].since_ms), now = clock_ms();

		if (r->pids[i] && since_ms && now > since_ms + HANG_MS)
			return !fail(r, "worker %u: operation %u has lasted %llu ms", i,
				     atomic_load(&r->shared->seats[i].op),
				     (unsigned long long)(now - since_ms));
	}
	return false;
}

/* Until none is left; new ones in the place of the dead until end_ms. */
static void blow(struct run *r, uint64_t end_ms)
{
	unsigned n_live = WORKERS;

	for (unsigned i = 0; i < WORKERS; i++)
		start(r, i);
	while (n_live && !r->failed) {
		bool over = clock_ms() > end_ms;

		atomic_store(&r->shared->stop, over);
		for (unsigned i = 0; i < WORKERS; i++) {
			int status;

			if (!r->pids[i] || waitpid(r->pids[i], &status, WNOHANG) == 0)
				continue;
			if (bury(r, i, status) && !over)
				start(r, i);
			else
				n_live--;
		}
		if (hangs(r))
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		if (r->pids[i] > 0) {
			kill(r->pids[i], SIGKILL);
			waitpid(r->pids[i], NULL, 0);
		}
	}
}

/* ---- the books ------------------------------------------------------------------------------- */

static void check_books(struct run *r)
{
	struct own_books books;
	const char *wrong =
		own_books_settle(r->daemon.client, r->partition, false, SETTLE_MS, &books);

	if (wrong)
		fail(r, "%s", wrong);
	else
		printf("arbiter kills: %llu bytes are booked, as many are used\n",
		       (unsigned long long)books.used);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static bool write_config(struct run *r)
{
	FILE *f = fopen(r->config, "we");

	if (!f)
		return fail(r, "%s: %s", r->config, strerror(errno));
	fprintf(f, "daemon { socket = \"%s\" }\nhttp { enabled = no }\n", r->socket);
	fprintf(f, "arbiter { wait = %us\n tick = 20ms\n headroom = \"%s\"\n call-timeout = 1s }\n",
		WAIT_S, r->options->headroom);
	fprintf(f, "partition \"%s\" { create = yes\n survey-interval = 1s }\n", r->partition);
	return fclose(f) == 0;
}

static bool start_daemon(struct run *r)
{
	const char *wrong;

	r->daemon.program = r->options->daemon;
	if (!write_config(r))
		return false;
	wrong = own_daemon_start(&r->daemon, r->config, r->socket, ASK_MS);
	return wrong ? fail(r, "%s", wrong) : true;
}

static void stop_daemon(struct run *r)
{
	const char *wrong = own_daemon_stop(&r->daemon);

	if (wrong)
		fail(r, "%s", wrong);
}

static void report(struct run *r)
{
	const struct shared *sh = r->shared;

	if (!r->failed && !r->n_kills)
		fail(r, "nobody was killed");
	if (!r->failed && sh->n_other)
		fail(r, "%llu outcomes that nobody expects, the last one %d",
		     (unsigned long long)sh->n_other, sh->other);
	printf("arbiter kills: seed %llu: %llu operations, %u kills, %llu retries, %llu splits, "
	       "%llu too late or none "
	       "to be had, %llu full\n",
	       (unsigned long long)r->options->seed, (unsigned long long)sh->n_ops, r->n_kills,
	       (unsigned long long)sh->n_retries, (unsigned long long)sh->n_splits,
	       (unsigned long long)sh->n_late, (unsigned long long)sh->n_full);
	printf("arbiter kills: %u passed, %u failed\n", r->failed ? 0 : 1u, r->failed ? 1u : 0);
}

static int body(const char *mount, void *arg)
{
	static struct run r;
	char directory[] = "/tmp/shmstore-kills-XXXXXX";

	r.options = arg;
	r.mount = mount;
	r.random = r.options->seed * 0x9e3779b97f4a7c15ull | 1;
	r.shared = mmap(NULL, sizeof(*r.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (r.shared == MAP_FAILED || !mkdtemp(directory))
		return 2;
	snprintf(r.partition, sizeof(r.partition), "%s/partition", mount);
	snprintf(r.socket, sizeof(r.socket), "%s/socket", directory);
	snprintf(r.config, sizeof(r.config), "%s/conf", directory);
	if (start_daemon(&r)) {
		blow(&r, clock_ms() + r.options->seconds * 1000);
		if (!r.failed)
			check_books(&r);
		stop_daemon(&r);
	}
	report(&r);
	shmstore_client_free(r.daemon.client);
	sandbox_wipe(directory);
	rmdir(directory);
	return r.failed ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'd':
		o->daemon = arg;
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 'r':
		o->headroom = arg;
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 10);
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
		{"time", 't', "SECONDS", 0, "How long (5)", 0},
		{"headroom", 'r', "SIZE", 0, "As in shmstored.conf (5%)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{0},
	};
	static const struct argp argp = {
		known, on_option, NULL, "Clients of the memory arbiter that are killed.",
		NULL,  NULL,      NULL};
	struct options options = {.headroom = "5%", .seconds = 5, .seed = (uint64_t)time(NULL)};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return sandbox_run("size=" PARTITION, body, &options);
}
