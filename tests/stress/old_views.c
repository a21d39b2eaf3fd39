/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_views.c: a recycled file never shows new bytes to an old view.
 *
 *   old_views [-p] [-t seconds] [-s seed]
 *
 * The churner deletes and puts under few keys, in sizes that vary by 20 %, so that nearly
 * every put would like a recycled file. Meanwhile views and files are held in all the ways
 * of old_views.h, and every byte of them is compared again and again with what it was.
 * Recycling must have happened, and every kind of holder must have held something, else the
 * test says nothing and fails; on a busy machine it goes on until they have.
 *
 * With -p the stores pack, on a partition so small that freed pages go back to it at once, and with
 * donors and holders that are stopped and killed (old_views_mortal.c). Then what must have happened
 * is that memory was used again: objects were packed, and far more bytes put than there is room
 * for. tests/mutants/segfile leaves out the guards.
 *
 * old_views_no_lease and old_views_no_links are built with old_views_lies.c, whose fcntl() or
 * fstat() tells the library that the file is nobody else's: then the test must find changed views.
 * tests/crash/run runs all three.
 */
#include "old_views.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

const char *const ov_kind_name[OV_N_KINDS] = {
	"views, same process",      "copy-on-write views",
	"views of other threads",   "views of forked children",
	"views, read-only handle",  "views of adopted objects",
	"adopted, only linked",     "views, stopped process",
	"views of a killed parent", "open(2)",
	"O_PATH, reopened, mapped", "open(2) and mmap(2)",
};

#define PACK_MAX    (UINT64_C(1) << 20)
#define SIZE        (UINT64_C(256) << 20) /* of the partition */
#define SIZE_PACKED (UINT64_C(28) << 20)
#define TIMES_SIZE  10u  /* so many times the partition's size is put, at least */
#define RECYCLED    100u /* so many puts, at least, take a recycled file */
/* On a busy machine the churn goes on until all has happened that judge() asks for, but not for
 * longer than this, in seconds. */
#define TOO_LONG    120

struct options {
	bool packed;
	unsigned seconds;
	uint64_t seed;
};

struct churner {
	struct ov *o;
	const struct options *options;
	struct shmstore_partition *p;
	struct shmstore *s;
	uint64_t random;
	uint64_t next_seed;
	uint64_t seeds[OV_KEYS]; /* under each key; 0 = none */
	struct {
		struct shmstore_view *v;
		uint64_t seed;
		unsigned char *copy; /* OV_COW: what it must look like */
		uint64_t size;
	} ring[OV_RING];
	pid_t children[OV_RING];
	int keep_going[2]; /* pipe: its end tells the forked children to end */
};

void ov_fail(struct ov *o, const char *format, ...)
{
	if (atomic_exchange(&o->shared->failed, true))
		return;
	va_list args;
	va_start(args, format);
	vsnprintf(o->shared->message, sizeof(o->shared->message), format, args);
	va_end(args);
}

void ov_looked(struct ov *o, enum ov_kind kind, bool first, const char *why, uint64_t seed,
	       uint64_t expected)
{
	struct ov_shared *sh = o->shared;
	if (first)
		sh->n_held[kind]++;
	else
		sh->n_looked[kind]++;
	if (!why && seed == expected)
		return;
	if (first)
		sh->n_torn[kind]++;
	else
		sh->n_changed[kind]++;
	ov_fail(o, "%s: %s: %s (seed %llu, was %llu)", ov_kind_name[kind],
		first ? "not whole at first sight" : "changed under its holder",
		why ? why : "another object", (unsigned long long)seed,
		(unsigned long long)expected);
}

unsigned ov_random(uint64_t *x, unsigned n)
{
	if (*x == 0)
		*x = 88172645463325252ull;
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return (unsigned)(*x % n);
}

void ov_key(unsigned i, char ret[16])
{
	snprintf(ret, 16, "key-%u", i);
}

