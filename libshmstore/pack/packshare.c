/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packshare.c: tickets of packed objects. A ticket's path is the donor's link of the segment,
 * beneath the partition, and a last part of 32 digits: slot, generation, lease, end. A store that
 * has the segment needs no system call to take the object.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "hexdigits.h"
#include "pack.h"
#include "packsegs.h"
#include "seglook.h"
#include "segown.h"
#include "sys.h"

#define DIGITS 32u

static const char PART[] = "/segments/";
#define TAIL (sizeof(PART) - 1 + DIGITS)

/* [directory]/segments/[uuid]/[digits]. */
int shms_packticket_parse(const char *path, size_t length, struct shms_packticket *ret)
{
	size_t link = length - DIGITS - 1;

	if (length <= TAIL + 1 + DIGITS || length >= SHMS_PACK_TICKET || path[0] == '/' ||
	    path[link] != '/')
		return -EBADMSG;
	if (memcmp(path + link - TAIL, PART, sizeof(PART) - 1) != 0 ||
	    !shms_hexdigits_read_bytes(path + link - DIGITS, ret->uuid, sizeof(ret->uuid)))
		return -EBADMSG;
	ret->path = path;
	ret->link_length = link;
	return shms_segticket_parse(path + link + 1, DIGITS, &ret->what);
}

/* The link by itself, and its last part in that, which is the file's name. */
static const char *link_of(const struct shms_packticket *t, char ret_link[SHMS_PACK_TICKET])
{
	memcpy(ret_link, t->path, t->link_length);
	ret_link[t->link_length] = '\0';
	return ret_link + t->link_length - DIGITS;
}

size_t shms_packticket_store(const struct shms_packticket *t)
{
	return t->link_length - TAIL;
}

bool shms_pack_promised(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms)
{
	struct shms_packplace place;
	struct shms_segslot slot;
	bool promised = false;

	SHMS_LIGHT_HELD(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place)) {
		slot = shms_packseg_slot(&p->segments[place.segment], place.slot);
		promised = shms_segstate_promised(shms_segword_load(slot.state),
						  shms_segnow_of_ms(now_ms));
	}
	return promised;
}

bool shms_pack_is_ticket_of(struct shms_pack *p, const void *key, size_t key_size,
			    const struct shms_packticket *t)
{
	struct shms_packplace place;

	SHMS_LIGHT_HELD(&p->lock);
	return shms_pack_find_object(p, key, key_size, &place) && place.slot == t->what.slot &&
	       memcmp(p->segments[place.segment].file->segment.uuid, t->uuid, sizeof(t->uuid)) == 0;
}

int shms_pack_handoff(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms,
		      uint64_t lease_ms, char *ret_path, size_t size,
		      struct shms_segpacked *ret_object)
{
	struct shms_segticket t = {.end_ms = now_ms + lease_ms};
	size_t length = strlen(p->path);
	struct shms_packplace place;
	const struct shms_packseg *g;
	struct shms_segslot slot;
	int r = -ENOENT;

	if (length + 1 + DIGITS + 1 + SHMS_SEGTICKET_TEXT > size)
		return -EINVAL;
	SHMS_LIGHT_HELD(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place)) {
		g = &p->segments[place.segment];
		slot = shms_packseg_slot(g, place.slot);
		t.slot = place.slot;
		t.generation = shms_segstate_generation(shms_segword_load(slot.state));
		r = shms_segpacked_read(&g->file->segment, &slot, ret_object);
		if (r == 0)
			r = shms_segslot_handoff(&slot, t.generation, p->turn++, now_ms, t.end_ms,
						 &t.lease);
	}
	if (r == 0) {
		memcpy(ret_path, p->path, length);
		ret_path[length++] = '/';
		memcpy(ret_path + length, g->file->name, DIGITS);
		length += DIGITS;
		ret_path[length++] = '/';
		shms_segticket_format(&t, ret_path + length);
	}
	return r;
}

