/* SPDX-License-Identifier: Apache-2.0 */
/* forge.c: see forge.h. Uses the library's own encoder: that encoder and parser agree with
 * docs/format.md is test_format.c's. */
#include "forge.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"

struct forged forge_object(const void *key, size_t key_size, size_t metadata_size,
			   const uint64_t *sizes, size_t n_buffers)
{
	struct forged f = {0};
	uint64_t off;

	ENSURE(shms_layout_init(&f.layout, key_size, metadata_size, sizes, n_buffers, 0));
	f.size = f.layout.header_size + f.layout.buffer_size;
	f.file = aligned_alloc(4096, (f.size + 4095) & ~(size_t)4095);
	ENSURE(f.file);
	memset(f.file, 0, f.size);
	shms_format_head(&f.layout, key, sizes, 0x1122334455667788u, f.file);
	pattern_fill(f.file + f.layout.metadata_off, metadata_size, 7);
	off = f.layout.header_size;
	for (size_t i = 0; i < n_buffers; i++) {
		pattern_fill(f.file + off, sizes[i], 100 + i);
		off = shms_layout_next(off, sizes[i]);
	}
	forge_rehash(&f);
	return f;
}

void forge_free(struct forged *f)
{
	free(f->file);
	f->file = NULL;
}

void forge_rehash(struct forged *f)
{
	struct shms_superblock *sb = forged_sb(f);
	uint64_t table_off = (sizeof(*sb) + (uint64_t)sb->key_size + 7) & ~(uint64_t)7;
	uint64_t metadata_off = table_off + (uint64_t)sb->n_buffers * sizeof(struct shms_entry);

	if (metadata_off > f->size || sb->metadata_size > f->size - metadata_off)
		return;
	sb->header_hash =
		shms_format_hash(f->file, metadata_off, f->file + metadata_off, sb->metadata_size);
}

void forge_write(const struct forged *f, const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0400);
	size_t done = 0;

	ENSURE(fd >= 0);
	while (done < f->size) {
		ssize_t n = write(fd, f->file + done, f->size - done);

		ENSURE(n > 0);
		done += (size_t)n;
	}
	close(fd);
}