/* ---- the churner's own holds ----------------------------------------------------------------- */

static void copy_buffers(const struct shmstore_view *v, unsigned char *to)
{
	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t size;
		const void *buf = shmstore_view_buffer(v, i, &size);
		memcpy(to, buf, size);
		to += size;
	}
}

static bool same_buffers(const struct shmstore_view *v, const unsigned char *as)
{
	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t size;
		const void *buf = shmstore_view_buffer(v, i, &size);
		if (memcmp(as, buf, size) != 0)
			return false;
		as += size;
	}
	return true;
}

/* Writes into some pages of a copy-on-write view: these are private from now on, all
 * others are the object's still. */
static void scribble(struct churner *c, struct shmstore_view *v)
{
	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t size;
		unsigned char *buf = shmstore_view_buffer(v, i, &size);
		for (uint64_t at = 0; at + 8 < size; at += 4096ull * (1 + ov_random(&c->random, 3)))
			buf[at] = (unsigned char)~buf[at];
	}
}

static void look_at(struct churner *c, unsigned i)
{
	struct content got = {0, 0};
	if (c->ring[i].copy) {
		bool same = same_buffers(c->ring[i].v, c->ring[i].copy);
		ov_looked(c->o, OV_COW, false, same ? NULL : "bytes of a buffer", 1, 1);
	} else {
		const char *why = content_check(c->ring[i].v, &got);
		ov_looked(c->o, OV_SAME, false, why, got.seed, c->ring[i].seed);
	}
}

static void drop(struct churner *c, unsigned i)
{
	c->ring[i].v = shmstore_view_unref(c->ring[i].v);
	free(c->ring[i].copy);
	c->ring[i].copy = NULL;
}

static void hold(struct churner *c, unsigned key)
{
	unsigned i = ov_random(&c->random, OV_RING);
	bool cow = ov_random(&c->random, 2);
	char name[16];
	ov_key(key, name);
	if (c->ring[i].v)
		drop(c, i);
	int rc = shmstore_get(c->s, name, strlen(name), cow ? SHMSTORE_COW : 0, &c->ring[i].v);
	if (rc < 0) {
		ov_fail(c->o, "get: %d (%s)", rc, shmstore_strerror(rc));
		return;
	}
	struct content got = {0, 0};
	const char *why = content_check(c->ring[i].v, &got);
	ov_looked(c->o, cow ? OV_COW : OV_SAME, true, why, got.seed, c->seeds[key]);
	c->ring[i].seed = got.seed;
	c->ring[i].size = got.size;
	if (cow) {
		scribble(c, c->ring[i].v);
		c->ring[i].copy = malloc(got.size);
		if (c->ring[i].copy)
			copy_buffers(c->ring[i].v, c->ring[i].copy);
	}
}

/* A child that inherits a view and looks at it until told to end; nothing but
 * memory reads and one read(2). */
static void child_with(struct churner *c, const struct shmstore_view *v, uint64_t seed)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned n = 0; n < 40; n++) {
		struct content got = {0, 0};
		const char *why = content_check(v, &got);
		ov_looked(c->o, OV_FORKED, n == 0, why, got.seed, seed);
		if (c->o->shared->failed || c->o->shared->stop)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	_exit(0);
}

static void fork_with_view(struct churner *c, unsigned key)
{
	unsigned i = ov_random(&c->random, OV_RING);
	if (c->children[i] > 0) {
		if (waitpid(c->children[i], NULL, WNOHANG) != c->children[i])
			return;
		c->children[i] = 0;
	}
	char name[16];
	ov_key(key, name);
	struct shmstore_view *v = NULL;
	int rc = shmstore_get(c->s, name, strlen(name), 0, &v);
	if (rc < 0) {
		ov_fail(c->o, "get: %d (%s)", rc, shmstore_strerror(rc));
		return;
	}
	pid_t pid = fork();
	if (pid == 0)
		child_with(c, v, c->seeds[key]);
	c->children[i] = pid;
	shmstore_view_unref(v);
}

