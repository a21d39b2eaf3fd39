/* SPDX-License-Identifier: Apache-2.0 */
/* A store with one small object took 256 KiB for it, as files 4: what is taken ahead was the same
 * from the first object on. */
#include <criterion/criterion.h>

#include "api.h"

Test(packed_few_objects, take_little)
{
	struct shmstore *s = packing_store("a", UINT64_C(1) << 20, false);
	uint64_t before;

	before = ensure_books_close().used;
	cr_assert_eq(put_pattern(s, "small", 1000, 1, 0), 0);
	cr_assert_leq(ensure_books_close().used, before + (32u << 10));
	cr_assert_eq(put_pattern(s, "larger", 20000, 2, 0), 0);
	cr_assert_leq(ensure_books_close().used, before + (96u << 10));
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
