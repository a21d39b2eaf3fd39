/* SPDX-License-Identifier: Apache-2.0 */
/* Several keys of one packed object, as programs see them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "api.h"

static struct shmstore *open_store(unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;

	o.pack_max = UINT64_C(1) << 20;
	o.flags = flags;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &o, &s), 0);
	return s;
}

struct asked {
	const char *key;
	struct shmstore_object_info info;
};

static int find_info(const struct shmstore_object_info *info, void *arg)
{
	struct asked *a = arg;

	if (info->key_size != strlen(a->key) || memcmp(info->key, a->key, info->key_size) != 0)
		return 0;
	a->info = *info;
	return 1;
}

static struct shmstore_object_info info_of(struct shmstore *s, const char *key)
{
	struct asked a = {.key = key};

	cr_assert_eq(shmstore_foreach(s, find_info, &a), 1, "%s", key);
	return a.info;
}

/* A put of what a view shows; header: the object's. */
static int put_view(struct shmstore *s, const struct shmstore_view *v, const char *key,
		    unsigned flags)
{
	struct iovec iov;
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);

	iov.iov_base = shmstore_view_buffer(v, 0, &iov.iov_len);
	return shmstore_put(s, KEY(key), header, header_size, &iov, 1, flags);
}

Test(packed_keys, what_a_view_shows_gets_one_more_key)
{
	struct shmstore *s = open_store(0), *look;
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(put_view(s, v, "second", 0), 0);
	cr_assert_eq(put_view(s, v, "second", 0), -EEXIST);
	cr_assert_eq(info_of(s, "second").generation, info_of(s, "k").generation);
	cr_assert(info_of(s, "k").links == 2 && info_of(s, "second").links == 2);
	cr_assert_eq(put_view(s, v, "sum", SHMSTORE_CHECKSUM), 0); /* a copy: the object has none */
	cr_assert_neq(info_of(s, "sum").generation, info_of(s, "k").generation);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(info_of(s, "second").links, 1);
	ensure_books_close();
	look = open_store(SHMSTORE_OPEN_READONLY);
	cr_assert(get_pattern(look, "second", 100000, 1) == 0 &&
		  get_pattern(s, "second", 100000, 1) == 0);
	cr_assert_eq(shmstore_contains(look, KEY("k")), 0);
	cr_assert_eq(count_objects(look), 2);
	cr_assert_eq(shmstore_close(look), 0);
	/* The object becomes a file where a call can be made of files only. */
	cr_assert_eq(shmstore_pin(s, KEY("second"), true), 0);
	cr_assert_eq(get_pattern(s, "second", 100000, 1), 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
