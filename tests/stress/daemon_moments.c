/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_moments.c: the daemon's books at random moments of a busy partition.
 *
 *   daemon_moments -d SHMSTORED [-p] [-t seconds] [-n moments] [-s seed]
 *
 * Sixteen workers put, replace, delete, hand off and adopt, keep views of what is deleted, keep
 * half-made objects, files without a name and files that are not ours, and are killed. At random
 * moments all are stopped where they are; the daemon is asked to reconcile, and must say residual
 * 0, and the same terms that the library finds at that moment. In the end all workers are dead, and
 * the daemon alone must have brought the partition back to nothing but what is not ours.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "content.h"
#include "owndaemon.h"
#include "sandbox.h"

#define WORKERS      16u
#define KEYS         12u
#define HELD         6u /* of each kind, per worker */
#define LEASE_MS     1500u
#define KILL_EVERY   4u /* moments: one of so many is followed by a kill, or another one is */
#define ASK_MS       60000u
/*
 * Nobody else moves, but the daemon may be at work on a store that died a moment ago: as long as it
 * takes that apart, a survey's looks see different moments, and its numbers do not add up. It is
 * done soon; a wrong book stays wrong.
 */
#define SAME_TRIES   20u
#define SETTLE_MS    20000u
#define SIZE_MAX_PUT 400000u
#define PACK_MAX     (UINT64_C(1) << 20) /* of stores that pack */

struct mail {
	_Atomic bool full;
	struct shmstore_ticket ticket;
};

struct shared {
	_Atomic uint64_t n_ops, n_enospc;
	struct mail mail[WORKERS];
};

struct options {
	const char *daemon;
	uint64_t pack_max; /* of the workers' stores */
	unsigned seconds, moments;
	uint64_t seed;
};

struct run {
	const struct options *options;
	char partition[256], socket[300], config[300];
	struct shared *shared;
	pid_t pids[WORKERS];
	struct own_daemon daemon;
	struct shmstore_partition *p;
	uint64_t random;
	unsigned n_kills, n_moments;
	uint64_t ghosts_max, inflight_max, foreign_max;
	bool failed;
};

static unsigned pick(uint64_t *x, unsigned n)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (unsigned)(*x % n);
}

/* ---- a worker -------------------------------------------------------------------------------- */

struct worker {
	struct run *run;
	unsigned id;
	uint64_t random;
	struct shmstore *s;
	struct shmstore_view *views[HELD];
	struct shmstore_writer *writers[HELD];
	int fds[HELD]; /* without a name, not the library's; -1 = none */
	unsigned n_files;
};

static unsigned key_of(struct worker *w, char ret[16])
{
	return (unsigned)snprintf(ret, 16, "k%u", pick(&w->random, KEYS));
}

static void do_put(struct worker *w)
{
	struct content c = {pick(&w->random, 1u << 30) + 1, pick(&w->random, SIZE_MAX_PUT)};
	char key[16];
	unsigned n = key_of(w, key);

	if (content_put(w->s, key, n, c, SHMSTORE_REPLACE) == -ENOSPC)
		atomic_fetch_add(&w->run->shared->n_enospc, 1);
}

static void do_view(struct worker *w)
{
	struct shmstore_view **v = &w->views[pick(&w->random, HELD)];
	char key[16];
	unsigned n = key_of(w, key);

	*v = shmstore_view_unref(*v);
	if (shmstore_get(w->s, key, n, 0, v) == 0 && pick(&w->random, 2))
		shmstore_delete(w->s, key, n); /* a ghost, until the view goes */
}

static void do_writer(struct worker *w)
{
	struct shmstore_writer **writer = &w->writers[pick(&w->random, HELD)];
	uint64_t size = pick(&w->random, SIZE_MAX_PUT);
	char key[16];
	unsigned n = key_of(w, key);

	if (*writer && pick(&w->random, 2)) {
		content_fill_writer(*writer, (struct content){1, 0});
		(void)shmstore_seal(*writer);
		*writer = NULL;
	} else {
		shmstore_abort(*writer);
		*writer = NULL;
	}
	if (shmstore_create(w->s, key, n, 64, &size, 1, SHMSTORE_REPLACE, writer) < 0)
		*writer = NULL;
}

