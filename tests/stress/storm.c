/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm.c: eight processes put, get, hand off, adopt and delete at random, are killed at random and
 * start again; as asked for they are stopped for a while, have children, are of several users, have
 * a daemon (which is killed, too) and limits. storm.h has what there is.
 *
 * Every byte of every object is checked (content.h), every key against what its store must hold
 * (storm.h), every ticket within its lease must be good. Every second all processes are stopped
 * where they are and the df equation must close to the byte, with their views and half-made objects
 * in it; so must the tier's, where there is one, and all demote, promote and evict each other's
 * objects. Now and then all come to rest between two calls instead: then each ledger must be what a
 * walk of its store counts. In the end, when leases are over, nothing is left.
 */
#include "storm.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "killing.h"
#include "owndaemon.h"
#include "sandbox.h"
#include "storm_run.h"
#include "tiermake.h"

#define KILL_EVERY_MS      40u /* on average */
#define RECONCILE_EVERY_MS 1000u
#define REST_EVERY         2u /* times that all were stopped */
/* less than what a call waits for somebody who was stopped; a loaded host may make it more */
#define STOP_MS            400u
#define ASK_MS             60000u

const char *const storm_op_name[N_OPS] = {
	"put",     "replace", "create", "abort", "get",        "view",         "alias",
	"handoff", "adopt",   "delete", "peek",  "demote",     "promote",      "pin",
	"evict",   "gc",      "reopen", "fork",  "thread get", "thread write",
};

struct outcome *storm_outcome;

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
	return shmstore_lease_clock_ms(); /* of the host: workers may be in time namespaces */
}

int storm_become(const struct storm_options *o, unsigned worker)
{
	uid_t uid = storm_uid(o, worker);

	if (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		    setresuid(uid, uid, uid) < 0))
		return -1;
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void storm_rest(struct storm *st, const _Atomic bool *stop)
{
	if (!st->shared->rest)
		return;
	st->shared->n_resting++;
	while (st->shared->rest && !*stop)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	st->shared->n_resting--;
}

unsigned storm_pick(struct run *r, unsigned n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (unsigned)(r->random % n);
}

int storm_in_child(struct run *r, int (*step)(struct run *r))
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

unsigned storm_as;
static int (*step_as)(struct run *r);

static int become_step(struct run *r)
{
	if (storm_become(r->options, storm_as) < 0)
		return storm_fail(&r->st, "user %u: %s", storm_uid(r->options, storm_as),
				  strerror(errno));
	return step_as(r);
}

/* The step by that worker's user. */
static int in_child_as(struct run *r, unsigned worker, int (*step)(struct run *r))
{
	storm_as = worker;
	step_as = step;
	return storm_in_child(r, become_step);
}

/* Uses the tier once: the files that its first use leaves are there then. */
static int use_tier(struct run *r)
{
	struct shmstore_evict all = SHMSTORE_EVICT_INIT;
	/* what is packed only its own store's next call moves */
	struct shmstore_options files = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = NULL;
	struct shmstore *s = NULL;
	char name[16];
	int rc = shmstore_partition_open(r->st.path, 0, &p);

	storm_name(storm_as, name);
	all.bytes = 1;
	files.pack_max = 0;
	if (rc == 0)
		rc = shmstore_open(p, name, &files, &s);
	if (rc == 0)
		rc = content_put(s, "first", 5, (struct content){1, 100000}, 0);
	if (rc == 0)
		rc = shmstore_partition_evict(p, &all, NULL);
	rc = rc < 0 ? rc : shmstore_close(s);
	shmstore_partition_unref(p);
	return rc < 0 ? storm_fail(&r->st, "the tier's first use: %d (%s)", rc,
				   shmstore_error_detail())
		      : 0;
}

static int make_partition(struct run *r)
{
	struct shmstore_partition *p = NULL;
	unsigned shared = r->options->n_users > 1 ? SHMSTORE_SHARED : 0;
	int rc = shmstore_partition_open(r->st.path, SHMSTORE_CREATE | shared, &p);
	if (rc == 0 && r->options->disk)
		rc = tier_make(p, r->options->disk, false);
	for (unsigned i = 0;
	     rc == 0 && r->options->disk && i < r->options->n_users && r->options->n_users > 1; i++)
		rc = in_child_as(r, i, use_tier);
	shmstore_partition_unref(p);
	return rc < 0 ? storm_fail(&r->st, "making the partition: %d (%s)", rc,
				   shmstore_strerror(rc))
		      : 0;
}

