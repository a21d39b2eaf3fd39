/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store with as many segments as it can tell, or a process that gets no further map, joined the
 * segment of each ticket, or made one for each put, and left it again: milliseconds each. Without a
 * map the adoption failed besides, though a copy was to be had.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "packindex.h"

#define N_MORE   20u
#define N_DONORS (SHMS_PACKINDEX_SEGMENTS + N_MORE)
#define SIZE     3000u

static bool counting, refusing;
static unsigned n_maps, n_files;

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	typedef void *fn(void *, size_t, int, int, int, off_t);

	/* Books of a segment, or all of one: to write to. */
	if ((counting || refusing) && (flags & MAP_TYPE) == MAP_SHARED && fd >= 0 &&
	    (protection & PROT_WRITE)) {
		n_maps++;
		if (refusing) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
	}
	return NEXT(fn *, "mmap")(at, size, protection, flags, fd, offset);
}

int ftruncate(int fd, off_t size)
{
	typedef int fn(int, off_t);

	n_files += counting;
	return NEXT(fn *, "ftruncate")(fd, size);
}

static void adopt_all(struct shmstore *s, const struct shmstore_ticket *tickets, unsigned begin,
		      unsigned end)
{
	char key[16];

	for (unsigned i = begin; i < end; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(shmstore_adopt(s, key, strlen(key), &tickets[i], 0), 0, "%u: %s", i,
			     shmstore_error_detail());
		cr_assert_eq(get_pattern(s, key, SIZE, i), 0);
	}
}

static struct shmstore *donor(unsigned i, unsigned n, struct shmstore_ticket *ret)
{
	struct shmstore *s;
	char key[16];

	snprintf(key, sizeof(key), "d%u", i);
	s = packing_store(key, UINT64_C(1) << 20, false);
	for (unsigned k = i; k < i + n; k++) {
		snprintf(key, sizeof(key), "k%u", k);
		cr_assert_eq(put_pattern(s, key, SIZE, k, 0), 0);
		cr_assert_eq(shmstore_handoff(s, key, strlen(key), 600000, ret++), 0);
	}
	return s;
}

Test(packed_unjoined_once, a_full_table_is_asked_before_a_segment_is_joined_or_made)
{
	static struct shmstore *donors[N_DONORS];
	static struct shmstore_ticket tickets[N_DONORS];
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false);

	for (unsigned i = 0; i < N_DONORS; i++)
		donors[i] = donor(i, 1, &tickets[i]);
	adopt_all(s, tickets, 0, SHMS_PACKINDEX_SEGMENTS);
	counting = true;
	adopt_all(s, tickets, SHMS_PACKINDEX_SEGMENTS, N_DONORS);
	cr_assert_eq(put_pattern(s, "own", SIZE, 1, 0), 0);
	counting = false;
	/* A copy maps the donor's books, to end the lease. */
	cr_assert_leq(n_maps, N_MORE);
	cr_assert_eq(n_files, 0);
	cr_assert_eq(get_pattern(s, "own", SIZE, 1), 0);
	for (unsigned i = 0; i < N_DONORS; i++)
		cr_assert_eq(shmstore_close(donors[i]), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_unjoined_once, where_no_map_is_to_be_had_objects_are_copied)
{
	struct shmstore_ticket tickets[N_MORE];
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false),
			*from = donor(0, N_MORE, tickets);
	time_t began = time(NULL);

	refusing = true;
	adopt_all(s, tickets, 0, N_MORE);
	refusing = false;
	/* And to join it again after a second, as that may be possible then. */
	cr_assert_gt(n_maps, 0);
	cr_assert_leq(n_maps, N_MORE + 4 * (2 + (unsigned)(time(NULL) - began)));
	/* The leases stand until they end: nobody could write that they are used. */
	cr_assert_eq(shmstore_close(from), 0);
	cr_assert_eq(shmstore_close(s), 0);
}