static void do_mail(struct worker *w)
{
	struct mail *to = &w->run->shared->mail[pick(&w->random, WORKERS)],
		    *mine = &w->run->shared->mail[w->id];
	char key[16];
	unsigned n = key_of(w, key);

	if (!atomic_load(&to->full) && shmstore_handoff(w->s, key, n, LEASE_MS, &to->ticket) == 0)
		atomic_store(&to->full, true);
	/* Half a ticket, by two donors at once, is one that is refused. */
	if (atomic_exchange(&mine->full, false)) {
		n = key_of(w, key);
		(void)shmstore_adopt(w->s, key, n, &mine->ticket, SHMSTORE_REPLACE);
	}
}

static void write_some(struct worker *w, int fd)
{
	static const char bytes[100000];

	if (write(fd, bytes, pick(&w->random, sizeof(bytes)) + 1) < 0)
		atomic_fetch_add(&w->run->shared->n_enospc, 1);
}

/* Without a name: made so, or its name taken away. */
static void do_nameless(struct worker *w)
{
	int *fd = &w->fds[pick(&w->random, HELD)];
	char path[400];

	if (*fd >= 0)
		close(*fd);
	if (pick(&w->random, 2)) {
		*fd = open(w->run->partition, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (*fd >= 0)
			write_some(w, *fd);
		return;
	}
	snprintf(path, sizeof(path), "%s/foreign/%u.deleted", w->run->partition, w->id);
	*fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (*fd >= 0) {
		write_some(w, *fd);
		unlink(path);
	}
}

static void do_foreign(struct worker *w)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/foreign/%u.%u", w->run->partition, w->id,
		 w->n_files++ % HELD);
	if (unlink(path) == 0 && pick(&w->random, 2))
		return;
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd >= 0) {
		write_some(w, fd);
		close(fd);
	}
}

static int worker(struct run *r, unsigned id)
{
	static void (*const ops[])(struct worker *) = {do_put,  do_put,      do_view,   do_writer,
						       do_mail, do_nameless, do_foreign};
	struct worker w = {.run = r, .id = id, .random = r->random * (2 * id + 3) + 1};
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	uint64_t until_ms = clock_ms() + 10000;
	char name[16];
	int e;

	for (unsigned i = 0; i < HELD; i++)
		w.fds[i] = -1;
	snprintf(name, sizeof(name), "w%u", id);
	options.pack_max = r->options->pack_max;
	/* Its predecessor's lock, or who takes that one's store apart, may take a moment. */
	while ((e = shmstore_open(r->p, name, &options, &w.s)) == -EBUSY || e == -ENOSPC) {
		if (clock_ms() > until_ms)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (e < 0) {
		printf("FAIL daemon moments: worker %u: open: %s\n", id, shmstore_strerror(e));
		fflush(stdout);
		return 1;
	}
	for (;;) {
		ops[pick(&w.random, sizeof(ops) / sizeof(ops[0]))](&w);
		atomic_fetch_add_explicit(&r->shared->n_ops, 1, memory_order_relaxed);
		/* a load, not a wait */
		nanosleep(&(struct timespec){.tv_nsec = pick(&w.random, 2000000)}, NULL);
	}
}

static void start(struct run *r, unsigned i)
{
	pid_t pid;

	pick(&r->random, 2);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(worker(r, i));
	}
	r->pids[i] = pid;
}

static void kill_one(struct run *r, unsigned i)
{
	int status;

	kill(r->pids[i], SIGKILL);
	while (waitpid(r->pids[i], &status, 0) < 0 && errno == EINTR)
		continue;
	r->n_kills++;
}

/* ---- a moment -------------------------------------------------------------------------------- */