static void send_ticket(struct churner *c, unsigned key)
{
	char name[16];
	ov_key(key, name);
	ov_send_ticket(c->o, c->s, name, c->seeds[key]);
}

/* ---- the churn ------------------------------------------------------------------------------- */

static void put_one(struct churner *c, unsigned key)
{
	static const uint64_t middle[] = {70000, 70000, 200000, 200000, 1000000};
	static const uint64_t packed[] = {300, 5000, 9000, 70000, 250000};
	uint64_t m = c->o->pack_max ? packed[ov_random(&c->random, 5)] : middle[key % 5];
	struct content fresh = {++c->next_seed,
				m * 4 / 5 + ov_random(&c->random, (unsigned)(m * 2 / 5))};
	char name[16];
	ov_key(key, name);
	int rc;
	switch (ov_random(&c->random, 4)) {
	case 0:
		rc = content_put(c->s, name, strlen(name), fresh, SHMSTORE_REPLACE);
		break;
	case 1:
		rc = c->seeds[key] ? shmstore_delete(c->s, name, strlen(name)) : 0;
		if (rc == 0)
			rc = content_create(c->s, name, strlen(name), fresh, 0);
		break;
	default:
		rc = c->seeds[key] ? shmstore_delete(c->s, name, strlen(name)) : 0;
		if (rc == 0)
			rc = content_put(c->s, name, strlen(name), fresh, 0);
		break;
	}
	if (rc == -ENOSPC && c->o->pack_max) {
		/* The object before it is still there, unless it was to be deleted first. */
		c->seeds[key] =
			shmstore_contains(c->s, name, strlen(name)) == 1 ? c->seeds[key] : 0;
		return;
	}
	if (rc < 0) {
		ov_fail(c->o, "delete and put: %d (%s)", rc, shmstore_strerror(rc));
		return;
	}
	c->seeds[key] = fresh.seed;
	c->o->shared->n_puts++;
	c->o->shared->n_put_bytes += fresh.size;
}

static int count_packed(const struct shmstore_object_info *info, void *arg)
{
	*(uint64_t *)arg += info->packed;
	return 0;
}

/* Now and then: counts the packed objects, and collects garbage. */
static void tend(struct churner *c)
{
	uint64_t n = 0;
	int rc = shmstore_foreach(c->s, count_packed, &n);

	c->o->shared->n_packed += n;
	if (rc == 0)
		rc = shmstore_partition_gc(c->p, 0, NULL);
	if (rc < 0)
		ov_fail(c->o, "foreach or gc: %d (%s)", rc, shmstore_strerror(rc));
}

static bool takes_part(const struct ov *o, unsigned kind)
{
	return o->pack_max ? kind < OV_OPEN : kind != OV_STOPPED && kind != OV_ORPHANED;
}

static int count_recycled(const struct shmstore_store_info *info, void *arg)
{
	struct ov *o = arg;
	if (strcmp(info->name, "churn") == 0) {
		o->shared->n_recycled = info->counters.recycled_n;
		o->shared->n_aliased = info->counters.alias_n;
	}
	return 0;
}

/* The first kind of holder that has held nothing yet; OV_N_KINDS: each has. */
static unsigned kind_without_a_hold(const struct ov *o)
{
	unsigned k = 0;

	while (k < OV_N_KINDS &&
	       (!takes_part(o, k) || (o->shared->n_held[k] > 0 && o->shared->n_looked[k] > 0)))
		k++;
	return k;
}

/* Memory was used again, and not only taken. */
static bool used_again(const struct ov *o)
{
	const struct ov_shared *sh = o->shared;

	if (o->pack_max)
		return sh->n_packed > 0 && sh->n_put_bytes >= TIMES_SIZE * SIZE_PACKED;
	return sh->n_recycled >= sh->n_puts / 20 && sh->n_recycled >= RECYCLED;
}

