/* SPDX-License-Identifier: Apache-2.0 */
/* segworld.c: what stores do with segments, with a journal around each step. */
#include "segworld.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "scratch.h"
#include "segments.h"
#include "sys.h"

#define SLOTS    400u
#define SIZE     (UINT64_C(8) << 20)
#define METADATA 24u

enum {
	SMALL = 3,
	ALL = 8
};
static const uint64_t sizes_of_objects[ALL] = {8, 100, 300, 1024, 4096, 9000, 70000, 131072};

static void set(struct segentry *e, enum segentry_state state)
{
	atomic_store(&e->state, state);
}

static enum segentry_state state_of(struct segentry *e)
{
	return atomic_load(&e->state);
}

static uint64_t now(const struct segstore *s)
{
	return atomic_load(&s->board->clock_ms);
}

/* ---- content --------------------------------------------------------------------------------- */

/* The object of that slot is that one, whole. */
static void check_content(const struct segstore *s, const struct shms_segment *g,
			  const struct shms_segpacked *o, uint64_t id, const char *what)
{
	const uint8_t *bytes = g->bytes + o->extent_off;
	uint64_t key, metadata[METADATA / 8];

	memcpy(&key, o->key, sizeof(key));
	if (key != id || o->key_size != 8 || o->n_buffers != 1 || o->metadata_size != METADATA)
		segworld_fail(s->board, "store %u, %s: object %lu is %lu, with %u buffers",
			      s->number, what, id, key, o->n_buffers);
	memcpy(metadata, bytes + o->metadata_off, sizeof(metadata));
	if (metadata[0] != id || metadata[2] != o->buffer_size ||
	    pattern_check(bytes, o->buffer_size, id) != o->buffer_size)
		segworld_fail(s->board, "store %u, %s: object %lu has other bytes", s->number, what,
			      id);
}

static struct shms_segment *segment_of(struct segstore *s, const uint8_t uuid[16],
				       unsigned *ret_holder)
{
	if (s->has_own && memcmp(s->own.file.segment.uuid, uuid, 16) == 0) {
		*ret_holder = SHMS_SEG_OWNER;
		return &s->own.file.segment;
	}
	for (size_t i = 0; i < SEGWORLD_JOINED; i++) {
		if (s->is_joined[i] && memcmp(s->joined[i].segment.uuid, uuid, 16) == 0) {
			*ret_holder = s->joined[i].holder;
			return &s->joined[i].segment;
		}
	}
	return NULL;
}

static struct segentry *entry_in(struct segstore *s, enum segentry_state state, bool random)
{
	size_t first = random ? dice_draw(&s->dice, SEGWORLD_JOURNAL) : 0;

	for (size_t i = 0; i < SEGWORLD_JOURNAL; i++) {
		struct segentry *e = &s->journal[(first + i) % SEGWORLD_JOURNAL];

		if (state_of(e) == state)
			return e;
	}
	return NULL;
}

static struct segentry *entry_of(struct segstore *s, uint64_t id, enum segentry_state state)
{
	for (size_t i = 0; i < SEGWORLD_JOURNAL; i++) {
		if (s->journal[i].id == id && state_of(&s->journal[i]) == state)
			return &s->journal[i];
	}
	return NULL;
}

/* The description of what an entry says; the slot is there, by name or view. */
static struct shms_segslot slot_of(struct segstore *s, struct segentry *e,
				   struct shms_segment **ret_g, unsigned *ret_holder,
				   struct shms_segpacked *ret)
{
	struct shms_segslot slot;

	*ret_g = segment_of(s, e->segment, ret_holder);
	if (!*ret_g)
		segworld_fail(s->board,
			      "store %u: object %lu is in a segment that it does not have",
			      s->number, e->id);
	slot = shms_segslot_at(*ret_g, e->slot);
	if (shms_segpacked_read(*ret_g, &slot, ret) < 0)
		segworld_fail(s->board, "store %u: the description of object %lu is no good",
			      s->number, e->id);
	return slot;
}