/* The worker's, in a new pid namespace: the others, with a /proc of its own. In a user namespace
 * only where all are root, who stays root. */
static bool leave_namespaces(const struct storm_options *o)
{
	static const char *const maps[][2] = {{"/proc/self/setgroups", "deny"},
					      {"/proc/self/uid_map", "0 0 1"},
					      {"/proc/self/gid_map", "0 0 1"}};

	if (unshare(CLONE_NEWNS | CLONE_NEWIPC) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", 0, NULL) < 0)
		return false;
	if (o->n_users > 1)
		return true;
	if (unshare(CLONE_NEWUSER) < 0)
		return false;
	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		size_t size = strlen(maps[i][1]);
		int fd = open(maps[i][0], O_WRONLY | O_CLOEXEC);
		bool written = fd >= 0 && write(fd, maps[i][1], size) == (ssize_t)size;

		if (fd >= 0)
			close(fd);
		if (!written)
			return false;
	}
	return true;
}

/* Children will be in a time namespace whose host was booted eleven days before this
 * one, if the kernel has such. */
static bool unshare_time(void)
{
	static const char offsets[] = "boottime 1000000 0\nmonotonic 1000000 0\n";
	int fd = unshare(CLONE_NEWTIME) == 0
			 ? open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)
			 : -1;
	bool written = fd >= 0 && write(fd, offsets, sizeof(offsets) - 1) == sizeof(offsets) - 1;

	if (fd >= 0)
		close(fd);
	return written;
}

/* As fork(); the child is the first process of a pid namespace, and of a time namespace. */
static pid_t fork_apart(void)
{
	static const struct {
		const char *path;
		int kind;
	} own[] = {{"/proc/self/ns/pid", CLONE_NEWPID}, {"/proc/self/ns/time", CLONE_NEWTIME}};
	int fds[2];
	pid_t pid = -1;

	for (int i = 0; i < 2; i++)
		fds[i] = open(own[i].path, O_RDONLY | O_CLOEXEC);
	if (fds[0] >= 0 && (fds[1] < 0 || unshare_time()) && unshare(CLONE_NEWPID) == 0)
		pid = fork();
	for (int i = 0; i < 2; i++) {
		if (pid != 0 && fds[i] >= 0 && setns(fds[i], own[i].kind) < 0)
			abort(); /* later children would be in the namespace of this one */
		if (fds[i] >= 0)
			close(fds[i]);
	}
	return pid;
}

