/* SPDX-License-Identifier: Apache-2.0 */
/* create, seal and abort in files of the pool: what the producer sees there, who else does, and
 * where the file is afterwards. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"
#include "recycle.h"

enum {
	SIZE = 300000,
	OTHER = 5000,
};

/* The store's pool has one file, of an object of SIZE bytes. */
static struct shmstore *store_with_pool(uint64_t *ret_inode)
{
	struct shmstore *s = scratch_store("w");

	cr_assert_eq(put_pattern(s, "old", SIZE, 1, 0), 0);
	*ret_inode = inode_of("w", "old");
	cr_assert_eq(shmstore_delete(s, KEY("old")), 0);
	cr_assert_eq(count_in_store("w", "recycle"), 1);
	return s;
}

static struct shmstore_writer *begin(struct shmstore *s, const char *key, uint64_t size,
				     unsigned flags)
{
	struct shmstore_writer *w;

	cr_assert_eq(shmstore_create(s, KEY(key), PATTERN_HEADER, &size, 1, flags, &w), 0);
	return w;
}

/* Writes the bytes that put_pattern() puts. */
static void fill(struct shmstore_writer *w, uint64_t seed)
{
	uint64_t size;
	void *bytes = shmstore_writer_buffer(w, 0, &size);

	pattern_fill(shmstore_writer_header(w, NULL), PATTERN_HEADER, seed + 1);
	pattern_fill(bytes, size, seed);
}

