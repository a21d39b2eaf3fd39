/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long keys are named by their XXH3-128, for which collisions are easily made: put, replace,
 * contains and delete of one key acted on another key's object.
 *
 * How they are made here: of each 64 bytes of a long input, XXH3 multiplies the low and the high
 * half of 8-byte words, after it xored them with its secret, and adds the word itself to the sum
 * beside. Where the low half equals the secret's, the product is 0 whatever the high half is;
 * what one word's high half has more, that of the same word of the next 64 bytes has less, and
 * no sum tells the difference.
 */
#define XXH_INLINE_ALL
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "api.h"
#include "name.h"
#include "tiered.h"

#define KEY_SIZE 320
#define STRIPE   64

static char a[KEY_SIZE + 1], b[KEY_SIZE + 1], c[KEY_SIZE + 1];

static void make_key(char key[KEY_SIZE + 1], unsigned char more)
{
	memset(key, 'k', KEY_SIZE);
	key[KEY_SIZE] = '\0';
	memcpy(key, XXH3_kSecret, 4);
	memset(key + 4, 0x11 + more, 4);
	memcpy(key + STRIPE, XXH3_kSecret + 8, 4);
	memset(key + STRIPE + 4, 0x44 - more, 4);
}

static void make_keys(void)
{
	make_key(a, 0);
	make_key(b, 1);
	make_key(c, 2);
	cr_assert_eq(strlen(a), (size_t)KEY_SIZE);
	cr_assert_eq(strlen(b), (size_t)KEY_SIZE);
	cr_assert_str_neq(a, b);
	cr_assert(XXH128_isEqual(XXH3_128bits(a, KEY_SIZE), XXH3_128bits(b, KEY_SIZE)),
		  "no collision: another XXH3?");
	cr_assert(XXH128_isEqual(XXH3_128bits(a, KEY_SIZE), XXH3_128bits(c, KEY_SIZE)));
}

static int count_right(const struct shmstore_object_info *info, void *arg)
{
	const char *const keys[] = {a, b, c};

	cr_assert_eq(info->error, 0);
	for (int i = 0; i < 3; i++) {
		if (info->key_size == KEY_SIZE && memcmp(info->key, keys[i], KEY_SIZE) == 0)
			*(unsigned *)arg |= 1u << i;
	}
	return 0;
}

static unsigned keys_of(struct shmstore *s)
{
	unsigned found = 0;

	cr_assert_eq(shmstore_foreach(s, count_right, &found), 0);
	return found;
}

static int is_fine(const struct shmstore_verify_finding *finding, void *arg)
{
	(void)arg;
	cr_assert_eq(finding->error, 0, "%s: %s", finding->path, finding->reason);
	return 0;
}

static void check_partition(void)
{
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(shmstore_partition_verify(p, is_fine, NULL), 0);
	shmstore_partition_unref(p);
}

Test(key_collision, each_key_has_its_own_object)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_view *v;

	make_keys();
	cr_assert_eq(put_pattern(s, a, 100000, 1, 0), 0);
	cr_assert_eq(shmstore_contains(s, KEY(b)), 0);
	cr_assert_eq(shmstore_get(s, KEY(b), 0, &v), -ENOENT);
	cr_assert_eq(shmstore_locate(s, KEY(b)), 0);
	cr_assert_eq(shmstore_delete(s, KEY(b)), -ENOENT);
	cr_assert_eq(put_pattern(s, b, 2000000, 2, 0), 0);
	cr_assert_eq(put_pattern(s, a, 100000, 3, 0), -EEXIST);
	cr_assert_eq(put_pattern(s, b, 2000000, 3, 0), -EEXIST);
	cr_assert_eq(seal_pattern(s, c, 5000, 4, 0), 0);
	cr_assert_eq(keys_of(s), 7u);
	/* Replaced: itself. */
	cr_assert_eq(put_pattern(s, b, 70000, 5, SHMSTORE_REPLACE), 0);
	cr_assert_eq(get_pattern(s, a, 100000, 1), 0);
	cr_assert_eq(get_pattern(s, b, 70000, 5), 0);
	cr_assert_eq(get_pattern(s, c, 5000, 4), 0);
	/* The first one's name is free: the others stay what they are, and are not put twice. */
	cr_assert_eq(shmstore_delete(s, KEY(a)), 0);
	cr_assert_eq(shmstore_contains(s, KEY(a)), 0);
	cr_assert_eq(shmstore_contains(s, KEY(b)), 1);
	cr_assert_eq(put_pattern(s, b, 70000, 6, 0), -EEXIST);
	cr_assert_eq(put_pattern(s, b, 70000, 6, SHMSTORE_REPLACE), 0);
	cr_assert_eq(get_pattern(s, b, 70000, 6), 0);
	cr_assert_eq(count_objects(s), 2);
	cr_assert_eq(put_pattern(s, a, 4000, 7, SHMSTORE_REPLACE), 0);
	cr_assert_eq(keys_of(s), 7u);
	check_partition();
	cr_assert_eq(shmstore_delete(s, KEY(c)), 0);
	cr_assert_eq(shmstore_delete(s, KEY(b)), 0);
	cr_assert_eq(get_pattern(s, a, 4000, 7), 0);
	cr_assert_eq(count_objects(s), 1);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* docs/format.md: other versions find it there, whatever computes the digest. By Python's
 * hashlib.blake2b(b, digest_size=32). */
