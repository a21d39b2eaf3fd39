/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: large copies, in the way that is the fastest on this processor.
 *
 * There is no one such way. Medians of 64 MiB, in us, by memcpy() of the C library, by the
 * instruction REP MOVSB, and by stores that pass the caches by: on an EPYC of family 26 3,200,
 * 2,400 and 2,400; on an Ice Lake server REP MOVSB takes 1.9 to 3 times as long as memcpy(), and
 * the stores 0.6 times. From 1 to 4 MiB the EPYC copies by REP MOVSB in three quarters of the time,
 * and the stores lose. Processor flags do not tell any of it: both processors have fast short REP
 * MOVSB (FSRM). So real copies race (copyrace.h), for each power of two apart, and nothing is
 * copied for the sake of measuring.
 *
 * Only to addresses that are multiples of 64, which all buffers of objects are: with others some
 * processors take a multiple of the time.
 *
 * Rejected: pwrite() into the file as one more way. The kernel copies by REP MOVSB too,
 * and asks for each page besides: 1.0 to 5 times the time of the instruction, as the
 * mount has huge pages or not.
 */
#include "copy.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* Sanitizers see what memcpy() does, and nothing of an instruction. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__x86_64__) && !defined(SANITIZED)
#include <emmintrin.h>
#include <stdbool.h>

#include "copyrace.h"
#include "sys.h"

#define LARGE_BITS 18u /* smaller copies than 256 KiB the C library makes as fast */
#define LARGE      ((size_t)1 << LARGE_BITS)
#define N_CLASSES  16u /* the last one: from 8 GiB up */
#define ALIGN      64u
/* Of times: as of a copy of 1 MiB, by 1/1024 ns. */
#define SCALE      (1024.0 * 1024 * 1024)

static void by_libc(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}

static void by_instruction(void *to, const void *from, size_t size)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

static void past_caches(void *to, const void *from, size_t size)
{
	const char *f = from, *end = f + size / ALIGN * ALIGN;
	char *t = to;

	for (; f < end; f += ALIGN, t += ALIGN) {
		__m128i a = _mm_loadu_si128((const void *)f),
			b = _mm_loadu_si128((const void *)(f + 16));
		__m128i c = _mm_loadu_si128((const void *)(f + 32)),
			d = _mm_loadu_si128((const void *)(f + 48));

		_mm_stream_si128((void *)t, a);
		_mm_stream_si128((void *)(t + 16), b);
		_mm_stream_si128((void *)(t + 32), c);
		_mm_stream_si128((void *)(t + 48), d);
	}
	memcpy(t, f, size % ALIGN);
	/* these stores are ordered with no others, so no release after them would be */
	_mm_sfence();
}

static void (*const ways[])(void *to, const void *from, size_t size) = {by_libc, by_instruction,
									past_caches};
/* A reader finds in a cache what the first two wrote: a way that leaves nothing
 * there has to be 4 % faster. */
static const double weights[] = {SCALE, SCALE, 1.04 * SCALE};

static_assert(sizeof(ways) / sizeof(ways[0]) == SHMS_COPYRACE_WAYS, "each way is in the race");
static struct shms_copyrace races[N_CLASSES];

void shms_copy(void *to, const void *from, size_t size)
{
	struct shms_copyrace *race;
	uint64_t begin;
	uint32_t class, way;
	bool timed;

	if (size < LARGE || (uintptr_t)to % ALIGN) {
		memcpy(to, from, size);
		return;
	}
	class = 63u - (uint32_t)__builtin_clzll(size) - LARGE_BITS;
	race = &races[class < N_CLASSES ? class : N_CLASSES - 1];
	way = shms_copyrace_way(race, &timed);
	begin = timed ? shms_now_mono_ns() : 0;
	ways[way](to, from, size);
	if (timed)
		shms_copyrace_ran(race, way,
				  (uint64_t)((double)(shms_now_mono_ns() - begin) * weights[way] /
					     (double)size));
}
#else
void shms_copy(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}
#endif
