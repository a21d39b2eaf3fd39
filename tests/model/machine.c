/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.c: one access at a time.
 *
 * An operation is a C function, and cannot be kept in the middle. So what it has seen is kept:
 * each step runs it from its begin, gives it what it saw before, lets it make one access, and
 * jumps out before the next. A turn of a loop begins with a load and carries nothing over from the
 * one before (shms_segword_turn()): what was seen since the loop's begin is forgotten then, so
 * that there are finitely many states.
 */
#include "machine.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "segment.h"

struct shms_segment machine_segment;
unsigned machine_holder[MACHINE_HOLDERS];
bool machine_loaded;

static struct shms_segslot slot;
static uint8_t bytes;
static struct machine_log *log_of; /* of the running operation; NULL: nothing is kept */
static unsigned at, loop_at;
static bool moved;
static jmp_buf out;

static void fail(const char *why)
{
	fprintf(stderr, "machine: %s\n", why);
	abort();
}

void machine_init(unsigned n_words)
{
	struct shms_segpacked packed = {
		.class = 0, .key_size = 1, .key = "k", .n_buffers = 1, .buffer_size = 1};
	uint64_t size = UINT64_C(1) << 16;

	if (shms_segment_shape(1, n_words * SHMS_SEG_HOLDERS_A_WORD, size, &machine_segment.shape) <
	    0)
		fail("no such shape");
	machine_segment.books = aligned_alloc(64, size);
	if (!machine_segment.books)
		fail("no memory");
	memset(machine_segment.books, 0, size);
	machine_segment.bytes = machine_segment.books;
	shms_segment_control(&machine_segment)->n_born = 1;
	slot = shms_segslot_at(&machine_segment, 0);
	packed.extent_off = machine_segment.shape.data_off;
	shms_segpacked_write(&slot, &packed);
}

static uint64_t of_short_word(uint8_t s)
{
	uint64_t word = shms_segstate_make((enum shms_segstate)(s & 3), s >> 2 & 3);

	word |= (uint64_t)(s >> 4 & 3) << 4;
	return s >> 4 & 3 ? word | (uint64_t)shms_segend_of_ms(MACHINE_END_MS) << 16 : word;
}

static uint8_t short_word(uint64_t word)
{
	uint8_t s = (uint8_t)(shms_segstate_of(word) | (shms_segstate_generation(word) & 3) << 2 |
			      (shms_segstate_leases(word) & 3) << 4);

	if (of_short_word(s) != word)
		fail("a state word that the model does not know");
	return s;
}

/* The short form of what may lie in that word; only its own holders' bits. */
static uint8_t short_value(const struct shms_segword *w, uint64_t value)
{
	uint8_t s = 0;

	if (w == slot.state)
		return short_word(value);
	for (unsigned i = 0; i < MACHINE_HOLDERS; i++) {
		if (w == shms_segslot_word(&slot, machine_holder[i]))
			s |= (uint8_t)((value >> machine_holder[i] % 32 * 2 & 3) << 2 * i);
		if (w == &shms_segment_record(&machine_segment, machine_holder[i])->intent)
			return value & SHMS_SEGINTENT_SET
				       ? (uint8_t)(4 | shms_segintent_generation(value))
				       : 0;
	}
	return s;
}

static uint64_t long_value(const struct shms_segword *w, uint8_t s)
{
	uint64_t value = 0;

	if (w == slot.state)
		return of_short_word(s);
	for (unsigned i = 0; i < MACHINE_HOLDERS; i++) {
		if (w == shms_segslot_word(&slot, machine_holder[i]))
			value |= (uint64_t)(s >> 2 * i & 3) << machine_holder[i] % 32 * 2;
		if (w == &shms_segment_record(&machine_segment, machine_holder[i])->intent)
			return s & 4 ? shms_segintent_make(0, s & 3) : 0;
	}
	return value;
}

static void load_memory(const struct machine_memory *m)
{
	slot.state->value = of_short_word(m->word);
	for (uint32_t i = 0; i < slot.n_words; i++)
		slot.holders[i].value = long_value(&slot.holders[i], m->holders);
	for (unsigned i = 0; i < MACHINE_HOLDERS; i++) {
		struct shms_segword *w =
			&shms_segment_record(&machine_segment, machine_holder[i])->intent;

		w->value = long_value(w, m->intents[i]);
	}
	bytes = m->bytes;
}