void storm_start(struct run *r, unsigned i, uint64_t killed_after_ns)
{
	unsigned life = r->lives[i]++;
	bool apart = r->options->apart && i % 2;
	pid_t pid = apart ? fork_apart() : fork();
	if (pid == 0) {
		if (apart && !leave_namespaces(r->options))
			storm_fail(&r->st, "namespaces of worker %u: %m", i);
		bool ready = storm_become(r->options, i) == 0 &&
			     (!killed_after_ns || killing_after(killed_after_ns));
		_exit(ready ? storm_worker(&r->st, i, life) : 1);
	}
	r->pids[i] = pid;
	r->stopped_until_ms[i] = 0;
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

/* ---- the daemon ------------------------------------------------------------------------------ */

static void daemon_failed(struct run *r, const char *wrong)
{
	if (wrong)
		storm_fail(&r->st, "%s", wrong);
}

static void start_daemon(struct run *r)
{
	daemon_failed(r, own_daemon_start(&r->daemon, r->config, r->socket, ASK_MS));
}

static void end_daemon(struct run *r, bool kill_it)
{
	int status;

	r->daemon.client = shmstore_client_free(r->daemon.client);
	if (!kill_it) {
		daemon_failed(r, own_daemon_stop(&r->daemon));
		return;
	}
	kill(r->daemon.pid, SIGKILL);
	while (waitpid(r->daemon.pid, &status, 0) < 0 && errno == EINTR)
		continue;
}

static int make_config(struct run *r)
{
	const struct storm_options *o = r->options;
	FILE *f;

	snprintf(r->run_directory, sizeof(r->run_directory), "/tmp/shmstore-storm-XXXXXX");
	if (!mkdtemp(r->run_directory) || chmod(r->run_directory, 0755) < 0)
		return storm_fail(&r->st, "%s: %s", r->run_directory, strerror(errno));
	snprintf(r->socket, sizeof(r->socket), "%s/socket", r->run_directory);
	snprintf(r->config, sizeof(r->config), "%s/conf", r->run_directory);
	r->daemon.program = o->daemon;
	f = fopen(r->config, "we");
	if (!f)
		return storm_fail(&r->st, "%s: %s", r->config, strerror(errno));
	fprintf(f,
		"daemon { socket = \"%s\" socket-mode = 0666 credit = 1MiB log-level = error "
		"}\nhttp { enabled = no "
		"}\n",
		r->socket);
	fprintf(f, "partition \"%s\" { survey-interval = 2s\n", r->partition);
	if (o->limit)
		fprintf(f, "user \"*\" { limit = \"%uMiB\" }\n", o->limit);
	fprintf(f, "}\n");
	if (o->n_users > 1)
		fprintf(f, "handoff \"all\" { from = { any } to = { any } }\n");
	return fclose(f) == 0 ? 0 : storm_fail(&r->st, "%s: %s", r->config, strerror(errno));
}

/* ---- the storm ------------------------------------------------------------------------------- */

/* One is stopped for a while; those whose while is over go on. */
static void stop_some(struct run *r)
{
	unsigned i = storm_pick(r, STORM_WORKERS);

	if (!r->stopped_until_ms[i]) {
		r->st.shared->n_stopped[i]++;
		kill(r->pids[i], SIGSTOP);
		r->stopped_until_ms[i] = storm_now_ms() + 1 + storm_pick(r, STOP_MS);
		r->n_stops++;
	}
	for (i = 0; i < STORM_WORKERS; i++)
		if (r->stopped_until_ms[i] && r->stopped_until_ms[i] <= storm_now_ms()) {
			kill(r->pids[i], SIGCONT);
			r->stopped_until_ms[i] = 0;
		}
}

static void kill_some(struct run *r)
{
	unsigned i = storm_pick(r, STORM_WORKERS);

	kill(r->pids[i], SIGKILL);
	reap(r, i, true);
	r->n_kills++;
	storm_start(r, i, 0);
	if (r->options->daemon && storm_pick(r, 200) == 0) {
		end_daemon(r, storm_pick(r, 2));
		start_daemon(r);
	}
}

static void blow_for_a_time(struct run *r)
{
	uint64_t end = storm_now_ms() + r->options->seconds * 1000ull,
		 reconcile_at = storm_now_ms() + RECONCILE_EVERY_MS;
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		storm_start(r, i, 0);
	while (!r->st.shared->failed && storm_now_ms() < end) {
		struct timespec t = {.tv_nsec = (long)(1 + storm_pick(r, KILL_EVERY_MS * 2)) *
						1000000}; /* at any moment */
		nanosleep(&t, NULL);
		kill_some(r);
		if (r->options->stops)
			stop_some(r);
		if (storm_now_ms() >= reconcile_at && !r->st.shared->failed) {
			storm_stand_still(r);
			if (r->options->ledgers && r->n_reconciled % REST_EVERY == 0 &&
			    !r->st.shared->failed)
				storm_rest_and_compare(r);
			reconcile_at = storm_now_ms() + RECONCILE_EVERY_MS;
		}
	}
	storm_signal_all(SIGCONT);
}

static void blow(struct run *r)
{
	if (r->options->n_kills)
		storm_kill_many(r);
	else
		blow_for_a_time(r);
	/* Half of them end by their own will. */
	for (unsigned i = 0; i < STORM_WORKERS / 2; i++) {
		kill(r->pids[i], SIGKILL);
		reap(r, i, true);
	}
	r->st.shared->stop = true;
	for (unsigned i = STORM_WORKERS / 2; i < STORM_WORKERS; i++)
		reap(r, i, false);
}

/* Children that outlived their parents are ours; theirs is the last of the memory. */
static void reap_children(struct run *r)
{
	uint64_t end_ms = storm_now_ms() + SETTLE_MS;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) >= 0 && storm_now_ms() < end_ms)
		if (pid == 0)
			nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	if (pid >= 0)
		storm_fail(&r->st, "a worker's child does not end");
}

static void settle(struct run *r)
{
	if (r->options->daemon)
		end_daemon(r, false);
	reap_children(r);
	for (unsigned i = 0; i < STORM_WORKERS && !r->st.shared->failed; i++)
		in_child_as(r, i, storm_drop_kept);
	for (unsigned i = 0;
	     i < r->options->n_users && r->options->n_users > 1 && !r->st.shared->failed; i++)
		in_child_as(r, i, storm_gc_step);
	if (!r->st.shared->failed)
		storm_in_child(r, storm_settle_step);
}

