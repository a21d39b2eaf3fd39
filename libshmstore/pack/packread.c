/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packread.c: see pack.h.
 *
 * A look finds a cell in the store's index, and in it the slot. Nothing of the slot's extent is
 * read before the slot is pinned: the reader's view bit stands, and after that the slot still has
 * the store's name in that generation (segslot.h). Then its bytes stay as they are until the bit
 * goes. A slot that cannot be pinned has changed since its cell was read, and then the cell's line
 * has another version, or the store is gone: the search says so, and the look begins anew.
 *
 * A list goes through the lines by the keys' homes, which follow each other as the keys'
 * hashes do. So an index that grew meanwhile is gone on with at the same hash, and no key
 * is met twice or passed over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cleanup.h"
#include "pack.h"
#include "packsegs.h"
#include "page.h"
#include "segslot.h"
#include "sys.h"

#define TURNS    1000u /* of looks at a store that changes */
#define SEGMENTS "/" SHMS_DIR_SEGMENTS

/* ---- every object of a segment --------------------------------------------------------------- */

/*
 * Reads slots as seglook.c does: the state, then what it says, then the state and the
 * name again. The owner changes the generation before it changes any byte (segslot.h), so that what
 * was copied under one generation is that object's.
 */

#define TRIES 8

struct looking {
	const uint8_t *store;
	const void *key;
	size_t key_size;
	int (*fn)(const struct shms_packlook *object, void *arg);
	void *arg;
	unsigned place;
	const struct shms_seglook *file;
	uint8_t *room; /* for a key, or an extent */
	size_t size;
};

/* Copies size bytes of the extent, from off on, to the same place in the room. */
static int copy_part(struct looking *l, const struct shms_packlook *o, size_t off, size_t size)
{
	int r = SHMS_GROW(l->room, l->size, 0, off + size + 1);

	return r < 0 ? r
		     : shms_seglook_read(l->file, o->object.extent_off + off, l->room + off, size);
}

/* Copies the key, and all of the extent where that is asked for. 0; 1: it has another key than the
 * one that is asked for. */
static int copy(struct looking *l, struct shms_packlook *o)
{
	bool inside = o->object.key_size <= SHMS_SEGPACKED_KEY;
	int r = inside ? 0 : copy_part(l, o, o->object.key_off, o->object.key_size);

	if (r < 0)
		return r;
	o->key = inside ? (const uint8_t *)o->object.key : l->room + o->object.key_off;
	o->key_size = o->object.key_size;
	if (!l->key)
		return 0;
	if (memcmp(o->key, l->key, l->key_size) != 0)
		return 1;
	r = copy_part(l, o, 0, o->object.used);
	o->copy = l->room;
	o->key = inside ? o->key : l->room + o->object.key_off;
	return r;
}

/* How many stores have the slot's object by name, and leases of it that have not ended. */
static uint64_t links_of(const struct shms_segslot *slot, uint64_t state)
{
	uint64_t n = shms_segstate_promised(state, shms_segnow_of_ms(shms_now_boot_ms()))
			     ? (uint64_t)__builtin_popcount(shms_segstate_leases(state))
			     : 0;

	for (uint32_t w = 0; w < slot->n_words; w++)
		n += (uint64_t)__builtin_popcountll(shms_segword_load(&slot->holders[w]) &
						    UINT64_C(0x5555555555555555));
	return n;
}

/* 1: *o is that slot's object, as it was at one moment; 0: it has none of the store's.
 * NOLINTNEXTLINE(readability-function-cognitive-complexity) */