static void store_memory(struct machine_memory *m)
{
	m->word = short_word(slot.state->value);
	m->holders = 0;
	for (uint32_t i = 0; i < slot.n_words; i++) {
		m->holders |= short_value(&slot.holders[i], slot.holders[i].value);
		if (long_value(&slot.holders[i],
			       short_value(&slot.holders[i], slot.holders[i].value)) !=
		    slot.holders[i].value)
			fail("bits of a holder that the model does not know");
	}
	for (unsigned i = 0; i < MACHINE_HOLDERS; i++) {
		struct shms_segword *w =
			&shms_segment_record(&machine_segment, machine_holder[i])->intent;

		m->intents[i] = short_value(w, w->value);
	}
	m->bytes = bytes;
}

/* True: the operation saw *seen here before. False: it shall make the access now, and
 * tell what it saw by saw(). */
static bool before(uint8_t *seen)
{
	if (!log_of)
		return false;
	if (at < log_of->n) {
		*seen = log_of->seen[at++];
		return true;
	}
	if (moved)
		longjmp(out, 1);
	moved = true;
	return false;
}

static void saw(uint8_t seen)
{
	if (!log_of)
		return;
	if (at == MACHINE_LOG)
		fail("an operation with more accesses than the log has room for");
	log_of->seen[at++] = seen;
	log_of->n = (uint8_t)at;
}

uint64_t shms_segword_load(struct shms_segword *w)
{
	uint8_t seen;

	if (before(&seen))
		return long_value(w, seen);
	machine_loaded = w == slot.state;
	saw(short_value(w, w->value));
	return w->value;
}

bool shms_segword_is(struct shms_segword *w, uint64_t part, uint64_t value)
{
	uint8_t seen;
	bool same = (w->value & part) == value;

	if (before(&seen))
		return seen;
	saw(same);
	return same;
}

uint64_t shms_segword_part(struct shms_segword *w, uint64_t part)
{
	uint8_t seen;

	if (before(&seen))
		return long_value(w, seen);
	saw(short_value(w, w->value & part));
	return w->value & part;
}

void shms_segword_store(struct shms_segword *w, uint64_t value)
{
	uint8_t seen;

	if (before(&seen))
		return;
	w->value = value;
	saw(0);
}

bool shms_segword_cas(struct shms_segword *w, uint64_t expected, uint64_t value)
{
	uint8_t seen;
	bool same;

	if (before(&seen))
		return seen;
	same = w->value == expected;
	if (same)
		w->value = value;
	saw(same);
	return same;
}

bool shms_segword_or(struct shms_segword *w, uint64_t bits)
{
	uint8_t seen;
	bool had;

	if (before(&seen))
		return seen;
	had = (w->value & bits) != 0;
	w->value |= bits;
	saw(had);
	return had;
}

bool shms_segword_clear(struct shms_segword *w, uint64_t bits)
{
	uint8_t seen;

	if (before(&seen))
		return seen;
	w->value &= ~bits;
	saw(w->value == 0);
	return w->value == 0;
}

void shms_segword_flip(struct shms_segword *w, uint64_t bits)
{
	uint8_t seen;

	if (before(&seen))
		return;
	w->value ^= bits;
	saw(0);
}

bool shms_segword_turn(unsigned *turn)
{
	if (log_of && *turn == 0)
		loop_at = at;
	if (log_of && *turn > 0) {
		for (unsigned i = loop_at; i < log_of->n; i++)
			log_of->seen[i] = 0;
		log_of->n = (uint8_t)loop_at;
		at = loop_at;
	}
	++*turn;
	return true;
}

void machine_write_bytes(uint32_t generation)
{
	uint8_t seen;

	if (before(&seen))
		return;
	bytes = (uint8_t)(generation & 3);
	saw(0);
}

bool machine_step(struct machine_memory *memory, struct machine_log *log, int (*op)(const void *),
		  const void *arg, int *ret)
{
	load_memory(memory);
	log_of = log;
	at = 0;
	moved = machine_loaded = false;
	if (setjmp(out)) {
		store_memory(memory);
		return false;
	}
	*ret = op(arg);
	if (!moved)
		fail("an operation that ends without an access");
	store_memory(memory);
	memset(log, 0, sizeof(*log));
	return true;
}

int machine_run(struct machine_memory *memory, int (*op)(const void *), const void *arg)
{
	int r;

	load_memory(memory);
	log_of = NULL;
	r = op(arg);
	store_memory(memory);
	return r;
}
