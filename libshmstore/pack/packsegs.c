/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packsegs.c: the table of segments, and what the store has in a slot.
 *
 * The shared words have one bit for the store's name, and one for all of its views. The view bit is
 * set when the name goes while views live, and cleared when the last view ends. A view that a
 * forked child inherited counts as live as long as any child may use it.
 */
#include "packsegs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "page.h"
#include "segfile.h"
#include "segslot.h"
#include "sys.h"

#define LEASED_AGAIN_MS 1000u
/* a cycle of put, adopt and delete takes less than the call that asks for the owner */
#define OWNER_AGAIN_MS  100u

/* As who has a ticket finds it. It may be another store's by now: index and
 * segments say whose they are. */
int shms_packsegs_dir(const struct shms_pack *p, const char *part)
{
	char path[SHMS_PACK_TICKET];

	if ((size_t)snprintf(path, sizeof(path), "%s%s", p->path, part) >= sizeof(path))
		return -ENAMETOOLONG;
	return shms_openat_beneath(p->options.root_fd, path, O_RDONLY | O_DIRECTORY);
}

int shms_packseg_open(const struct shms_pack *p, const struct shms_packseg *g)
{
	_fd_ int dir_fd = p->reader ? shms_packsegs_dir(p, "/" SHMS_DIR_SEGMENTS) : -1;

	return p->reader && dir_fd < 0 ? -1
				       : shms_open_file(p->reader ? dir_fd : p->options.dir_fd,
							g->file->name, O_RDWR);
}

bool shms_packseg_named(const struct shms_packseg *g, uint32_t slot)
{
	struct shms_segslot s = shms_packseg_slot(g, slot);

	return shms_segslot_named(&s, g->file->holder);
}

static bool is_orphan(const struct shms_packseg *g)
{
	struct shms_segrecord *owner = shms_segment_record(&g->file->segment, SHMS_SEG_OWNER);

	return shms_segword_is(&owner->state, UINT64_MAX, SHMS_SEGRECORD_ORPHAN);
}

/*
 * Has nobody the owner's byte? A pid that is there is taken for the owner, since asking for the
 * byte costs an open: if it is another process, gc makes the segment an orphan. A pid that is not
 * there may be one of another namespace.
 */
static SHMS_ASIDE bool is_ownerless(const struct shms_pack *p, struct shms_packseg *g,
				    uint64_t now_ms)
{
	struct shms_segrecord *owner = shms_segment_record(&g->file->segment, SHMS_SEG_OWNER);
	pid_t pid = (pid_t)owner->pid;
	bool free;

	g->asked_ms = now_ms;
	if (pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH))
		return false;
	_fd_ int fd = shms_packseg_open(p, g);
	free = fd >= 0 && shms_seglock_try(fd, SHMS_SEG_OWNER) == 0;
	if (free)
		shms_seglock_end(fd, SHMS_SEG_OWNER);
	return free;
}

void shms_packsegs_free(struct shms_packseg *g)
{
	if (g->own)
		shms_segown_deinit(g->own);
	else
		free(g->file);
	free(g->own);
	free(g->used);
	*g = (struct shms_packseg){0};
}

/* n_held follows shared words. If another process wrote into those it may be 0 too early, and
 * what is left would be used. */
bool shms_packseg_is_meant(const struct shms_pack *p, const struct shms_packseg *g)
{
	uint32_t number = shms_packseg_number(p, g);
	struct shms_packplace place;

	for (uint32_t at = 0; shms_packindex_next(&p->index, &at, &place);)
		if (place.segment == number)
			return true;
	return g->n_viewed;
}

/* Nothing of ours should be there. Asking takes a look at all keys, and
 * for leases one at all slots. */
static void leave(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	if (now_ms < g->again_ms)
		return;
	if (shms_packseg_is_meant(p, g) || shms_segment_promised(&g->file->segment, now_ms)) {
		g->again_ms = now_ms + LEASED_AGAIN_MS;
		return;
	}
	p->grow.gave += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
	shms_packsegs_free(g);
}

