/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recycle.c: keeps the pages of deleted objects for the next put.
 *
 * The rule that everything here serves: a file is written again only if nobody else may still see
 * it. Three things together say so, in this order, each time:
 *   1. its name was moved out of objects/ first, under store.names: no look-up that
 *      started earlier is still under way;
 *   2. F_SETLEASE(F_WRLCK) on our descriptor succeeds: the kernel counts no other open file of
 *      the inode, and a mapping holds the open file it was made from, in whatever process and
 *      however the mapping was inherited;
 *   3. while that lease is held, st_nlink is 1: no other name, so nobody can open it from now on
 *      but by its name in our private recycle/. Looked at after the lease it would not do: another
 *      process could open it by its name in between, map it, and remove that name.
 * The lease is returned at once. Its signal is set to SIGURG, which is ignored by default: an
 * opener that comes within that microsecond must not kill us with SIGIO.
 * The rule cannot see page references without an open file (vmsplice or sendfile in flight,
 * O_DIRECT, RDMA from a view). A program that uses them on a view must hold it until they are done.
 *
 * Killed anywhere: the file stands in recycle/ of a dead store, or has its name in objects/ and is
 * complete. Rejected: keeping the lease while writing (an opener would hang, and we get signals),
 * truncating to the new size (frees the pages that the whole thing is about; a larger header region
 * takes up the slack instead), the smallest file that fits (of many sizes each put then meets
 * another file, which no cache holds: 1 MiB +- 20 % took 60 us instead of 40).
 */
#include "recycle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "filemode.h"
#include "format.h"
#include "handle.h"
#include "sys.h"

/* files that one put asks for: a file that others still have costs a look each time */
#define TRIES 4

void shms_recycle_init(struct shms_recycle *r)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++)
		r->slots[i].fd = -1;
}

void shms_recycle_deinit(struct shms_recycle *r, int dir_fd)
{
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &r->slots[i];

		/* A writer may be left that took one: it can only be aborted. */
		if ((slot->state == SHMS_SLOT_POOLED || slot->state == SHMS_SLOT_TAKEN) &&
		    dir_fd >= 0)
			unlinkat(dir_fd, slot->pool_name, 0);
		shms_slot_free(r, slot);
	}
	pthread_mutex_destroy(&r->lock);
}

void shms_recycle_forked(struct shms_recycle *r)
{
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		r->slots[i].map = NULL;
		r->slots[i].fd = shms_close_fd(r->slots[i].fd);
		r->slots[i].state = SHMS_SLOT_FREE;
	}
}

/* May the file be written again? See the top. */
static bool exclusive(const struct shmstore *s, struct shms_slot *slot)
{
	struct stat st;
	bool alone;

	/* A look first where others had it: the lease would only get in the way of their open(). */
	if (slot->shared && (fstat(slot->fd, &st) < 0 || st.st_nlink != 1))
		return false;
	slot->shared = true;
	if (!shms_lease(slot->fd))
		return false;
	/* Under the lease: nobody has it open, and nobody can open it. With ours as its only
	 * name nobody ever will. After it, somebody with another name could map it and remove
	 * that name before we look. */
	alone = fstat(slot->fd, &st) == 0 && st.st_nlink == 1;
	if (!shms_lease_end(slot->fd) || !alone)
		return false;
	/* A file handed to another user keeps its access list; another store's pin is undone. */
	if (shms_file_handed(s, &st) ||
	    ((st.st_mode & S_ISVTX) && fchmod(slot->fd, s->file_mode) < 0))
		return false;
	/* Ours alone. A file that somebody made a hole in would take memory while it is
	 * written, which may not be there. */
	slot->shared = false;
	return shms_blocks(&st) >= slot->capacity;
}

/* Is a the better file to try? */
static bool better(const struct shms_slot *a, const struct shms_slot *b)
{
	if (a->shared != b->shared)
		return b->shared;
	return a->shared ? a->stamp_ns < b->stamp_ns : a->stamp_ns > b->stamp_ns;
}

/* Bytes that a file may be too large by. Where its slack is none to be given back, little. */
static uint64_t slack_max(const struct shmstore *s, uint64_t need)
{
	const struct shms_recycle *r = &shms_handle(s)->recycle;

	if (need < 2 * shms_slack_unit(s, need))
		return need / 8;
	return r->slack + need / 2 <= r->max / 4 ? need / 2 : need / 4;
}

