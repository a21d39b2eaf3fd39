/* SPDX-License-Identifier: Apache-2.0 */
/* zstd frames by hand: zstd itself reads them, and nothing is written behind the room that there is. */
#include <criterion/criterion.h>
#include <string.h>
#include <zstd.h>

#include "scratch.h"
#include "zframe.h"

#define SIZE ((size_t)400000)

static unsigned char out[SIZE], back[SIZE], expected[SIZE];

static void ensure_read(size_t used, size_t size)
{
	cr_assert_eq(ZSTD_getFrameContentSize(out, used), size);
	cr_assert_eq(ZSTD_findFrameCompressedSize(out, sizeof(out)), used, "it says itself where it ends");
	cr_assert_eq(ZSTD_decompress(back, sizeof(back), out, used), size);
	cr_assert(memcmp(back, expected, size) == 0);
}

Test(zframe, zstd_reads_both_kinds_of_blocks)
{
	struct shms_zframe f;

	pattern_fill(expected, 8, 1);
	memset(expected + 8, 7, 32760);
	pattern_fill(expected + 32768, 1000, 2);
	memset(expected + 33768, 0, 1);
	shms_zframe_begin(&f, out, sizeof(out));
	shms_zframe_raw(&f, expected, 8);
	shms_zframe_repeat(&f, 7, 32760);
	shms_zframe_raw(&f, expected + 32768, 1000);
	shms_zframe_repeat(&f, 0, 1);
	ensure_read(shms_zframe_end(&f), 33769);
}

Test(zframe, more_than_a_block_becomes_several)
{
	struct shms_zframe f;

	pattern_fill(expected, 131073, 1);
	memset(expected + 131073, 9, 262145);
	shms_zframe_begin(&f, out, sizeof(out));
	shms_zframe_raw(&f, expected, 131073);
	shms_zframe_repeat(&f, 9, 262145);
	ensure_read(shms_zframe_end(&f), 131073 + 262145);
}

Test(zframe, last_block_of_one_is_the_first)
{
	struct shms_zframe f;

	memset(expected, 3, 100);
	shms_zframe_begin(&f, out, sizeof(out));
	shms_zframe_repeat(&f, 3, 100);
	ensure_read(shms_zframe_end(&f), 100);
}

Test(zframe, without_content_there_is_none)
{
	struct shms_zframe f;

	shms_zframe_begin(&f, out, sizeof(out));
	shms_zframe_raw(&f, expected, 0);
	cr_assert_eq(shms_zframe_end(&f), 0);
}

Test(zframe, nothing_is_written_behind_the_room)
{
	struct shms_zframe f;
	size_t whole;

	pattern_fill(expected, 100, 1);
	memset(expected + 100, 5, 50);
	shms_zframe_begin(&f, out, sizeof(out));
	shms_zframe_raw(&f, expected, 100);
	shms_zframe_repeat(&f, 5, 50);
	whole = shms_zframe_end(&f);
	for (size_t room = 0; room <= whole; room++) {
		memset(out, 0xee, sizeof(out));
		shms_zframe_begin(&f, out, room);
		shms_zframe_raw(&f, expected, 100);
		shms_zframe_repeat(&f, 5, 50);
		cr_assert_eq(shms_zframe_end(&f), room < whole ? 0 : whole, "%zu", room);
		for (size_t i = room; i < 2 * whole; i++)
			cr_assert_eq(out[i], 0xee, "room of %zu, byte %zu", room, i);
	}
	ensure_read(whole, 150);
}