static int read_slot(struct looking *l, const struct shms_segslot *slot, struct shms_packlook *o)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t state = shms_segword_load(slot->state), now;
		int r, again;

		if (!shms_segstate_published(state) || !shms_segslot_named(slot, l->place))
			return 0;
		r = shms_segpacked_read(o->segment, slot, &o->object);
		if (r == -EBADMSG && l->file->error)
			return shms_error(l->file->error);
		o->generation = shms_segstate_generation(state);
		if (r == 0)
			r = l->key && o->object.key_size != l->key_size ? 1 : copy(l, o);
		if (r == -ENOMEM)
			return r;
		o->n_links = links_of(slot, state);
		/* Where only the slot was used, its copy is of one moment. */
		if (r == 0 && o->object.key_size <= SHMS_SEGPACKED_KEY &&
		    !(o->object.flags & SHMS_SEGPACKED_TABLE) && !l->key)
			return 1;
		again = shms_seglook_again(l->file, o->slot);
		if (again < 0)
			return again == -EBADMSG ? 0 : shms_error(again);
		now = shms_segword_load(slot->state);
		if (!shms_segstate_published(now) ||
		    shms_segstate_generation(now) != o->generation ||
		    !shms_segslot_named(slot, l->place))
			continue;
		/* Damage is what verify speaks of; that it could not be read now is to be known. */
		return r < 0 && r != -EBADMSG ? shms_error(r) : r == 0;
	}
	return 0;
}

static int look_at_all(struct looking *l, const struct shms_seglook *file)
{
	uint32_t n = shms_segment_born(&file->segment);
	int r = 0;

	l->file = file;
	l->place = shms_segment_place(&file->segment, l->store);
	for (uint32_t i = 0; r == 0 && i < n && l->place != SHMS_SEGMENT_NO_PLACE; i++) {
		struct shms_packlook o = {.segment = &file->segment,
					  .inode = file->inode,
					  .uid = file->uid,
					  .slot = i};
		struct shms_segslot slot = shms_segslot_at(&file->segment, i);

		r = read_slot(l, &slot, &o);
		if (r == 1)
			r = l->fn(&o, l->arg);
	}
	return r;
}

int shms_packlook(int dir_fd, const uint8_t store[16], const void *key, size_t key_size,
		  int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	struct looking l = {.store = store, .key = key, .key_size = key_size, .fn = fn, .arg = arg};
	_names_ struct shms_names d = shms_names(dir_fd, ".");
	struct shms_seglook file;
	int r = shms_error(d.error);

	while (r == 0 && shms_names_next(&d)) {
		if (d.name[0] == '.')
			continue;
		r = shms_seglook_open(d.fd, d.name, false, &file);
		if (r == 0) {
			r = store ? look_at_all(&l, &file) : 0;
			shms_seglook_close(&file);
		} else if (r == -ENOENT || r == -EBADMSG || r == -ENOTSUP) {
			r = 0; /* gone, or what verify speaks of */
		} else if (r == -EPERM || r == -EACCES) {
			r = fn(&(struct shms_packlook){.error = -EPERM, .file = d.name}, arg);
		} else {
			r = shms_error(r);
		}
	}
	free(l.room);
	return r != 0 ? r : d.error;
}

/* ---- a reader -------------------------------------------------------------------------------- */

int shms_packread_open(const struct shms_pack_options *options, struct shms_pack *former,
		       struct shms_pack **ret)
{
	struct shms_pack *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	shms_lightlock_init(&p->lock);
	p->lines = (struct shms_packlines)SHMS_PACKLINES_NULL;
	p->reader = true;
	memcpy(p->store_uuid, options->uuid, sizeof(p->store_uuid));
	p->options = *options;
	p->options.kept = false;
	/* Of its places alone: no store has it. */
	shms_random(p->options.uuid, sizeof(p->options.uuid));
	p->options.dir_fd = p->options.store_fd = -1;
	p->options.path = p->path =
		strndup(options->path, strlen(options->path) - strlen(SEGMENTS));
	if (!p->path) {
		shms_pack_close(p, 0);
		return -ENOMEM;
	}
	p->former = former;
	*ret = p;
	return 0;
}

bool shms_packread_ended(const struct shms_pack *p)
{
	return p->child || atomic_load_explicit(&p->ended, memory_order_relaxed);
}

