/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.c: layout, encoding and validation of an object's bytes. Pure. The order of checks in
 * shms_format_parse() is: sizes that the others rest on, the hash (so that what follows can only be
 * a liar's, not an accident's), then the table.
 */
#include "format.h"

#include <errno.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <xxhash.h>

static uint64_t align_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* The sizes of everything before the metadata, from the key and the number of buffers. */
static void layout_head(struct shms_layout *l, uint32_t key_size, uint32_t n_buffers)
{
	l->key_size = key_size;
	l->n_buffers = n_buffers;
	l->table_off = align_up(sizeof(struct shms_superblock) + key_size, 8);
	l->metadata_off = l->table_off + (uint64_t)n_buffers * sizeof(struct shms_entry);
}

bool shms_layout_init(struct shms_layout *ret, size_t key_size, size_t metadata_size,
		      const uint64_t *sizes, size_t n_buffers, uint64_t page_capacity)
{
	struct shms_layout l = {0};
	uint64_t end = 0;

	if (key_size > SHMSTORE_KEY_MAX || metadata_size > SHMSTORE_HEADER_MAX ||
	    n_buffers > SHMSTORE_BUFFERS_MAX)
		return false;
	layout_head(&l, (uint32_t)key_size, (uint32_t)n_buffers);
	l.metadata_size = metadata_size;
	for (size_t i = 0; i < n_buffers; i++) {
		if (sizes[i] > (uint64_t)INT64_MAX / 2 || end > (uint64_t)INT64_MAX / 2)
			return false;
		end = align_up(end, SHMS_FORMAT_ALIGN) + sizes[i];
	}
	l.buffer_size = end;
	l.header_size = shms_layout_header(key_size, metadata_size, n_buffers, end);
	if (l.buffer_size > (uint64_t)INT64_MAX - l.header_size)
		return false; /* a file's size is an off_t */
	if (page_capacity) {
		uint64_t most;

		if (l.header_size + l.buffer_size > page_capacity)
			return false;
		most = (page_capacity - l.buffer_size) & ~(shms_layout_align(end) - 1);
		if (align_up(l.header_size + l.buffer_size, SHMS_FORMAT_PAGE) < page_capacity)
			l.header_size = most;
	}
	*ret = l;
	return true;
}

void shms_format_head(const struct shms_layout *l, const void *key, const uint64_t *sizes,
		      uint64_t generation, void *head)
{
	struct shms_superblock *sb = head;
	struct shms_entry *table = (struct shms_entry *)(void *)((char *)head + l->table_off);
	uint64_t off = l->header_size;

	memset(head, 0, l->table_off);
	memcpy(sb->magic, SHMS_FORMAT_MAGIC, sizeof(sb->magic));
	sb->version = SHMS_FORMAT_VERSION;
	sb->superblock_size = sizeof(*sb);
	sb->header_size = l->header_size;
	sb->buffer_size = l->buffer_size;
	sb->metadata_size = l->metadata_size;
	sb->key_size = l->key_size;
	sb->n_buffers = l->n_buffers;
	sb->generation = generation;
	if (l->key_size)
		memcpy(sb + 1, key, l->key_size);
	for (size_t i = 0; i < l->n_buffers; i++) {
		table[i] = (struct shms_entry){.offset = off, .size = sizes[i]};
		off = shms_layout_next(off, sizes[i]);
	}
}

uint64_t shms_format_hash(const void *head, uint64_t metadata_off, const void *metadata,
			  uint64_t metadata_size)
{
	/* Three hashes, each the seed of the next: metadata, what stands before the field, what
	 * stands after it. No copy, no streaming state. */
	enum {
		AT = offsetof(struct shms_superblock, header_hash),
		AFTER = AT + 8
	};
	uint64_t h = XXH3_64bits(metadata_size ? metadata : "", metadata_size);

	h = XXH3_64bits_withSeed(head, AT, h);
	return XXH3_64bits_withSeed((const char *)head + AFTER, metadata_off - AFTER, h);
}

/* Checks the superblock by itself and lays out what it says. Returns what
 * is wrong, NULL if nothing. */
static const char *check_superblock(const struct shms_superblock *sb, uint64_t file_size,
				    struct shms_layout *l, int *ret_error)
{
	uint64_t align = sb->buffer_size >= SHMS_FORMAT_BIG ? SHMS_FORMAT_PAGE : SHMS_FORMAT_ALIGN;