/* Whether there is more to be done, so many seconds after the start. */
static bool goes_on(struct churner *c, time_t passed)
{
	if (c->o->shared->failed || passed > TOO_LONG)
		return false;
	if (passed <= (time_t)c->options->seconds)
		return true;
	if (!c->o->pack_max)
		shmstore_partition_stores(c->p, count_recycled, c->o);
	return kind_without_a_hold(c->o) < OV_N_KINDS || !used_again(c->o);
}

static void churn(struct churner *c)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	time_t start = t.tv_sec;
	while (goes_on(c, t.tv_sec - start)) {
		unsigned key = ov_random(&c->random, OV_KEYS);
		put_one(c, key);
		if (c->o->pack_max && ov_random(&c->random, 200) == 0)
			tend(c);
		if (c->seeds[key] && ov_random(&c->random, 4) == 0)
			hold(c, key);
		if (c->seeds[key] && ov_random(&c->random, 100) == 0)
			fork_with_view(c, key);
		if (c->seeds[key] && ov_random(&c->random, 10) == 0)
			send_ticket(c, key);
		for (unsigned i = 0; i < OV_RING; i++)
			if (c->ring[i].v && ov_random(&c->random, 3) == 0) {
				look_at(c, i);
				if (ov_random(&c->random, 4) == 0)
					drop(c, i);
			}
		clock_gettime(CLOCK_MONOTONIC, &t);
	}
	for (unsigned i = 0; i < OV_RING; i++)
		if (c->ring[i].v) {
			look_at(c, i);
			drop(c, i);
		}
	for (unsigned i = 0; i < OV_RING; i++)
		if (c->children[i] > 0)
			waitpid(c->children[i], NULL, 0);
}

/* Gets while the churner deletes and puts. */
static void *racer(void *arg)
{
	struct churner *c = arg;
	uint64_t random = c->options->seed ^ (uint64_t)(uintptr_t)&random;
	while (!c->o->shared->stop && !c->o->shared->failed) {
		char key[16];
		ov_key(ov_random(&random, OV_KEYS), key);
		struct shmstore_view *v = NULL;
		int rc = shmstore_get(c->s, key, strlen(key), 0, &v);
		if (rc < 0 && rc != -ENOENT) {
			ov_fail(c->o, "get by a thread: %d (%s)", rc, shmstore_strerror(rc));
			break;
		}
		if (rc == 0) {
			struct content first = {0, 0}, again = {0, 0};
			const char *why = content_check(v, &first);
			ov_looked(c->o, OV_THREAD, true, why, first.seed, first.seed);
			nanosleep(&(struct timespec){.tv_nsec = (long)ov_random(&random, 500000)},
				  NULL);
			why = content_check(v, &again);
			ov_looked(c->o, OV_THREAD, false, why, again.seed, first.seed);
			shmstore_view_unref(v);
		}
	}
	return NULL;
}

static void churner_main(struct ov *o, const struct options *options, int ready)
{
	struct churner c = {
		.o = o, .options = options, .random = options->seed * 0x9e3779b97f4a7c15ull | 1};
	struct shmstore_options open = SHMSTORE_OPTIONS_INIT;
	open.pack_max = o->pack_max;
	int rc = shmstore_partition_open(o->partition, SHMSTORE_CREATE, &c.p);
	if (rc == 0)
		rc = shmstore_open(c.p, "churn", &open, &c.s);
	if (rc < 0)
		ov_fail(o, "opening the store: %d (%s)", rc, shmstore_strerror(rc));
	if (write(ready, "r", 1) != 1 || rc < 0)
		_exit(1);
	pthread_t threads[2];
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, racer, &c);
	churn(&c);
	o->shared->stop = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	shmstore_partition_stores(c.p, count_recycled, o);
	rc = shmstore_close(c.s);
	if (rc < 0)
		ov_fail(o, "close: %d (%s)", rc, shmstore_strerror(rc));
	shmstore_partition_unref(c.p);
	_exit(0);
}

