/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c: how a file comes into a slot of the pool, out of it, and goes. recycle.c decides which
 * file is taken, and whether it may be written again.
 */

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "filemode.h"
#include "handle.h"
#include "hugemap.h"
#include "packed.h"
#include "recycle.h"
#include "sys.h"

static void no_slack(struct shms_recycle *r, struct shms_slot *slot)
{
	r->slack -= slot->slack_size;
	slot->slack_size = 0;
}

void shms_slot_free(struct shms_recycle *r, struct shms_slot *slot)
{
	no_slack(r, slot);
	if (slot->map)
		munmap(slot->map, slot->capacity);
	slot->map = NULL;
	slot->fd = shms_close_fd(slot->fd);
	slot->shared = slot->handed = false;
	slot->inode = 0;
	slot->uses = slot->gathered = 0;
	slot->state = SHMS_SLOT_FREE;
}

void shms_recycle_name(struct shmstore *s, char ret_name[SHMS_RECYCLE_NAME])
{
	uint64_t number = atomic_fetch_add_explicit(&shms_handle(s)->recycle.next_number, 1,
						    memory_order_relaxed);
	char digits[] = "00000000000000000000"; /* as many as 64 bits have */
	size_t n = sizeof(digits) - 1;

	/* By hand: this is on the way of every delete. */
	memcpy(ret_name, SHMS_DIR_RECYCLE "/", sizeof(SHMS_DIR_RECYCLE));
	do {
		digits[--n] = (char)('0' + number % 10);
		number /= 10;
	} while (number && n);
	memcpy(ret_name + sizeof(SHMS_DIR_RECYCLE), digits + n, sizeof(digits) - n);
}

void shms_slot_state(struct shms_slot *slot, enum shms_slot_state state)
{
	slot->state = state;
	slot->stamp_ns = shms_now_mono_ns();
}

static void account(struct shmstore *s, struct shms_slot *slot, bool pooled)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct shms_ledger *l = s->ledger;
	uint64_t n = 0, told = r->told;

	r->pooled = pooled ? r->pooled + slot->bytes : r->pooled - slot->bytes;
	if (slot->fd >= 0)
		r->warm = pooled ? r->warm + slot->bytes : r->warm - slot->bytes;
	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++)
		n += r->slots[i].state == SHMS_SLOT_POOLED;
	atomic_store_explicit(&l->pool_n, n + r->missed_n, memory_order_relaxed);
	/* Segments have a part in it (packed.c). */
	r->told = r->pooled + r->missed;
	atomic_fetch_add_explicit(&l->pool_bytes, r->told - told, memory_order_relaxed);
	if (r->pooled > atomic_load_explicit(&l->pool_bytes_max, memory_order_relaxed))
		atomic_store_explicit(&l->pool_bytes_max, r->pooled, memory_order_relaxed);
}

/* The oldest open files of the pool are closed, until few are. Killed in between: a file in
 * recycle/, under one name or the other. */
static void cool_down(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct shms_slot *slot;
	char number[SHMS_RECYCLE_NAME], name[SHMS_RECYCLE_NAME];

	while (r->warm > r->warm_max &&
	       (slot = shms_slot_oldest(r, SHMS_SLOT_POOLED, true)) != NULL) {
		shms_recycle_name(s, number);
		snprintf(name, sizeof(name), SHMS_DIR_RECYCLE "/%c%.21s", SHMS_RECYCLE_COLD,
			 number + sizeof(SHMS_DIR_RECYCLE));
		r->warm -= slot->bytes;
		if (slot->map)
			munmap(slot->map, slot->capacity);
		slot->map = NULL;
		slot->fd = shms_close_fd(slot->fd);
		/* In vain it stays under a name that nobody takes, till we do. */
		if (renameat(s->dir_fd, slot->pool_name, s->dir_fd, name) == 0)
			memcpy(slot->pool_name, name, sizeof(name));
	}
}

/* Another store may have a name of its own for the file, and be handing it to another user just
 * now, or have pinned it. Such a file is left as it is: it does not come back. */
int shms_slot_open(const struct shmstore *s, int dir_fd, const char *name)
{
	struct stat st;
	int r;
	_fd_ int fd = shms_open_object(dir_fd, name);

	if (fd < 0)
		return fd;
	r = shms_file_hold(s, fd, 0, &st);
	if (r == 0 && (shms_file_handed(s, &st) || (st.st_mode & S_ISVTX)))
		r = -EPERM;
	return r < 0 ? r : shms_file_open_writable(dir_fd, name, fd, s->file_mode);
}

void shms_slot_pool(struct shmstore *s, struct shms_slot *slot, bool handed)
{
	no_slack(&shms_handle(s)->recycle, slot);
	slot->shared = false;
	slot->handed = handed;
	shms_slot_state(slot, SHMS_SLOT_POOLED);
	account(s, slot, true);
	if (shms_handle(s)->recycle.warm > shms_handle(s)->recycle.warm_max)
		cool_down(s);
}