/* Of those that fit: the last one used; where others had it when we looked,
 * the one that waited longest. */
static struct shms_slot *best_fit(struct shmstore *s, uint64_t need,
				  const bool tried[SHMS_RECYCLE_SLOTS])
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t over = slack_max(s, need);
	uint64_t most = need + (over > shms_host_page() ? over : shms_host_page());
	struct shms_slot *best = NULL;

	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &r->slots[i];

		if (slot->state == SHMS_SLOT_POOLED && !tried[i] && slot->capacity >= need &&
		    slot->capacity <= most && (!best || better(slot, best)))
			best = slot;
	}
	return best;
}

/* Frees pooled files that waited too long, and the slack of objects that lived that long. */
static void expire(struct shmstore *s)
{
	uint64_t now = shms_now_mono_ns();

	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &shms_handle(s)->recycle.slots[i];

		if (now - slot->stamp_ns <= SHMS_RECYCLE_AGE_NS)
			continue;
		if (slot->state == SHMS_SLOT_POOLED)
			shms_slot_drop(s, slot);
		else if (slot->state == SHMS_SLOT_PUBLISHED && slot->slack_size)
			shms_slot_unpublish(s, slot);
	}
}

static struct shms_slot *take(struct shmstore *s, uint64_t need)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	bool tried[SHMS_RECYCLE_SLOTS] = {false};
	struct shms_slot *slot = NULL;

	if (!r->max)
		return NULL;
	pthread_mutex_lock(&r->lock);
	if (r->pooled || r->slack)
		expire(s);
	if (r->pooled) {
		for (size_t n = 0; n < TRIES && !slot; n++) {
			slot = best_fit(s, need, tried);
			if (!slot)
				break;
			if (slot->fd < 0 && !shms_slot_warm(s, slot)) {
				slot = NULL;
			} else if (!exclusive(s, slot)) {
				tried[slot - r->slots] = true;
				slot = NULL;
			}
		}
		if (slot)
			shms_slot_unpool(s, slot, SHMS_SLOT_TAKEN);
	}
	pthread_mutex_unlock(&r->lock);
	/* It is ours alone: nobody waits for a lock meanwhile. */
	if (slot && !shms_slotmap_ready(s, slot)) {
		shms_recycle_untake(s, slot);
		slot = NULL;
	}
	return slot;
}

struct shms_slot *shms_recycle_take_for(struct shmstore *s, unsigned flags, const uint64_t *sizes,
					struct shms_layout *io_layout)
{
	struct shms_layout *l = io_layout;
	struct shms_slot *slot;

	slot = flags & SHMSTORE_PIN ? NULL : take(s, l->header_size + l->buffer_size);
	if (slot && !shms_layout_init(l, l->key_size, l->metadata_size, sizes, l->n_buffers,
				      slot->capacity)) {
		shms_recycle_untake(s, slot);
		slot = NULL;
	}
	return slot;
}

void shms_recycle_published(struct shmstore *s, struct shms_slot *slot, const char *name,
			    const struct shms_layout *l)
{
	uint64_t begin = shms_whole_pages(l->metadata_off + l->metadata_size);
	uint64_t end = l->header_size & ~(shms_host_page() - 1);

	SHMS_HELD(&shms_handle(s)->recycle.lock);
	shms_handle(s)->recycle.taken -= slot->bytes;
	strcpy(slot->name, name);
	shms_slot_state(slot, SHMS_SLOT_PUBLISHED);
	if (begin < end) {
		slot->slack_off = begin;
		slot->slack_size = end - begin;
		shms_handle(s)->recycle.slack += end - begin;
	}
	if (shms_handle(s)->recycle.let_go)
		shms_slot_unpublish(s, slot);
}

/* The taken slot's file was cut: what it takes is looked at again. */
static void look_again(struct shmstore *s, struct shms_slot *slot)
{
	struct stat st;

	if (fstat(slot->fd, &st) < 0)
		return;
	SHMS_HELD(&shms_handle(s)->recycle.lock);
	shms_handle(s)->recycle.taken += shms_blocks(&st) - slot->bytes;
	slot->bytes = shms_blocks(&st);
}

