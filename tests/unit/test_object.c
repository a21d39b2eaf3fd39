/* SPDX-License-Identifier: Apache-2.0 */
/* put, get, contains, delete, foreach: shapes of objects, keys, errors. */
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

/* An object of n buffers whose sizes are sizes[i], put and compared in full. */
static void round_trip(struct shmstore *s, size_t key_size, size_t header_size,
		       const uint64_t *sizes, size_t n, unsigned flags)
{
	struct iovec *iov = calloc(n + 1, sizeof(*iov));
	unsigned char *key = malloc(key_size + 1), *header = malloc(header_size + 1);
	struct shmstore_view *v = NULL;
	const void *got;
	size_t size;
	int r;

	cr_assert(iov && key && header);
	pattern_fill(key, key_size, key_size);
	pattern_fill(header, header_size, 2);
	for (size_t i = 0; i < n; i++) {
		iov[i] = (struct iovec){malloc(sizes[i] + 1), sizes[i]};
		cr_assert_not_null(iov[i].iov_base);
		pattern_fill(iov[i].iov_base, sizes[i], 10 + i);
	}
	r = shmstore_put(s, key, key_size, header, header_size, iov, n, flags);
	cr_assert_eq(r, 0, "put: %s", shmstore_strerror(r));
	cr_assert_eq(shmstore_contains(s, key, key_size), 1);
	r = shmstore_get(s, key, key_size, SHMSTORE_VERIFY, &v);
	cr_assert_eq(r, 0, "get: %s", shmstore_strerror(r));
	got = shmstore_view_key(v, &size);
	cr_assert_eq(size, key_size);
	cr_assert_eq(memcmp(got, key, key_size), 0);
	got = shmstore_view_header(v, &size);
	cr_assert_eq(size, header_size);
	cr_assert_eq(memcmp(got, header, header_size), 0);
	cr_assert_eq(shmstore_view_n_buffers(v), n);
	for (size_t i = 0; i < n; i++) {
		uint64_t buffer_size = 12345;
		void *buffer = shmstore_view_buffer(v, i, &buffer_size);

		cr_assert_not_null(buffer);
		cr_assert_eq(buffer_size, sizes[i]);
		cr_assert(sizes[i] == 0 || (uintptr_t)buffer % 64 == 0, "buffer %zu", i);
		cr_assert_eq(memcmp(buffer, iov[i].iov_base, sizes[i]), 0, "buffer %zu", i);
		free(iov[i].iov_base);
	}
	cr_assert_null(shmstore_view_buffer(v, n, NULL));
	cr_assert_null(shmstore_view_buffer(v, SIZE_MAX, NULL));
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(s, key, key_size), 0);
	cr_assert_eq(shmstore_contains(s, key, key_size), 0);
	cr_assert_eq(shmstore_get(s, key, key_size, 0, &v), -ENOENT);
	cr_assert_eq(shmstore_delete(s, key, key_size), -ENOENT);
	free(iov);
	free(key);
	free(header);
}