void shms_slot_unpool(struct shmstore *s, struct shms_slot *slot, enum shms_slot_state state)
{
	shms_slot_state(slot, state);
	if (state == SHMS_SLOT_TAKEN)
		shms_handle(s)->recycle.taken += slot->bytes;
	account(s, slot, false);
}

/* Somebody took the cold file: it has booked that in our page, which our
 * ledger is to be read with. */
static void missed(struct shmstore *s, struct shms_slot *slot)
{
	shms_handle(s)->recycle.missed_n++;
	shms_handle(s)->recycle.missed += slot->bytes;
	shms_slot_unpool(s, slot, SHMS_SLOT_FREE);
	shms_slot_free(&shms_handle(s)->recycle, slot);
}

void shms_slot_drop(struct shmstore *s, struct shms_slot *slot)
{
	bool cold = slot->fd < 0;
	uint64_t freed = cold ? shms_credit_freed_by(s, s->dir_fd, slot->pool_name)
			      : shms_credit_freed_by(s, slot->fd, "");

	if (unlinkat(s->dir_fd, slot->pool_name, 0) < 0) {
		freed = 0;
		if (cold && errno == ENOENT) {
			missed(s, slot);
			return;
		}
	}
	shms_slot_unpool(s, slot, SHMS_SLOT_FREE);
	/* Its descriptor and mapping hold the memory to the last. */
	shms_slot_free(&shms_handle(s)->recycle, slot);
	shms_credit_gave(s, freed);
}

bool shms_slot_warm(struct shmstore *s, struct shms_slot *slot)
{
	char name[SHMS_RECYCLE_NAME];
	int fd;

	/* From here on it has a name that nobody takes. */
	shms_recycle_name(s, name);
	if (renameat(s->dir_fd, slot->pool_name, s->dir_fd, name) < 0) {
		shms_slot_drop(s, slot);
		return false;
	}
	memcpy(slot->pool_name, name, sizeof(name));
	fd = shms_slot_open(s, s->dir_fd, name);
	if (fd < 0) {
		shms_slot_drop(s, slot);
		return false;
	}
	slot->fd = fd;
	shms_handle(s)->recycle.warm += slot->bytes;
	return true;
}

struct shms_slot *shms_slot_oldest(struct shms_recycle *r, enum shms_slot_state state, bool warm)
{
	struct shms_slot *found = NULL;

	for (size_t i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		struct shms_slot *slot = &r->slots[i];

		if (slot->state == state && (!warm || slot->fd >= 0) &&
		    (!found || slot->stamp_ns < found->stamp_ns))
			found = slot;
	}
	return found;
}

uint64_t shms_slack_unit(const struct shmstore *s, uint64_t capacity)
{
	return shms_huge(s, capacity) || capacity >= 4 * SHMS_HUGE_PAGE ? SHMS_HUGE_PAGE
									: shms_host_page();
}

/*
 * A published object's file gives its slack back: a hole in the header's unused room, which no
 * reader looks at. In huge pages only where the kernel may give the file such: it makes one of
 * small pages when it likes (khugepaged), holes among them, and they are full again, in nobody's
 * books. And of large files: a page that is broken up costs its readers more than what is left of
 * it. Not of an object that was handed off: others may link it, and have booked what it took.
 */
static uint64_t punch_slack(struct shmstore *s, struct shms_slot *slot)
{
	uint64_t unit = shms_slack_unit(s, slot->capacity);
	uint64_t begin = (slot->slack_off + unit - 1) & ~(unit - 1);
	uint64_t end = (slot->slack_off + slot->slack_size) & ~(unit - 1);
	uint64_t given = 0;
	struct stat st;

	if (begin >= end)
		return 0;
	if (shms_links_hold_private(s, slot->name) && fstat(slot->fd, &st) == 0 &&
	    st.st_nlink == 1 &&
	    fallocate(slot->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
		      (off_t)(end - begin)) == 0) {
		/* How much is in pieces of huge pages only the kernel knows. */
		given = fstat(slot->fd, &st) == 0 && shms_blocks(&st) < slot->bytes
				? slot->bytes - shms_blocks(&st)
				: 0;
		slot->bytes -= given;
		shms_recent_punched(&s->recent, slot->name);
		atomic_fetch_sub_explicit(&s->ledger->linked_bytes, given, memory_order_relaxed);
	}
	shms_links_release(s);
	shms_credit_gave(s, given);
	return given;
}

uint64_t shms_slot_unpublish(struct shmstore *s, struct shms_slot *slot)
{
	uint64_t given = slot->slack_size ? punch_slack(s, slot) : 0;

	shms_slot_free(&shms_handle(s)->recycle, slot);
	return given;
}

