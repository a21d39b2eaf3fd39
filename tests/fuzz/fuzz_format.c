/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_format.c: shms_format_parse() on arbitrary bytes.
 *
 * The first byte says how far the input is helped past the checks that random bytes never pass, so
 * that those behind them are reached: FIX_FRAME sets magic, version and sizes, FIX_HASH recomputes
 * the header's hash. Accepted input is used in full: every byte of key, metadata and buffers is
 * read within a block of exactly the file's size, and must lie where the format's rules say.
 */
#include <errno.h>
#include <string.h>

#include "forge.h"
#include "scratch.h"

enum {
	FIX_FRAME = 1,
	FIX_HASH = 2
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_accepted, n_hash_passed;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, past the hash: %lu\n", n_accepted, n_hash_passed);
}

static void use(const struct shms_object *o, const unsigned char *file, size_t size)
{
	const struct shms_layout *l = &o->layout;
	uint64_t off = l->header_size, sum = 0;

	ENSURE(l->header_size <= size && l->buffer_size == size - l->header_size);
	ENSURE(l->table_off >= sizeof(struct shms_superblock) + l->key_size);
	ENSURE(l->metadata_off + l->metadata_size <= l->header_size);
	ENSURE(l->header_size %
		       (l->buffer_size >= SHMS_FORMAT_BIG ? SHMS_FORMAT_PAGE : SHMS_FORMAT_ALIGN) ==
	       0);
	for (size_t i = 0; i < l->key_size; i++)
		sum += ((const unsigned char *)o->key)[i];
	for (size_t i = 0; i < l->metadata_size; i++)
		sum += ((const unsigned char *)o->metadata)[i];
	for (uint32_t i = 0; i < l->n_buffers; i++) {
		ENSURE(o->table[i].offset % SHMS_FORMAT_ALIGN == 0 && o->table[i].offset >= off);
		for (uint64_t k = 0; k < o->table[i].size; k++)
			sum += file[o->table[i].offset + k];
		off = o->table[i].offset + o->table[i].size;
	}
	sum += shms_format_verify_buffers(o, file + l->header_size);
	/* Reading must not be left out by the compiler. */
	__asm__ volatile("" : : "r"(sum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct forged f = {0};
	struct shms_object o, again;
	struct shms_superblock *sb;
	const char *reason = NULL;
	uint64_t need = 0;
	uint8_t mode;
	int r;

	if (n_accepted + n_hash_passed == 0) {
		static bool once;

		if (!once)
			atexit(report);
		once = true;
	}
	if (size < 1)
		return 0;
	mode = data[0];
	f.size = size - 1;
	f.file = malloc(f.size ? f.size : 1); /* its end is the end of what may be read */
	ENSURE(f.file);
	memcpy(f.file, data + 1, f.size);
	sb = forged_sb(&f);
	if ((mode & FIX_FRAME) && f.size >= sizeof(*sb)) {
		memcpy(sb->magic, SHMS_FORMAT_MAGIC, sizeof(sb->magic));
		sb->version = SHMS_FORMAT_VERSION;
		sb->superblock_size = sizeof(*sb);
		sb->incompat_flags = 0;
		if (sb->header_size > f.size)
			sb->header_size %= f.size + 1;
		sb->buffer_size = f.size - sb->header_size;
	}
	if ((mode & FIX_HASH) && f.size >= sizeof(*sb))
		forge_rehash(&f);
	memset(&o, 0xaa, sizeof(o));
	again = o;
	r = shms_format_parse(f.file, f.size, f.size, &o, &reason);
	ENSURE(r == 0 || r == -EBADMSG || r == -ENOTSUP);
	ENSURE((reason == NULL) == (r == 0));
	if (r == 0) {
		n_accepted++;
		n_hash_passed++;
		use(&o, f.file, f.size);
		ENSURE(shms_format_need(f.file, f.size, f.size, &need) == 0 && need <= f.size);
		ENSURE(shms_format_parse(f.file, need, f.size, &again, NULL) == 0);
		ENSURE(shms_format_parse(f.file, f.size, f.size + 1, &again, NULL) != 0);
	} else {
		ENSURE(memcmp(&o, &again, sizeof(o)) == 0); /* written on success only */
		n_hash_passed += strstr(reason, "buffer") != NULL &&
				 strstr(reason, "first buffer misaligned") == NULL;
	}
	free(f.file);
	return 0;
}