/* The arguments of shms_pack_adopt(). */
struct adoption {
	const struct shms_pack_sizes *expect;
	struct shms_packhashed key;
	bool replace;
	uint64_t now_ms;
};

static SHMS_ASIDE int join(struct shms_pack *p, const struct shms_packticket *t, uint64_t now_ms,
			   uint32_t *ret_number)
{
	char link[SHMS_PACK_TICKET];
	struct shms_packseg *g;
	int r = shms_packsegs_new(p, false, now_ms, &g);

	if (r == 0) {
		link_of(t, link);
		r = shms_segfile_join(p->options.root_fd, link, t->uuid, p->options.dir_fd,
				      p->options.uuid, p->options.kept, g->file);
		*ret_number = shms_packseg_number(p, g);
		r = shms_packsegs_add(p, g, r, now_ms);
		if (r != -ENOMEM)
			return r;
	}
	/* There is no number or no map to be had, which a copy does without. */
	p->unjoined_ms = now_ms + SHMS_PACK_AGAIN_MS;
	return -EAGAIN;
}

/* ret_joined: the store had no place in the segment before. */
static int segment_of(struct shms_pack *p, const struct shms_packticket *t, uint64_t now_ms,
		      uint32_t *ret_number, bool *ret_joined)
{
	int r;

	*ret_joined = false;
	if (shms_packsegs_find(p, t->uuid, ret_number))
		return 0;
	/* A try maps and unmaps the segment, and links it: a copy takes less. */
	if (now_ms < p->unjoined_ms)
		return -EAGAIN;
	r = join(p, t, now_ms, ret_number);
	*ret_joined = r == 0;
	return r;
}

/* Is the ticket's object, which is held, what is expected? 0; -ENOTSUP; -EBADMSG. */
static int check_object(const struct shms_packseg *g, uint32_t index, const struct adoption *a)
{
	const struct shms_pack_sizes *expect = a->expect;
	struct shms_segslot slot = shms_packseg_slot(g, index);
	struct shms_segpacked o;
	int r = shms_segpacked_read(&g->file->segment, &slot, &o);

	if (r < 0)
		return r;
	if (expect &&
	    (o.buffer_size != expect->buffer || shms_pack_header_size(&o) != expect->header))
		return -ENOTSUP;
	if (expect && expect->verify &&
	    !shms_pack_verify(&o, g->file->segment.bytes + o.extent_off))
		return -EBADMSG;
	return o.key_size == a->key.size && memcmp(shms_segpacked_key(&g->file->segment, &o),
						   a->key.key, a->key.size) == 0
		       ? 0
		       : -ENOTSUP;
}

/* Adopts the object of that place, which is held. */
static int adopt_held(struct shms_pack *p, struct shms_packplace place,
		      const struct shms_packticket *t, const struct adoption *a)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_packplace old;
	int r = check_object(g, place.slot, a);
	bool held, same;

	if (r < 0)
		return r;
	held = shms_pack_find(p, &a->key, &old);
	/* Our name there keeps the slot's object as it is. */
	same = held && old.segment == place.segment && old.slot == place.slot;
	if (held && !same && !a->replace)
		return -EEXIST;
	r = same ? 0 : shms_pack_reserve(p);
	if (r == 0)
		r = shms_segment_adopt(&g->file->segment, g->file->holder, p->options.kept,
				       &t->what);
	if (r < 0 || same)
		return r;
	shms_pack_rename(p, &a->key, held ? &old : NULL, place, a->now_ms);
	return 0;
}

/* Adopts, with the lock held and the segment there. */
static int adopt(struct shms_pack *p, uint32_t number, const struct shms_packticket *t,
		 const struct adoption *a)
{
	struct shms_packplace place = {number, t->what.slot};
	int r = shms_packseg_hold(p, place, &t->what);

	if (r < 0)
		return r;
	r = adopt_held(p, place, t, a);
	shms_packseg_unhold(p, place, a->now_ms);
	return r;
}