void shms_packseg_tidy_idle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	if (p->reader) {
		/* A reader may come back to it as long as it reads. */
		if (atomic_load_explicit(&p->ended, memory_order_relaxed)) {
			shms_segfile_leave(g->file, -1, 0);
			shms_packsegs_free(g);
		}
		return;
	}
	now_ms = now_ms ? now_ms : shms_now_boot_ms();
	if (is_orphan(g) || (now_ms - g->asked_ms >= OWNER_AGAIN_MS && is_ownerless(p, g, now_ms)))
		leave(p, g, now_ms);
}

int shms_packsegs_new(struct shms_pack *p, bool own, uint64_t now_ms, struct shms_packseg **ret)
{
	struct shms_packseg *g = p->segments;

	/* Leaves segments of dead owners in which this store has nothing. */
	SHMS_PACKSEGS_EACH(p, at) {
		if (p->opening)
			break;
		shms_packseg_settle(p, at, now_ms);
		shms_packseg_tidy(p, at, now_ms);
	}
	while (g < p->segments + SHMS_PACKINDEX_SEGMENTS && g->file)
		g++;
	if (g == p->segments + SHMS_PACKINDEX_SEGMENTS)
		return -EAGAIN;
	g->own = own ? malloc(sizeof(*g->own)) : NULL;
	g->file = own ? (g->own ? &g->own->file : NULL) : malloc(sizeof(*g->file));
	if (!g->file)
		return -ENOMEM;
	if (own)
		*g->own = (struct shms_segown){.fd = -1};
	*ret = g;
	return 0;
}

static void give_back(struct shms_pack *p, const struct shms_packseg *g, uint64_t now_ms)
{
	if (p->opening)
		shms_segfile_close(g->file);
	else if (p->reader)
		shms_segfile_leave(g->file, -1, now_ms);
	else
		p->grow.gave += shms_segfile_unjoin(g->file, p->options.dir_fd, now_ms);
}

int shms_packsegs_add(struct shms_pack *p, struct shms_packseg *g, int r, uint64_t now_ms)
{
	uint32_t n_slots = r < 0 ? 0 : g->file->segment.shape.n_slots;

	if (r == 0) {
		g->used = g->own ? calloc(n_slots / 8 + 1, 1) : NULL;
		r = n_slots > SHMS_PACKINDEX_SLOTS ? -EAGAIN : g->own && !g->used ? -ENOMEM : 0;
		if (r < 0)
			give_back(p, g, now_ms);
	}
	if (r < 0) {
		shms_packsegs_free(g);
		return r;
	}
	if (g->own)
		g->own->grow = &p->grow;
	if (shms_packseg_number(p, g) == p->n_segments)
		p->n_segments++;
	if (!p->reader)
		shms_packlines_segment(&p->lines, shms_packseg_number(p, g), g->file->segment.uuid);
	return 0;
}

bool shms_packsegs_find(struct shms_pack *p, const uint8_t uuid[16], uint32_t *ret_number)
{
	SHMS_PACKSEGS_EACH(p, g) {
		if (memcmp(g->file->segment.uuid, uuid, 16) == 0) {
			*ret_number = shms_packseg_number(p, g);
			return true;
		}
	}
	return false;
}

/* The store's word of the slot has no bit left. now_ms: 0: not known yet. */
static void left(struct shms_packseg *g, uint32_t slot, uint64_t now_ms)
{
	if (g->own)
		shms_segown_take_back(g->own, slot, now_ms ? now_ms : shms_now_boot_ms());
	else
		shms_segment_hint(&g->file->segment, slot);
}

void shms_packseg_came(struct shms_pack *p, struct shms_packplace place)
{
	if (!shms_packviews_find(&p->views, place))
		p->segments[place.segment].n_held++;
	shms_packseg_unuse(&p->segments[place.segment], place.slot);
}