Test(object, shapes_round_trip)
{
	static const uint64_t shapes[][5] = {
		{0},          {1},     {63, 1}, {64, 64, 64}, {0, 0, 0, 0, 0},
		{4096, 0, 1}, {65535}, {65536}, {65537, 1},   {1, 100000, 0, 7, 4096},
		{3 << 20},
	};
	struct shmstore *s = scratch_store("a");

	for (int round = 0; round < 2; round++) { /* the second one into recycled files */
		for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			for (size_t n = 0; n <= 5; n++) {
				round_trip(s, 3, 0, shapes[i], n, 0);
				round_trip(s, 3, 100, shapes[i], n, SHMSTORE_CHECKSUM);
			}
		}
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, empty_and_header_only_objects_work)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	size_t size = 1;

	cr_assert_eq(shmstore_put(s, "e", 1, NULL, 0, NULL, 0, 0), 0);
	cr_assert_eq(shmstore_get(s, "e", 1, SHMSTORE_VERIFY, &v), 0);
	cr_assert_eq(shmstore_view_n_buffers(v), 0);
	shmstore_view_header(v, &size);
	cr_assert_eq(size, 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_get(s, "e", 1, SHMSTORE_COW, &v), 0);
	shmstore_view_unref(v);
	for (size_t header = 1; header < 300000; header = header * 3 + 1) {
		round_trip(s, 3, header, NULL, 0, 0);
		round_trip(s, 3, header, NULL, 0, SHMSTORE_CHECKSUM);
	}
	cr_assert_eq(shmstore_delete(s, "e", 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, keys_from_nothing_to_the_limit_work)
{
	static const size_t sizes[] = {0, 1, 85, 86, 254, 255, 256, 1000, SHMSTORE_KEY_MAX};
	struct shmstore *s = scratch_store("a");
	static char long_key[SHMSTORE_KEY_MAX + 1];
	struct shmstore_view *v;
	uint64_t size = 500;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		round_trip(s, sizes[i], 20, &size, 1, 0);
	cr_assert_eq(shmstore_put(s, long_key, sizeof(long_key), NULL, 0, NULL, 0, 0), -EINVAL);
	cr_assert_eq(shmstore_get(s, long_key, sizeof(long_key), 0, &v), -EINVAL);
	cr_assert_eq(shmstore_contains(s, long_key, sizeof(long_key)), -EINVAL);
	cr_assert_eq(shmstore_delete(s, long_key, sizeof(long_key)), -EINVAL);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, more_buffers_than_one_writev_takes)
{
	struct shmstore *s = scratch_store("a");
	static uint64_t sizes[3 * IOV_MAX + 5];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		sizes[i] = i % 5 ? i % 131 : 0;
	for (size_t n = IOV_MAX / 2 - 3; n < IOV_MAX / 2 + 3; n++)
		round_trip(s, 5, 10, sizes, n, 0);
	for (size_t n = IOV_MAX - 3; n < IOV_MAX + 3; n++)
		round_trip(s, 5, 0, sizes, n, SHMSTORE_CHECKSUM);
	round_trip(s, 5, 77, sizes, sizeof(sizes) / sizeof(sizes[0]), SHMSTORE_CHECKSUM);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, held_key_is_eexist_and_untouched)
{
	struct shmstore *s = scratch_store("a");

	for (uint64_t size = 10; size < 1000000; size *= 10) {
		cr_assert_eq(put_pattern(s, "k", size, 1, 0), 0);
		cr_assert_eq(put_pattern(s, "k", size, 2, 0), -EEXIST);
		cr_assert_eq(seal_pattern(s, "k", size, 3, 0), -EEXIST);
		cr_assert_eq(get_pattern(s, "k", size, 1), 0);
		cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, replaced_key_means_the_new_object_and_old_views_the_old)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *old[20];

	cr_assert_eq(put_pattern(s, "k", 70000, 0, SHMSTORE_REPLACE), 0, "replacing nothing puts");
	for (uint64_t i = 0; i < 20; i++) {
		old[i] = get_view(s, "k", 0);
		cr_assert_eq((i % 2 ? seal_pattern : put_pattern)(s, "k", 70000 + i % 3, i + 1,
								  SHMSTORE_REPLACE),
			     0);
		cr_assert_eq(get_pattern(s, "k", 70000 + i % 3, i + 1), 0);
		cr_assert_eq(count_objects(s), 1);
	}
	for (uint64_t i = 0; i < 20; i++) {
		cr_assert_eq(view_pattern(old[i], i ? 70000 + (i - 1) % 3 : 70000, i), 0,
			     "view %llu", (unsigned long long)i);
		shmstore_view_unref(old[i]);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, flipped_byte_is_found_by_verify_only)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	FILE *f;
	const char *path = scratch_store_path("a", "objects/k");
	struct stat st;

	cr_assert_eq(put_pattern(s, "k", 100000, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(s, "plain", 100000, 1, 0), 0);
	cr_assert_eq(seal_pattern(s, "sealed", 100000, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(shmstore_get(s, "k", 1, SHMSTORE_VERIFY, &v), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_get(s, "sealed", 6, SHMSTORE_VERIFY | SHMSTORE_COW, &v), 0);
	shmstore_view_unref(v);
	for (int i = 0; i < 3; i++) {
		const char *keys[] = {"k", "plain", "sealed"};
		char name[32];

		snprintf(name, sizeof(name), "objects/%s", keys[i]);
		path = scratch_store_path("a", name);
		cr_assert_eq(chmod(path, 0600), 0);
		f = fopen(path, "r+e");
		cr_assert_not_null(f);
		cr_assert_eq(fstat(fileno(f), &st), 0);
		cr_assert_eq(fseek(f, st.st_size - 50000, SEEK_SET), 0);
		cr_assert_eq(fputc('x', f), 'x');
		fclose(f);
		cr_assert_eq(shmstore_get(s, keys[i], strlen(keys[i]), 0, &v), 0,
			     "unasked it is not read");
		shmstore_view_unref(v);
		v = NULL;
		cr_assert_eq(shmstore_get(s, keys[i], strlen(keys[i]), SHMSTORE_VERIFY, &v),
			     i == 1 ? 0 : -EBADMSG);
		shmstore_view_unref(v);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, wrong_arguments_are_einval)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	struct shmstore_store_usage u;
	struct iovec null = {NULL, 5};
	struct iovec one = {(void *)(uintptr_t) "x", 1};

	cr_assert_eq(shmstore_put(NULL, "k", 1, NULL, 0, NULL, 0, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, NULL, 1, NULL, 0, NULL, 0, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 1, NULL, 0, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 0, NULL, 1, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 0, &null, 1, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 0, &one, 1, 1u << 20), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 0, &one, 1, SHMSTORE_COW), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, NULL, 0, &one, SHMSTORE_BUFFERS_MAX + 1, 0), -EINVAL);
	cr_assert_eq(shmstore_put(s, "k", 1, "h", SHMSTORE_HEADER_MAX + 1, NULL, 0, 0), -EINVAL);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(shmstore_get(NULL, "k", 1, 0, &v), -EINVAL);
	cr_assert_eq(shmstore_get(s, "k", 1, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_get(s, "k", 1, SHMSTORE_REPLACE, &v), -EINVAL);
	cr_assert_eq(shmstore_get(s, NULL, 1, 0, &v), -EINVAL);
	cr_assert_eq(shmstore_contains(NULL, "k", 1), -EINVAL);
	cr_assert_eq(shmstore_contains(s, NULL, 1), -EINVAL);
	cr_assert_eq(shmstore_delete(NULL, "k", 1), -EINVAL);
	cr_assert_eq(shmstore_foreach(NULL, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_usage(NULL, &u), -EINVAL);
	cr_assert_eq(shmstore_usage(s, NULL), -EINVAL);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- foreach --------------------------------------------------------------------------------- */

struct listing {
	struct shmstore *s;
	unsigned seen[40];
	int n, error;
	bool delete;
};

static int list_one(const struct shmstore_object_info *info, void *arg)
{
	struct listing *l = arg;
	unsigned i;

	cr_assert_eq(info->size, sizeof(*info));
	if (info->error) {
		l->error = info->error;
		return 0;
	}
	cr_assert_geq(info->key_size, 4);
	i = (unsigned)strtoul(info->key, NULL, 10);
	cr_assert_lt(i, 40);
	cr_assert_eq(info->key_size, i % 2 ? 300 : 4);
	cr_assert_eq(info->n_buffers, 1);
	cr_assert_geq(info->header_size + info->buffer_size, 1000 * (i + 1));
	cr_assert_geq(info->blocks, 1000 * (i + 1));
	cr_assert_eq(info->links, 1);
	cr_assert_neq(info->inode, 0);
	l->seen[i]++;
	l->n++;
	if (l->delete)
		cr_assert_eq(shmstore_delete(l->s, info->key, info->key_size), 0);
	return l->n == -1;
}

Test(object, foreach_tells_every_object_once_and_lets_delete)
{
	struct listing l = {.s = scratch_store("a")};
	char key[300];

	for (unsigned i = 0; i < 40; i++) {
		struct iovec iov = {calloc(1, 1000 * (i + 1)), 1000 * (i + 1)};

		memset(key, ' ', sizeof(key));
		snprintf(key, sizeof(key), "%03u", i);
		key[3] = ' ';
		cr_assert_eq(shmstore_put(l.s, key, i % 2 ? 300 : 4, NULL, 0, &iov, 1, 0), 0);
		free(iov.iov_base);
	}
	cr_assert_eq(shmstore_foreach(l.s, list_one, &l), 0);
	cr_assert_eq(l.n, 40);
	for (unsigned i = 0; i < 40; i++)
		cr_assert_eq(l.seen[i], 1);
	l.n = -2; /* the first one makes it -1: the walk ends with the callback's value */
	cr_assert_eq(shmstore_foreach(l.s, list_one, &l), 1);
	cr_assert_eq(l.n, -1);
	l.n = 0;
	l.delete = true;
	cr_assert_eq(shmstore_foreach(l.s, list_one, &l), 0);
	cr_assert_eq(l.n, 40);
	cr_assert_eq(count_objects(l.s), 0);
	cr_assert_eq(shmstore_close(l.s), 0);
	ensure_nothing_left();
}

Test(object, torn_file_is_listed_with_its_error_and_refused)
{
	struct listing l = {.s = scratch_store("a")};
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(l.s, "k", 100000, 1, 0), 0);
	cr_assert_eq(chmod(scratch_store_path("a", "objects/k"), 0600), 0);
	cr_assert_eq(truncate(scratch_store_path("a", "objects/k"), 5000), 0);
	cr_assert_eq(shmstore_get(l.s, "k", 1, 0, &v), -EBADMSG);
	cr_assert_eq(shmstore_foreach(l.s, list_one, &l), 0);
	cr_assert_eq(l.error, -EBADMSG);
	cr_assert_eq(truncate(scratch_store_path("a", "objects/k"), 0), 0);
	cr_assert_eq(shmstore_get(l.s, "k", 1, 0, &v), -EBADMSG);
	cr_assert_eq(shmstore_contains(l.s, "k", 1), 1);
	cr_assert_eq(shmstore_delete(l.s, "k", 1), 0);
	cr_assert_eq(count_objects(l.s), 0);
	cr_assert_eq(shmstore_close(l.s), 0);
	ensure_nothing_left();
}

Test(object, odd_things_in_objects_do_no_harm, .timeout = 20)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;

	cr_assert_eq(mkfifo(scratch_store_path("a", "objects/fifo"), 0600), 0);
	cr_assert_eq(mkdir(scratch_store_path("a", "objects/dir"), 0700), 0);
	cr_assert_eq(symlink("/etc/passwd", scratch_store_path("a", "objects/link")), 0);
	cr_assert_lt(shmstore_get(s, "fifo", 4, 0, &v), 0);
	cr_assert_lt(shmstore_get(s, "dir", 3, 0, &v), 0);
	cr_assert_lt(shmstore_get(s, "link", 4, 0, &v), 0);
	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	cr_assert_geq(count_objects(s), 1);
	cr_assert_eq(get_pattern(s, "k", 100, 1), 0);
	cr_assert_eq(rmdir(scratch_store_path("a", "objects/dir")), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- full ------------------------------------------------------------------------------------ */

Test(object, full_partition_is_enospc_and_leaves_nothing, .timeout = 120)
{
	struct shmstore *s;
	struct shmstore_usage before, after;
	int n = 0, r;
	char key[32];

	scratch_dir("size=32m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
	s = scratch_store("a");
	for (;; n++) {
		snprintf(key, sizeof(key), "k%d", n);
		r = put_pattern(s, key, 1 << 20, (uint64_t)n, 0);
		if (r < 0)
			break;
	}
	cr_assert_eq(r, -ENOSPC);
	cr_assert_gt(n, 25);
	before = ensure_books_close();
	for (unsigned i = 0; i < n_rounds(2500); i++) {
		cr_assert_eq((i % 2 ? put_pattern : seal_pattern)(s, "x", 3 << 20, 1,
								  i % 3 ? 0 : SHMSTORE_REPLACE),
			     -ENOSPC);
		cr_assert_eq(shmstore_contains(s, "x", 1), 0);
	}
	after = ensure_books_close();
	cr_assert_eq(after.used, before.used);
	cr_assert_eq(after.n_objects, before.n_objects);
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(get_pattern(s, key, 1 << 20, (uint64_t)i), 0, "%s", key);
	}
	cr_assert_eq(shmstore_delete(s, "k0", 2), 0);
	cr_assert_eq(put_pattern(s, "x", 1 << 20, 7, 0), 0, "and there is room again");
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, pool_and_dead_stores_make_room_on_a_full_partition)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;
	struct other o;

	scratch_dir("size=32m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
	p = scratch_partition();
	options.recycle_max = 1ull << 30;
	cr_assert_eq(shmstore_open(p, "a", &options, &s), 0);
	cr_assert_eq(put_pattern(s, "k", 20 << 20, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	cr_assert_geq(ensure_books_close().pool, 20u << 20);
	cr_assert_eq(put_pattern(s, "k", 13 << 20, 2, 0), 0,
		     "too small for the pooled file: that one goes");
	cr_assert_eq(get_pattern(s, "k", 13 << 20, 2), 0);
	o = other_start("dead");
	cr_assert_eq(other_put(&o, "d", 12 << 20, 3), 0);
	other_kill(&o);
	cr_assert_eq(put_pattern(s, "l", 14 << 20, 4, 0), 0, "what a dead process held goes");
	cr_assert_eq(get_pattern(s, "l", 14 << 20, 4), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(object, no_inodes_left_is_enospc)
{
	struct shmstore *s;
	char key[32];
	int n = 0, r;

	scratch_dir("size=32m,nr_inodes=100");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
	s = scratch_store("a");
	do {
		snprintf(key, sizeof(key), "k%d", n++);
		r = put_pattern(s, key, 100, 1, 0);
	} while (r == 0 && n < 1000);
	cr_assert_eq(r, -ENOSPC);
	cr_assert_gt(n, 50);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(object, no_descriptors_left_is_emfile)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	struct rlimit limit;
	int put, get;

	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}), 0);
	put = put_pattern(s, "x", 100, 1, 0);
	get = shmstore_get(s, "k", 1, 0, &v);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_assert_eq(put, -EMFILE);
	cr_assert_eq(get, -EMFILE);
	cr_assert_eq(get_pattern(s, "k", 100, 1), 0);
	cr_assert_eq(count_objects(s), 1);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
