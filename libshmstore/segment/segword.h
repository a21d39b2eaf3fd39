/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segword.h: the words of a segment that several processes write, and all operations on them: each
 * function is one atomic access. Every step of the protocol (segslot.c) uses them, so that a model
 * of the machine can take their place: with SHMS_SEGMENT_MODEL defined, tests/model brings its own,
 * and runs the same steps one access at a time.
 *
 * Memory orders, and the accesses that meet:
 *   or, cas, load    (and is, part) sequentially consistent. A holder sets a bit and then reads
 *                    the state; the owner sets CLOSING and then reads the bits. Each writes one
 *                    word and reads the other, and one of them sees the other's write.
 *   store            release: the owner's SEALED. A process whose load or cas of the state
 *                    acquires it sees the bytes.
 *   and, flip        acquire-release: a holder's reads of the bytes stay before its bit goes,
 *                    which the owner's load of the bits sees.
 *   look_again       a process without a bit reads bytes and then the state once more; the owner
 *                    (fence) changes the state before it changes a byte.
 */
#ifndef SHMS_SEGWORD_H
#define SHMS_SEGWORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A loop around a cas ends after so many turns. No honest neighbour changes one slot so often
 * meanwhile, and one that damages it must not hang us.
 */
#define SHMS_SEGWORD_TURNS 1000u

#ifdef SHMS_SEGMENT_MODEL
#include "modelword.h"
#else

struct shms_segword {
	_Atomic uint64_t value;
};
_Static_assert(sizeof(struct shms_segword) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "a word of shared memory");

static inline uint64_t shms_segword_load(struct shms_segword *w)
{
	return atomic_load_explicit(&w->value, memory_order_seq_cst);
}

/* Is that part of the word equal to value? */
static inline bool shms_segword_is(struct shms_segword *w, uint64_t part, uint64_t value)
{
	return (shms_segword_load(w) & part) == value;
}

/* Returns that part of the word. */
static inline uint64_t shms_segword_part(struct shms_segword *w, uint64_t part)
{
	return shms_segword_load(w) & part;
}

/* Stores a word whose old value does not matter: no other process changes it now. */
static inline void shms_segword_store(struct shms_segword *w, uint64_t value)
{
	atomic_store_explicit(&w->value, value, memory_order_release);
}

static inline bool shms_segword_cas(struct shms_segword *w, uint64_t expected, uint64_t value)
{
	return atomic_compare_exchange_strong_explicit(&w->value, &expected, value,
						       memory_order_seq_cst, memory_order_seq_cst);
}

/* Sets the bits. Returns whether one of them was set before. */
static inline bool shms_segword_or(struct shms_segword *w, uint64_t bits)
{
	return (atomic_fetch_or_explicit(&w->value, bits, memory_order_seq_cst) & bits) != 0;
}

/* Clears the bits. Returns whether none is left in the word. */
static inline bool shms_segword_clear(struct shms_segword *w, uint64_t bits)
{
	return (atomic_fetch_and_explicit(&w->value, ~bits, memory_order_acq_rel) & ~bits) == 0;
}

/* Inverts the bits, all at once. */
static inline void shms_segword_flip(struct shms_segword *w, uint64_t bits)
{
	atomic_fetch_xor_explicit(&w->value, bits, memory_order_acq_rel);
}

/* For words of a description, which are ordered by the state and not by themselves. */
static inline uint64_t shms_segword_plain_load(struct shms_segword *w)
{
	return atomic_load_explicit(&w->value, memory_order_relaxed);
}

static inline void shms_segword_plain_store(struct shms_segword *w, uint64_t value)
{
	atomic_store_explicit(&w->value, value, memory_order_relaxed);
}

/*
 * Called at the begin of each turn of a loop around a cas, with *turn 0 before the first. Is there
 * one more?
 */
static inline bool shms_segword_turn(unsigned *turn)
{
	return (*turn)++ < SHMS_SEGWORD_TURNS;
}

/* Stores from here on are seen after the stores before. */
static inline void shms_segword_fence(void)
{
/* which knows no fences; who reads the bytes is ordered by SEALED in any case */
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_release);
#endif
}

/* Loads from here on come after the loads before: for a second look at the state, after which
 * what was read is believed. */
static inline void shms_segword_look_again(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}
#endif

#endif
