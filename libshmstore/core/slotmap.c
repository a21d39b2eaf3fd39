/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slotmap.c: a recycled file stays mapped from one use to the next.
 *
 * A put copies into that mapping; a producer (writer.c) is lent it, and has the address. When the object is sealed nobody may write to it by that
 * address, and the next use shall not pay for a mapping made anew, which is 1 us for each 4 KiB. So the kernel moves the mapping, with all that is
 * mapped, to a place picked at random. Addresses of objects sealed long ago meet nothing there either, as they would if the next free place
 * were taken: that is the one before the last. Rejected: to take the right to write as well (0.15 us for each 4 KiB, and back).
 */
#include "slotmap.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "handle.h"
#include "hugemap.h"
#include "recycle.h"
#include "sys.h"
#include "transient.h"

#define GATHER_FROM 1u                   /* uses of a file before it is worth huge pages */
#define GATHER_MIN  (2 * SHMS_HUGE_PAGE) /* smaller ones are not mapped so that it helps (hugemap.h) */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/*
 * A large file that comes back again and again is given huge pages where the mount gives none, a quarter of it each time: who maps it, touches it and lets go pays a
 * tenth of that from then on, and all are paid for the copy after three or four objects. Not its last page: there the file's end moves.
 */
static void gather(const struct shmstore *s, struct shms_slot *slot)
{
	uint64_t end = (slot->capacity - 1) & ~(SHMS_HUGEMAP_PAGE - 1), step;
	int r;

	if (slot->uses++ < GATHER_FROM || slot->capacity < GATHER_MIN || shms_huge(s, slot->capacity) ||
	    slot->gathered >= end)
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

/* The mapping covers whole pages; the file may end within the last one, whose rest is ours to write too. */
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

void *shms_slotmap_lend(struct shms_slot *slot)
{
	void *map = slot->map;

	slot->map = NULL;
	return map;
}

int shms_slotmap_return(struct shms_slot *slot, void *map)
{
	void *moved = shms_map_move(map, slot->capacity, shms_nonce());

	if (moved == MAP_FAILED)
		return -ENOMEM;
	slot->map = moved;
	return 0;
}
