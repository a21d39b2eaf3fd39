/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_stores.c: the clients of bench/daemon_numbers: a process that owns stores on a partition,
 * with the daemon that $SHMSTORE_SOCKET names.
 *
 *   daemon_stores PARTITION hold N        opens N stores, says "ready",
 *                                         keeps them until its input ends
 *   daemon_stores PARTITION cycle N       opens and closes a store N times; says "N SECONDS"
 *   daemon_stores PARTITION fill BYTES    one store with so much in it; says
 *                                         "ready", keeps it until it is killed
 *   daemon_stores PARTITION load NAME     puts, gets and deletes, and checks every byte, until its
 *                                         input ends; says "OPERATIONS ERRORS WRONG LONGEST_MS"
 */
#include <errno.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OBJECT_BYTES ((size_t)64 << 20)
#define LOAD_KEYS    32u
#define LOAD_BYTES   ((size_t)256 << 10)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int fail(const char *what, int error)
{
	fprintf(stderr, "daemon_stores: %s: %s\n", what, shmstore_strerror(error));
	return 1;
}

static void wait_for_end(void)
{
	char c;

	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		continue;
}

static int hold(struct shmstore_partition *p, unsigned n)
{
	struct shmstore **stores = calloc(n, sizeof(*stores));
	char name[64];
	int r = stores ? 0 : -ENOMEM;

	for (unsigned i = 0; r == 0 && i < n; i++) {
		snprintf(name, sizeof(name), "hold-%d-%u", (int)getpid(), i);
		r = shmstore_open(p, name, NULL, &stores[i]);
	}
	if (r == 0)
		wait_for_end();
	for (unsigned i = 0; stores && i < n; i++)
		shmstore_close(stores[i]);
	free(stores);
	return r < 0 ? fail("open", r) : 0;
}

static int cycle(struct shmstore_partition *p, unsigned n)
{
	uint64_t began_ns = now_ns();
	struct shmstore *s;
	char name[64];

	snprintf(name, sizeof(name), "cycle-%d", (int)getpid());
	for (unsigned i = 0; i < n; i++) {
		int r = shmstore_open(p, name, NULL, &s);

		if (r == 0)
			r = shmstore_close(s);
		if (r < 0)
			return fail("open", r);
	}
	printf("%u %.3f\n", n, (double)(now_ns() - began_ns) / 1e9);
	return 0;
}

static int fill(struct shmstore_partition *p, uint64_t bytes)
{
	void *block = malloc(OBJECT_BYTES);
	struct iovec iov = {block, OBJECT_BYTES};
	struct shmstore *s;
	char name[64];
	int r = block ? 0 : -ENOMEM;

	if (r == 0) {
		memset(block, 'x', OBJECT_BYTES);
		snprintf(name, sizeof(name), "fill-%d", (int)getpid());
		r = shmstore_open(p, name, NULL, &s);
	}
	for (uint64_t done = 0; r == 0 && done < bytes; done += OBJECT_BYTES)
		r = shmstore_put(s, &done, sizeof(done), NULL, 0, &iov, 1, 0);
	free(block);
	if (r < 0)
		return fail("put", r);
	wait_for_end();
	return shmstore_close(s) < 0;
}

struct load {
	struct shmstore *s;
	uint64_t seeds[LOAD_KEYS]; /* 0 = not held */
	uint64_t *block;
	uint64_t n_done, n_errors, n_wrong, longest_ns;
};

static int load_put(struct load *l, unsigned key, uint64_t seed)
{
	struct iovec iov = {l->block, LOAD_BYTES};

	for (size_t i = 0; i < LOAD_BYTES / sizeof(uint64_t); i++)
		l->block[i] = seed + i;
	return shmstore_put(l->s, &key, sizeof(key), NULL, 0, &iov, 1, SHMSTORE_REPLACE);
}

static int load_get(struct load *l, unsigned key)
{
	struct shmstore_view *v;
	const uint64_t *bytes;
	int r = shmstore_get(l->s, &key, sizeof(key), 0, &v);

	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, NULL);
	for (size_t i = 0; i < LOAD_BYTES / sizeof(uint64_t); i++)
		l->n_wrong += bytes[i] != l->seeds[key] + i;
	shmstore_view_unref(v);
	return 0;
}

static int load(struct shmstore_partition *p, const char *name)
{
	struct load l = {.block = malloc(LOAD_BYTES)};
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t seed = (uint64_t)getpid() << 32;
	int r = l.block ? shmstore_open(p, name, NULL, &l.s) : -ENOMEM;

	if (r < 0)
		return fail("open", r);
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, 0) == 0) {
		unsigned key = (unsigned)(seed++ % LOAD_KEYS);
		uint64_t began_ns = now_ns(), took_ns;

		if (l.seeds[key] && seed / LOAD_KEYS % 4 == 0) {
			r = shmstore_delete(l.s, &key, sizeof(key));
			l.seeds[key] = 0;
		} else {
			r = load_put(&l, key, seed);
			l.seeds[key] = seed;
		}
		took_ns = now_ns() - began_ns;
		l.longest_ns = took_ns > l.longest_ns ? took_ns : l.longest_ns;
		if (r == 0 && l.seeds[key])
			r = load_get(&l, key);
		l.n_errors += r < 0;
		l.n_done++;
	}
	printf("%llu %llu %llu %.3f\n", (unsigned long long)l.n_done,
	       (unsigned long long)l.n_errors, (unsigned long long)l.n_wrong,
	       (double)l.longest_ns / 1e6);
	free(l.block);
	return shmstore_close(l.s) < 0;
}

int main(int argc, char **argv)
{
	struct shmstore_partition *p;
	int r, status = 2;

	if (argc != 4) {
		fprintf(stderr, "usage: daemon_stores PARTITION hold|cycle|fill|load ARGUMENT\n");
		return 2;
	}
	r = shmstore_partition_open(argv[1], SHMSTORE_CREATE, &p);
	if (r < 0)
		return fail(argv[1], r);
	if (strcmp(argv[2], "hold") == 0)
		status = hold(p, (unsigned)strtoul(argv[3], NULL, 10));
	else if (strcmp(argv[2], "cycle") == 0)
		status = cycle(p, (unsigned)strtoul(argv[3], NULL, 10));
	else if (strcmp(argv[2], "fill") == 0)
		status = fill(p, strtoull(argv[3], NULL, 10));
	else if (strcmp(argv[2], "load") == 0)
		status = load(p, argv[3]);
	shmstore_partition_unref(p);
	return status;
}