static void say(const struct run *r, uint64_t total)
{
	const struct storm_shared *shared = r->st.shared;
	const struct storm_options *o = r->options;

	for (unsigned op = 0; op < N_OPS && !o->quiet; op++)
		printf("     %-12s %10llu\n", storm_op_name[op],
		       (unsigned long long)shared->n_ops[op]);
	if (!o->quiet)
		printf("storm: seed %llu: %llu operations, %u kills, %u stops, %u times all stood "
		       "still and the books "
		       "closed, %u "
		       "times at rest, %llu full, %llu over a limit, %llu timed out, %llu expired, "
		       "%llu recycled (of "
		       "stores that closed)\n",
		       (unsigned long long)o->seed, (unsigned long long)total, r->n_kills,
		       r->n_stops, r->n_reconciled, r->n_rests,
		       (unsigned long long)shared->n_enospc, (unsigned long long)shared->n_edquot,
		       (unsigned long long)shared->n_timedout, (unsigned long long)shared->n_stale,
		       (unsigned long long)shared->n_recycled);
	if (shared->failed)
		printf("FAIL storm: seed %llu: %s\n", (unsigned long long)o->seed, shared->message);
	fflush(stdout);
}

static void check_left(struct run *r, const char *mount, const char *bare,
		       struct sandbox_used before)
{
	char inbox[300], *left;
	struct sandbox_used after;

	snprintf(inbox, sizeof(inbox), "%s/inbox", r->partition);
	sandbox_wipe(inbox);
	left = sandbox_tree(mount);
	after = sandbox_used(mount);
	if (!r->st.shared->failed && (!bare || !left || strcmp(bare, left) != 0))
		storm_fail(&r->st, "names are left:\n%snot:\n%s", left ? left : "",
			   bare ? bare : "");
	if (!r->st.shared->failed && (before.bytes != after.bytes || before.inodes != after.inodes))
		storm_fail(&r->st, "statfs: %lld bytes, %lld inodes too many",
			   (long long)(after.bytes - before.bytes),
			   (long long)(after.inodes - before.inodes));
	free(left);
}

static int body(const char *mount, void *arg)
{
	static struct run r;
	uint64_t total = 0;

	r.options = arg;
	r.random = r.options->seed * 0x9e3779b97f4a7c15ull | 1;
	snprintf(r.partition, sizeof(r.partition), "%s/partition", mount);
	r.st.path = r.partition;
	r.st.options = r.options;
	r.st.shared = mmap(NULL, sizeof(*r.st.shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.st.shared == MAP_FAILED || chmod(mount, 0755) < 0)
		return 2;
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, r.st.mailbox[i]) < 0)
			return 2;
	setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored", 1);
	storm_in_child(&r, make_partition);
	char *bare = sandbox_tree(mount);
	struct sandbox_used before = sandbox_used(mount);
	if (!r.st.shared->failed && r.options->daemon && make_config(&r) == 0)
		start_daemon(&r);
	if (!r.st.shared->failed)
		blow(&r);
	if (!r.st.shared->failed)
		settle(&r);
	check_left(&r, mount, bare, before);
	free(bare);
	for (unsigned op = 0; op < N_OPS; op++)
		total += r.st.shared->n_ops[op];
	storm_outcome->result = (struct storm_result){.n_ops = total,
						      .n_kills = r.n_kills,
						      .n_stops = r.n_stops,
						      .n_forks = r.st.shared->n_ops[OP_FORK],
						      .n_stands = r.n_reconciled,
						      .n_rests = r.n_rests,
						      .n_enospc = r.st.shared->n_enospc,
						      .n_edquot = r.st.shared->n_edquot,
						      .n_timedout = r.st.shared->n_timedout,
						      .n_late = storm_outcome->n_late,
						      .longest_ms = r.st.shared->longest_ms,
						      .longest_op = r.st.shared->longest_op,
						      .drift = storm_outcome->drift,
						      .failed = r.st.shared->failed};
	say(&r, total);
	if (r.run_directory[0]) {
		sandbox_wipe(r.run_directory);
		rmdir(r.run_directory);
	}
	return r.st.shared->failed ? 1 : 0;
}

int storm_run(const struct storm_options *options, struct storm_result *ret)
{
	struct storm_options copy = *options;
	char mount_options[64];
	int status;

	if (!storm_outcome)
		storm_outcome = mmap(NULL, sizeof(*storm_outcome), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (storm_outcome == MAP_FAILED)
		return 2;
	*storm_outcome = (struct outcome){.result = {.failed = true}};
	snprintf(mount_options, sizeof(mount_options), "size=%um,huge=within_size",
		 options->megabytes);
	status = sandbox_run(mount_options, body, &copy);
	*ret = storm_outcome->result;
	return status;
}