void shms_packseg_drop(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s = shms_packseg_slot(g, place.slot);
	uint32_t *views = shms_packviews_find(&p->views, place);
	enum shms_segviews which = !views                        ? SHMS_SEGVIEWS_NONE
				   : (*views & SHMS_PACK_MARKED) ? SHMS_SEGVIEWS_MARKED
								 : SHMS_SEGVIEWS_LIVE;

	if (shms_segslot_drop(&s, g->file->holder, which))
		left(g, place.slot, now_ms);
	if (views)
		*views |= SHMS_PACK_MARKED;
	else
		g->n_held--;
}

void shms_packseg_view(struct shms_pack *p, struct shms_packplace place)
{
	uint32_t *views = shms_packviews_at(&p->views, place);

	p->segments[place.segment].n_viewed += *views == 0;
	++*views;
}

/* The slot's views are so many now. Returns whether that is none. */
static bool set_views(struct shms_pack *p, struct shms_packplace place, uint32_t views,
		      uint64_t now_ms)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s;

	if (views & (SHMS_PACK_COUNT | SHMS_PACK_INHERITED)) {
		*shms_packviews_find(&p->views, place) = views;
		return false;
	}
	s = shms_packseg_slot(g, place.slot); /* not before: a child has no books */
	shms_packviews_drop(&p->views, place);
	g->n_viewed--;
	if (!shms_packseg_named(g, place.slot))
		g->n_held--;
	if ((views & SHMS_PACK_MARKED) && shms_segslot_unview(&s, g->file->holder))
		left(g, place.slot, now_ms);
	return true;
}

void shms_packseg_unview(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	set_views(p, place, *shms_packviews_find(&p->views, place) - 1, now_ms);
}

/* Where views live, a bit of ours stands; and a ticket that stands is of what they show. */
int shms_packseg_hold(struct shms_pack *p, struct shms_packplace place,
		      const struct shms_segticket *t)
{
	struct shms_packseg *g = &p->segments[place.segment];
	int r = shms_packviews_find(&p->views, place)
			? shms_segment_stands(&g->file->segment, t)
			: shms_segment_hold(&g->file->segment, g->file->holder, t);

	g->n_held += r == 0;
	return r;
}

void shms_packseg_unhold(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s = shms_packseg_slot(g, place.slot);

	g->n_held--;
	if (!shms_packviews_find(&p->views, place) && shms_segslot_unview(&s, g->file->holder))
		left(g, place.slot, now_ms);
}

void shms_packseg_settle(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	struct shms_packplace place;

	if (!g->inherited || g->unsure || !shms_packseg_childless(p, g))
		return;
	g->inherited = false;
	for (uint32_t at = 0; shms_packviews_next(&p->views, &at, &place);) {
		uint32_t views = *shms_packviews_find(&p->views, place);

		if (&p->segments[place.segment] == g && (views & SHMS_PACK_INHERITED))
			at -= set_views(p, place, views & ~SHMS_PACK_INHERITED, now_ms);
	}
}

bool shms_pack_is_there(struct shms_pack *p)
{
	const struct shms_packseg *g;
	struct stat st;
	bool is;

	SHMS_LIGHT_HELD(&p->lock);
	p->looked = p->looked + 1 < p->n_segments ? p->looked + 1 : 0;
	g = &p->segments[p->looked];
	is = !g->own || fstat(g->own->fd, &st) < 0 || st.st_nlink > 0;
	/* It stays the one that is looked at. */
	if (!is)
		p->looked--;
	return is;
}

void shms_pack_touch(struct shms_pack *p)
{
	SHMS_LIGHT_HELD(&p->lock);
	SHMS_PACKSEGS_EACH(p, g) {
		if (g->own)
			(void)futimens(g->own->fd, NULL);
	}
}
