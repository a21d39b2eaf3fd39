/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers.c: stores that are read by name while their owners replace what they have, as fast
 * as they can, and are killed.
 *
 *   readers [-t SECONDS] [-s SEED] [-w WRITERS] [-m MIB] [-f] [-l MIB -D SHMSTORED] [-d] [-k]
 *
 * Four writers (-w: 1 to 4) with a store each. Some keys of a store are always there: they are
 * replaced, by values of 100 bytes to 4 MiB, packed and as files; others come and go. Eight readers
 * have handles of all stores, and hold views. A permanent key that is missing, twice in a list, or
 * has bytes that are not of one value is a failure, and so is a value that is older than one that
 * the reader has seen. One writer or reader after the other is killed and begins anew; writers have
 * their kept store again. -m: the partition is so small that puts find it full; -l: a daemon of the
 * test's own has that limit for the partition; -f: puts must have found no room; -d: there is a
 * disk tier; -k: nobody is killed.
 *
 * Bytes say whose they are: the first word of each value is its number, and the rest is that word
 * over and over. Exit status 0; 1; 77: no mount.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dice.h"
#include "failure.h"
#include "owndaemon.h"
#include "scratch.h"
#include "tiered.h"

#define WRITERS      4u
#define READERS      8u
#define PERMANENT    12u /* keys of a store; of each third the values are as large as SIZES says */
#define PASSING      200u
#define HELD         16u
#define MIB          (1u << 20)
#define ASK_MS       10000u
#define FULL_SECONDS 40

static const uint32_t sizes[] = {100, 1000, 9000, 100000, 600000, 4 * MIB};

struct shared {
	struct failure failure;
	_Atomic bool over;
	_Atomic uint64_t next[WRITERS]; /* number of the next value */
	_Atomic uint64_t reads, lists, writes, full, gone;
	_Atomic bool ready[WRITERS]; /* its permanent keys are there */
};

static struct shared *m;
static bool small_partition; /* puts may find no room */
static unsigned n_writers = WRITERS;

#define FAIL(...) failure_say(&m->failure, __VA_ARGS__)

static bool over(void)
{
	return atomic_load(&m->over) || atomic_load(&m->failure.is);
}

static size_t permanent(char *key, unsigned i)
{
	return (size_t)sprintf(
		key, i % 2 ? "key %u" : "a permanent key that does not fit into a slot, number %u",
		i);
}

/* ---- writers --------------------------------------------------------------------------------- */

static bool is_full(int r)
{
	return small_partition && (r == -ENOSPC || r == -EDQUOT);
}

/* 0; what found no room is counted. */
static int put(struct shmstore *s, unsigned writer, const char *key, size_t size, uint32_t bytes)
{
	static uint64_t value[4 * MIB / 8];
	uint64_t number = atomic_fetch_add(&m->next[writer], 1) + 1;
	struct iovec buffer = {value, bytes};
	int r;

	for (uint32_t i = 0; i < bytes / 8 + 1 && i < 4 * MIB / 8; i++)
		value[i] = number;
	r = shmstore_put(s, key, size, &number, sizeof(number), &buffer, 1, SHMSTORE_REPLACE);
	if (is_full(r))
		atomic_fetch_add(&m->full, 1);
	else if (r < 0)
		FAIL("put of %u bytes: %s: %s", bytes, shmstore_strerror(r),
		     shmstore_error_detail());
	else
		atomic_fetch_add(&m->writes, 1);
	return r;
}

static struct shmstore *open_store(unsigned writer, unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	char name[16];
	int r;

	snprintf(name, sizeof(name), "w%u", writer);
	o.flags = flags;
	/* else the next sweep takes what a killed one had */
	o.keep = !over() && !(flags & SHMSTORE_OPEN_READONLY);
	o.pack_max = writer % 4 == 3 ? 0 : MIB; /* one has files alone */
	r = shmstore_open(scratch_partition(), name, &o, &s);
	if (r == -ENOENT && (flags & SHMSTORE_OPEN_READONLY))
		return NULL;
	if (is_full(r))
		return NULL;
	if (r < 0) {
		FAIL("open of %s: %s: %s", name, shmstore_strerror(r), shmstore_error_detail());
		return NULL;
	}
	return s;
}

