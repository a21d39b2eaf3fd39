/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many_stores.c: 256 stores of eight processes on one partition: every store puts, hands one object
 * to the next store of the ring (over process borders) and adopts one; then every object of every
 * store is read through one process, du and reconcile agree and close; half of the processes are
 * killed, gc removes their stores and no others; then nothing is left.
 *
 *   many_stores [-n objects]
 */
#include <argp.h>
#include <errno.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "content.h"
#include "failure.h"
#include "sandbox.h"

#define N_PROCESSES 8u
#define N_EACH      32u
#define N_STORES    (N_PROCESSES * N_EACH)
#define READY_S     120

static unsigned n_objects = 40; /* of each store */

static struct shared {
	struct failure failure;
	_Atomic unsigned n_put, n_adopted; /* processes that are that far */
	_Atomic bool end;
	struct shmstore_ticket tickets[N_STORES]; /* from each store to the next */
} * sh;

static char partition_path[256];

static void must(const char *what, unsigned store, int rc)
{
	if (rc < 0)
		failure_say(&sh->failure, "store %u: %s: %d (%s)", store, what, rc,
			    shmstore_strerror(rc));
}

static bool as_files; /* none is packed */

static struct content content_of(unsigned store, unsigned object)
{
	return (struct content){store * 1000u + object + 1,
				100 + (store * 31 + object * 977) % 9000};
}

static void wait_for(_Atomic unsigned *n)
{
	++*n;
	while (*n < N_PROCESSES && !sh->failure.is)
		usleep(1000);
}

static void process(unsigned id)
{
	static struct shmstore *stores[N_EACH];
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = NULL;
	o.pack_max = as_files ? 0 : o.pack_max;
	must("partition", id, shmstore_partition_open(partition_path, 0, &p));
	for (unsigned i = 0; i < N_EACH && !sh->failure.is; i++) {
		unsigned store = id * N_EACH + i;
		char name[32];
		snprintf(name, sizeof(name), "store-%u", store);
		must("open", store, shmstore_open(p, name, &o, &stores[i]));
		for (unsigned k = 0; k < n_objects && !sh->failure.is; k++) {
			char key[32];
			snprintf(key, sizeof(key), "object-%u", k);
			must("put", store,
			     content_put(stores[i], key, strlen(key), content_of(store, k), 0));
		}
		if (!sh->failure.is)
			must("handoff", store,
			     shmstore_handoff(stores[i], "object-0", 8, 600000,
					      &sh->tickets[store]));
	}
	wait_for(&sh->n_put);
	for (unsigned i = 0; i < N_EACH && !sh->failure.is; i++) {
		unsigned store = id * N_EACH + i;
		must("adopt", store,
		     shmstore_adopt(stores[i], "adopted", 7,
				    &sh->tickets[(store + N_STORES - 1) % N_STORES], 0));
	}
	wait_for(&sh->n_adopted);
	while (!sh->end && !sh->failure.is)
		usleep(2000);
	for (unsigned i = 0; i < N_EACH; i++)
		must("close", id * N_EACH + i, shmstore_close(stores[i]));
	shmstore_partition_unref(p);
	_exit(0);
}

static void read_all(struct shmstore_partition *p, unsigned first)
{
	for (unsigned store = first; store < N_STORES && !sh->failure.is; store++) {
		char name[32];
		snprintf(name, sizeof(name), "store-%u", store);
		struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
		options.flags = SHMSTORE_OPEN_READONLY;
		struct shmstore *s = NULL;
		must("opening read-only", store, shmstore_open(p, name, &options, &s));
		for (unsigned k = 0; s && k <= n_objects && !sh->failure.is; k++) {
			char key[32];
			snprintf(key, sizeof(key), k < n_objects ? "object-%u" : "adopted", k);
			struct content want =
				k < n_objects ? content_of(store, k)
					      : content_of((store + N_STORES - 1) % N_STORES, 0);
			struct content got = {0, 0};
			const char *why = NULL;
			int rc = content_get(s, key, strlen(key), &got, &why);
			if (rc < 0 || got.seed != want.seed)
				failure_say(&sh->failure, "store %u, %s: %d %s", store, key, rc,
					    why ? why : "");
		}
		shmstore_close(s);
	}
}

struct du {
	uint64_t pss, uss, metadata;
	unsigned n_stores, n_objects;
};

static int add_books(const struct shmstore_store_books *b, void *arg)
{
	struct du *du = arg;
	du->pss += b->pss;
	du->uss += b->uss;
	du->metadata += b->metadata;
	du->n_stores++;
	du->n_objects += (unsigned)b->n_objects;
	return 0;
}

