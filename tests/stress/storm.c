/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm.c: eight processes put, get, hand off, adopt and delete at random, are killed at random and start again.
 *
 *   storm [-d] [-t seconds] [-s seed] [-m megabytes]
 *
 * Every byte of every object is checked (content.h), every key against what its store must hold (storm.h), every ticket within
 * its lease must be good. Every second all workers are stopped where they are and the df equation must close to the byte,
 * with their views and half-made objects in it; so must the tier's, where there is one (-d), and all demote, promote and evict each
 * other's objects. In the end, when leases are over, nothing is left.
 */
#include "storm.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox.h"
#include "tiermake.h"

#define KILL_EVERY_MS      40u /* on average */
#define RECONCILE_EVERY_MS 1000u
#define SETTLE_MS          10000u

const char *const storm_op_name[N_OPS] = {
	"put",    "replace", "create", "abort",   "get", "view",  "alias", "handoff", "adopt",
	"delete", "peek",    "demote", "promote", "pin", "evict", "gc",    "reopen",  "thread get",
};

struct options {
	unsigned seconds;
	uint64_t seed;
	unsigned megabytes;
	const char *disk;
};

struct run {
	struct storm st;
	const struct options *options;
	pid_t pids[STORM_WORKERS];
	unsigned lives[STORM_WORKERS];
	unsigned n_kills, n_reconciled;
	uint64_t random;
	char partition[256];
};

void storm_name(unsigned worker, char ret_name[16])
{
	snprintf(ret_name, 16, "storm-%u", worker);
}

int storm_fail(struct storm *st, const char *format, ...)
{
	if (!atomic_exchange(&st->shared->failed, true)) {
		va_list args;
		va_start(args, format);
		vsnprintf(st->shared->message, sizeof(st->shared->message), format, args);
		va_end(args);
	}
	return -1;
}

uint64_t storm_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static unsigned pick(struct run *r, unsigned n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (unsigned)(r->random % n);
}

static int in_child(struct run *r, int (*step)(struct run *r))
{
	pid_t pid = fork();
	if (pid < 0)
		return storm_fail(&r->st, "fork: %m");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(step(r) < 0 ? 1 : 0);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return storm_fail(&r->st, "waitpid: %m");
	return status == 0 ? 0 : storm_fail(&r->st, "a check ended with status 0x%x", status);
}

static int make_partition(struct run *r)
{
	struct shmstore_partition *p = NULL;
	int rc = shmstore_partition_open(r->st.path, SHMSTORE_CREATE, &p);
	if (rc == 0 && r->st.disk)
		rc = tier_make(p, r->st.disk, false);
	shmstore_partition_unref(p);
	return rc < 0 ? storm_fail(&r->st, "making the partition: %d (%s)", rc, shmstore_strerror(rc)) : 0;
}

static void start(struct run *r, unsigned i)
{
	unsigned life = r->lives[i]++;
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(storm_worker(&r->st, i, life));
	}
	r->pids[i] = pid;
	if (pid < 0)
		storm_fail(&r->st, "fork: %m");
}

/* Waits for worker i to end. killed: by us. */
static void reap(struct run *r, unsigned i, bool killed)
{
	int status;
	while (waitpid(r->pids[i], &status, 0) < 0)
		if (errno != EINTR)
			return;
	r->pids[i] = 0;
	if (killed ? !WIFSIGNALED(status) : status != 0)
		storm_fail(&r->st, "worker %u ended with status 0x%x", i, status);
}

static int say_holder(const struct shmstore_holder *h, void *arg)
{
	(void)arg;
	printf("     %s pid %d inode %llu bytes %llu%s %s\n", h->kind == SHMSTORE_HOLD_GHOST ? "ghost" : "inflight",
	       (int)h->pid, (unsigned long long)h->inode, (unsigned long long)h->bytes, h->first ? "" : " (again)",
	       h->path ? h->path : "");
	return 0;
}

/* The tier's own equation, against the files on the disk. */
static int check_tier(struct run *r, const struct shmstore_usage *u)
{
	uint64_t on_disk = r->st.disk ? sandbox_tier_blocks(r->st.disk) : 0;
	if (u->tier == on_disk && u->tier == u->tier_demoted + u->tier_clean + u->tier_orphans)
		return 0;
	return storm_fail(&r->st, "the tier's books: %llu = demoted %llu + clean %llu + orphans %llu, on disk %llu",
			  (unsigned long long)u->tier, (unsigned long long)u->tier_demoted,
			  (unsigned long long)u->tier_clean, (unsigned long long)u->tier_orphans,
			  (unsigned long long)on_disk);
}