int shms_pack_adopt(struct shms_pack *p, const struct shms_packticket *t,
		    const struct shms_pack_sizes *expect, const void *key, size_t key_size,
		    bool replace, uint64_t now_ms, uint64_t may)
{
	const struct adoption a = {expect, shms_packhash(key, key_size), replace, now_ms};
	uint32_t number;
	bool joined;
	int r;

	if (t->what.end_ms <= now_ms)
		return -ESTALE;
	SHMS_LIGHT_HELD(&p->lock);
	p->grow.may = may;
	shms_packsegs_tidy_next(p, now_ms);
	shms_pack_changing(p);
	r = segment_of(p, t, now_ms, &number, &joined);
	if (r == 0)
		r = adopt(p, number, t, &a);
	if (r < 0 && joined) {
		p->grow.gave +=
			shms_segfile_unjoin(p->segments[number].file, p->options.dir_fd, now_ms);
		shms_packsegs_free(&p->segments[number]);
	}
	shms_pack_changed(p);
	return r;
}

/* ---- a ticket's object as a copy ------------------------------------------------------------- */

/* Opens the donor's link. A slot is read as shms_packlook() does it. */
static int open_link(int root_fd, const struct shms_packticket *t, bool write,
		     struct shms_seglook *ret)
{
	char link[SHMS_PACK_TICKET];
	const char *name = link_of(t, link);
	int r;

	link[name - link - 1] = '\0';
	_fd_ int fd = shms_open_beneath(root_fd, link, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR ? -ESTALE : fd;
	r = write ? shms_seglook_open(fd, name, true, ret)
		  : shms_seglook_open_slot(fd, name, t->what.slot, ret);
	return r == -ENOENT ? -ESTALE : r;
}

static int read_slot(const struct shms_seglook *l, const struct shms_segticket *t,
		     struct shms_packcopy *ret)
{
	int r = shms_segment_stands(&l->segment, t);
	struct shms_segslot slot;

	if (r < 0)
		return r;
	slot = shms_segslot_at(&l->segment, t->slot);
	r = shms_segpacked_read(&l->segment, &slot, &ret->object);
	if (r == 0 && ret->object.n_buffers > SHMS_SEGOWN_BUFFERS)
		r = -EBADMSG;
	if (r < 0)
		return r;
	ret->extent = malloc(ret->object.used + 1);
	if (!ret->extent)
		return -ENOMEM;
	r = shms_seglook_read(l, ret->object.extent_off, ret->extent, ret->object.used);
	/* Where the lease stands after that, it kept the slot as it was. */
	if (r == 0)
		r = shms_seglook_again(l, t->slot);
	if (r == 0)
		r = shms_segment_stands(&l->segment, t);
	if (r < 0)
		return r;
	ret->object.extent_off = 0;
	return shms_segpacked_sizes(&(struct shms_segment){.bytes = ret->extent}, &ret->object,
				    ret->sizes);
}

int shms_packcopy_read(int root_fd, const struct shms_packticket *t, uint64_t now_ms,
		       struct shms_packcopy *ret)
{
	struct shms_packcopy copy = {.extent = NULL};
	struct shms_seglook l;
	int r = t->what.end_ms <= now_ms ? -ESTALE : open_link(root_fd, t, false, &l);

	if (r < 0)
		return r;
	r = read_slot(&l, &t->what, &copy);
	shms_seglook_close(&l);
	if (r < 0)
		free(copy.extent);
	else
		*ret = copy;
	return r;
}

int shms_packcopy_end(int root_fd, const struct shms_packticket *t)
{
	struct shms_seglook l;
	int r = open_link(root_fd, t, true, &l);

	if (r < 0)
		return r;
	r = shms_segment_take(&l.segment, &t->what);
	/* Nobody else tells the owner. */
	if (r == 0)
		shms_segment_hint(&l.segment, t->what.slot);
	shms_seglook_close(&l);
	return r;
}