/* ---- the operations -------------------------------------------------------------------------- */

bool segstore_put(struct segstore *s, uint64_t size)
{
	static uint8_t buffer[1 << 20];
	uint64_t id = atomic_fetch_add(&s->board->next_id, 1);
	uint64_t metadata[METADATA / 8] = {id, s->number, size};
	struct iovec iov = {buffer, size};
	struct shms_segobject what = {&id, sizeof(id), metadata, METADATA, &iov, 1, 0, NULL};
	struct segentry *e = entry_in(s, SEGENTRY_NONE, false);
	bool full;
	int r;

	if (!e || !s->has_own)
		return false;
	pattern_fill(buffer, size, id);
	e->id = id;
	memcpy(e->segment, s->own.file.segment.uuid, 16);
	set(e, SEGENTRY_PUTTING);
	r = shms_segown_put(&s->own, &what, now(s), &e->slot, &e->generation, &full);
	if (r == -ENOSPC && full && shms_segalloc_scan(&s->own.alloc, shms_segnow_of_ms(now(s))))
		r = shms_segown_put(&s->own, &what, now(s), &e->slot, &e->generation, &full);
	if (r == -ENOSPC && full) {
		/* Another class may have the memory; all that is free is. */
		set(e, SEGENTRY_NONE);
		return false;
	}
	if (r < 0)
		segworld_fail(s->board, "store %u: put: %s", s->number, strerror(-r));
	set(e, SEGENTRY_HAVE);
	atomic_fetch_add(&s->board->n_put, 1);
	return true;
}

bool segstore_post(struct segstore *s, struct segmail *to)
{
	struct segentry *e = entry_in(s, SEGENTRY_HAVE, true);
	struct shms_segment *g;
	struct shms_segpacked o;
	struct shms_segslot slot;
	struct segmail *m = NULL;
	uint32_t lease;
	unsigned holder;
	int r;

	for (size_t i = 0; i < SEGWORLD_MAIL && !m; i++) {
		if (atomic_load(&to[i].state) == SEGMAIL_EMPTY)
			m = &to[i];
	}
	if (!m || !e)
		return false;
	slot = slot_of(s, e, &g, &holder, &o);
	r = shms_segslot_handoff(&slot, e->generation,
				 (unsigned)dice_draw(&s->dice, SHMS_SEG_LEASES), now(s),
				 now(s) + SEGWORLD_LEASE_MS, &lease);
	if (r == -EAGAIN)
		return false;
	if (r < 0)
		segworld_fail(s->board, "store %u: handoff of object %lu: %s", s->number, e->id,
			      strerror(-r));
	m->donor = s->number;
	memcpy(m->segment, e->segment, 16);
	m->ticket =
		(struct shms_segticket){e->slot, e->generation, lease, now(s) + SEGWORLD_LEASE_MS};
	m->id = e->id;
	atomic_store(&m->state, SEGMAIL_POSTED);
	return true;
}

/* The segment of a ticket: one that the store has, or has now. NULL: there is no room for it. */
static struct shms_segment *segment_for(struct segstore *s, const struct segmail *m,
					unsigned *ret_holder, bool *ret_gone)
{
	struct shms_segment *g = segment_of(s, m->segment, ret_holder);
	char path[64], name[SHMS_SEGFILE_NAME];
	size_t i = 0;
	int r;

	*ret_gone = false;
	while (!g && i < SEGWORLD_JOINED && s->is_joined[i])
		i++;
	if (g || i == SEGWORLD_JOINED)
		return g;
	shms_segfile_name(m->segment, name);
	snprintf(path, sizeof(path), "%u/segments/%s", m->donor, name);
	r = shms_segfile_join(s->root_fd, path, m->segment, s->dir_fd, s->uuid, s->kept,
			      &s->joined[i]);
	*ret_gone = r == -ESTALE;
	if (r == -EAGAIN || r == -ESTALE)
		return NULL;
	if (r < 0)
		segworld_fail(s->board, "store %u: join of store %u's: %s", s->number, m->donor,
			      strerror(-r));
	s->is_joined[i] = true;
	*ret_holder = s->joined[i].holder;
	return &s->joined[i].segment;
}

