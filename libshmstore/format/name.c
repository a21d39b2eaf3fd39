/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c: keys as file names. The encoding is canonical, so that one key has one name and the
 * directory itself is the index: contains and delete need no look into the file. Rejected: hashing
 * every key (ls would tell nothing), base64 (unreadable, and no shorter for the usual keys).
 */
#include "name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "blake2b.h"
#include "hexdigits.h"

#define FIRST_DIGEST sizeof(XXH128_canonical_t)

static bool stands_for_itself(unsigned char c, bool first)
{
	if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
		return true;
	if (c == '.')
		return !first;
	return c != '\0' && strchr("_,:=+@()~-", c) != NULL;
}

static void digest_name(const unsigned char *digest, size_t size, char ret_name[SHMS_NAME_SIZE])
{
	memcpy(ret_name, "%h", 2);
	shms_hexdigits_write_bytes(digest, size, ret_name + 2);
	ret_name[2 + 2 * size] = '\0';
}

void shms_name_second(const void *key, size_t key_size, char ret_name[SHMS_NAME_SIZE])
{
	uint8_t digest[SHMS_BLAKE2B_SIZE];

	shms_blake2b(key, key_size, digest);
	digest_name(digest, sizeof(digest), ret_name);
}

enum shms_name_kind shms_name_encode(const void *key, size_t key_size,
				     char ret_name[SHMS_NAME_SIZE])
{
	const unsigned char *k = key;
	XXH128_canonical_t canonical;
	size_t n = 0;

	if (key_size == 0) {
		memcpy(ret_name, "%-", 3);
		return SHMS_NAME_PLAIN;
	}
	for (size_t i = 0; i < key_size; i++) {
		bool plain = stands_for_itself(k[i], i == 0);

		if (n + (plain ? 1 : 3) > SHMS_NAME_SIZE - 1) {
			XXH128_canonicalFromHash(&canonical, XXH3_128bits(key, key_size));
			digest_name(canonical.digest, FIRST_DIGEST, ret_name);
			return SHMS_NAME_HASHED;
		}
		if (plain) {
			ret_name[n++] = (char)k[i];
		} else {
			ret_name[n++] = '%';
			ret_name[n++] = SHMS_NAME_DIGITS[k[i] >> 4];
			ret_name[n++] = SHMS_NAME_DIGITS[k[i] & 15];
		}
	}
	ret_name[n] = '\0';
	return SHMS_NAME_PLAIN;
}

int shms_name_digit(char c)
{
	const char *d = c ? strchr(SHMS_NAME_DIGITS, c) : NULL;
	return d ? (int)(d - SHMS_NAME_DIGITS) : -1;
}

static enum shms_name_kind decode_special(const char *name)
{
	size_t digits = strspn(name + 2, "0123456789abcdef");

	if ((digits != 2 * FIRST_DIGEST && digits != (size_t)2 * SHMS_BLAKE2B_SIZE) ||
	    name[2 + digits] != '\0')
		return SHMS_NAME_FOREIGN;
	return name[1] == 'h' ? SHMS_NAME_HASHED : SHMS_NAME_SIDECAR;
}

enum shms_name_kind shms_name_decode(const char *name, unsigned char ret_key[SHMS_NAME_SIZE],
				     size_t *ret_key_size)
{
	size_t n = 0;

	if (name[0] == '\0')
		return SHMS_NAME_FOREIGN;
	if (name[0] == '%' && (name[1] == 'h' || name[1] == 'k'))
		return decode_special(name);
	if (strcmp(name, "%-") == 0) {
		*ret_key_size = 0;
		return SHMS_NAME_PLAIN;
	}
	for (const char *s = name; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (n >= SHMS_NAME_SIZE)
			return SHMS_NAME_FOREIGN;
		if (c == '%') {
			int hi = shms_name_digit(s[1]), lo = hi >= 0 ? shms_name_digit(s[2]) : -1;

			if (lo < 0)
				return SHMS_NAME_FOREIGN;
			c = (unsigned char)(hi << 4 | lo);
			if (stands_for_itself(c, n == 0))
				return SHMS_NAME_FOREIGN; /* not what we would have written */
			s += 2;
		} else if (!stands_for_itself(c, n == 0)) {
			return SHMS_NAME_FOREIGN;
		}
		ret_key[n++] = c;
	}
	*ret_key_size = n;
	return SHMS_NAME_PLAIN;
}

bool shms_name_fits(const char *name, const void *key, size_t key_size)
{
	char own[SHMS_NAME_SIZE];

	if (shms_name_encode(key, key_size, own) != SHMS_NAME_HASHED)
		return false;
	if (strlen(name) != strlen(own))
		shms_name_second(key, key_size, own);
	return strcmp(name, own) == 0;
}

void shms_name_sidecar(const char *hashed, char ret_name[SHMS_NAME_SIZE])
{
	memcpy(ret_name, hashed, strlen(hashed) + 1);
	ret_name[1] = 'k';
}

void shms_peer_name(const char *address, char ret_name[SHMS_PEER_NAME])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(address, strlen(address)));
	shms_hexdigits_write_bytes(canonical.digest, sizeof(canonical.digest), ret_name);
	ret_name[SHMS_PEER_NAME - 1] = '\0';
}

/* ---- the disk tier: a name that is not exactly as we write it is somebody else's file -------- */

void shms_tier_file_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64, id);
}

void shms_tier_anchor_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64 ".stub", id);
}

void shms_tier_resident_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64 ".object", id);
}

int shms_tier_parse_name(const char *name, const char *suffix, uint64_t *ret_id)
{
	if (strlen(name) < 16 ||
	    (suffix ? name[16] != '.' || strcmp(name + 17, suffix) != 0 : name[16] != '\0'))
		return -EBADMSG;
	return shms_hexdigits_read(name, ret_id) ? 0 : -EBADMSG;
}

bool shms_tier_uid(const char *name, uid_t *ret)
{
	unsigned long n;

	if (name[0] < '0' || name[0] > '9' || strlen(name) > 10 ||
	    name[strspn(name, "0123456789")] != '\0' || (name[0] == '0' && name[1] != '\0'))
		return false;
	n = strtoul(name, NULL, 10);
	if (n >= UINT32_MAX)
		return false;
	*ret = (uid_t)n;
	return true;
}

bool shms_tier_account_name(const char *name, uid_t *ret)
{
	size_t digits = strspn(name, "0123456789");
	char uid[16] = {0};

	if (digits >= sizeof(uid) || strcmp(name + digits, SHMS_TIER_ACCOUNT) != 0)
		return false;
	memcpy(uid, name, digits);
	return shms_tier_uid(uid, ret);
}