static void end(struct shmstore *s)
{
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static bool all_zero(const unsigned char *bytes, uint64_t size)
{
	return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

Test(recycle_writer, takes_a_pooled_file_and_reads_as_zero)
{
	uint64_t inode, sizes[] = {70001, 0, 150003};
	struct shmstore *s = store_with_pool(&inode);
	struct shmstore_writer *w;
	struct shmstore_view *v;

	cr_assert_eq(shmstore_create(s, KEY("k"), 50, sizes, 3, SHMSTORE_CHECKSUM, &w), 0);
	cr_assert(all_zero(shmstore_writer_header(w, NULL), 50));
	for (size_t i = 0; i < 3; i++) {
		unsigned char *bytes = shmstore_writer_buffer(w, i, NULL);

		cr_assert(all_zero(bytes, sizes[i]), "buffer %zu", i);
		pattern_fill(bytes, sizes[i], i);
	}
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0, "not before it is sealed");
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(inode_of("w", "k"), inode, "the same file");
	v = get_view(s, "k", SHMSTORE_VERIFY);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(pattern_check(shmstore_view_buffer(v, i, NULL), sizes[i], i),
			     sizes[i]);
	shmstore_view_unref(v);
	end(s);
}

/* The caller fills all of it, so what was there may stay: but nothing outside of its buffers. */
Test(recycle_writer, uncleared_keeps_what_was_there_within_buffers_alone)
{
	uint64_t inode, sizes[] = {100001, 150003};
	struct shmstore *s = store_with_pool(&inode);
	unsigned char *first, *second;
	struct shmstore_writer *w;

	cr_assert_eq(shmstore_create(s, KEY("k"), 50, sizes, 2, SHMSTORE_UNCLEARED, &w), 0);
	first = shmstore_writer_buffer(w, 0, NULL);
	second = shmstore_writer_buffer(w, 1, NULL);
	cr_assert(!all_zero(second, sizes[1]), "nothing was cleared");
	cr_assert(all_zero(shmstore_writer_header(w, NULL), 50));
	cr_assert(all_zero(first + sizes[0], (uint64_t)(second - first) - sizes[0]),
		  "the gap between buffers");
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(inode_of("w", "k"), inode);
	end(s);
}

Test(recycle_writer, sizes_and_checksums_come_out_right)
{
	struct shmstore *s = scratch_store("w");
	uint64_t seed = 1, size;

	for (uint64_t i = 0; i < 300; i++) {
		pattern_fill(&seed, sizeof(seed), seed);
		size = seed % (i % 3 ? 30000 : 500000);
		cr_assert_eq(
			seal_pattern(s, "k", size, i, seed & (1u << 30) ? SHMSTORE_CHECKSUM : 0),
			0);
		cr_assert_eq(get_pattern(s, "k", size, i), 0, "round %llu", (unsigned long long)i);
		if (i % 4 == 0)
			cr_assert_eq(put_pattern(s, "k", size, i + 1, SHMSTORE_REPLACE), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	}
	cr_assert_eq(ensure_books_close().residual, 0);
	end(s);
}

Test(recycle_writer, sealed_memory_is_gone_from_the_producer_each_time)
{
	uint64_t inode;
	struct shmstore *s = store_with_pool(&inode);
	char *known[4];

	for (uint64_t i = 0; i < 4; i++) {
		struct shmstore_writer *w = begin(s, "k", SIZE, 0);

		known[i] = shmstore_writer_buffer(w, 0, NULL);
		fill(w, i);
		cr_assert_eq(shmstore_seal(w), 0);
		cr_assert_eq(inode_of("w", "k"), inode);
		for (uint64_t k = 0; k <= i; k++) {
			cr_assert_eq(msync(known[k], 4096, MS_ASYNC), -1, "object %d's, after %d",
				     (int)k, (int)i);
			cr_assert_eq(errno, ENOMEM);
		}
		cr_assert_eq(get_pattern(s, "k", SIZE, i), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	}
	end(s);
}

Test(recycle_writer, file_that_a_view_shows_is_not_taken)
{
	struct shmstore *s = scratch_store("w");
	struct shmstore_view *v;
	struct shmstore_writer *w;
	uint64_t inode;

	cr_assert_eq(put_pattern(s, "old", SIZE, 1, 0), 0);
	inode = inode_of("w", "old");
	v = get_view(s, "old", 0);
	cr_assert_eq(shmstore_delete(s, KEY("old")), 0);
	w = begin(s, "k", SIZE, 0);
	fill(w, 2);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_neq(inode_of("w", "k"), inode);
	shmstore_view_unref(v);
	end(s);
}

Test(recycle_writer, aborted_or_refused_the_file_is_in_the_pool_again)
{
	uint64_t inode;
	struct shmstore *s = store_with_pool(&inode);
	struct shmstore_usage before = ensure_books_close(), during;
	struct shmstore_writer *w = begin(s, "k", SIZE, 0);

	fill(w, 2);
	during = ensure_books_close();
	cr_assert_eq(during.used, before.used, "takes no memory");
	cr_assert_eq(during.pool, before.pool);
	shmstore_abort(w);
	cr_assert_eq(ensure_books_close().pool, before.pool);
	cr_assert_eq(put_pattern(s, "held", OTHER, 3, 0), 0);
	w = begin(s, "held", SIZE, 0);
	fill(w, 4);
	cr_assert_eq(shmstore_seal(w), -EEXIST);
	cr_assert_eq(get_pattern(s, "held", OTHER, 3), 0);
	w = begin(s, "held", SIZE, SHMSTORE_REPLACE);
	fill(w, 5);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(get_pattern(s, "held", SIZE, 5), 0);
	cr_assert_eq(inode_of("w", "held"), inode);
	end(s);
}

/* Somebody's hand: the file can have no name again. */
Test(recycle_writer, file_without_a_name_is_sealed_by_a_copy)
{
	uint64_t inode;
	struct shmstore *s = store_with_pool(&inode);
	struct shmstore_writer *w = begin(s, "k", SIZE, SHMSTORE_CHECKSUM);
	int dir = open(scratch_store_path("w", "recycle"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(dir);
	int n = 0;

	ENSURE(d);
	fill(w, 2);
	for (struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.' && unlinkat(dir, e->d_name, 0) == 0;
	closedir(d);
	cr_assert_eq(n, 1);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 2), 0);
	ensure_books_close();
	end(s);
}

static void close_with_writer(bool keep)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_writer *w;
	struct shmstore *s;

	o.keep = keep;
	cr_assert_eq(shmstore_open(p, "w", &o, &s), 0);
	cr_assert_eq(put_pattern(s, "old", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("old")), 0);
	w = begin(s, "k", SIZE, 0);
	cr_assert_eq(shmstore_close(s), 0);
	fill(w, 2); /* its memory is there still */
	cr_assert_eq(shmstore_seal(w), -EPERM);
	if (keep) {
		cr_assert_eq(count_in_store("w", "recycle"), 0);
		cr_assert_eq(ensure_books_close().pool, 0);
		o.keep = false;
		cr_assert_eq(shmstore_open(p, "w", &o, &s), 0);
		cr_assert_eq(shmstore_close(s), 0);
	}
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(recycle_writer, outlives_its_store_only_to_be_refused)
{
	close_with_writer(false);
}

Test(recycle_writer, leaves_nothing_in_a_kept_store_that_is_closed)
{
	close_with_writer(true);
}

struct forked {
	struct shmstore_writer *w;
	char *bytes;
};

/* The memory is no child's, and what a child does with the writer changes nothing. */
static int seal_in_child(void *arg)
{
	struct forked *f = arg;

	if (msync(f->bytes, 4096, MS_ASYNC) == 0)
		return 1;
	return shmstore_seal(f->w) == -EPERM ? 0 : 2;
}

Test(recycle_writer, is_its_own_process_alone)
{
	uint64_t inode;
	struct shmstore *s = store_with_pool(&inode);
	struct shmstore_writer *w = begin(s, "k", SIZE, 0);
	struct forked f = {w, shmstore_writer_buffer(w, 0, NULL)};

	fill(w, 2);
	cr_assert_eq(in_child(seal_in_child, &f), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(inode_of("w", "k"), inode);
	cr_assert_eq(get_pattern(s, "k", SIZE, 2), 0);
	end(s);
}

Test(recycle_writer, pinned_object_gets_a_file_of_its_own)
{
	uint64_t inode;
	struct shmstore *s = store_with_pool(&inode);
	struct shmstore_writer *w = begin(s, "k", SIZE, SHMSTORE_PIN);

	fill(w, 2);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_neq(inode_of("w", "k"), inode);
	end(s);
}

/* All slots are being written: what comes then is made anew, and is not kept. */
Test(recycle_writer, more_writers_than_slots)
{
	enum {
		N = SHMS_RECYCLE_SLOTS + 3
	};
	struct shmstore *s = scratch_store("w");
	struct shmstore_writer *writers[N];
	char key[16];

	for (int i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "o%d", i);
		cr_assert_eq(put_pattern(s, key, SIZE, 1, 0), 0);
	}
	for (int i = 0; i < SHMS_RECYCLE_SLOTS; i++) {
		snprintf(key, sizeof(key), "o%d", i);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
	}
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		writers[i] = begin(s, key, SIZE, 0);
	}
	cr_assert_eq(put_pattern(s, "beside", SIZE, 9, 0), 0);
	for (int i = 0; i < N; i++) {
		fill(writers[i], (uint64_t)i);
		cr_assert_eq(shmstore_seal(writers[i]), 0);
	}
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(get_pattern(s, key, SIZE, (uint64_t)i), 0);
	}
	ensure_books_close();
	end(s);
}