static void write_for_ever(unsigned writer, struct dice *d)
{
	struct shmstore *s = NULL;
	char key[80];

	while (!s && !over())
		s = open_store(writer, 0);
	for (unsigned i = 0; i < PERMANENT && !over();) {
		if (put(s, writer, key, permanent(key, i), sizes[i % 3]) == 0)
			i++;
	}
	atomic_store(&m->ready[writer], true);
	while (!over()) {
		unsigned what = (unsigned)dice_draw(d, 100),
			 passing = (unsigned)dice_draw(d, PASSING);

		if (what < 60) {
			unsigned i = (unsigned)dice_draw(d, PERMANENT);
			uint32_t bytes = sizes[dice_draw(d, what < 5 ? 6 : what < 15 ? 5 : 3)];

			put(s, writer, key, permanent(key, i), bytes);
		} else {
			size_t size = (size_t)sprintf(key, "passing %u", passing);
			int r = what < 80 ? put(s, writer, key, size, sizes[dice_draw(d, 4)])
					  : shmstore_delete(s, key, size);

			if (r < 0 && r != -ENOENT && !is_full(r))
				FAIL("delete: %s", shmstore_strerror(r));
		}
	}
	if (s)
		shmstore_close(s);
}

/* ---- readers --------------------------------------------------------------------------------- */

struct reader {
	struct shmstore *stores[WRITERS];
	uint64_t seen[WRITERS][PERMANENT]; /* the newest value */
	struct shmstore_view *held[HELD];
	struct dice d;
	unsigned list_of; /* the store that is listed */
	unsigned n_listed[PERMANENT];
};

/* Its number; 0: its bytes are not of one value. */
static uint64_t number_of(const struct shmstore_view *v)
{
	uint64_t size, number;
	const void *header = shmstore_view_header(v, &size);
	const uint64_t *words = shmstore_view_buffer(v, 0, &size);

	memcpy(&number, header, sizeof(number));
	for (uint64_t i = 0; i < size / 8; i++) {
		if (words[i] != number)
			return 0;
	}
	return number;
}

static void get(struct reader *x, unsigned writer, unsigned i)
{
	struct shmstore_view *v;
	char key[80];
	uint64_t number;
	unsigned place = (unsigned)dice_draw(&x->d, HELD);
	int r = shmstore_get(x->stores[writer], key, permanent(key, i),
			     dice_draw(&x->d, 8) ? 0 : SHMSTORE_COW, &v);

	if (r < 0) {
		if (over())
			return; /* stores go */
		FAIL("get of a key that is always there: %s: %s (store %u, key %u)",
		     shmstore_strerror(r), shmstore_error_detail(), writer, i);
		return;
	}
	atomic_fetch_add(&m->reads, 1);
	number = number_of(v);
	if (!number)
		FAIL("bytes of more than one value (store %u, key %u)", writer, i);
	else if (number < x->seen[writer][i])
		FAIL("a value (%llu) that is older than the last one (%llu; store %u, key %u)",
		     (unsigned long long)number, (unsigned long long)x->seen[writer][i], writer, i);
	x->seen[writer][i] = number;
	if (x->held[place] && !number_of(x->held[place]))
		FAIL("bytes changed under a view");
	shmstore_view_unref(x->held[place]);
	x->held[place] = v;
}

static int on_object(const struct shmstore_object_info *info, void *arg)
{
	struct reader *x = arg;
	char key[80];

	/* A file that is replaced while the directory is read may be met twice, or never:
	 * readdir promises no more. */
	for (unsigned i = 0; info->packed && i < PERMANENT; i++)
		x->n_listed[i] += permanent(key, i) == info->key_size &&
				  memcmp(key, info->key, info->key_size) == 0;
	return 0;
}

