/* SPDX-License-Identifier: Apache-2.0 */
/* content.c: see content.h. */
#include "content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTENT_MAGIC 0x746e65746e6f6321ull

struct content_header {
	uint64_t magic, seed, size, hash;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* The parameters of a buffer's words: in a soft content word i is the same as its neighbours, up
 * to 1 << shift of them. */
struct pattern {
	uint64_t base, first;
	unsigned shift;
};

static struct pattern pattern_of(uint64_t seed, uint64_t offset)
{
	return (struct pattern){mix(seed), offset / 8, seed & CONTENT_SOFT ? 6 : 0};
}

static uint64_t word(struct pattern p, uint64_t i)
{
	return mix(p.base + ((p.first + i) >> p.shift));
}

/* offset: of the first byte within the content, a multiple of 8. */
void content_fill(void *buf, uint64_t size, uint64_t seed, uint64_t offset)
{
	const struct pattern pattern = pattern_of(seed, offset);
	unsigned char *p = buf;
	uint64_t i = 0;
	for (; (i + 1) * 8 <= size; i++) {
		uint64_t w = word(pattern, i);
		memcpy(p + i * 8, &w, 8);
	}
	if (i * 8 < size) {
		uint64_t w = word(pattern, i);
		memcpy(p + i * 8, &w, size - i * 8);
	}
}

bool content_matches(const void *buf, uint64_t size, uint64_t seed, uint64_t offset)
{
	const struct pattern pattern = pattern_of(seed, offset);
	const unsigned char *p = buf;
	uint64_t i = 0, wrong = 0;
	for (; (i + 1) * 8 <= size; i++) {
		uint64_t w;
		memcpy(&w, p + i * 8, 8);
		wrong |= w ^ word(pattern, i);
	}
	if (i * 8 < size) {
		uint64_t w = word(pattern, i);
		wrong |= (uint64_t)(memcmp(p + i * 8, &w, size - i * 8) != 0);
	}
	return wrong == 0;
}

static struct content_header header_of(struct content c)
{
	return (struct content_header){CONTENT_MAGIC, c.seed, c.size, mix(c.seed ^ mix(c.size))};
}

static size_t split(struct content c, uint64_t ret_sizes[2])
{
	if (c.size == 0)
		return 0;
	ret_sizes[0] = c.size;
	if (c.size < 1024)
		return 1;
	ret_sizes[0] = (c.size / 3) & ~7ull;
	ret_sizes[1] = c.size - ret_sizes[0];
	return 2;
}

/* content_put()'s source, kept: a put under test shall not allocate on our behalf */
static _Thread_local unsigned char *scratch;
static _Thread_local uint64_t scratch_size;

int content_reserve(uint64_t size)
{
	if (size <= scratch_size)
		return 0;
	free(scratch);
	scratch = malloc(size);
	scratch_size = scratch ? size : 0;
	return scratch ? 0 : -ENOMEM;
}

int content_put(struct shmstore *s, const void *key, size_t key_size, struct content c,
		unsigned flags)
{
	int rc = content_reserve(c.size);
	if (rc < 0)
		return rc;
	content_fill(scratch, c.size, c.seed, 0);
	uint64_t sizes[2];
	size_t n = split(c, sizes);
	struct iovec iov[2];
	uint64_t at = 0;
	for (size_t i = 0; i < n; at += sizes[i], i++)
		iov[i] = (struct iovec){scratch + at, sizes[i]};
	struct content_header h = header_of(c);
	return shmstore_put(s, key, key_size, &h, sizeof(h), n ? iov : NULL, n, flags);
}

void content_fill_writer(struct shmstore_writer *w, struct content c)
{
	struct content_header h = header_of(c);
	size_t room;
	void *header = shmstore_writer_header(w, &room);
	if (room >= sizeof(h))
		memcpy(header, &h, sizeof(h));
	uint64_t sizes[2], at = 0;
	size_t n = split(c, sizes);
	for (size_t i = 0; i < n; at += sizes[i], i++) {
		void *buf = shmstore_writer_buffer(w, i, NULL);
		content_fill(buf, sizes[i], c.seed, at);
	}
}

int content_create(struct shmstore *s, const void *key, size_t key_size, struct content c,
		   unsigned flags)
{
	uint64_t sizes[2];
	size_t n = split(c, sizes);
	struct shmstore_writer *w = NULL;
	int rc = shmstore_create(s, key, key_size, sizeof(struct content_header), n ? sizes : NULL,
				 n, flags, &w);
	if (rc < 0)
		return rc;
	content_fill_writer(w, c);
	return shmstore_seal(w);
}

static const char *check_header(const void *bytes, size_t size, struct content *ret)
{
	struct content_header h, want;
	if (size != sizeof(h))
		return "size of the header";
	memcpy(&h, bytes, sizeof(h));
	*ret = (struct content){h.seed, h.size};
	want = header_of(*ret);
	return memcmp(&h, &want, sizeof(h)) == 0 ? NULL : "bytes of the header";
}

const char *content_check(const struct shmstore_view *v, struct content *ret)
{
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);
	const char *why = check_header(header, header_size, ret);
	if (why)
		return why;
	uint64_t sizes[2], at = 0;
	size_t n = split(*ret, sizes);
	if (shmstore_view_n_buffers(v) != n)
		return "number of buffers";
	for (size_t i = 0; i < n; at += sizes[i], i++) {
		uint64_t size;
		const void *buf = shmstore_view_buffer(v, i, &size);
		if (size != sizes[i])
			return "size of a buffer";
		if (!content_matches(buf, size, ret->seed, at))
			return "bytes of a buffer";
	}
	return NULL;
}