void shms_packread_end(struct shms_pack *p)
{
	if (p->child)
		return;
	SHMS_LIGHT_HELD(&p->lock);
	atomic_store_explicit(&p->ended, true, memory_order_relaxed);
	SHMS_PACKSEGS_EACH(p, g) {
		shms_packseg_settle(p, g, 0);
		shms_packseg_tidy(p, g, 0);
	}
	shms_packlines_close(&p->lines);
	p->index = (struct shms_packindex){0};
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Takes a place in the store's segment of that uuid. */
static SHMS_ASIDE int join(struct shms_pack *p, const uint8_t uuid[16], uint32_t *ret_number)
{
	struct shms_packseg *g;
	int r = shms_packsegs_new(p, false, 0, &g);

	if (r < 0)
		return r;
	_fd_ int dir_fd = shms_packsegs_dir(p, SEGMENTS);
	r = dir_fd < 0 ? dir_fd : shms_segfile_visit(dir_fd, uuid, p->options.uuid, g->file);
	*ret_number = shms_packseg_number(p, g);
	return shms_packsegs_add(p, g, r, 0);
}

/* The reader's own number of the store's segment. 0; -ENOENT: the store has it no more;
 * -ENOTSUP: there is no place. */
static int segment_of(struct shms_pack *p, const uint8_t uuid[16], uint32_t *ret_number)
{
	int r;

	if (shms_packsegs_find(p, uuid, ret_number))
		return 0;
	r = join(p, uuid, ret_number);
	/* All places are taken; or it is another user's, who may cut it under our map. */
	return r == -EAGAIN || r == -EPERM || r == -EACCES ? -ENOTSUP : shms_error(r);
}

/* The segment that the store has under that number, where we have a place in it. NULL: none. */
static struct shms_packseg *known(struct shms_pack *p, uint32_t number, uint8_t ret_uuid[16])
{
	struct shms_packseg *g = &p->segments[p->numbers[number]];

	shms_packlines_uuid(&p->lines, number, ret_uuid);
	return g->file && memcmp(g->file->segment.uuid, ret_uuid, 16) == 0 ? g : NULL;
}

static int segment_of_cell(struct shms_pack *p, uint32_t number, uint32_t *ret_number)
{
	uint8_t uuid[16];
	int r = 0;

	*ret_number = p->numbers[number];
	if (!known(p, number, uuid))
		r = segment_of(p, uuid, ret_number);
	if (r == 0)
		p->numbers[number] = (uint8_t)*ret_number;
	return r;
}

/* Has the store that name? Its place in the segment is looked for where it
 * is not the one that it was. */
static bool is_named(const struct shms_pack *p, struct shms_packseg *g,
		     const struct shms_segslot *slot)
{
	const struct shms_segment *s = &g->file->segment;

	if (memcmp(shms_segment_record(s, g->from)->store_uuid, p->store_uuid,
		   sizeof(p->store_uuid)) != 0) {
		unsigned from = shms_segment_place(s, p->store_uuid);

		if (from == SHMS_SEGMENT_NO_PLACE)
			return false;
		g->from = from;
	}
	return shms_segslot_named(slot, g->from);
}

/*
 * Counts a view of the slot's object of that generation, which the store has by name. 1;
 * 0: it has it no more; -ENOMEM.
 */
static int hold(struct shms_pack *p, struct shms_packplace place, uint32_t generation)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot slot = shms_packseg_slot(g, place.slot);
	int r = shms_packviews_reserve(&p->views);

	if (r < 0)
		return r;
	if (!is_named(p, g, &slot))
		return 0;
	/* Where our bit stands already the slot is still what it was. */
	if (shms_packviews_find(&p->views, place)) {
		if (!shms_segword_is(slot.state, SHMS_SEGSTATE_PUBLISHED,
				     shms_segstate_make(SHMS_SEG_SEALED, generation)))
			return 0;
		shms_packseg_view(p, place);
		return 1;
	}
	if (shms_segslot_pin(&slot, g->file->holder, g->from, generation) < 0) {
		/* The owner may have left the slot to us, for the bit that stood meanwhile. */
		shms_segment_hint(&g->file->segment, place.slot);
		return 0;
	}
	*shms_packviews_at(&p->views, place) = SHMS_PACK_MARKED | 1;
	g->n_viewed++;
	g->n_held++;
	return 1;
}

/* ---- one object ------------------------------------------------------------------------------ */

static void drop(struct shms_pack *p, const struct shms_pack_view *v)
{
	shms_packseg_unview(p, (struct shms_packplace){v->number, v->slot}, 0);
}