/* ---- all together ---------------------------------------------------------------------------- */

static pid_t start(struct ov *o, void (*holder)(struct ov *o, uint64_t seed), uint64_t seed)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		holder(o, seed);
		_exit(0);
	}
	return pid;
}

static void judge_churn(struct ov *o)
{
	struct ov_shared *sh = o->shared;
	if (o->pack_max)
		printf("old views, packed: %llu puts of %llu MiB, %llu objects were found packed\n",
		       (unsigned long long)sh->n_puts, (unsigned long long)sh->n_put_bytes >> 20,
		       (unsigned long long)sh->n_packed);
	else
		printf("old views: %llu puts, %llu recycled\n", (unsigned long long)sh->n_puts,
		       (unsigned long long)sh->n_recycled);
	if (!used_again(o))
		ov_fail(o, "too little was put, packed or recycled in %d s: the test says nothing",
			TOO_LONG);
}

static void judge(struct ov *o)
{
	struct ov_shared *sh = o->shared;
	for (unsigned k = 0; k < OV_N_KINDS; k++)
		if (takes_part(o, k))
			printf("     %-26s held %8llu, looked at %9llu, changed %llu, torn %llu\n",
			       ov_kind_name[k], (unsigned long long)sh->n_held[k],
			       (unsigned long long)sh->n_looked[k],
			       (unsigned long long)sh->n_changed[k],
			       (unsigned long long)sh->n_torn[k]);
	unsigned k = kind_without_a_hold(o);
	if (k < OV_N_KINDS)
		ov_fail(o, "%s: nothing was held: the test says nothing about them",
			ov_kind_name[k]);
	judge_churn(o);
}

static int body(const char *mount, void *arg)
{
	const struct options *options = arg;
	static struct ov o;
	static char path[256];
	snprintf(path, sizeof(path), "%s/partition", mount);
	o.partition = path;
	o.pack_max = options->packed ? PACK_MAX : 0;
	o.shared = mmap(NULL, sizeof(*o.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	int ready[2];
	if (o.shared == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, o.tickets) < 0 || pipe(ready) < 0)
		return 2;
	pid_t pids[5];
	pids[0] = fork();
	if (pids[0] == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		churner_main(&o, options, ready[1]);
	}
	char byte;
	if (read(ready[0], &byte, 1) != 1)
		return 2;
	pids[1] = start(&o, ov_hold_readonly, options->seed + 1);
	pids[2] = start(&o, ov_hold_adopted, options->seed + 2);
	pids[3] = start(&o, options->packed ? ov_hold_mortal : ov_hold_by_hand, options->seed + 3);
	pids[4] = start(&o, options->packed ? ov_hold_mortal : ov_hold_by_hand, options->seed + 4);
	for (unsigned i = 0; i < 5; i++) {
		int status = 0;
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (status != 0)
			ov_fail(&o, "process %u ended with status 0x%x", i, status);
	}
	judge(&o);
	if (o.shared->failed)
		printf("FAIL old views: %s\n", o.shared->message);
	printf("old views: %u passed, %u failed\n", !o.shared->failed, o.shared->failed ? 1u : 0u);
	return o.shared->failed ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'p':
		o->packed = true;
		return 0;
	case 't':
		o->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 10);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"packed", 'p', NULL, 0, "Stores that pack", 0},
		{"time", 't', "SECONDS", 0, "How long (10)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "Recycled files and old views.",
					 NULL,  NULL,      NULL};
	struct options options = {.seconds = 10, .seed = (uint64_t)time(NULL)};
	char mount_options[64];
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	snprintf(mount_options, sizeof(mount_options), "size=%llu,huge=%s",
		 (unsigned long long)(options.packed ? SIZE_PACKED : SIZE),
		 options.packed ? "never" : "within_size");
	return sandbox_run(mount_options, body, &options);
}