int content_put_view(struct shmstore *s, const struct shmstore_view *v, const void *key,
		     size_t key_size, unsigned flags)
{
	struct iovec iov[2];
	size_t n = shmstore_view_n_buffers(v), header_size;
	for (size_t i = 0; i < n && i < 2; i++) {
		uint64_t size;
		iov[i].iov_base = shmstore_view_buffer(v, i, &size);
		iov[i].iov_len = size;
	}
	const void *header = shmstore_view_header(v, &header_size);
	return shmstore_put(s, key, key_size, header, header_size, iov, n, flags);
}

int content_rename(struct shmstore *s, const char *from, const char *to)
{
	struct shmstore_view *v = NULL;
	int rc = shmstore_get(s, from, strlen(from), 0, &v);
	if (rc < 0)
		return rc;
	rc = content_put_view(s, v, to, strlen(to), 0);
	shmstore_view_unref(v);
	return rc < 0 ? rc : shmstore_delete(s, from, strlen(from));
}

/* Knows of the format only what docs/format.md says: the header's size at 16, buffers 64-byte
 * aligned in order, metadata after the table. The content's header is looked for by its magic. */
const char *content_check_file(const void *file, size_t size, struct content *ret)
{
	if (size < 128)
		return "size of the file";
	uint64_t header_size;
	memcpy(&header_size, (const char *)file + 16, sizeof(header_size));
	if (header_size > size)
		return "header size of the file";
	const char *p = file;
	size_t off = 128;
	const uint64_t magic = CONTENT_MAGIC;
	while (off + sizeof(struct content_header) <= header_size &&
	       memcmp(p + off, &magic, sizeof(magic)) != 0)
		off++;
	if (off + sizeof(struct content_header) > header_size)
		return "no content's header";
	const char *why = check_header(p + off, sizeof(struct content_header), ret);
	if (why)
		return why;
	uint64_t sizes[2] = {0}, at = 0, place = header_size;
	size_t n = split(*ret, sizes);
	for (size_t i = 0; i < n; i++) {
		if (place + sizes[i] > size)
			return "end of the file";
		if (!content_matches(p + place, sizes[i], ret->seed, at))
			return "bytes of a buffer";
		at += sizes[i];
		place = (place + sizes[i] + 63) & ~63ull;
	}
	return NULL;
}

int content_get(struct shmstore *s, const void *key, size_t key_size, struct content *ret,
		const char **ret_why)
{
	struct shmstore_view *v = NULL;
	int rc = shmstore_get(s, key, key_size, 0, &v);
	if (rc < 0)
		return rc;
	const char *why = content_check(v, ret);
	if (why && ret_why)
		*ret_why = why;
	shmstore_view_unref(v);
	return why ? -EILSEQ : 0;
}