int shms_recycle_fit(struct shmstore *s, struct shms_slot *slot, uint64_t size)
{
	int r;

	if (slot->size == size)
		return 0;
	/* Within the last page the file owns: takes and gives no memory. */
	r = shms_truncate(slot->fd, size);
	if (r < 0) {
		shms_recycle_untake(s, slot);
		return r;
	}
	slot->size = size;
	/* But for a huge page, which the kernel splits there. */
	if (shms_huge(s, slot->capacity))
		look_again(s, slot);
	return 0;
}

void shms_recycle_untake(struct shmstore *s, struct shms_slot *slot)
{
	SHMS_HELD(&shms_handle(s)->recycle.lock);
	shms_handle(s)->recycle.taken -= slot->bytes;
	shms_slot_pool(s, slot, false); /* it was ours alone when it was taken */
}

void shms_recycle_discard(struct shmstore *s, struct shms_slot *slot)
{
	SHMS_HELD(&shms_handle(s)->recycle.lock);
	shms_handle(s)->recycle.taken -= slot->bytes;
	shms_slot_free(&shms_handle(s)->recycle, slot);
}

void shms_recycle_offer(struct shmstore *s, int *fd, uint64_t size, uint64_t bytes,
			const char *name)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t capacity = shms_whole_pages(size);
	struct shms_slot *slot;

	if (!r->max || bytes > r->max)
		return;
	SHMS_HELD(&r->lock);
	slot = r->let_go ? NULL : shms_slot_claim(s);
	if (slot) {
		slot->fd = shms_take_fd(fd);
		slot->capacity = capacity;
		slot->bytes = bytes;
		slot->size = size;
		strcpy(slot->name, name);
		shms_slot_state(slot, SHMS_SLOT_PUBLISHED);
	}
}

static struct shms_slot *find_published(struct shms_recycle *r, const char *name)
{
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		if (r->slots[i].state == SHMS_SLOT_PUBLISHED && strcmp(r->slots[i].name, name) == 0)
			return &r->slots[i];
	}
	return NULL;
}

/* Less than an eighth of the partition's bytes or inodes is free: others have more use
 * for it than our next put. They cannot take it out of our pool, so what is deleted
 * now must be free at once. */
static bool scarce(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t now = shms_now_mono_ns(), size, n;
	struct shms_space space;

	/* Our own threads that wait, or a daemon that asks. */
	if (shms_credit_pressed(s) || shms_memory_wanted(s))
		return true;
	if (now - r->looked_ns < SHMS_RECYCLE_LOOK)
		return r->scarce;
	r->looked_ns = now;
	if (shms_space(s->p->fd, &space) < 0)
		return r->scarce;
	r->warm_max = r->max;
	size = shms_credit_tightest(s);
	if (space.size && space.size < size)
		size = space.size;
	n = size < UINT64_MAX ? shms_partition_n_stores(s->p) : 0;
	if (n)
		r->warm_max = size / 16 / n;
	r->scarce = space.available < space.size / 8 || space.inodes_free < space.inodes / 8;
	return r->scarce;
}

/* Makes room for bytes more in the pool. */
static bool make_room(struct shmstore *s, uint64_t bytes)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct shms_slot *slot;

	if (bytes > r->max)
		return false;
	if (scarce(s)) {
		while (r->pooled && (slot = shms_slot_oldest(r, SHMS_SLOT_POOLED, false)) != NULL)
			shms_slot_drop(s, slot);
		return false;
	}
	while (r->pooled + bytes > r->max &&
	       (slot = shms_slot_oldest(r, SHMS_SLOT_POOLED, false)) != NULL)
		shms_slot_drop(s, slot);
	return r->pooled + bytes <= r->max;
}

/* An object without a slot: its file is worth it if it is large and nobody else links it. */
static int reopen(struct shmstore *s, const char *name, uint64_t *ret_bytes, struct shms_slot **ret)
{
	struct shms_slot *slot;
	struct stat st;
	uint64_t capacity;

	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	capacity = shms_whole_pages((uint64_t)st.st_size);
	*ret_bytes = shms_blocks(&st);
	/* Only a regular file of our own, not pinned, which no other user was ever given: who may
	 * read it keeps that right as long as the file lives, whatever is in it. */
	if (!S_ISREG(st.st_mode) || shms_file_handed(s, &st) || (st.st_mode & S_ISVTX) ||
	    st.st_nlink != 1 || capacity < SHMS_RECYCLE_REOPEN || shms_blocks(&st) < capacity ||
	    !make_room(s, *ret_bytes))
		return 0;
	slot = shms_slot_claim(s);
	if (!slot)
		return 0;
	/* The object is on its way out of objects/ under an exclusive lock. */
	slot->fd = shms_slot_open(s, s->objects_fd, name);
	if (slot->fd < 0) {
		slot->fd = -1;
		return 0;
	}
	slot->capacity = capacity;
	slot->bytes = *ret_bytes;
	slot->size = (uint64_t)st.st_size;
	*ret = slot;
	return 1;
}