static void adopt(struct segstore *s, struct segmail *m, struct segentry *e)
{
	struct shms_segpacked o;
	unsigned holder;
	bool gone, past = m->ticket.end_ms <= now(s);
	struct shms_segment *g = segment_for(s, m, &holder, &gone);
	int r;

	if (!g && !gone) {
		atomic_store(&m->state, SEGMAIL_POSTED);
		set(e, SEGENTRY_NONE);
		return;
	}
	r = g ? segment_adopt(g, holder, s->kept, &m->ticket, &o) : -ESTALE;
	if (r == -ESTALE && past) {
		set(e, SEGENTRY_NONE);
	} else if (r < 0) {
		segworld_fail(s->board,
			      "store %u: object %lu of store %u was promised and is lost: %s%s",
			      s->number, m->id, m->donor, strerror(-r),
			      g ? "" : " (its segment is gone)");
	} else {
		check_content(s, g, &o, m->id, "adopted");
		/* One name stands for both. */
		set(e, entry_of(s, m->id, SEGENTRY_HAVE) ? SEGENTRY_NONE : SEGENTRY_HAVE);
		atomic_fetch_add(&s->board->n_adopted, 1);
	}
	atomic_store(&m->state, SEGMAIL_EMPTY);
}

bool segstore_take(struct segstore *s, struct segmail *from)
{
	struct segentry *e = entry_in(s, SEGENTRY_NONE, false);

	for (size_t i = 0; i < SEGWORLD_MAIL && e; i++) {
		struct segmail *m = &from[i];

		if (atomic_load(&m->state) != SEGMAIL_POSTED)
			continue;
		/* An object that it has by a view only cannot be had by name as well here:
		 * the entries are one each. */
		if (entry_of(s, m->id, SEGENTRY_VIEWED))
			continue;
		e->id = m->id;
		e->slot = m->ticket.slot;
		e->generation = m->ticket.generation;
		memcpy(e->segment, m->segment, 16);
		set(e, SEGENTRY_ADOPTING);
		atomic_store(&m->state, SEGMAIL_TAKING);
		adopt(s, m, e);
		return true;
	}
	return false;
}

/* The store has left the slot. */
static void left(struct segstore *s, struct shms_segment *g, unsigned holder, uint32_t slot)
{
	if (holder == SHMS_SEG_OWNER)
		shms_segown_take_back(&s->own, slot, now(s));
	else
		shms_segment_hint(g, slot);
}

bool segstore_drop(struct segstore *s)
{
	struct segentry *e = entry_in(s, SEGENTRY_HAVE, true),
			*viewed = entry_in(s, SEGENTRY_VIEWED, false);
	bool views = dice_draw(&s->dice, 3) == 0;
	struct shms_segpacked o;
	struct shms_segment *g;
	struct shms_segslot slot;
	unsigned holder;

	if (viewed && dice_draw(&s->dice, 2)) {
		slot = slot_of(s, viewed, &g, &holder, &o);
		check_content(s, g, &o, viewed->id, "viewed without a name");
		if (shms_segslot_unview(&slot, holder))
			left(s, g, holder, viewed->slot);
		set(viewed, SEGENTRY_NONE);
		return true;
	}
	if (!e)
		return false;
	slot = slot_of(s, e, &g, &holder, &o);
	set(e, SEGENTRY_DROPPING);
	if (shms_segslot_drop(&slot, holder, views ? SHMS_SEGVIEWS_LIVE : SHMS_SEGVIEWS_NONE))
		left(s, g, holder, e->slot);
	set(e, views ? SEGENTRY_VIEWED : SEGENTRY_NONE);
	atomic_fetch_add(&s->board->n_dropped, 1);
	return true;
}

