/* SPDX-License-Identifier: Apache-2.0 */
/*
 * full.c: a full partition is an error code, never a signal, and leaves nothing behind.
 *
 *   full [-n puts]
 *
 * The partition is filled to its last page. Four processes then put and create, in sizes of a page
 * to tens of MiB, over and over: every one must be -ENOSPC; not a name, not an inode, not a byte
 * may differ afterwards. Then one object is deleted, and its room must be there at once: for its
 * owner, and for another process. The same with the last inode gone.
 */
#include <argp.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "content.h"
#include "sandbox.h"

#define N_WORKERS 4

static unsigned n_puts = 10000; /* of each process */

struct shared {
	_Atomic unsigned n_ready, n_done, n_bad;
	_Atomic bool go;
	_Atomic bool leave;
	_Atomic bool try_once, tried; /* process 0 puts one object */
	char message[512];
};

static struct shared *sh;
static unsigned n_passed, n_failed;
static char partition_path[256];

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;
	if (sh->n_bad++ != 0)
		return;
	va_start(args, format);
	vsnprintf(sh->message, sizeof(sh->message), format, args);
	va_end(args);
}

static void check(bool ok, const char *what)
{
	if (ok) {
		n_passed++;
		printf("ok     %s\n", what);
	} else {
		n_failed++;
		printf("FAIL %s: %s\n", what, sh->message);
	}
	sh->n_bad = 0;
	sh->message[0] = '\0';
	fflush(stdout);
}

static struct shmstore *open_store(struct shmstore_partition **p, const char *name)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	/* Files: a segment has free slots on a full partition. */
	options.pack_max = 0;
	int rc = shmstore_partition_open(partition_path, 0, p);
	if (rc == 0)
		rc = shmstore_open(*p, name, &options, &s);
	if (rc < 0)
		complain("opening %s: %d (%s)", name, rc, shmstore_strerror(rc));
	return s;
}

/* Sizes from one byte (a page) up; small is what must not fit even into a recycled
 * file's slack: there is none. */
static uint64_t size_of(unsigned i)
{
	static const uint64_t sizes[] = {1,      3000,    5000,    60000,   65536,
					 100000, 1000000, 3000000, 40000000};
	return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* 40 MB of nothing in particular, mapped once: a put that fails shall not cost us memory. */
static void *source;
#define SOURCE_SIZE 40000000u

static int try_put(struct shmstore *s, const char *key, uint64_t size)
{
	struct iovec iov = {source, size};
	return shmstore_put(s, key, strlen(key), "h", 1, &iov, 1, 0);
}

static int try_create(struct shmstore *s, const char *key, uint64_t size)
{
	struct shmstore_writer *w = NULL;
	int rc = shmstore_create(s, key, strlen(key), 8, &size, 1, 0, &w);
	if (rc == 0) {
		/* Given: then every byte of it must be there. */
		memset(shmstore_writer_buffer(w, 0, NULL), 1, size);
		shmstore_abort(w);
	}
	return rc;
}

static void worker(unsigned id)
{
	char name[32];
	snprintf(name, sizeof(name), "full-%u", id);
	struct shmstore_partition *p = NULL;
	struct shmstore *s = open_store(&p, name);
	sh->n_ready++;
	while (!sh->go)
		usleep(1000); /* polls: the parent fills the partition meanwhile */
	for (unsigned i = 0; s && i < n_puts && sh->n_bad == 0; i++) {
		char key[32];
		snprintf(key, sizeof(key), "%u-%u", id, i);
		bool create = i % 4 == 3;
		int rc = create ? try_create(s, key, size_of(i + id))
				: try_put(s, key, size_of(i + id));
		if (rc != -ENOSPC)
			complain("process %u, %s %u of %llu bytes: %d (%s)", id,
				 create ? "create" : "put", i, (unsigned long long)size_of(i + id),
				 rc, shmstore_strerror(rc));
		if (i % 97 == 0 && shmstore_contains(s, key, strlen(key)) != 0)
			complain("process %u: key %s is there", id, key);
	}
	sh->n_done++;
	while (!sh->leave) {
		if (id == 0 && sh->try_once && !sh->tried) {
			int rc = try_put(s, "room", 4u << 20);
			if (rc < 0)
				complain("put in another process: %d (%s)", rc,
					 shmstore_strerror(rc));
			sh->tried = true;
		}
		usleep(1000);
	}
	int rc = shmstore_close(s);
	if (rc < 0)
		complain("process %u: close: %d", id, rc);
	shmstore_partition_unref(p);
	_exit(0);
}

/* Puts until nothing goes in any more, ever smaller. Returns the number of objects. */
static unsigned fill(struct shmstore *s)
{
	unsigned n = 0;
	for (uint64_t size = 4u << 20; size >= 1; size /= 4)
		for (;;) {
			char key[32];
			snprintf(key, sizeof(key), "fill-%u", n);
			int rc = try_put(s, key, size);
			if (rc == -ENOSPC)
				break;
			if (rc < 0) {
				complain("filling: %d (%s)", rc, shmstore_strerror(rc));
				return n;
			}
			n++;
		}
	return n;
}

static bool reap_all(pid_t pids[N_WORKERS])
{
	bool good = true;
	for (unsigned i = 0; i < N_WORKERS; i++) {
		int status = 0;
		while (waitpid(pids[i], &status, 0) < 0)
			if (errno != EINTR)
				break;
		if (status != 0) {
			complain("process %u ended with status 0x%x%s", i, status,
				 WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS ? ": SIGBUS"
										   : "");
			good = false;
		}
	}
	return good;
}

static bool someone_died(pid_t pids[N_WORKERS])
{
	for (unsigned i = 0; i < N_WORKERS; i++) {
		siginfo_t info = {0};
		if (waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
		    info.si_pid != 0)
			return true;
	}
	return false;
}

static bool books_close(void)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_usage u;
	int rc = shmstore_partition_open(partition_path, 0, &p);
	if (rc == 0)
		rc = shmstore_partition_reconcile(p, NULL, NULL, &u);
	shmstore_partition_unref(p);
	if (rc < 0 || u.residual || u.ghosts || u.inflight) {
		complain("reconcile: %d, residual %lld ghosts %llu inflight %llu", rc,
			 (long long)u.residual, (unsigned long long)u.ghosts,
			 (unsigned long long)u.inflight);
		return false;
	}
	return true;
}