Test(key_collision, second_name_is_the_format_s)
{
	static const char digest[] =
		"1aa0bb47bc2afd8c4c53c6820888b11a51823b50cf39b7197224cdc3b62ca747";
	struct shmstore *s = scratch_store("s");
	char path[1024];

	make_keys();
	cr_assert_eq(put_pattern(s, a, 4000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, b, 4000, 2, 0), 0);
	snprintf(path, sizeof(path), "%s/objects/%%h%s", shmstore_path(s), digest);
	cr_assert_eq(access(path, F_OK), 0, "%s", path);
	cr_assert_eq(shmstore_delete(s, KEY(b)), 0);
	cr_assert_neq(access(path, F_OK), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(key_collision, handoffs_and_adopted_objects_are_of_their_key)
{
	struct shmstore *donor = scratch_store("donor"), *s = scratch_store("s");
	struct shmstore_ticket t;
	struct shmstore_view *v;

	make_keys();
	cr_assert_eq(put_pattern(donor, a, 100000, 1, 0), 0);
	cr_assert_eq(put_pattern(donor, b, 100000, 2, 0), 0);
	cr_assert_eq(shmstore_handoff(donor, KEY(c), 60000, &t), -ENOENT);
	/* b's object under a's key: it is not b, though it says so itself. */
	cr_assert_eq(shmstore_handoff(donor, KEY(b), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY(a), &t, 0), 0);
	cr_assert_eq(get_pattern(s, a, 100000, 2), 0);
	cr_assert_eq(shmstore_contains(s, KEY(b)), 0);
	cr_assert_eq(shmstore_get(s, KEY(b), 0, &v), -ENOENT);
	/* a's object under b's key beside it. */
	cr_assert_eq(shmstore_handoff(donor, KEY(a), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY(b), &t, 0), 0);
	cr_assert_eq(get_pattern(s, a, 100000, 2), 0);
	cr_assert_eq(get_pattern(s, b, 100000, 1), 0);
	cr_assert_eq(keys_of(s), 3u);
	/* A second name by a put of what a view shows. */
	v = get_view(s, b, 0);
	struct iovec buffer = {shmstore_view_buffer(v, 0, NULL), 100000};
	size_t n;
	const void *header = shmstore_view_header(v, &n);
	cr_assert_eq(shmstore_put(s, KEY(c), header, n, &buffer, 1, 0), 0);
	shmstore_view_unref(v);
	cr_assert_eq(get_pattern(s, c, 100000, 1), 0);
	cr_assert_eq(keys_of(s), 7u);
	check_partition();
	cr_assert_eq(shmstore_delete(s, KEY(a)), 0);
	cr_assert_eq(keys_of(s), 6u);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(donor), 0);
	ensure_nothing_left();
}

/* A killed delete leaves the key of an object that is gone. */
Test(key_collision, a_left_key_is_not_taken_for_the_next_objects)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_ticket t;
	char name[SHMS_NAME_SIZE], sidecar[SHMS_NAME_SIZE], path[600], left[600];

	make_keys();
	shms_name_encode(KEY(a), name);
	shms_name_sidecar(name, sidecar);
	cr_assert_eq(put_pattern(s, "x", 5000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s, KEY(a), &t, 0), 0);
	snprintf(path, sizeof(path), "%s/objects/%s", shmstore_path(s), sidecar);
	snprintf(left, sizeof(left), "%s/left", shmstore_path(s));
	cr_assert_eq(link(path, left), 0);
	cr_assert_eq(shmstore_delete(s, KEY(a)), 0);
	cr_assert_eq(rename(left, path), 0);
	cr_assert_eq(shmstore_contains(s, KEY(a)), 0);
	cr_assert_eq(put_pattern(s, b, 6000, 2, 0), 0);
	cr_assert_eq(shmstore_contains(s, KEY(a)), 0);
	cr_assert_eq(get_pattern(s, b, 6000, 2), 0);
	cr_assert_eq(keys_of(s), 2u);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(key_collision, in_the_disk_tier_too)
{
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");

	make_keys();
	cr_assert_eq(put_pattern(s, a, 300000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, b, 300000, 2, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY(c), 0), -ENOENT);
	cr_assert_eq(shmstore_demote(s, KEY(b), 0), 0);
	cr_assert_eq(shmstore_locate(s, KEY(a)), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_locate(s, KEY(b)), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_demote(s, KEY(a), 0), 0);
	cr_assert_eq(shmstore_contains(s, KEY(c)), 0);
	cr_assert_eq(put_pattern(s, c, 5000, 3, 0), 0);
	cr_assert_eq(keys_of(s), 7u);
	cr_assert_eq(get_pattern(s, b, 300000, 2), 0);
	cr_assert_eq(get_pattern(s, a, 300000, 1), 0);
	cr_assert_eq(get_pattern(s, c, 5000, 3), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
