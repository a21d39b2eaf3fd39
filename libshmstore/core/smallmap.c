/* SPDX-License-Identifier: Apache-2.0 */
/* smallmap.c: see smallmap.h. Memory that is mapped anew costs a fault for each page, and that of
 * 64 KiB so 30 us: as much as the file that packing saves. The program that was given the address
 * must not write there after the seal, so kept maps are closed meanwhile: 3 us and back. Any thread
 * takes and gives: by one exchange each. */
#include "smallmap.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "handle.h"
#include "transient.h"

void *shms_smallmap_take(struct shmstore *s)
{
	/* acquire: of the release in give(), so that what its thread did there is done. */
	void *map = atomic_exchange_explicit(&s->small_map, NULL, memory_order_acquire);

	if (map && mprotect(map, SHMS_SMALLMAP_SIZE, PROT_READ | PROT_WRITE) == 0)
		return map;
	if (map)
		munmap(map, SHMS_SMALLMAP_SIZE);
	map = shms_map_ours(SHMS_SMALLMAP_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	return map == MAP_FAILED ? NULL : map;
}

void shms_smallmap_give(struct shmstore *s, void *map)
{
	void *none = NULL;

	/* release: pairs with take(). */
	if (mprotect(map, SHMS_SMALLMAP_SIZE, PROT_NONE) < 0 ||
	    !atomic_compare_exchange_strong_explicit(&s->small_map, &none, map, memory_order_release,
						     memory_order_relaxed))
		munmap(map, SHMS_SMALLMAP_SIZE);
}

void shms_smallmap_deinit(struct shmstore *s)
{
	void *map = atomic_exchange_explicit(&s->small_map, NULL, memory_order_acquire);

	if (map)
		munmap(map, SHMS_SMALLMAP_SIZE);
}

void shms_smallmap_forked(struct shmstore *s)
{
	atomic_store_explicit(&s->small_map, NULL, memory_order_relaxed);
}