struct shms_slot *shms_slot_claim(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	struct shms_slot *slot = shms_slot_oldest(r, SHMS_SLOT_FREE, false);

	if (slot)
		return slot;
	slot = shms_slot_oldest(r, SHMS_SLOT_PUBLISHED, false);
	if (slot) {
		shms_slot_unpublish(s, slot);
		return slot;
	}
	slot = shms_slot_oldest(r, SHMS_SLOT_POOLED, false);
	if (slot)
		shms_slot_drop(s, slot);
	return slot;
}

/* ---- the whole pool ------------------------------------------------------------------------ */

uint64_t shms_recycle_hold(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t gone;

	pthread_mutex_lock(&r->lock);
	/* Cold files that others took, and we did not notice yet. */
	gone = atomic_load_explicit(&s->page->moved.pool_bytes, memory_order_relaxed) - r->missed;
	return r->taken + (gone < r->pooled ? r->pooled - gone : 0);
}

void shms_recycle_release(struct shmstore *s)
{
	pthread_mutex_unlock(&shms_handle(s)->recycle.lock);
}

bool shms_recycle_any(struct shmstore *s)
{
	bool any;

	pthread_mutex_lock(&shms_handle(s)->recycle.lock);
	any = shms_handle(s)->recycle.pooled || shms_handle(s)->recycle.slack;
	pthread_mutex_unlock(&shms_handle(s)->recycle.lock);
	return any || shms_draft_any_kept(s) || shms_packedmem_any(s);
}

uint64_t shms_recycle_trim(struct shmstore *s)
{
	struct shms_recycle *r = &shms_handle(s)->recycle;
	uint64_t dropped = shms_draft_trim(s, true) + shms_packedmem_trim(s);
	struct shms_slot *slot;

	SHMS_HELD(&r->lock);
	r->scarce = true;
	r->looked_ns = shms_now_mono_ns();
	while (r->pooled && (slot = shms_slot_oldest(r, SHMS_SLOT_POOLED, false)) != NULL) {
		dropped += slot->bytes;
		shms_slot_drop(s, slot);
	}
	for (size_t i = 0; r->slack && i < SHMS_RECYCLE_SLOTS; i++) {
		if (r->slots[i].slack_size)
			dropped += shms_slot_unpublish(s, &r->slots[i]);
	}
	return dropped;
}

/* ---- a taken slot's mapping ------------------------------------------------------------------ */

/*
 * A recycled file stays mapped from one use to the next.
 *
 * A put copies into that mapping; a producer (writer.c) is lent it, and has the address. When the
 * object is sealed nobody may write to it by that address, and the next use shall not pay for a
 * mapping made anew, which is 1 us for each 4 KiB. So the kernel moves the mapping, with all that
 * is mapped, to a place picked at random. Addresses of objects sealed long ago meet nothing there
 * either, as they would if the next free place were taken: that is the one before the last.
 * Rejected: to take the right to write as well (0.15 us for each 4 KiB, and back).
 */

#define GATHER_FROM 1u /* uses of a file before it is worth huge pages */
/* smaller ones are not mapped so that it helps (hugemap.h) */
#define GATHER_MIN  (2 * SHMS_HUGE_PAGE)

/*
 * A large file that comes back again and again is given huge pages where the mount gives
 * none, a quarter of it each time: who maps it, touches it and lets go pays a tenth of that
 * from then on, and all are paid for the copy after three or four objects. Not its last
 * page: there the file's end moves.
 */
static void gather(const struct shmstore *s, struct shms_slot *slot)
{
	uint64_t end = (slot->capacity - 1) & ~(SHMS_HUGEMAP_PAGE - 1), step;
	int r;

	if (slot->uses++ < GATHER_FROM || slot->capacity < GATHER_MIN ||
	    shms_huge(s, slot->capacity) || slot->gathered >= end)
		return;
	step = (end / 4 + SHMS_HUGEMAP_PAGE - 1) & ~(SHMS_HUGEMAP_PAGE - 1);
	if (step > end - slot->gathered)
		step = end - slot->gathered;
	r = shms_gather(slot->map, slot->gathered, step);
	if (r == 0)
		slot->gathered += step;
	else if (r != -EAGAIN)
		slot->gathered = UINT64_MAX;
}

/* The mapping covers whole pages; the file may end within the last one, whose
 * rest is ours to write too. */
static bool map_anew(struct shms_slot *slot)
{
	void *map = shms_map_ours(slot->capacity, MAP_SHARED, slot->fd);

	if (map == MAP_FAILED)
		return false;
	/* All pages at once, not a fault each; an older kernel faults. */
	madvise(map, slot->capacity, MADV_POPULATE_WRITE);
	slot->map = map;
	return true;
}

bool shms_slotmap_ready(const struct shmstore *s, struct shms_slot *slot)
{
	if (!slot->map && !map_anew(slot))
		return false;
	gather(s, slot);
	return true;
}

int shms_slotmap_return(struct shms_slot *slot, void *map)
{
	void *moved = shms_map_move(map, slot->capacity, shms_nonce());

	if (moved == MAP_FAILED)
		return -ENOMEM;
	slot->map = moved;
	return 0;
}