/* The main act. by: what runs out. */
static void run(const char *mount, const char *by)
{
	char what[128];
	char *bare = sandbox_tree(mount);
	pid_t pids[N_WORKERS];
	sh->go = sh->leave = sh->try_once = sh->tried = false;
	sh->n_ready = sh->n_done = 0;
	fflush(stdout);
	for (unsigned i = 0; i < N_WORKERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			worker(i);
		}
	}
	while (sh->n_ready < N_WORKERS && !someone_died(pids))
		usleep(1000);
	struct shmstore_partition *p = NULL;
	struct shmstore *s = open_store(&p, "filler");
	unsigned n = s ? fill(s) : 0;
	snprintf(what, sizeof(what), "%s: filled with %u objects", by, n);
	check(n > 10 && sh->n_bad == 0, what);
	char *before = sandbox_tree(mount);
	struct sandbox_used used_before = sandbox_used(mount);
	sh->go = true;
	while (sh->n_done < N_WORKERS && !someone_died(pids))
		usleep(2000);
	char *after = sandbox_tree(mount);
	struct sandbox_used used_after = sandbox_used(mount);
	if (used_before.bytes != used_after.bytes || used_before.inodes != used_after.inodes)
		complain("statfs: %lld bytes, %lld inodes",
			 (long long)(used_after.bytes - used_before.bytes),
			 (long long)(used_after.inodes - used_before.inodes));
	if (!before || !after || strcmp(before, after) != 0)
		complain("names came or went");
	books_close();
	snprintf(what, sizeof(what),
		 "%s: %u x %u puts and creates are all refused and leave nothing", by, N_WORKERS,
		 n_puts);
	check(sh->n_bad == 0, what);
	/* Room at once. */
	snprintf(what, sizeof(what), "%s: room right after a delete, for the same store", by);
	int rc = s ? shmstore_delete(s, "fill-1", 6) : -1;
	if (rc < 0)
		complain("delete: %d", rc);
	rc = s ? try_put(s, "again", 4u << 20) : -1;
	if (rc < 0)
		complain("put: %d (%s)", rc, shmstore_strerror(rc));
	check(sh->n_bad == 0, what);
	snprintf(what, sizeof(what), "%s: room right after a delete, for another process", by);
	rc = s ? shmstore_delete(s, "fill-0", 6) : -1;
	if (rc < 0)
		complain("delete: %d", rc);
	sh->try_once = true;
	while (!sh->tried && !someone_died(pids))
		usleep(1000);
	check(sh->n_bad == 0, what);
	sh->leave = true;
	reap_all(pids);
	rc = shmstore_close(s);
	if (rc < 0)
		complain("close: %d", rc);
	shmstore_partition_unref(p);
	char *left = sandbox_tree(mount);
	if (!bare || !left || strcmp(bare, left) != 0)
		complain("names are left");
	snprintf(what, sizeof(what), "%s: no signal, and nothing left in the end", by);
	check(sh->n_bad == 0, what);
	free(bare);
	free(before);
	free(after);
	free(left);
}

static int make_partition(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct shmstore_partition *p = NULL;
		_exit(shmstore_partition_open(partition_path, SHMSTORE_CREATE, &p) < 0);
	}
	int status = 1;
	waitpid(pid, &status, 0);
	return status;
}

static int body(const char *mount, void *arg)
{
	(void)arg;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	source =
		mmap(NULL, SOURCE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED || source == MAP_FAILED)
		return 2;
	snprintf(partition_path, sizeof(partition_path), "%s/partition", mount);
	if (make_partition() != 0)
		return 2;
	run(mount, "bytes");
	if (sandbox_remount(mount, "size=256m,nr_inodes=300") < 0 || make_partition() != 0)
		return 2;
	n_puts /= 10;
	run(mount, "inodes");
	if (sandbox_remount(mount, "size=64m,huge=never") < 0 || make_partition() != 0)
		return 2;
	run(mount, "bytes, small pages");
	if (sandbox_remount(mount, "size=64m,huge=always") < 0 || make_partition() != 0)
		return 2;
	run(mount, "bytes, huge pages");
	printf("full: %u passed, %u failed\n", n_passed, n_failed);
	return n_failed ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	(void)state;
	if (key != 'n')
		return ARGP_ERR_UNKNOWN;
	n_puts = (unsigned)strtoul(arg, NULL, 10);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"puts", 'n', "N", 0, "Of each of the four processes (10000)", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "A full partition.",
					 NULL,  NULL,      NULL};
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	return sandbox_run("size=64m,huge=within_size,nr_inodes=100000", body, NULL);
}
