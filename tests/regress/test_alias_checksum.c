/* SPDX-License-Identifier: Apache-2.0 */
/* A put with SHMSTORE_CHECKSUM of what a view shows became a second name of an object without a
 * checksum: the flag did nothing. */
#include <criterion/criterion.h>
#include <sys/uio.h>

#include "api.h"

static int find_checksum(const struct shmstore_object_info *info, void *arg)
{
	if (info->key_size == 1 && *(const char *)info->key == 'b')
		*(bool *)arg = info->checksum;
	return 0;
}

static uint64_t alias_of(struct shmstore *s, const struct shmstore_view *v, unsigned flags)
{
	struct iovec buffer;
	uint64_t size;
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);

	buffer.iov_base = shmstore_view_buffer(v, 0, &size);
	buffer.iov_len = size;
	cr_assert_eq(shmstore_put(s, KEY("b"), header, header_size, &buffer, 1, flags), 0);
	return links_of("s", "a");
}

Test(alias_checksum, is_there_where_it_is_asked_for)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_view *v;
	bool checksum = false;

	/* Of an object without one: a copy, with one. */
	cr_assert_eq(put_pattern(s, "a", 200000, 1, 0), 0);
	v = get_view(s, "a", 0);
	cr_assert_eq(alias_of(s, v, SHMSTORE_CHECKSUM), 1);
	cr_assert_eq(shmstore_foreach(s, find_checksum, &checksum), 0);
	cr_assert(checksum);
	cr_assert_eq(shmstore_delete(s, KEY("b")), 0);
	/* Not asked for: a second name, as ever. */
	cr_assert_eq(alias_of(s, v, 0), 2);
	shmstore_view_unref(v);
	/* Of an object that has one: a second name. */
	cr_assert_eq(shmstore_delete(s, KEY("a")), 0);
	cr_assert_eq(shmstore_delete(s, KEY("b")), 0);
	cr_assert_eq(put_pattern(s, "a", 200000, 1, SHMSTORE_CHECKSUM), 0);
	v = get_view(s, "a", 0);
	cr_assert_eq(alias_of(s, v, SHMSTORE_CHECKSUM), 2);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
}