/* All stand still: the books must close over live views, writers and pools. */
static int reconcile_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_usage u;
	int rc = shmstore_partition_open(r->st.path, 0, &p);
	if (rc == 0)
		rc = shmstore_partition_reconcile(p, NULL, NULL, &u);
	if (rc < 0)
		return storm_fail(&r->st, "reconcile: %d (%s)", rc, shmstore_strerror(rc));
	if (u.residual != 0) {
		shmstore_partition_reconcile(p, say_holder, NULL, &u);
		fflush(stdout);
		return storm_fail(
			&r->st, "residual %lld: used %llu linked %llu ghosts %llu pool %llu inflight %llu foreign %llu",
			(long long)u.residual, (unsigned long long)u.used, (unsigned long long)u.linked,
			(unsigned long long)u.ghosts, (unsigned long long)u.pool, (unsigned long long)u.inflight,
			(unsigned long long)u.foreign);
	}
	shmstore_partition_unref(p);
	return check_tier(r, &u);
}

static void stand_still_and_reconcile(struct run *r)
{
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		kill(r->pids[i], SIGSTOP);
	for (unsigned i = 0; i < STORM_WORKERS; i++) {
		int status;
		if (waitpid(r->pids[i], &status, WUNTRACED) != r->pids[i] || !WIFSTOPPED(status))
			storm_fail(&r->st, "worker %u ended with status 0x%x", i, status);
	}
	in_child(r, reconcile_step);
	r->n_reconciled++;
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		kill(r->pids[i], SIGCONT);
}

static int drop_kept(struct run *r, struct shmstore_partition *p)
{
	for (unsigned i = 0; i < STORM_WORKERS; i++) {
		char name[16];
		storm_name(i, name);
		struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
		options.flags = SHMSTORE_OPEN_FRESH;
		struct shmstore *s = NULL;
		int rc = shmstore_open(p, name, &options, &s);
		if (rc == 0)
			rc = shmstore_close(s);
		if (rc < 0)
			return storm_fail(&r->st, "dropping store %s: %d (%s)", name, rc, shmstore_strerror(rc));
	}
	return 0;
}

static int settle_step(struct run *r)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_usage u;
	struct shmstore_gc_report report;
	int rc = shmstore_partition_open(r->st.path, 0, &p);
	if (rc < 0)
		return storm_fail(&r->st, "partition: %d", rc);
	if (drop_kept(r, p) < 0)
		return -1;
	for (uint64_t until = storm_now_ms() + SETTLE_MS;;) {
		rc = shmstore_partition_gc(p, 0, NULL);
		if (rc == 0)
			rc = shmstore_partition_usage(p, 0, &u);
		if (rc < 0)
			return storm_fail(&r->st, "gc: %d (%s)", rc, shmstore_strerror(rc));
		if (u.n_leases == 0)
			break;
		if (storm_now_ms() > until)
			return storm_fail(&r->st, "%llu leases never end", (unsigned long long)u.n_leases);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	rc = shmstore_partition_gc(p, 0, &report);
	if (rc < 0 || report.n_stores || report.n_leases || report.n_objects || report.freed)
		return storm_fail(&r->st, "a second gc still did something (%d)", rc);
	rc = shmstore_partition_reconcile(p, NULL, NULL, &u);
	if (rc < 0 || u.residual || u.ghosts || u.inflight || u.pool || u.foreign || u.n_objects || u.n_stores)
		return storm_fail(
			&r->st, "books at the end (%d): residual %lld ghosts %llu inflight %llu pool %llu stores %llu",
			rc, (long long)u.residual, (unsigned long long)u.ghosts, (unsigned long long)u.inflight,
			(unsigned long long)u.pool, (unsigned long long)u.n_stores);
	shmstore_partition_unref(p);
	return u.tier ? storm_fail(&r->st, "%llu bytes of tier files are left", (unsigned long long)u.tier) : 0;
}