/* Holds the slot's object. 1; 0: there is none of the store's; -ENOMEM. */
static int take(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot slot;
	uint64_t state;
	int r;

	if (place.slot >= shms_segment_born(&g->file->segment))
		return 0;
	slot = shms_packseg_slot(g, place.slot);
	state = shms_segword_load(slot.state);
	if (!shms_segstate_published(state))
		return 0;
	r = hold(p, place, shms_segstate_generation(state));
	if (r != 1)
		return r;
	/* It may be damaged, or not what it was taken for. */
	if (shms_pack_describe(p, place, ret) == 0)
		return 1;
	shms_packseg_unview(p, place, 0);
	return 0;
}

/* Holds the object of a cell. 1; 0: the cell is not the store's any more; -errno. */
static int take_cell(struct shms_pack *p, struct shms_packplace cell, struct shms_pack_view *ret)
{
	struct shms_packplace place = {.slot = cell.slot};
	int r;

	if (cell.segment >= SHMS_PACKINDEX_SEGMENTS)
		return 0;
	r = segment_of_cell(p, cell.segment, &place.segment);
	if (r < 0)
		return r == -ENOENT || r == -ESTALE ? 0 : r;
	return take(p, place, ret);
}

/* ---- looks ----------------------------------------------------------------------------------- */

/* The store's index of now. */
static int current_lines(struct shms_pack *p)
{
	int r;

	if (shms_packread_ended(p))
		return -ESTALE;
	if (p->lines.head && shms_packlines_current(&p->lines))
		return 0;
	shms_packlines_close(&p->lines);
	p->index = (struct shms_packindex){0};
	_fd_ int store_fd = shms_packsegs_dir(p, "");
	r = store_fd < 0 ? shms_error(store_fd)
			 : shms_packlines_open(store_fd, p->store_uuid, &p->lines);
	if (r < 0)
		return r == -ENOENT || r == -EPERM || r == -EBADMSG ? -ENOTSUP : r;
	p->index.lines = p->lines.lines;
	p->index.n_lines = p->lines.n_lines;
	/* It may have become another one's predecessor meanwhile: the search finds that. */
	return 0;
}

struct look {
	struct shms_pack *p;
	struct shms_pack_view view;
};

/* Does the slot that the cell means have a short key that is another one? Read without a hold: a no
 * is looked at again by the search. */
static bool is_other(struct look *l, struct shms_packplace cell, const struct shms_packhashed *key)
{
	uint8_t uuid[16];
	const struct shms_packseg *g = known(l->p, cell.segment, uuid);
	struct shms_segslot slot;
	uint64_t words[2];
	size_t size;

	if (!g || cell.slot >= shms_segment_born(&g->file->segment))
		return false;
	slot = shms_packseg_slot(g, cell.slot);
	size = shms_segpacked_key_words(&slot, words);
	return size != key->size ||
	       (size <= sizeof(words) && (words[0] != key->words[0] || words[1] != key->words[1]));
}

static int try(struct shms_packplace cell, const struct shms_packhashed *key, void *arg)
{
	struct look *l = arg;
	int r;

	if (cell.segment < SHMS_PACKINDEX_SEGMENTS && is_other(l, cell, key))
		return 0;
	r = take_cell(l->p, cell, &l->view);
	if (r != 1)
		return r;
	if (l->view.object.key_size == key->size &&
	    memcmp(shms_pack_view_key(&l->view), key->key, key->size) == 0)
		return 1;
	drop(l->p, &l->view);
	return 0;
}

/* 1: found, and held; -ENOENT; -errno. */
static int look(struct look *l, const void *key, size_t key_size)
{
	const struct shms_packhashed k = shms_packhash(key, key_size);

	for (unsigned turn = 0; turn < TURNS; turn++) {
		int r = current_lines(l->p);

		if (r == 0)
			r = shms_packindex_look(&l->p->index, &k, try, l);
		if (r == 0 && shms_packlines_current(&l->p->lines))
			return -ENOENT;
		if (r != 0 && r != -EAGAIN)
			return r;
	}
	return -ETIMEDOUT;
}

int shms_packread_get(struct shms_pack *p, const void *key, size_t key_size,
		      struct shms_pack_view *ret)
{
	struct look l = {.p = p};
	int r;