static __attribute__((format(printf, 2, 3))) bool fail(struct run *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("FAIL daemon moments: ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	r->failed = true;
	return false;
}

static int64_t number(struct json_object *survey, const char *name)
{
	struct json_object *value;

	return json_object_object_get_ex(survey, name, &value) ? json_object_get_int64(value)
							       : INT64_MIN;
}

/* The equation, as the daemon says it after a reconcile made for us. */
static bool ask(struct run *r, struct shmstore_usage *ret)
{
	struct json_object *o, *list, *survey = NULL;
	char *json;
	int e = shmstore_client_query(r->daemon.client, SHMSTORE_QUERY_RECONCILE, r->partition,
				      &json, NULL);

	if (e < 0)
		return fail(r, "the daemon: %s: %s", shmstore_strerror(e),
			    shmstore_client_reason(r->daemon.client));
	o = json_tokener_parse(json);
	if (!o || !json_object_object_get_ex(o, "partitions", &list) ||
	    json_object_array_length(list) != 1 ||
	    !json_object_object_get_ex(json_object_array_get_idx(list, 0), "survey", &survey)) {
		fail(r, "the daemon's answer: %s", json);
		free(json);
		json_object_put(o);
		return false;
	}
	*ret = (struct shmstore_usage){
		.used = (uint64_t)number(survey, "used"),
		.linked = (uint64_t)number(survey, "linked"),
		.ghosts = (uint64_t)number(survey, "ghosts"),
		.pool = (uint64_t)number(survey, "pool"),
		.inflight = (uint64_t)number(survey, "inflight"),
		.foreign = (uint64_t)number(survey, "foreign"),
		.residual = number(survey, "residual"),
	};
	json_object_put(o);
	free(json);
	return true;
}

static bool is_same(const struct shmstore_usage *a, const struct shmstore_usage *b)
{
	return a->used == b->used && a->linked == b->linked && a->ghosts == b->ghosts &&
	       a->pool == b->pool && a->inflight == b->inflight && a->foreign == b->foreign &&
	       a->residual == b->residual;
}

static void say(const char *who, const struct shmstore_usage *u)
{
	printf("     %s: used %llu linked %llu ghosts %llu pool %llu inflight %llu foreign %llu "
	       "residual %lld\n",
	       who, (unsigned long long)u->used, (unsigned long long)u->linked,
	       (unsigned long long)u->ghosts, (unsigned long long)u->pool,
	       (unsigned long long)u->inflight, (unsigned long long)u->foreign,
	       (long long)u->residual);
}

static bool compare(struct run *r)
{
	struct shmstore_usage theirs, ours;

	for (unsigned i = 0; i < SAME_TRIES; i++) {
		if (!ask(r, &theirs))
			return false;
		if (shmstore_partition_usage(r->p, SHMSTORE_USAGE_FULL, &ours) < 0)
			return fail(r, "usage failed");
		if (theirs.residual || !is_same(&theirs, &ours))
			continue;
		r->ghosts_max = theirs.ghosts > r->ghosts_max ? theirs.ghosts : r->ghosts_max;
		r->inflight_max =
			theirs.inflight > r->inflight_max ? theirs.inflight : r->inflight_max;
		r->foreign_max = theirs.foreign > r->foreign_max ? theirs.foreign : r->foreign_max;
		return true;
	}
	say("the daemon", &theirs);
	say("the library", &ours);
	return fail(r, "moment %u: %s", r->n_moments,
		    theirs.residual ? "there is a residual"
				    : "the daemon and the library do not agree");
}

static bool moment(struct run *r)
{
	bool ok;
	int status;

	for (unsigned i = 0; i < WORKERS; i++)
		kill(r->pids[i], SIGSTOP);
	for (unsigned i = 0; i < WORKERS; i++) {
		if (waitpid(r->pids[i], &status, WUNTRACED) != r->pids[i] || !WIFSTOPPED(status))
			return fail(r, "worker %u ended with status 0x%x", i, (unsigned)status);
	}
	ok = compare(r);
	r->n_moments += ok;
	for (unsigned i = 0; i < WORKERS; i++)
		kill(r->pids[i], SIGCONT);
	return ok;
}

static void blow(struct run *r)
{
	uint64_t end_ms = clock_ms() + r->options->seconds * 1000ull;

	for (unsigned i = 0; i < WORKERS; i++)
		start(r, i);
	while (!r->failed && clock_ms() < end_ms && r->n_moments < r->options->moments) {
		/* Load, not a wait: the moment is any. */
		nanosleep(&(struct timespec){.tv_nsec = (long)pick(&r->random, 200) * 1000000},
			  NULL);
		if (pick(&r->random, KILL_EVERY) == 0) {
			unsigned i = pick(&r->random, WORKERS);

			kill_one(r, i);
			start(r, i);
		}
		moment(r);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		kill_one(r, i);
}

/* Everybody is dead: the daemon alone brings the partition back to what is not ours. */
static bool settle(struct run *r)
{
	uint64_t end_ms = clock_ms() + SETTLE_MS;
	struct shmstore_usage u;

	for (;;) {
		if (!ask(r, &u))
			return false;
		if (shmstore_partition_usage(r->p, SHMSTORE_USAGE_FULL, &u) < 0)
			return fail(r, "usage failed");
		if (u.n_stores == 0 && u.ghosts == 0 && u.inflight == 0 && u.pool == 0 &&
		    u.residual == 0)
			return true;
		if (clock_ms() > end_ms) {
			say("in the end", &u);
			return fail(r, "%llu stores are left", (unsigned long long)u.n_stores);
		}
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static bool write_config(struct run *r)
{
	FILE *f = fopen(r->config, "we");

	if (!f)
		return fail(r, "%s: %s", r->config, strerror(errno));
	fprintf(f,
		"daemon { socket = \"%s\" }\nhttp { enabled = no }\npartition \"%s\" { "
		"survey-interval = 2s }\n",
		r->socket, r->partition);
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

static int body(const char *mount, void *arg)
{
	static struct run r;
	char directory[] = "/tmp/shmstore-moments-XXXXXX", foreign[300];

	r.options = arg;
	r.random = r.options->seed * 0x9e3779b97f4a7c15ull | 1;
	r.shared = mmap(NULL, sizeof(*r.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (r.shared == MAP_FAILED || !mkdtemp(directory))
		return 2;
	snprintf(r.partition, sizeof(r.partition), "%s/partition", mount);
	snprintf(r.socket, sizeof(r.socket), "%s/socket", directory);
	snprintf(r.config, sizeof(r.config), "%s/conf", directory);
	snprintf(foreign, sizeof(foreign), "%s/foreign", r.partition);
	if (shmstore_partition_open(r.partition, SHMSTORE_CREATE, &r.p) < 0 ||
	    mkdir(foreign, 0700) < 0)
		return 2;
	if (start_daemon(&r)) {
		blow(&r);
		if (!r.failed)
			settle(&r);
		stop_daemon(&r);
	}
	printf("daemon moments: seed %llu: %u moments, %u kills, %llu operations, %llu full; at "
	       "most %llu bytes of "
	       "ghosts, %llu in flight, "
	       "%llu foreign\n",
	       (unsigned long long)r.options->seed, r.n_moments, r.n_kills,
	       (unsigned long long)r.shared->n_ops, (unsigned long long)r.shared->n_enospc,
	       (unsigned long long)r.ghosts_max, (unsigned long long)r.inflight_max,
	       (unsigned long long)r.foreign_max);
	printf("daemon moments: %u passed, %u failed\n", r.failed ? 0 : 1u, r.failed ? 1u : 0);
	shmstore_client_free(r.daemon.client);
	shmstore_partition_unref(r.p);
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
	case 'p':
		o->pack_max = PACK_MAX;
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 'n':
		o->moments = (unsigned)strtoul(arg, NULL, 10);
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
		{"packed", 'p', NULL, 0, "Stores that pack", 0},
		{"time", 't', "SECONDS", 0, "How long at most (30)", 0},
		{"moments", 'n', "N", 0, "How many moments at most (1000)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{0},
	};
	static const struct argp argp = {
		known, on_option, NULL, "The daemon's books at random moments.", NULL, NULL, NULL};
	struct options options = {.seconds = 30, .moments = 1000, .seed = (uint64_t)time(NULL)};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return sandbox_run("size=512m,huge=within_size", body, &options);
}