	*ret_error = -EBADMSG;
	if (memcmp(sb->magic, SHMS_FORMAT_MAGIC, sizeof(sb->magic)) != 0)
		return "not an object: wrong magic";
	if (sb->version != SHMS_FORMAT_VERSION || sb->incompat_flags) {
		*ret_error = -ENOTSUP;
		return "object of another format version";
	}
	if (sb->superblock_size != sizeof(*sb))
		return "wrong superblock size";
	if (sb->key_size > SHMSTORE_KEY_MAX)
		return "key too long";
	if (sb->n_buffers > SHMSTORE_BUFFERS_MAX)
		return "too many buffers";
	if (sb->metadata_size > SHMSTORE_HEADER_MAX)
		return "metadata too large";
	if (sb->header_size > file_size || sb->buffer_size != file_size - sb->header_size)
		return "sizes do not add up to the file's";
	if (sb->header_size % align)
		return "first buffer misaligned";
	layout_head(l, sb->key_size, sb->n_buffers);
	l->metadata_size = sb->metadata_size;
	l->header_size = sb->header_size;
	l->buffer_size = sb->buffer_size;
	if (l->metadata_off + l->metadata_size > l->header_size)
		return "key, table and metadata pass the header's end";
	return NULL;
}

static const char *check_table(const struct shms_entry *table, const struct shms_layout *l)
{
	uint64_t end = l->header_size + l->buffer_size, least = l->header_size;

	for (uint32_t i = 0; i < l->n_buffers; i++) {
		uint64_t off = table[i].offset, size = table[i].size;

		if (table[i].flags || table[i].reserved)
			return "unknown flags of a buffer";
		if (off % SHMS_FORMAT_ALIGN)
			return "buffer misaligned";
		if (i == 0 && off != l->header_size)
			return "first buffer not at the header's end";
		if (off < least)
			return "buffers overlap";
		if (off > end && size)
			return "buffer past the end";
		if (off > align_up(end, SHMS_FORMAT_ALIGN) || (size && size > end - off))
			return "buffer past the end";
		least = off + size;
	}
	if (l->n_buffers == 0 && l->buffer_size)
		return "bytes that belong to no buffer";
	return NULL;
}

int shms_format_need(const void *file, size_t size, uint64_t file_size, uint64_t *ret_need)
{
	struct shms_superblock sb;
	struct shms_layout l;
	int r;

	if (size < sizeof(sb))
		return -EBADMSG;
	memcpy(&sb, file, sizeof(sb));
	if (check_superblock(&sb, file_size, &l, &r))
		return r;
	*ret_need = l.metadata_off + l.metadata_size;
	return 0;
}

/* The same of all of the header, with *ret_error as check_superblock() sets it. */
static const char *parse(const void *file, size_t size, uint64_t file_size, struct shms_object *ret,
			 int *ret_error)
{
	struct shms_object o = {0};
	struct shms_superblock sb;
	const char *reason;

	*ret_error = -EBADMSG;
	if (size < sizeof(sb) || file_size < size)
		return "shorter than a superblock";
	memcpy(&sb, file, sizeof(sb));
	reason = check_superblock(&sb, file_size, &o.layout, ret_error);
	if (reason)
		return reason;
	if (o.layout.metadata_off + o.layout.metadata_size > size)
		return "header cut short";
	o.key = (const char *)file + sizeof(sb);
	o.table =
		(const struct shms_entry *)(const void *)((const char *)file + o.layout.table_off);
	o.metadata = (const char *)file + o.layout.metadata_off;
	if (shms_format_hash(file, o.layout.metadata_off, o.metadata, o.layout.metadata_size) !=
	    sb.header_hash)
		return "the header does not match its hash";
	reason = check_table(o.table, &o.layout);
	if (reason)
		return reason;
	o.generation = sb.generation;
	o.checksum = (sb.compat_flags & SHMS_FORMAT_CHECKSUM) != 0;
	memcpy(o.buffer_hash, sb.buffer_hash, sizeof(o.buffer_hash));
	*ret = o;
	return NULL;
}

int shms_format_parse(const void *file, size_t size, uint64_t file_size, struct shms_object *ret,
		      const char **ret_reason)
{
	int error;
	const char *reason = parse(file, size, file_size, ret, &error);

	if (ret_reason)
		*ret_reason = reason;
	return reason ? error : 0;
}

int shms_format_glance(const void *file, size_t size, uint64_t file_size, const void **ret_key,
		       size_t *ret_key_size)
{
	struct shms_superblock sb;
	struct shms_object o;
	struct shms_layout l;
	int r;

	if (size < sizeof(sb) || file_size < size)
		return -EBADMSG;
	memcpy(&sb, file, sizeof(sb));
	if (check_superblock(&sb, file_size, &l, &r))
		return r;
	if (sizeof(sb) + l.key_size > size)
		return -EBADMSG;
	/* The hash is set last. */
	if (l.metadata_off + l.metadata_size > size)
		r = sb.header_hash ? 0 : -EBADMSG;
	else
		r = shms_format_parse(file, size, file_size, &o, NULL);
	if (r < 0)
		return r;
	*ret_key_size = l.key_size;
	*ret_key = (const char *)file + sizeof(sb);
	return 0;
}

bool shms_format_verify_buffers(const struct shms_object *o, const void *buffers)
{
	XXH128_hash_t h = XXH3_128bits(buffers, o->layout.buffer_size);

	return h.low64 == o->buffer_hash[0] && h.high64 == o->buffer_hash[1];
}
