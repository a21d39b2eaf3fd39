/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take.c: segfile/seguse.c, one slot: its owner puts, deletes and puts again; a process takes the
 * slot's memory, is killed anywhere, and another one does the same. OWNER_DIES: the owner is killed
 * anywhere, its store is opened anew and puts; a process takes meanwhile. No object loses its
 * memory, and nothing is written where the owner believes that there is some and is none.
 */
#include "segfile.h"
#include "seglook.h"
#include "segmem.h"
/* The headers above keep their accesses; the sources below have litmus.h's. */
#include "litmus.h"

static long litmus_syscall(long number, ...);
static bool litmus_taken(void);
static int litmus_try(void);
static void litmus_end(void);
static uint64_t litmus_punch(void);

#define syscall                      litmus_syscall
#define shms_seglock_taken(fd, byte) ((void)(fd), litmus_taken())
#define shms_seglock_try(fd, byte)   litmus_try()
#define shms_seglock_end(fd, byte)   litmus_end()
#define shms_segtrim_free(g, fd, io) (*(io) = litmus_punch(), 0)
#include WEAK_SOURCE

const int litmus_threads = 3;
const int litmus_killed = OWNER_DIES ? 0 : 1;
const unsigned litmus_late = 3;
const bool litmus_ends = true;

static uint8_t books[SHMS_SEGMENT_CONTROL_OFF] __attribute__((aligned(64)));
static struct shms_seglook look = {.segment = {.books = books}};
static _Atomic uint32_t slot, memory, lock; /* lock: 1 + the thread that has it */

enum {
	FREE,
	WRITING,
	SEALED
};

static long litmus_syscall(long number, ...)
{
	(void)number;
	return weak_barrier();
}

static bool litmus_taken(void)
{
	weak_fence();
	return atomic_load_explicit(&lock, memory_order_seq_cst) != 0;
}

static int litmus_try(void)
{
	uint32_t nobody = 0;
	bool had = atomic_compare_exchange_strong_explicit(&lock, &nobody, 1, memory_order_seq_cst,
							   memory_order_seq_cst);

	weak_fence();
	return had ? 0 : -1;
}

static void litmus_end(void)
{
	weak_fence();
	atomic_exchange_explicit(&lock, 0, memory_order_seq_cst);
	weak_fence();
}

/* The kernel's. */
static void set_memory(uint32_t has)
{
	atomic_exchange_explicit(&memory, has, memory_order_seq_cst);
	weak_fence();
}

static bool has_memory(void)
{
	return atomic_load_explicit(&memory, memory_order_seq_cst) != 0;
}

static uint64_t litmus_punch(void)
{
	if (atomic_load_explicit(&slot, memory_order_seq_cst) == FREE)
		set_memory(0);
	return 1;
}

void litmus_begin(void)
{
}

static void put(struct shms_seguse *u, bool *backed)
{
	struct shms_segment_use *w = shms_segment_use(&look.segment);
	enum shms_segusable usable =
		shms_seguse_enter(w, u) ? SHMS_SEGUSABLE : shms_seguse_look(w, u, -1);

	if (usable == SHMS_SEGUSABLE_ANEW) {
		set_memory(0);
		*backed = false;
	}
	if (usable != SHMS_SEGUSABLE_NOT) {
		atomic_store_explicit(&slot, WRITING, memory_order_release);
		if (!*backed)
			set_memory(1);
		*backed = true;
		weak_ensure(has_memory(), "a put writes where memory was taken");
		atomic_store_explicit(&slot, SEALED, memory_order_release);
	}
	shms_seguse_leave(w);
	if (usable == SHMS_SEGUSABLE_NOT)
		return;
	weak_ensure(has_memory(), "an object lost its memory");
	atomic_store_explicit(&slot, FREE, memory_order_release);
}

static void own(void)
{
	struct shms_seguse u = shms_seguse_begin(shms_segment_use(&look.segment), -1);
	uint32_t state = atomic_load_explicit(&slot, memory_order_seq_cst);
	bool backed = false;

	weak_ensure(state != SEALED || has_memory(), "a kept object lost its memory");
	if (state != FREE)
		atomic_store_explicit(&slot, FREE, memory_order_release);
	put(&u, &backed);
	put(&u, &backed);
}

void litmus_thread(int which)
{
	bool again = false;

	if (which == 0 || (OWNER_DIES && which == 1)) {
		own();
		return;
	}
	/* The kernel ends a killed one's lock. */
	if (!OWNER_DIES && which == 2)
		litmus_end();
	shms_seguse_take(&look, (uint64_t)which * 1000, &again);
}
