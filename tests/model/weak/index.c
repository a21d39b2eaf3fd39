/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c: the index of packed objects, an owner that changes it, and a reader that finds a key
 * meanwhile. The text before this one is libshmstore's own packindex.c and segslot.c;
 * here are, access by access, what their callers do:
 *
 *   look, try_slot, current       packread.c: look() and current_lines(), try(), take() and hold()
 *   put, replace, give_back       packput.c: put_locked(), pack.c: shms_pack_rename(),
 *                                 packsegs.c: shms_packseg_drop()
 *   grow, go_on                   pack.c: grow_index(), packopen.c: reopen_all()
 *
 * The key is there all the time: it is never missing, never an older value than before, and the
 * view's bytes stay. All keys have one hash.
 */
#include "litmus.h"

#include WEAK_SOURCE

enum {
	READER,
	OWNER,
	NEXT_OWNER,
	PLACES = 1, /* of the reader in the segment, the owner's is 0 */
	SLOTS = 2,
	FILES = 3,
	KEY = 1,
	OTHER_KEY = 2
};

const int litmus_threads = KILLED ? 3 : 2;
const int litmus_killed = KILLED ? OWNER : -1;
const unsigned litmus_late = LATE;
const bool litmus_ends = true;

#define HASH UINT64_C(0x0100000000000000)

static struct shms_segword words[SLOTS][6];
/* An index's file, and what says its name: 0 none, or its number and 1. */
static struct {
	struct shms_packline lines[1];
	_Atomic uint32_t superseded;
} files[FILES];
static _Atomic uint32_t name;

static struct shms_segslot slot_at(uint32_t i)
{
	return (struct shms_segslot){&words[i][0], &words[i][1], &words[i][2], 1};
}

/* An object's bytes: key and value, in one word. */
static struct shms_segword *bytes_of(uint32_t slot)
{
	return &words[slot][2];
}

void litmus_begin(void)
{
	words[0][0].value = shms_segstate_make(SHMS_SEG_SEALED, 1);
	words[0][1].value = shms_segholder_name(0);
	words[0][2].value = KEY << 8 | 1;
	files[0].lines[0].cells[0] = cell_of(HASH, (struct shms_packplace){0, 0});
	name = 1;
}

/* ---- the owner ------------------------------------------------------------------------------- */

static struct shms_packindex index_of(uint32_t file)
{
	return (struct shms_packindex){.lines = files[file].lines, .n_lines = 1};
}

static void hashes(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg)
{
	(void)places, (void)arg;
	for (uint32_t i = 0; i < n; i++)
		ret[i] = HASH;
}

static void put(uint32_t at, uint64_t key, uint64_t value)
{
	struct shms_segslot slot = slot_at(at);
	uint32_t generation = 0;

	weak_ensure(shms_segslot_begin(&slot, &generation) == 0, "a free slot is not free");
	shms_segword_plain_store(bytes_of(at), key << 8 | value);
	shms_segslot_publish(&slot, generation);
}

/* Its name goes. Is the slot free? */
static bool give_back(uint32_t at)
{
	struct shms_segslot slot = slot_at(at);

	shms_segslot_drop(&slot, 0, SHMS_SEGVIEWS_NONE);
	return shms_segslot_free(&slot, 0);
}

/* The key gets another slot; the old one another key, if nobody has it. */
static void replace(struct shms_packindex *x, uint32_t from, uint32_t to, uint64_t value)
{
	put(to, KEY, value);
	shms_packindex_replace(x, HASH, (struct shms_packplace){0, from},
			       (struct shms_packplace){0, to});
	if (give_back(from) && !GROWS) {
		put(from, OTHER_KEY, 1);
		shms_packindex_add(x, HASH, (struct shms_packplace){0, from});
	}
}

static void supersede(uint32_t file)
{
	atomic_store_explicit(&files[file].superseded, 1, memory_order_release);
}

static void call(uint32_t file)
{
	weak_fence();
	atomic_store_explicit(&name, file, memory_order_seq_cst);
	weak_fence();
}

static void grow(struct shms_packindex *x, uint32_t from, uint32_t to)
{
	shms_packindex_move(x, files[to].lines, 1, hashes, NULL);
	if (SUPERSEDED_FIRST)
		supersede(from);
	call(0);
	call(to + 1);
	if (!SUPERSEDED_FIRST)
		supersede(from);
}

/* The store's next owner makes the index anew of the slot that has the name: who was
 * killed has only grown it. */
static void go_on(void)
{
	struct shms_packindex x = index_of(2);
	uint32_t last = atomic_load_explicit(&name, memory_order_seq_cst);

	if (last)
		supersede(last - 1);
	call(0);
	shms_packindex_add(&x, HASH, (struct shms_packplace){0, 0});
	call(3);
	replace(&x, 0, 1, 2);
}

static void own(void)
{
	struct shms_packindex x = index_of(0);

	if (GROWS)
		grow(&x, 0, 1);
	if (!KILLED)
		replace(&x, 0, 1, 2);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static struct reader {
	uint32_t file; /* mapped: its number and 1 */
	uint32_t slot; /* found */
	uint64_t value;
} reader;

static int try_slot(struct shms_packplace place, const struct shms_packhashed *key, void *arg)
{
	struct reader *r = arg;
	struct shms_segslot slot = slot_at(place.slot);
	uint64_t state;

	(void)key;
	if (shms_segword_plain_load(bytes_of(place.slot)) >> 8 != KEY)
		return 0;
	state = shms_segword_load(slot.state);
	if (!shms_segstate_published(state) ||
	    !shms_segword_part(shms_segslot_word(&slot, 0), shms_segholder_name(0)) ||
	    shms_segslot_pin(&slot, PLACES, 0, shms_segstate_generation(state)) < 0)
		return 0;
	r->slot = place.slot;
	r->value = shms_segword_plain_load(bytes_of(place.slot));
	if (r->value >> 8 == KEY)
		return 1;
	shms_segslot_unview(&slot, PLACES);
	return 0;
}

static bool is_current(uint32_t file)
{
	return !atomic_load_explicit(&files[file - 1].superseded, memory_order_acquire);
}

/* 1; 0: there is no index just now. */
static int current(struct reader *r)
{
	if (r->file && is_current(r->file))
		return 1;
	r->file = atomic_load_explicit(&name, memory_order_seq_cst);
	if (r->file && is_current(r->file))
		return 1;
	r->file = 0;
	return 0;
}

/* 1; 0: missing; -1: there is no index just now. */
static int look(struct reader *r)
{
	const struct shms_packhashed key = {.hash = HASH};

	while (current(r)) {
		struct shms_packindex x = index_of(r->file - 1);
		int found = shms_packindex_look(&x, &key, try_slot, r);

		if (found == 1 || (found == 0 && (!SUPERSEDED_COUNTS || is_current(r->file))))
			return found;
	}
	return -1;
}

static void read_key(struct reader *r)
{
	uint64_t before = r->value;
	struct shms_segslot slot;
	int found = look(r);

	weak_ensure(found != 0, "a key that is there is missing");
	if (found != 1)
		return;
	slot = slot_at(r->slot);
	weak_ensure(r->value >= before, "an older value than before");
	weak_ensure(shms_segword_plain_load(bytes_of(r->slot)) == r->value,
		    "a view's bytes change");
	shms_segslot_unview(&slot, PLACES);
}

void litmus_thread(int which)
{
	if (which == READER) {
		reader = (struct reader){0};
		for (int i = 0; i < LOOKS; i++)
			read_key(&reader);
	} else if (which == OWNER) {
		own();
	} else {
		go_on();
	}
}
