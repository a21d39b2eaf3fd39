/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugemap.c: see hugemap.h.
 *
 * To map a file of 64 MiB in 4 KiB pages, read a byte of each and unmap it takes 6.6 ms on a tmpfs
 * with huge=never, while a copy into a warm file takes 3.1 ms. In gathered pages it takes 0.2 ms,
 * at an address that does not fit 4.1 ms. Rejected: MAP_POPULATE and MADV_POPULATE_READ (5.5 ms);
 * pread() into warm memory (4.2 ms, and a copy for each reader); a receiver that keeps its map for
 * the next object of the same file (0.1 ms): the kernel counts it as a reader, so that the file's
 * owner could not tell it from one who still looks, and would have to ask (recycle.c). Packed
 * objects do keep maps: there the readers' bits say who looks. In pages of 2 MiB a map that is kept
 * would save little: of a cycle of 64 MiB from one process to another, 2,850 us, its faults take
 * 110, the map and its end 55; MADV_POPULATE_READ in place of the faults is no faster.
 *
 * On a tmpfs without huge pages the kernel maps a file wherever there is room. The last address
 * that fitted is asked for first: as a rule it is free again, and then no call more is needed. Else
 * a place is reserved that is larger, and the file mapped within.
 */
#include "hugemap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "sys.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Where maps are moved to: a part of the address space that is empty as a rule, and a kernel that
 * has none there takes another. */
#define MOVED_FROM   (UINT64_C(1) << 45)
#define MOVED_STEP   (UINT64_C(16) << 20)
#define MOVED_PLACES (UINT64_C(1) << 21)

static _Atomic uintptr_t hint;

static void *fitting(uintptr_t at, uint64_t offset)
{
	uintptr_t into = (uintptr_t)offset & (SHMS_HUGEMAP_PAGE - 1);

	return (void *)(((at - into + SHMS_HUGEMAP_PAGE - 1) & ~(SHMS_HUGEMAP_PAGE - 1)) + into);
}

/* Maps within a reservation, of which nothing else is left. */
static void *map_within(uint64_t size, int prot, int flags, int fd, uint64_t offset)
{
	uint64_t room = shms_whole_pages(size) + SHMS_HUGEMAP_PAGE;
	char *begin = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			   0),
	     *at, *end;
	void *map;
	int error;

	if (begin == MAP_FAILED)
		return MAP_FAILED;
	at = fitting((uintptr_t)begin, offset);
	end = at + (room - SHMS_HUGEMAP_PAGE);
	if (at > begin)
		munmap(begin, (size_t)(at - begin));
	if (begin + room > end)
		munmap(end, (size_t)(begin + room - end));
	map = mmap(at, size, prot, flags | MAP_FIXED, fd, (off_t)offset);
	if (map == MAP_FAILED) {
		error = errno;
		munmap(at, (size_t)(end - at));
		errno = error;
	}
	return map;
}

void *shms_map_aligned(uint64_t size, int prot, int flags, int fd, uint64_t offset)
{
	void *map, *wanted;

	if (size < 2 * SHMS_HUGEMAP_PAGE)
		return mmap(NULL, size, prot, flags, fd, (off_t)offset);
	wanted = fitting(atomic_load_explicit(&hint, memory_order_relaxed), offset);
	map = mmap(wanted, size, prot, flags, fd, (off_t)offset);
	if (map == MAP_FAILED || map == fitting((uintptr_t)map, offset))
		return map;
	munmap(map, size);
	map = map_within(size, prot, flags, fd, offset);
	if (map != MAP_FAILED)
		atomic_store_explicit(&hint, (uintptr_t)map, memory_order_relaxed);
	return map;
}

void *shms_map_move(void *map, uint64_t size, uint64_t random)
{
	uintptr_t at = MOVED_FROM + random % MOVED_PLACES * MOVED_STEP;
	/* The place is taken before: else another thread's map could be overwritten there. The
	 * kernel takes another where it is not free. */
	void *to = mmap(fitting(at, 0), size, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
	     *moved;
	int error;

	if (to == MAP_FAILED)
		return MAP_FAILED;
	moved = mremap(map, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (moved == MAP_FAILED) {
		error = errno;
		munmap(to, size);
		errno = error;
	}
	return moved;
}

int shms_gather(void *map, uint64_t from, uint64_t size)
{
	if (madvise((char *)map + from, size, MADV_COLLAPSE) == 0)
		return 0;
	/* No page of that size free, pages that somebody looks at just now, a cgroup's limit. */
	return errno == ENOMEM || errno == EAGAIN || errno == EBUSY ? -EAGAIN : -errno;
}