	SHMS_LIGHT_HELD(&p->lock);
	r = look(&l, key, key_size);
	if (r != 1)
		return r;
	if (ret)
		*ret = l.view;
	else
		drop(p, &l.view);
	return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct found {
	struct shms_pack_view view;
	uint64_t inode, n_links;
};

/* The objects of the keys whose hashes begin a search in one line. */
struct batch {
	struct shms_pack *p;
	struct found *found;
	size_t n, size;
	uint64_t from, to; /* the hashes' lower 32 bits: from, and below to */
};

static void give_back(struct batch *b)
{
	while (b->n)
		drop(b->p, &b->found[--b->n].view);
}

static int add(struct batch *b, const struct shms_pack_view *v)
{
	const struct shms_packseg *g = &b->p->segments[v->number];
	struct shms_segslot slot;
	uint32_t hash = (uint32_t)shms_packhash(shms_pack_view_key(v), v->object.key_size).hash;
	bool here = hash >= b->from && hash < b->to;
	int r = here ? SHMS_GROW(b->found, b->size, b->n, 1) : 0;

	if (!here || r < 0) {
		drop(b->p, v);
		return r;
	}
	slot = shms_packseg_slot(g, v->slot);
	b->found[b->n++] =
		(struct found){*v, g->file->inode, links_of(&slot, shms_segword_load(slot.state))};
	return 0;
}

/* The cells of one line. 0; -EAGAIN: it changed meanwhile; -errno. */
static int read_line(struct batch *b, const struct shms_packline *line)
{
	uint32_t version = shms_packindex_version(line), at = 0;
	const struct shms_packindex one = {.lines = (struct shms_packline *)(uintptr_t)line,
					   .n_lines = 1};
	struct shms_packplace place;
	int r = 0;

	while (r >= 0 && shms_packindex_next(&one, &at, &place)) {
		struct shms_pack_view v;

		r = take_cell(b->p, place, &v);
		if (r == 1)
			r = add(b, &v);
		else if (r == 0)
			r = shms_packindex_changed(line, version) ? -EAGAIN : 0;
	}
	return r < 0 ? r : shms_packindex_changed(line, version) ? -EAGAIN : 0;
}

/* All keys of the first line from b->from on: sets b->to. The lock is held. 0; -EAGAIN; -errno. */
static int read_home(struct batch *b)
{
	struct shms_pack *p = b->p;
	uint32_t n = p->index.n_lines, home = (uint32_t)(b->from * n >> 32), at = home;
	int r;

	/* The least hash of the line behind. */
	b->to = ((((uint64_t)home + 1) << 32) + n - 1) / n;
	for (uint32_t i = 0; i < n; i++, at = at + 1 == n ? 0 : at + 1) {
		bool end = shms_packindex_ends(&p->index.lines[at]);

		r = read_line(b, &p->index.lines[at]);
		if (r < 0)
			return r;
		if (end)
			break;
	}
	return shms_packlines_current(&p->lines) ? 0 : -EAGAIN;
}

static int read_some(struct batch *b)
{
	int r = -EAGAIN;

	SHMS_LIGHT_HELD(&b->p->lock);
	give_back(b);
	for (unsigned turn = 0; turn < TURNS && r == -EAGAIN; turn++) {
		give_back(b);
		r = current_lines(b->p);
		if (r == 0)
			r = read_home(b);
	}
	if (r < 0)
		give_back(b);
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

int shms_packread_each(struct shms_pack *p, uint64_t *io_from, shms_packread_fn *fn, void *arg)
{
	struct batch b = {.p = p, .from = *io_from};
	int r = 0;

	while (r == 0 && b.from < UINT64_C(1) << 32) {
		r = read_some(&b);
		/* Of what was read under the lock alone: fn may fork. */
		for (size_t i = 0; r == 0 && i < b.n; i++)
			r = fn(&b.found[i].view, b.found[i].inode, b.found[i].n_links, arg);
		if (r == 0)
			*io_from = b.from = b.to;
	}
	shms_lightlock_take(&p->lock);
	give_back(&b);
	shms_lightlock_release(&p->lock);
	free(b.found);
	return r;
}