bool segstore_look(struct segstore *s)
{
	struct segentry *e = entry_in(s, SEGENTRY_HAVE, true);
	struct shms_segpacked o;
	struct shms_segment *g;
	unsigned holder;

	if (!e)
		return false;
	slot_of(s, e, &g, &holder, &o);
	check_content(s, g, &o, e->id, "had");
	return true;
}

void segstore_leave_orphans(struct segstore *s)
{
	for (size_t i = 0; i < SEGWORLD_JOINED; i++) {
		bool used = false;

		if (!s->is_joined[i] ||
		    !shms_segword_is(
			    &shms_segment_record(&s->joined[i].segment, SHMS_SEG_OWNER)->state,
			    UINT64_MAX, SHMS_SEGRECORD_ORPHAN))
			continue;
		for (size_t k = 0; k < SEGWORLD_JOURNAL; k++)
			used = used ||
			       (state_of(&s->journal[k]) != SEGENTRY_NONE &&
				memcmp(s->journal[k].segment, s->joined[i].segment.uuid, 16) == 0);
		/* As the pack does: who leaves while a lease is out leaves its link, too, which
		 * nobody removes as long as its store lives. */
		if (used || shms_segment_promised(&s->joined[i].segment, now(s)))
			continue;
		shms_segfile_leave(&s->joined[i], s->dir_fd, now(s));
		s->is_joined[i] = false;
	}
}

void segstore_step(struct segstore *s, struct segmail *mine, struct segmail *yours)
{
	switch (dice_draw(&s->dice, 8)) {
	case 0:
	case 1:
		segstore_put(s, sizes_of_objects[dice_draw(&s->dice, s->small ? SMALL : ALL)]);
		break;
	case 2:
	case 3:
		segstore_post(s, yours);
		break;
	case 4:
	case 5:
		segstore_take(s, mine);
		break;
	case 6:
		segstore_drop(s);
		break;
	default:
		segstore_look(s);
		if (dice_draw(&s->dice, 16) == 0)
			segstore_leave_orphans(s);
		if (s->has_own && dice_draw(&s->dice, 64) == 0)
			shms_segown_trim(&s->own, now(s));
		break;
	}
	atomic_fetch_add(&s->board->n_ops, 1);
}

/* ---- opening, and what a kept store has then ------------------------------------------------- */

static void open_links(struct segstore *s)
{
	_names_ struct shms_names d = shms_names(s->dir_fd, ".");
	size_t n = 0;

	ENSURE(d.dir);
	while (shms_names_next(&d)) {
		struct shms_segfile file;
		int r;

		if (d.name[0] == '.')
			continue;
		r = shms_segfile_reopen(s->dir_fd, d.name, s->uuid, &file);
		if (r == -ENOENT)
			continue; /* left over: gc's */
		if (r < 0)
			segworld_fail(s->board, "store %u: reopen: %s", s->number, strerror(-r));
		if (file.holder == SHMS_SEG_OWNER && !s->has_own) {
			r = shms_segown_reopen(&file, s->dir_fd, false, &s->own);
			if (r < 0)
				segworld_fail(s->board, "store %u: owner's reopen: %s", s->number,
					      strerror(-r));
			s->has_own = true;
		} else if (n < SEGWORLD_JOINED) {
			s->joined[n] = file;
			s->is_joined[n++] = true;
		} else {
			shms_segfile_close(&file);
		}
	}
}

