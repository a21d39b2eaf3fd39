/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.h: the file name of a key in objects/, and back; of an address, and in the disk tier. Pure.
 *
 * Bytes in [A-Za-z0-9_,:=+@()~-] and '.' (not first) stand for themselves, all others are %XX
 * (upper case): one name per key. The empty key is "%-". A name that would pass 255 bytes is
 * "%h" + the 32 hex digits of the key's XXH3-128; "%" never precedes these letters in an
 * encoding. The key of a hashed name is the one in the object, or, where the object was adopted
 * or aliased under another key, the content of the sidecar file "%k" + the same 32 digits
 * beside it. A key whose name is another key's already (publish.h) has a second one: "%h" + the
 * 64 hex digits of its BLAKE2b-256.
 */
#ifndef SHMS_NAME_H
#define SHMS_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SHMS_NAME_SIZE   256                /* a name with its NUL */
#define SHMS_NAME_DIGITS "0123456789ABCDEF" /* of an escaped byte, here and in tickets */

enum shms_name_kind {
	SHMS_NAME_PLAIN,   /* the key is in the name */
	SHMS_NAME_HASHED,  /* "%h...": the key is in the object or the sidecar */
	SHMS_NAME_SIDECAR, /* "%k...": no object, the key of the hashed name beside it */
	SHMS_NAME_FOREIGN, /* nothing that shms_name_encode() makes */
};

/* The value of one of these digits; -1: it is none. */
int shms_name_digit(char c);
/* Returns SHMS_NAME_PLAIN or SHMS_NAME_HASHED. key_size <=
 * SHMSTORE_KEY_MAX is the caller's duty. */
enum shms_name_kind shms_name_encode(const void *key, size_t key_size,
				     char ret_name[SHMS_NAME_SIZE]);
/* Tells the kind; for PLAIN writes the key (at most 255 bytes) and its size. */
enum shms_name_kind shms_name_decode(const char *name, unsigned char ret_key[SHMS_NAME_SIZE],
				     size_t *ret_key_size);
/* The name of a key that is SHMS_NAME_HASHED, where its first one is another key's. */
void shms_name_second(const void *key, size_t key_size, char ret_name[SHMS_NAME_SIZE]);
/* Is the hashed name one of that key's two? */
bool shms_name_fits(const char *name, const void *key, size_t key_size);
/* "%h..." -> "%k..." */
void shms_name_sidecar(const char *hashed, char ret_name[SHMS_NAME_SIZE]);

/* The name in peers/ of a worker's address: 32 hex digits of its XXH3-128. */
#define SHMS_PEER_NAME 33 /* bytes, with the NUL */

void shms_peer_name(const char *address, char ret_name[SHMS_PEER_NAME]);

/* Names of the disk tier's files, on the partition and on the disk (docs/format.md). */

#define SHMS_DIR_TIER        "tier"
#define SHMS_TIER_NAME       24u /* bytes of "<id>.object" with its NUL */
/* In tier/: the configuration; a new one that becomes it, or what a killed process left of one. */
#define SHMS_TIER_CONFIG     "config"
#define SHMS_TIER_CONFIG_NEW "config.new"
#define SHMS_TIER_LOCK       "lock"  /* in tier/<uid>/ */
#define SHMS_TIER_ACCOUNT    ".used" /* "<uid>.used": what a user's tier files take */

void shms_tier_file_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
void shms_tier_anchor_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
void shms_tier_resident_name(uint64_t id, char ret_name[SHMS_TIER_NAME]);
/* 0, or -EBADMSG; the id of a tier file's, anchor's ("stub") or resident's ("object") name.
 * suffix NULL: a tier file. */
int shms_tier_parse_name(const char *name, const char *suffix, uint64_t *ret_id);
/* Is it the name of a user's directory? */
bool shms_tier_uid(const char *name, uid_t *ret);
/* Is it the name of a user's account, and whose? */
bool shms_tier_account_name(const char *name, uid_t *ret);

#endif