static void list(struct reader *x, unsigned writer)
{
	int r;

	memset(x->n_listed, 0, sizeof(x->n_listed));
	r = shmstore_foreach(x->stores[writer], on_object, x);
	if (r < 0)
		FAIL("list: %s: %s", shmstore_strerror(r), shmstore_error_detail());
	for (unsigned i = 0; i < PERMANENT; i++) {
		if (x->n_listed[i] > 1)
			FAIL("a key that is listed %u times (store %u, key %u)", x->n_listed[i],
			     writer, i);
	}
	atomic_fetch_add(&m->lists, 1);
}

static void read_for_ever(unsigned number, struct dice *d)
{
	struct reader x = {.d = *d};

	(void)number;
	while (!over()) {
		unsigned writer = (unsigned)dice_draw(&x.d, n_writers);

		if (!atomic_load(&m->ready[writer]))
			continue;
		if (!x.stores[writer])
			x.stores[writer] = open_store(writer, SHMSTORE_OPEN_READONLY);
		if (!x.stores[writer])
			continue;
		if (dice_draw(&x.d, 200) == 0)
			list(&x, writer);
		else
			get(&x, writer, (unsigned)dice_draw(&x.d, PERMANENT));
		if (dice_draw(&x.d, 5000) == 0 &&
		    shmstore_contains(x.stores[writer], "never there", 11) != 0)
			FAIL("a key that was never there");
	}
	for (unsigned i = 0; i < HELD; i++)
		shmstore_view_unref(x.held[i]);
	for (unsigned i = 0; i < WRITERS; i++)
		shmstore_close(x.stores[i]);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static pid_t begin(unsigned i, uint64_t seed)
{
	struct dice d = {seed};
	pid_t pid = fork_bound(0);

	if (pid)
		return pid;
	if (i < n_writers)
		write_for_ever(i, &d);
	else
		read_for_ever(i - n_writers, &d);
	_exit(0);
}

static void wait_for(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		FAIL("a process ended by signal %d", WTERMSIG(status));
}

/* The books, when all are gone: of what is kept by nobody nothing is left. */
static void check_rest(void)
{
	struct shmstore_usage u;
	struct shmstore_gc_report report;
	int r = shmstore_partition_gc(scratch_partition(), 0, &report);

	if (r == 0)
		r = shmstore_partition_reconcile(scratch_partition(), NULL, NULL, &u);
	if (r < 0)
		FAIL("at the end: %s", shmstore_strerror(r));
	else if (u.residual || u.ghosts || u.n_objects || u.pool)
		FAIL("left over: residual %lld, ghosts %llu, objects %llu, pool %llu",
		     (long long)u.residual, (unsigned long long)u.ghosts,
		     (unsigned long long)u.n_objects, (unsigned long long)u.pool);
}

/* ---- a daemon -------------------------------------------------------------------------------- */

static struct own_daemon daemon_of_test;
static char daemon_directory[] = "/tmp/shmstore-readers-XXXXXX";

static void start_daemon(const char *program, unsigned limit_mib)
{
	char socket[64], config[64];
	const char *wrong;
	FILE *f;

	ENSURE(mkdtemp(daemon_directory));
	snprintf(socket, sizeof(socket), "%s/socket", daemon_directory);
	snprintf(config, sizeof(config), "%s/conf", daemon_directory);
	f = fopen(config, "we");
	ENSURE(f);
	fprintf(f,
		"daemon { socket = \"%s\" credit = 1MiB log-level = error }\nhttp { enabled = no "
		"}\n",
		socket);
	fprintf(f, "partition \"%s\" { limit = %uMiB }\n", scratch_partition_path(), limit_mib);
	ENSURE(fclose(f) == 0);
	daemon_of_test.program = program;
	wrong = own_daemon_start(&daemon_of_test, config, socket, ASK_MS);
	if (wrong)
		FAIL("the daemon: %s", wrong);
}

static void end_daemon(void)
{
	const char *wrong, *const names[] = {"conf", "socket", "socket.lock"};
	char path[64];

	if (!daemon_of_test.program)
		return;
	shmstore_client_free(daemon_of_test.client);
	wrong = own_daemon_stop(&daemon_of_test);
	if (wrong)
		FAIL("the daemon: %s", wrong);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", daemon_directory, names[i]);
		unlink(path);
	}
	if (rmdir(daemon_directory) < 0)
		FAIL("%s: %s", daemon_directory, strerror(errno));
}