static void blow(struct run *r)
{
	uint64_t end = storm_now_ms() + r->options->seconds * 1000ull,
		 reconcile_at = storm_now_ms() + RECONCILE_EVERY_MS;
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		start(r, i);
	while (!r->st.shared->failed && storm_now_ms() < end) {
		struct timespec t = {.tv_nsec = (long)(1 + pick(r, KILL_EVERY_MS * 2)) * 1000000}; /* at any moment */
		nanosleep(&t, NULL);
		unsigned i = pick(r, STORM_WORKERS);
		kill(r->pids[i], SIGKILL);
		reap(r, i, true);
		r->n_kills++;
		start(r, i);
		if (storm_now_ms() >= reconcile_at && !r->st.shared->failed) {
			stand_still_and_reconcile(r);
			reconcile_at = storm_now_ms() + RECONCILE_EVERY_MS;
		}
	}
	/* Half of them end by their own will. */
	for (unsigned i = 0; i < STORM_WORKERS / 2; i++) {
		kill(r->pids[i], SIGKILL);
		reap(r, i, true);
	}
	r->st.shared->stop = true;
	for (unsigned i = STORM_WORKERS / 2; i < STORM_WORKERS; i++)
		reap(r, i, false);
}

static int body(const char *mount, void *arg)
{
	static struct run r;
	r.options = arg;
	r.random = r.options->seed * 0x9e3779b97f4a7c15ull | 1;
	snprintf(r.partition, sizeof(r.partition), "%s/partition", mount);
	r.st.path = r.partition;
	r.st.disk = r.options->disk;
	r.st.random_seed = r.options->seed;
	r.st.shared = mmap(NULL, sizeof(*r.st.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.st.shared == MAP_FAILED)
		return 2;
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, r.st.mailbox[i]) < 0)
			return 2;
	in_child(&r, make_partition);
	char *bare = sandbox_tree(mount);
	struct sandbox_used before = sandbox_used(mount);
	if (!r.st.shared->failed)
		blow(&r);
	if (!r.st.shared->failed)
		in_child(&r, settle_step);
	char *left = sandbox_tree(mount);
	struct sandbox_used after = sandbox_used(mount);
	if (!r.st.shared->failed && (!bare || !left || strcmp(bare, left) != 0))
		storm_fail(&r.st, "names are left:\n%s", left ? left : "");
	if (!r.st.shared->failed && (before.bytes != after.bytes || before.inodes != after.inodes))
		storm_fail(&r.st, "statfs: %lld bytes, %lld inodes too many", (long long)(after.bytes - before.bytes),
			   (long long)(after.inodes - before.inodes));
	uint64_t total = 0;
	for (unsigned op = 0; op < N_OPS; op++) {
		printf("     %-10s %10llu\n", storm_op_name[op], (unsigned long long)r.st.shared->n_ops[op]);
		total += r.st.shared->n_ops[op];
	}
	printf("storm: seed %llu: %llu operations, %u kills, %u times all stood still and the books closed, %llu full, "
	       "%llu expired, %llu recycled (of stores that closed)\n",
	       (unsigned long long)r.options->seed, (unsigned long long)total, r.n_kills, r.n_reconciled,
	       (unsigned long long)r.st.shared->n_enospc, (unsigned long long)r.st.shared->n_stale,
	       (unsigned long long)r.st.shared->n_recycled);
	if (r.st.shared->failed)
		printf("FAIL storm: %s\n", r.st.shared->message);
	printf("storm: %u passed, %u failed\n", !r.st.shared->failed, r.st.shared->failed ? 1u : 0u);
	return r.st.shared->failed ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'd':
		o->disk = "";
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 10);
		return 0;
	case 'm':
		o->megabytes = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"disk", 'd', NULL, 0, "With a disk tier", 0},
		{"time", 't', "SECONDS", 0, "How long (20)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{"megabytes", 'm', "N", 0, "Of the partition (256; with 60 it is full most of the time)", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "Random load and random kills.", NULL, NULL, NULL};
	struct options options = {.seconds = 20, .megabytes = 256, .seed = (uint64_t)time(NULL)};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (options.disk) {
		options.disk = sandbox_disk();
		if (!options.disk) {
			printf("SKIP no directory on a disk: %s\n", strerror(errno));
			return 77;
		}
	}
	char mount_options[64];
	snprintf(mount_options, sizeof(mount_options), "size=%um,huge=within_size", options.megabytes);
	return sandbox_run(mount_options, body, &options);
}
