/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as file names: one name per key, one key per name, and nothing else is
 * taken for a name of ours. */
#include <criterion/criterion.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <xxhash.h>

#include "name.h"
#include "scratch.h"

static void round_trip(const void *key, size_t size)
{
	char name[SHMS_NAME_SIZE];
	unsigned char back[SHMS_NAME_SIZE];
	size_t back_size = 12345;

	cr_assert_eq(shms_name_encode(key, size, name), SHMS_NAME_PLAIN);
	cr_assert_leq(strlen(name), 255);
	cr_assert_null(strchr(name, '/'));
	cr_assert_neq(name[0], '.');
	cr_assert_eq(shms_name_decode(name, back, &back_size), SHMS_NAME_PLAIN, "%s", name);
	cr_assert_eq(back_size, size, "%s", name);
	cr_assert_eq(memcmp(back, key, size), 0, "%s", name);
}

Test(name, every_byte_alone_round_trips)
{
	for (int c = 0; c < 256; c++) {
		unsigned char key = (unsigned char)c;

		round_trip(&key, 1);
	}
}

Test(name, every_pair_of_bytes_round_trips)
{
	for (int c = 0; c < 65536; c++) {
		unsigned char key[2] = {(unsigned char)(c >> 8), (unsigned char)c};

		round_trip(key, 2);
	}
}

Test(name, usual_keys_stand_for_themselves)
{
	static const char *const keys[] = {
		"x", "array-1", "sum_agg-0123abcdef", "a.b,c:d=e+f@g(h)~i-J9", "-", "a."};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char name[SHMS_NAME_SIZE];

		shms_name_encode(keys[i], strlen(keys[i]), name);
		cr_assert_str_eq(name, keys[i]);
	}
}

Test(name, other_bytes_are_upper_case_hex)
{
	char name[SHMS_NAME_SIZE];

	shms_name_encode("('x', 0)", 8, name);
	cr_assert_str_eq(name, "(%27x%27,%200)");
	shms_name_encode("a/b\xff%", 5, name);
	cr_assert_str_eq(name, "a%2Fb%FF%25");
	shms_name_encode("a\0b", 3, name);
	cr_assert_str_eq(name, "a%00b");
}

Test(name, leading_dot_is_escaped_and_empty_key_has_a_name)
{
	char name[SHMS_NAME_SIZE];

	shms_name_encode(".", 1, name);
	cr_assert_str_eq(name, "%2E");
	shms_name_encode("..", 2, name);
	cr_assert_str_eq(name, "%2E.");
	shms_name_encode("", 0, name);
	cr_assert_str_eq(name, "%-");
	round_trip(".", 1);
	round_trip("..", 2);
	round_trip(".store", 6);
	round_trip("", 0);
}

Test(name, name_of_255_bytes_is_plain_and_one_more_is_hashed)
{
	char key[SHMSTORE_KEY_MAX], name[SHMS_NAME_SIZE];

	memset(key, 'k', sizeof(key));
	round_trip(key, 255);
	cr_assert_eq(shms_name_encode(key, 255, name), SHMS_NAME_PLAIN);
	cr_assert_eq(strlen(name), 255);
	cr_assert_eq(shms_name_encode(key, 256, name), SHMS_NAME_HASHED);
	cr_assert_eq(strlen(name), 34);
	memset(key, 0, sizeof(key));
	cr_assert_eq(shms_name_encode(key, 85, name), SHMS_NAME_PLAIN);
	cr_assert_eq(strlen(name), 255);
	cr_assert_eq(shms_name_encode(key, 86, name), SHMS_NAME_HASHED);
	key[0] = 'k';
	cr_assert_eq(shms_name_encode(key, 85, name), SHMS_NAME_PLAIN);
	cr_assert_eq(shms_name_encode(key, SHMSTORE_KEY_MAX, name), SHMS_NAME_HASHED);
}

Test(name, hashed_name_is_the_hash_of_the_key)
{
	char key[300], name[SHMS_NAME_SIZE], sidecar[SHMS_NAME_SIZE], expect[64];
	unsigned char back[SHMS_NAME_SIZE];
	size_t back_size = 77;
	XXH128_hash_t h;

	pattern_fill(key, sizeof(key), 1);
	h = XXH3_128bits(key, sizeof(key));
	snprintf(expect, sizeof(expect), "%%h%016llx%016llx", (unsigned long long)h.high64,
		 (unsigned long long)h.low64);
	cr_assert_eq(shms_name_encode(key, sizeof(key), name), SHMS_NAME_HASHED);
	cr_assert_str_eq(name, expect);
	cr_assert_eq(shms_name_decode(name, back, &back_size), SHMS_NAME_HASHED);
	shms_name_sidecar(name, sidecar);
	expect[1] = 'k';
	cr_assert_str_eq(sidecar, expect);
	cr_assert_eq(shms_name_decode(sidecar, back, &back_size), SHMS_NAME_SIDECAR);
	key[299] = (char)(key[299] + 1);
	cr_assert_eq(shms_name_encode(key, sizeof(key), sidecar), SHMS_NAME_HASHED);
	cr_assert_str_neq(name, sidecar, "another key has another name");
}

Test(name, keys_that_look_like_hashed_names_stay_apart)
{
	char key[300], name[SHMS_NAME_SIZE], again[SHMS_NAME_SIZE];

	pattern_fill(key, sizeof(key), 2);
	shms_name_encode(key, sizeof(key), name);
	round_trip(name, strlen(name));
	cr_assert_eq(shms_name_encode(name, strlen(name), again), SHMS_NAME_PLAIN);
	cr_assert_str_neq(name, again);
}

Test(name, foreign_names_are_told)
{
	static const char *const names[] = {
		"",
		".",
		"..",
		".store",
		".hidden",
		"%",
		"%4",
		"%4g",
		"a%",
		"a%zz",
		"%41",
		"%2e",
		"%2f",
		"a%2e",
		"a b",
		"a/b",
		"a'b",
		"%-x",
		"%hshort",
		"%h",
		"%k",
		"%h0123456789ABCDEF0123456789ABCDEF",
		"%h0123456789abcdef0123456789abcdef0",
		"%k0123456789abcdef0123456789abcde",
		"\x01",
		"\xff",
		"a\n",
		"%h0123456789abcdef0123456789abcdeg",
		"%5F",
		"a%2E",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsigned char key[SHMS_NAME_SIZE];
		size_t size;

		cr_assert_eq(shms_name_decode(names[i], key, &size), SHMS_NAME_FOREIGN, "'%s'",
			     names[i]);
	}
}

Test(name, whatever_decodes_encodes_to_the_same_name)
{
	static const char alphabet[] = "%0123456789ABCDEFabhk.-_/ \x01\xff";
	uint64_t seed = 1;
	unsigned n_plain = 0;

	for (int i = 0; i < 200000; i++) {
		char name[12], again[SHMS_NAME_SIZE];
		unsigned char key[SHMS_NAME_SIZE];
		size_t size, n;

		pattern_fill(&seed, sizeof(seed), seed);
		n = seed % 9;
		for (size_t k = 0; k < n; k++)
			name[k] = alphabet[(seed >> (5 + 6 * k)) % (sizeof(alphabet) - 1)];
		name[n] = '\0';
		if (shms_name_decode(name, key, &size) != SHMS_NAME_PLAIN)
			continue;
		n_plain++;
		cr_assert_eq(shms_name_encode(key, size, again), SHMS_NAME_PLAIN);
		cr_assert_str_eq(again, name);
	}
	cr_assert_gt(n_plain, 1000);
}
