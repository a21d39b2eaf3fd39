/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_copy.c: is a large copy into memory that is there as fast as the fastest
 * way that this processor has?
 *
 * Beside shms_copy() (copy.c), which all puts into recycled files and slots go through, stand the
 * ways: memcpy() of the C library, REP MOVSB, stores of 16 and of 64 bytes that pass the caches by,
 * and pwrite() into the same file. One file of each size on a tmpfs, mapped at a multiple of 2 MiB;
 * one process, one CPU. The library's copies before the first round decide its race.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copy.h"
#include "measure.h"
#include "place.h"
#include "report.h"

#define KIB    ((size_t)1024)
#define MIB    (1024 * KIB)
#define HUGE   (2 * MIB)
#define WITHIN 1.05

struct copy {
	const char *from;
	char *to;
	size_t size;
	int fd;
};

static int run_memcpy(void *arg)
{
	const struct copy *c = arg;

	memcpy(c->to, c->from, c->size);
	__asm__ volatile("" : : "r"(c->to) : "memory");
	return 0;
}

static int run_pwrite(void *arg)
{
	const struct copy *c = arg;

	return pwrite(c->fd, c->from, c->size, 0) == (ssize_t)c->size ? 0 : -EIO;
}

static int run_ours(void *arg)
{
	const struct copy *c = arg;

	shms_copy(c->to, c->from, c->size);
	return 0;
}

#ifdef __x86_64__
#include <immintrin.h>

static int run_rep(void *arg)
{
	const struct copy *c = arg;
	void *to = c->to;
	const void *from = c->from;
	size_t size = c->size;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
	return 0;
}

static int run_stream16(void *arg)
{
	const struct copy *c = arg;

	for (size_t i = 0; i < c->size; i += 16)
		_mm_stream_si128((void *)(c->to + i), _mm_loadu_si128((const void *)(c->from + i)));
	_mm_sfence();
	return 0;
}

__attribute__((target("avx512f"))) static int run_stream64(void *arg)
{
	const struct copy *c = arg;

	for (size_t i = 0; i < c->size; i += 64)
		_mm512_stream_si512((void *)(c->to + i),
				    _mm512_loadu_si512((const void *)(c->from + i)));
	_mm_sfence();
	return 0;
}
#endif

enum {
	OURS,
	FIRST_WAY
};

static void compare(struct report *report, const struct contender *c, size_t n, const char *where,
		    size_t size)
{
	const struct contender *best = &c[FIRST_WAY];
	char words[120], unit[16];

	for (size_t i = FIRST_WAY; i < n; i++) {
		if (measure_stat(&c[i].series).median < measure_stat(&best->series).median)
			best = &c[i];
	}
	snprintf(words, sizeof(words), "copy of %s on %s, beside %s",
		 report_size(size, unit, sizeof(unit)), where, best->variant);
	report_ratio(report, "copy", words, "x the best way", REPORT_AT_MOST, WITHIN,
		     &c[OURS].series, &best->series);
}

static void measure_at(struct report *report, const struct report_options *options,
		       const struct place *place, const char *from, size_t size)
{
	struct copy copy = {.from = from, .size = size};
	struct contender c[] = {
		[OURS] = {.variant = "shms_copy", .run = run_ours},
		[FIRST_WAY] = {.variant = "memcpy", .run = run_memcpy},
		{.variant = "pwrite", .run = run_pwrite},
#ifdef __x86_64__
		{.variant = "rep movsb", .run = run_rep},
		{.variant = "past the caches, 16 bytes", .run = run_stream16},
		{.variant = "past the caches, 64 bytes", .run = run_stream64},
#endif
	};
	size_t n = sizeof(c) / sizeof(c[0]);
	char *room = mmap(NULL, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

#ifdef __x86_64__
	n -= !__builtin_cpu_supports("avx512f");
#endif
	copy.fd = open(place->path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (room == MAP_FAILED || copy.fd < 0 || ftruncate(copy.fd, (off_t)size) < 0)
		err(1, "%s: a file of %zu bytes", place->path, size);
	copy.to = room + (HUGE - (uintptr_t)room % HUGE) % HUGE;
	if (run_pwrite(&copy) < 0 || mmap(copy.to, size, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_FIXED, copy.fd, 0) == MAP_FAILED)
		err(1, "%s: a map of %zu bytes", place->path, size);
	for (size_t i = 0; i < n; i++) {
		c[i].operation = "copy";
		c[i].arg = &copy;
	}
	r = measure_contenders(c, n, options->rounds, size < 16 * MIB ? 40 : 8, 20, NULL);
	if (r < 0)
		errx(1, "%s: %s", place->path, strerror(-r));
	for (size_t i = 0; i < n; i++)
		report_row(report, place->label, c[i].operation, c[i].variant, size, &c[i].series);
	if (size >= MIB)
		compare(report, c, n, place->label, size);
	for (size_t i = 0; i < n; i++)
		measure_deinit(&c[i].series);
	munmap(room, size + HUGE);
	close(copy.fd);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {256 * KIB, MIB,      2 * MIB,  4 * MIB,
				       8 * MIB,   16 * MIB, 32 * MIB, 64 * MIB};
	struct report_options options;
	struct report *report =
		report_new(argc, argv, "bench_copy",
			   "large copies, beside each way that this processor has", &options);
	struct place places[2] = {0};
	const char *from = measure_memory(64 * MIB);
	int r;

	if (!report || !from)
		err(1, "out of memory");
	r = measure_pin(options.cpu);
	if (r < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-r));
	report_note(report, "one process on CPU %d; --limit: the largest size", r);
	if (place_open_mount(&places[0], 1ull << 30, 0) < 0)
		report_skip(report, "within_size", "not root: no tmpfs of our own");
	if (place_open_devshm(&places[1]) < 0)
		err(1, "no place for the files");
	for (size_t p = 0; p < 2; p++) {
		for (size_t i = 0; places[p].path[0] && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			if (sizes[i] > (options.limit   ? options.limit
					: options.quick ? 4 * MIB
							: SIZE_MAX))
				continue;
			if (place_warm(&places[p], 2 * sizes[i]) < 0)
				err(1, "warming the memory");
			measure_at(report, &options, &places[p], from, sizes[i]);
		}
		place_close(&places[p]);
	}
	r = report_print(report);
	report_free(report);
	return r;
}