/* Every name in the segment is one that the journal may have. found: of each entry. */
static void check_segment(struct segstore *s, struct shms_segment *g, unsigned holder, bool *found)
{
	for (uint32_t i = 0; i < shms_segment_born(g); i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);
		uint64_t bits = shms_segword_load(shms_segslot_word(&slot, holder));
		uint64_t state = shms_segword_load(slot.state), id;
		struct shms_segpacked o;
		struct segentry *e = NULL;

		if (bits & shms_segholder_view(holder))
			segworld_fail(s->board, "store %u: slot %u has a view of its dead process",
				      s->number, i);
		if (!(bits & shms_segholder_name(holder)))
			continue;
		if (!shms_segstate_published(state) || shms_segpacked_read(g, &slot, &o) < 0)
			segworld_fail(s->board, "store %u: a name on slot %u, which has no object",
				      s->number, i);
		memcpy(&id, o.key, sizeof(id));
		check_content(s, g, &o, id, "found again");
		for (size_t k = 0; k < SEGWORLD_JOURNAL; k++) {
			if (s->journal[k].id != id || state_of(&s->journal[k]) == SEGENTRY_NONE ||
			    state_of(&s->journal[k]) == SEGENTRY_VIEWED)
				continue;
			found[k] = true;
			e = &s->journal[k];
			e->slot = i;
			e->generation = shms_segstate_generation(state);
			memcpy(e->segment, g->uuid, 16);
		}
		if (!e)
			segworld_fail(s->board,
				      "store %u: has object %lu, which it never took or gave away",
				      s->number, id);
	}
}

/* The journal as its dead process left it, made true again. */
static void check_journal(struct segstore *s)
{
	bool found[SEGWORLD_JOURNAL] = {0};

	if (s->has_own)
		check_segment(s, &s->own.file.segment, SHMS_SEG_OWNER, found);
	for (size_t i = 0; i < SEGWORLD_JOINED; i++) {
		if (s->is_joined[i])
			check_segment(s, &s->joined[i].segment, s->joined[i].holder, found);
	}
	for (size_t i = 0; i < SEGWORLD_JOURNAL; i++) {
		struct segentry *e = &s->journal[i];

		if (state_of(e) == SEGENTRY_HAVE && !found[i])
			segworld_fail(s->board, "store %u: object %lu is lost", s->number, e->id);
		/* Two entries may mean one name: being adopted again, and had. */
		if (found[i] && entry_of(s, e->id, SEGENTRY_HAVE) && state_of(e) != SEGENTRY_HAVE)
			found[i] = false;
		set(e, found[i] ? SEGENTRY_HAVE : SEGENTRY_NONE);
	}
}

void segstore_open(struct segstore *s, struct segboard *b, int root_fd, uint32_t number, bool kept,
		   uint64_t seed)
{
	struct shms_segment_shape shape;
	char name[32];
	int r;

	*s = (struct segstore){
		.board = b, .journal = b->journal[number], .number = number, .kept = kept};
	s->dice.state = seed;
	s->root_fd = root_fd;
	segworld_uuid(number, s->uuid);
	segworld_path(number, name);
	s->dir_fd = shms_open_dir(root_fd, name);
	ENSURE(s->dir_fd >= 0);
	if (kept) {
		open_links(s);
		check_journal(s);
	}
	if (s->has_own)
		return;
	ENSURE(shms_segment_shape(SLOTS, 32, SIZE, &shape) == 0);
	r = shms_segown_create(s->dir_fd, &shape, s->uuid, kept, false, &s->own);
	if (r < 0)
		segworld_fail(b, "store %u: create: %s", number, strerror(-r));
	s->has_own = true;
}

void segstore_end(struct segstore *s)
{
	for (size_t i = 0; i < SEGWORLD_JOINED; i++) {
		if (s->is_joined[i])
			shms_segfile_leave(&s->joined[i], s->dir_fd, now(s));
	}
	if (s->has_own) {
		shms_segfile_leave(&s->own.file, s->dir_fd, now(s));
		shms_segown_deinit(&s->own);
	}
	segworld_forget(s->board, s->number);
	shms_close_fd(s->dir_fd);
}