int shms_recycle_delete(struct shmstore *s, const char *name, enum shms_links_of links,
			uint64_t *io_bytes)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t size = *io_bytes;
	struct shms_slot *slot;
	int result = 0;

	*io_bytes = UINT64_MAX;
	if (!r->max)
		return 0;
	SHMS_HELD(&r->lock);
	slot = find_published(r, name);
	if (slot) {
		*io_bytes = slot->bytes;
		if (links == SHMS_LINKS_OTHERS || !make_room(s, slot->bytes)) {
			shms_slot_free(r, slot);
			slot = NULL;
		}
	} else if (links != SHMS_LINKS_OTHERS && size >= SHMS_RECYCLE_REOPEN) {
		result = reopen(s, name, io_bytes, &slot);
	}
	if (slot) {
		shms_recycle_name(s, slot->pool_name);
		result = shms_rename_noreplace(s->objects_fd, name, s->dir_fd, slot->pool_name);
		if (result == 0) {
			shms_slot_pool(s, slot, links == SHMS_LINKS_KNOWN);
			result = 1;
		} else {
			shms_slot_free(r, slot);
			/* Anything but a missing object is our pool's trouble:
			 * it can be unlinked still. */
			result = result == -ENOENT ? result : 0;
		}
	}
	return result;
}

uint64_t shms_recycle_replaced(struct shmstore *s, const char *name, const char *pool_name,
			       enum shms_links_of links)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t bytes = 0, freed = 0;
	struct shms_slot *slot;
	struct stat st;

	SHMS_HELD(&r->lock);
	slot = find_published(r, name);
	if (slot)
		bytes = slot->bytes;
	else if (fstatat(s->dir_fd, pool_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		bytes = shms_blocks(&st);
	if (slot && links != SHMS_LINKS_OTHERS && make_room(s, slot->bytes)) {
		snprintf(slot->pool_name, sizeof(slot->pool_name), "%s", pool_name);
		shms_slot_pool(s, slot, links == SHMS_LINKS_KNOWN);
	} else {
		freed = shms_credit_freed_by(s, s->dir_fd, pool_name);
		if (slot)
			shms_slot_free(r, slot);
		if (unlinkat(s->dir_fd, pool_name, 0) == 0)
			shms_credit_gave(s, freed);
	}
	return bytes;
}

void shms_recycle_adopted(struct shmstore *s, uint64_t inode)
{
	bool any = atomic_load_explicit(&s->page->moved.exposed, memory_order_relaxed);
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct stat st;

	SHMS_HELD(&r->lock);
	for (size_t i = 0; r->pooled && i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &r->slots[i];

		if (slot->state != SHMS_SLOT_POOLED || !(slot->handed || any))
			continue;
		if (!slot->inode &&
		    fstatat(s->dir_fd, slot->pool_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			slot->inode = st.st_ino;
		if (slot->inode == inode)
			shms_slot_drop(s, slot);
	}
}

void shms_recycle_let_go(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;

	SHMS_HELD(&r->lock);
	r->let_go = true;
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		if (r->slots[i].state == SHMS_SLOT_PUBLISHED)
			shms_slot_unpublish(s, &r->slots[i]);
	}
}

void shms_recycle_give_away(struct shmstore *s, uint64_t inode)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct stat st;

	SHMS_HELD(&r->lock);
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &r->slots[i];

		if (slot->state == SHMS_SLOT_PUBLISHED && fstat(slot->fd, &st) == 0 &&
		    st.st_ino == inode)
			shms_slot_unpublish(s, slot);
	}
}

void shms_recycle_forget(struct shmstore *s, const char *name)
{
	struct shms_slot *slot;

	SHMS_HELD(&shms_handle(s)->recycle.lock);
	slot = find_published(&shms_handle(s)->recycle, name);
	if (slot)
		shms_slot_free(&shms_handle(s)->recycle, slot);
}