static void check_books(struct shmstore_partition *p, unsigned n_stores)
{
	struct du du = {0};
	struct shmstore_books_total total;
	struct shmstore_usage u;
	double begin = clock_s();
	must("du", 0, shmstore_partition_books(p, add_books, &du, &total));
	double du_s = clock_s() - begin;
	begin = clock_s();
	must("reconcile", 0, shmstore_partition_reconcile(p, NULL, NULL, &u));
	double reconcile_s = clock_s() - begin;
	if (sh->failure.is)
		return;
	printf("     %u stores, %u objects: du %.3f s, reconcile %.3f s, used %llu, linked %llu\n",
	       du.n_stores, du.n_objects, du_s, reconcile_s, (unsigned long long)u.used,
	       (unsigned long long)u.linked);
	if (u.residual || u.ghosts || u.inflight || u.foreign || (as_files && u.pool))
		failure_say(&sh->failure,
			    "books: residual %lld ghosts %llu inflight %llu foreign %llu pool %llu",
			    (long long)u.residual, (unsigned long long)u.ghosts,
			    (unsigned long long)u.inflight, (unsigned long long)u.foreign,
			    (unsigned long long)u.pool);
	if (du.n_stores != n_stores || u.n_stores != n_stores ||
	    du.n_objects != n_stores * (n_objects + 1) || u.n_objects != du.n_objects)
		failure_say(&sh->failure, "books: %u and %llu stores, %u and %llu objects",
			    du.n_stores, (unsigned long long)u.n_stores, du.n_objects,
			    (unsigned long long)u.n_objects);
	if (du_s > 5 || reconcile_s > 5)
		failure_say(&sh->failure, "du and reconcile take too long");
}

static void run(pid_t pids[N_PROCESSES])
{
	double begin = clock_s();
	while ((sh->n_put < N_PROCESSES || sh->n_adopted < N_PROCESSES) && !sh->failure.is) {
		if (clock_s() - begin > READY_S)
			failure_say(&sh->failure,
				    "of %u processes %u have put and %u adopted within %d s",
				    N_PROCESSES, sh->n_put, sh->n_adopted, READY_S);
		usleep(2000);
	}
	struct shmstore_partition *p = NULL;
	struct shmstore_gc_report report = {0};
	must("partition", 0, shmstore_partition_open(partition_path, 0, &p));
	if (sh->failure.is)
		return;
	read_all(p, 0);
	check_books(p, N_STORES);
	must("gc", 0, shmstore_partition_gc(p, 0, &report));
	if (report.n_stores || report.n_objects || report.n_leases)
		failure_say(&sh->failure, "gc took something of the living");
	for (unsigned i = 0; i < N_PROCESSES / 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		pids[i] = 0;
	}
	must("gc", 0, shmstore_partition_gc(p, 0, &report));
	if (report.n_stores != N_STORES / 2)
		failure_say(&sh->failure, "gc removed %llu stores of %u",
			    (unsigned long long)report.n_stores, N_STORES / 2);
	read_all(p, N_STORES / 2);
	check_books(p, N_STORES / 2);
	shmstore_partition_unref(p);
}

static int body(const char *mount, void *arg)
{
	(void)arg;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 2;
	snprintf(partition_path, sizeof(partition_path), "%s/partition", mount);
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	pid_t pid = fork();
	if (pid == 0) {
		struct shmstore_partition *p = NULL;
		_exit(shmstore_partition_open(partition_path, SHMSTORE_CREATE, &p) < 0);
	}
	waitpid(pid, NULL, 0);
	char *bare = sandbox_tree(mount);
	double begin = clock_s();
	pid_t pids[N_PROCESSES];
	fflush(stdout);
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			process(i);
		}
	}
	run(pids);
	sh->end = true;
	for (unsigned i = 0; i < N_PROCESSES; i++) {
		int status = 0;
		if (pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i] && status != 0)
			failure_say(&sh->failure, "process %u ended with status 0x%x", i, status);
	}
	char *left = sandbox_tree(mount);
	if (!bare || !left || strcmp(bare, left) != 0)
		failure_say(&sh->failure, "names are left:\n%.300s", left ? left : "");
	printf("many stores: %u stores, %.1f s\n", N_STORES, clock_s() - begin);
	if (sh->failure.is)
		printf("FAIL many stores: %s\n", sh->failure.message);
	printf("many stores: %u passed, %u failed\n", !sh->failure.is, sh->failure.is ? 1u : 0u);
	return sh->failure.is ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	(void)state;
	if (key == 'n')
		n_objects = (unsigned)strtoul(arg, NULL, 10);
	else if (key == 'f')
		as_files = true;
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"objects", 'n', "N", 0, "Of each store (40)", 0},
		{"files", 'f', NULL, 0, "A file for each object: none is packed", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "256 stores at once.",
					 NULL,  NULL,      NULL};
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	return sandbox_run("size=512m,huge=within_size", body, NULL);
}
