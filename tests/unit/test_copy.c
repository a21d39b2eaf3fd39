/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of all sizes about the one from which they are made otherwise, by each way:
 * every byte, and none beside. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api.h"
#include "copy.h"

#define KIB   ((size_t)1024)
#define ROOM  (2048 * KIB)
#define GUARD 0x5a
#define PAGE  ((size_t)4096)

static uint8_t *room(void)
{
	uint8_t *bytes = aligned_alloc(PAGE, ROOM);

	ENSURE(bytes);
	return bytes;
}

/* By memcmp(): a sanitizer makes a loop over the bytes take seconds. */
static bool is_guard(const uint8_t *bytes, size_t n)
{
	return n == 0 || (bytes[0] == GUARD && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* Copies size bytes from + from_off to + to_off, and compares. */
static void check(uint8_t *to, const uint8_t *from, size_t to_off, size_t from_off, size_t size)
{
	memset(to, GUARD, ROOM);
	shms_copy(to + to_off, from + from_off, size);
	cr_assert_arr_eq(to + to_off, from + from_off, size, "%zu bytes from %zu to %zu", size,
			 from_off, to_off);
	cr_assert(is_guard(to, to_off), "a byte before %zu at %zu", size, to_off);
	cr_assert(is_guard(to + to_off + size, ROOM - to_off - size), "a byte behind %zu at %zu",
		  size, to_off);
}

Test(copy, every_byte_and_none_beside)
{
	static const size_t sizes[] = {0,
				       1,
				       64 * KIB,
				       256 * KIB - 1,
				       256 * KIB,
				       256 * KIB + 1,
				       256 * KIB + 7,
				       1024 * KIB + 65};
	static const size_t offs[] = {0, 1, 64, 100, 4096};
	uint8_t *from = room(), *to = room();

	pattern_fill(from, ROOM, 3);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t k = 0; k < sizeof(offs) / sizeof(offs[0]); k++) {
			/* The first copies of a size go each way in turn
			 * (copy.h), if all goes well. */
			for (size_t turn = 0; turn < SHMS_COPYRACE_TURN * SHMS_COPYRACE_WAYS;
			     turn++)
				check(to, from, offs[k], turn * 17, sizes[i]);
		}
	}
	free(from);
	free(to);
}

Test(copy, reads_nothing_behind_the_source)
{
	size_t size = 512 * KIB;
	uint8_t *to = room(), *from;

	from = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ENSURE(from != MAP_FAILED);
	ENSURE(mprotect(from + size, PAGE, PROT_NONE) == 0);
	pattern_fill(from, size, 5);
	shms_copy(to, from + 5, size - 5);
	cr_assert_arr_eq(to, from + 5, size - 5);
	munmap(from, size + PAGE);
	free(to);
}
