/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: large copies, in the way that is the fastest on this processor.
 *
 * There is no one such way. Medians of 64 MiB, in us, by memcpy() of the C library, by the
 * instruction REP MOVSB, and by stores that pass the caches by: on an EPYC of family 26 3,200,
 * 2,400 and 2,400; on an Ice Lake server REP MOVSB takes 1.9 to 3 times as long as memcpy(), and
 * the stores 0.6 times. From 1 to 4 MiB the EPYC copies by REP MOVSB in three quarters of the time,
 * and the stores lose. Processor flags do not tell any of it: both processors have fast short REP
 * MOVSB (FSRM). So real copies race (copy.h), for each power of two apart, and nothing is
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

#define FIRST_REST 128u
#define LONGEST    4096u

/* The way whose turn has not ended, else that which has run least. */
static uint32_t next_way(const struct shms_copyrace *r)
{
	uint32_t way = SHMS_COPYRACE_WAYS;

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++) {
		if (r->in & 1u << i && r->n_runs[i] % SHMS_COPYRACE_TURN)
			return i;
		if (r->in & 1u << i && (way == SHMS_COPYRACE_WAYS || r->n_runs[i] < r->n_runs[way]))
			way = i;
	}
	assert(way < SHMS_COPYRACE_WAYS);
	return way;
}

static void begin_heat(struct shms_copyrace *r)
{
	uint32_t best = atomic_load_explicit(&r->best, memory_order_relaxed);

	memset(r->n_runs, 0, sizeof(r->n_runs));
	r->in = (1u << SHMS_COPYRACE_WAYS) - 1;
	if (!r->rest)
		return;
	do
		r->last = (r->last + 1) % SHMS_COPYRACE_WAYS;
	while (r->last == best);
	r->in = 1u << best | 1u << r->last;
}

uint32_t shms_copyrace_way(struct shms_copyrace *r, bool *ret_timed)
{
	uint32_t pause = atomic_load_explicit(&r->pause, memory_order_relaxed);

	*ret_timed = false;
	if (pause) /* other threads' steps may be lost */
		atomic_store_explicit(&r->pause, pause - 1, memory_order_relaxed);
	else
		/* of run_ended() */
		*ret_timed = !atomic_exchange_explicit(&r->running, true, memory_order_acquire);
	if (!*ret_timed)
		return atomic_load_explicit(&r->best, memory_order_relaxed);
	if (!r->in)
		begin_heat(r);
	return next_way(r);
}

/* The way of the lowest time at that place of its sorted times. */
static uint32_t lowest(const struct shms_copyrace *r, uint32_t place)
{
	uint32_t best = next_way(r);

	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if ((r->in & 1u << i) && r->times[i][place] < r->times[best][place])
			best = i;
	return best;
}

/* Whether the heat has a winner: then only that way is in. */
static bool decide(struct shms_copyrace *r)
{
	uint32_t runs = r->n_runs[next_way(r)], best;

	if (!runs || runs % SHMS_COPYRACE_TURN)
		return false;
	best = lowest(r, 0);
	for (uint32_t i = 0; i < SHMS_COPYRACE_WAYS; i++)
		if (r->times[i][0] - r->times[best][0] > r->times[best][0] / 4)
			r->in &= ~(1u << i);
	if (runs == SHMS_COPYRACE_RUNS)
		r->in = 1u << lowest(r, SHMS_COPYRACE_RUNS / 2);
	return (r->in & (r->in - 1)) == 0;
}

static void end_heat(struct shms_copyrace *r)
{
	uint32_t winner = next_way(r);
	bool stays = r->rest && winner == atomic_load_explicit(&r->best, memory_order_relaxed);

	r->rest = !stays ? FIRST_REST : r->rest < LONGEST ? 2 * r->rest : LONGEST;
	r->in = 0;
	atomic_store_explicit(&r->best, winner, memory_order_relaxed);
	atomic_store_explicit(&r->pause, r->rest, memory_order_relaxed);
}

void shms_copyrace_ran(struct shms_copyrace *r, uint32_t way, uint64_t time)
{
	uint32_t k;

	assert(way < SHMS_COPYRACE_WAYS && (r->in & 1u << way) &&
	       r->n_runs[way] < SHMS_COPYRACE_RUNS);
	for (k = r->n_runs[way]++; k && r->times[way][k - 1] > time; k--)
		r->times[way][k] = r->times[way][k - 1];
	r->times[way][k] = time;
	if (decide(r))
		end_heat(r);
	/* for shms_copyrace_way()'s exchange */
	atomic_store_explicit(&r->running, false, memory_order_release);
}

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