int main(int argc, char **argv)
{
	unsigned seconds = 6, mib = 0, n_kills = 0, limit_mib = 0, n;
	uint64_t seed = 1;
	bool kills = true, tier = false, full = false;
	const char *program = NULL;
	pid_t pids[WRITERS + READERS];
	char options[40];
	struct dice d;
	time_t end;
	int o;

	while ((o = getopt(argc, argv, "t:s:w:m:l:D:fdk")) != -1) {
		if (o == 't')
			seconds = (unsigned)atoi(optarg);
		else if (o == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (o == 'm')
			mib = (unsigned)atoi(optarg);
		else if (o == 'w' && atoi(optarg) > 0 && atoi(optarg) <= (int)WRITERS)
			n_writers = (unsigned)atoi(optarg);
		else if (o == 'l')
			limit_mib = (unsigned)atoi(optarg);
		else if (o == 'D')
			program = optarg;
		else if (o == 'f')
			full = true;
		else if (o == 'd')
			tier = true;
		else if (o == 'k')
			kills = false;
		else
			return 2;
	}
	if (!program != !limit_mib)
		return 2;
	small_partition = mib || limit_mib;
	n = n_writers + READERS;
	snprintf(options, sizeof(options), "size=%um,mode=700", mib ? mib : 1024);
	scratch_dir(options);
	if (!scratch_is_mount())
		return 77;
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ENSURE(m != MAP_FAILED);
	scratch_partition();
	if (tier && !tiered_begin(NULL))
		return 77;
	if (program)
		start_daemon(program, limit_mib);
	d = (struct dice){seed};
	for (unsigned i = 0; i < n; i++)
		pids[i] = begin(i, seed * 100 + i);
	end = time(NULL) + seconds;
	/* -f: on a busy machine it takes longer until a put finds no room. */
	while ((time(NULL) < end ||
		(full && !atomic_load(&m->full) && time(NULL) < end + FULL_SECONDS)) &&
	       !atomic_load(&m->failure.is)) {
		unsigned i = (unsigned)dice_draw(&d, n);

		nanosleep(&(struct timespec){.tv_nsec = (long)dice_draw(&d, 40000000)}, NULL);
		if (!kills)
			continue;
		kill(pids[i], SIGKILL);
		wait_for(pids[i]);
		pids[i] = begin(i, seed * 1000 + ++n_kills);
	}
	atomic_store(&m->over, true);
	for (unsigned i = 0; i < n; i++)
		wait_for(pids[i]);
	end_daemon();
	if (full && !atomic_load(&m->full))
		FAIL("no put found it full");
	for (unsigned i = 0; i < n_writers; i++)
		shmstore_close(open_store(i, 0));
	check_rest();
	printf("readers: %u s, %u kills, %llu writes (%llu found it full), %llu reads, %llu "
	       "lists\n",
	       seconds, n_kills, (unsigned long long)m->writes, (unsigned long long)m->full,
	       (unsigned long long)m->reads, (unsigned long long)m->lists);
	if (m->failure.is)
		printf("FAIL readers (seed %llu): %s\n", (unsigned long long)seed,
		       m->failure.message);
	printf("readers: %d passed, %d failed\n", !m->failure.is, m->failure.is);
	return m->failure.is;
}
