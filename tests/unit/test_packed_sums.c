/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums and pins of packed objects: who finds damage, and that both stay with
 * the object wherever it goes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "segment.h"

#define SIZE 3000u

static struct shmstore *open_store(const char *name)
{
	return packing_store(name, 128u << 10, false);
}

/* Changes the first byte of that pattern in one of the store's segments. */
static void damage(const char *store, uint64_t size, uint64_t seed)
{
	DIR *dir = opendir(scratch_store_path(store, "segments"));
	unsigned n = 0;
	char *pattern = malloc(size);
	struct dirent *e;

	pattern_fill(pattern, size, seed);
	while (dir && (e = readdir(dir)) != NULL) {
		int fd = openat(dirfd(dir), e->d_name, O_RDWR | O_CLOEXEC);
		struct stat st;
		char *bytes, *at;

		if (e->d_name[0] == '.' || fd < 0 || fstat(fd, &st) < 0)
			continue;
		bytes = malloc((size_t)st.st_size);
		cr_assert_eq(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
		at = memmem(bytes, (size_t)st.st_size, pattern, size);
		if (at) {
			*at ^= 1;
			cr_assert_eq(pwrite(fd, at, 1, at - bytes), 1);
			n++;
		}
		free(bytes);
		close(fd);
	}
	closedir(dir);
	free(pattern);
	cr_assert_eq(n, 1);
}

struct flags {
	const char *key;
	unsigned n;
	bool checksum, pinned, packed;
};

static int look(const struct shmstore_object_info *info, void *arg)
{
	struct flags *f = arg;

	if (info->key_size != strlen(f->key) || memcmp(info->key, f->key, info->key_size) != 0)
		return 0;
	f->n++;
	f->checksum = info->checksum;
	f->pinned = info->pinned;
	f->packed = info->packed;
	return 0;
}

static struct flags flags_of(struct shmstore *s, const char *key)
{
	struct flags f = {.key = key};

	cr_assert_eq(shmstore_foreach(s, look, &f), 0);
	cr_assert_eq(f.n, 1);
	return f;
}

static int verified(struct shmstore *s, const char *key)
{
	struct shmstore_view *v;
	int r = shmstore_get(s, KEY(key), SHMSTORE_VERIFY, &v);

	if (r == 0)
		shmstore_view_unref(v);
	return r;
}

static struct shmstore_ticket handoff(struct shmstore *s, const char *key)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff(s, KEY(key), 60000, &t), 0);
	return t;
}

Test(packed_sums, get_finds_damage)
{
	struct shmstore_options only = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = open_store("a"), *reader;

	cr_assert_eq(put_pattern(s, "sum", SIZE, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(s, "none", SIZE, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "large", 100000, 3, SHMSTORE_CHECKSUM), 0);
	cr_assert(flags_of(s, "sum").checksum && flags_of(s, "sum").packed);
	cr_assert_not(flags_of(s, "none").checksum);
	cr_assert_eq(verified(s, "sum") || verified(s, "none") || verified(s, "large"), 0);
	damage("a", SIZE, 1);
	damage("a", SIZE, 2);
	cr_assert_eq(verified(s, "sum"), -EBADMSG);
	cr_assert_eq(verified(s, "none"), 0);
	cr_assert_eq(verified(s, "large"), 0);
	damage("a", 100000, 3);
	cr_assert_eq(verified(s, "large"), -EBADMSG);
	only.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &only, &reader), 0);
	cr_assert_eq(verified(reader, "sum"), -EBADMSG);
	cr_assert_eq(verified(reader, "none"), 0);
	cr_assert_eq(shmstore_close(reader), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* The gaps between buffers belong to what is summed, and lay in an object before. */
Test(packed_sums, gaps_are_zero_whatever_was_there)
{
	struct shmstore *s = open_store("a");
	char bytes[200], old[1000];
	struct iovec buffers[3] = {{bytes, 1}, {bytes, 100}, {bytes, 7}}, all = {old, sizeof(old)};

	memset(old, 'x', sizeof(old));
	pattern_fill(bytes, sizeof(bytes), 1);
	for (unsigned i = 0; i < 50; i++) {
		cr_assert_eq(shmstore_put(s, KEY("old"), NULL, 0, &all, 1, 0), 0);
		cr_assert_eq(shmstore_delete(s, KEY("old")), 0);
		all.iov_len = 200 + i * 10;
		cr_assert_eq(shmstore_put(s, KEY("k"), NULL, 0, buffers, 3,
					  SHMSTORE_CHECKSUM | SHMSTORE_REPLACE),
			     0);
		cr_assert_eq(verified(s, "k"), 0, "%u", i);
	}
	cr_assert(flags_of(s, "k").packed);
	cr_assert_eq(shmstore_close(s), 0);
}

static int on_finding(const struct shmstore_verify_finding *f, void *arg)
{
	char *bad = arg;

	cr_assert(f->error == 0 || f->error == -EBADMSG);
	if (f->error) {
		cr_assert_not_null(strstr(f->reason, "checksum"));
		snprintf(bad + strlen(bad), 1000 - strlen(bad), "%s\n", strrchr(f->path, '/'));
	}
	return 0;
}

Test(packed_sums, verify_names_the_damaged_object_once)
{
	static const char long_key[] = "a key that does not fit into its slot";
	struct shmstore *a = open_store("a"), *b = open_store("b");
	struct shmstore_ticket t;
	char bad[1000] = "";

	cr_assert_eq(put_pattern(a, "right", SIZE, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, "wrong", SIZE, 2, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, long_key, SIZE, 3, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, "unknown", SIZE, 4, 0), 0);
	cr_assert_eq(put_pattern(a, "gone", SIZE, 5, SHMSTORE_CHECKSUM), 0);
	t = handoff(a, "right"); /* the other store has a link of the segment then */
	cr_assert_eq(shmstore_adopt(b, KEY("right"), &t, 0), 0);
	cr_assert_eq(shmstore_partition_verify(scratch_partition(), on_finding, bad), 0);
	cr_assert_str_empty(bad);
	for (unsigned seed = 2; seed <= 5; seed++)
		damage("a", SIZE, seed);
	cr_assert_eq(shmstore_delete(a, KEY("gone")), 0);
	cr_assert_eq(shmstore_partition_verify(scratch_partition(), on_finding, bad), 0);
	cr_assert(strcmp(bad, "/wrong\n/a%20key%20that%20does%20not%20fit%20into%20its%20slot\n") ==
			  0,
		  "%s", bad);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

Test(packed_sums, adopt_refuses_damage_and_leaves_the_ticket)
{
	struct shmstore *a = open_store("a"), *b = open_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", SIZE, 1, SHMSTORE_CHECKSUM), 0);
	t = handoff(a, "k");
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_VERIFY), 0);
	cr_assert_eq(verified(b, "k"), 0);
	cr_assert_eq(shmstore_delete(b, KEY("k")), 0);
	t = handoff(a, "k");
	damage("a", SIZE, 1);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_VERIFY), -EBADMSG);
	cr_assert_eq(shmstore_contains(b, KEY("k")), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_VERIFY), -ESTALE);
	cr_assert(flags_of(b, "k").checksum);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(packed_sums, checksum_stays_with_an_object_that_becomes_a_file)
{
	struct shmstore *a = open_store("a"), *b = open_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "right", SIZE, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, "wrong", SIZE, 2, SHMSTORE_CHECKSUM), 0);
	damage("a", SIZE, 2);
	/* More leases than a packed object has. */
	for (unsigned i = 0; i < 13; i++) {
		t = handoff(a, "right");
		t = handoff(a, "wrong");
	}
	cr_assert(flags_of(a, "right").checksum && !flags_of(a, "right").packed);
	cr_assert(flags_of(a, "wrong").checksum && !flags_of(a, "wrong").packed);
	cr_assert_eq(verified(a, "right"), 0);
	cr_assert_eq(verified(a, "wrong"), -EBADMSG);
	cr_assert_eq(shmstore_adopt(b, KEY("wrong"), &t, SHMSTORE_VERIFY), -EBADMSG);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

Test(packed_sums, copy_of_an_adopted_object_has_what_that_had)
{
	struct shmstore *a = open_store("a"), *b = open_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", SIZE, 1, SHMSTORE_CHECKSUM | SHMSTORE_PIN), 0);
	cr_assert_eq(put_pattern(b, "k", 200000, 2, 0), 0);
	t = handoff(a, "k");
	/* over a file */
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_REPLACE | SHMSTORE_VERIFY), 0);
	cr_assert(flags_of(b, "k").checksum && flags_of(b, "k").pinned);
	cr_assert_eq(verified(b, "k"), 0);
	cr_assert_eq(get_pattern(b, "k", SIZE, 1), 0);
	/* A damaged one gets no checksum that says that it is right. */
	t = handoff(a, "k");
	cr_assert_eq(put_pattern(b, "k", 200000, 3, SHMSTORE_REPLACE), 0);
	damage("a", SIZE, 1);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_REPLACE), -EBADMSG);
	cr_assert_eq(get_pattern(b, "k", 200000, 3), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

Test(packed_sums, pin_is_the_objects_wherever_it_is)
{
	struct shmstore *a = open_store("a"), *b = open_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", SIZE, 1, SHMSTORE_PIN), 0);
	cr_assert(flags_of(a, "k").pinned && flags_of(a, "k").packed);
	cr_assert_eq(shmstore_pin(a, KEY("k"), false), 0);
	cr_assert(!flags_of(a, "k").pinned && flags_of(a, "k").packed);
	cr_assert_eq(shmstore_pin(a, KEY("k"), true), 0);
	cr_assert_eq(shmstore_pin(a, KEY("k"), true), 0);
	cr_assert(flags_of(a, "k").pinned && flags_of(a, "k").packed);
	t = handoff(a, "k");
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert(flags_of(b, "k").pinned && flags_of(b, "k").packed);
	cr_assert_eq(shmstore_pin(b, KEY("k"), true), 0);
	cr_assert(flags_of(b, "k").packed, "there is nothing to be done");
	/* The slot is the other store's to change. */
	cr_assert_eq(shmstore_pin(b, KEY("k"), false), 0);
	cr_assert(!flags_of(b, "k").pinned && !flags_of(b, "k").packed);
	cr_assert(flags_of(a, "k").pinned && flags_of(a, "k").packed);
	cr_assert_eq(get_pattern(b, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_pin(b, KEY("none"), true), -ENOENT);
	for (unsigned i = 0; i < 13; i++)
		t = handoff(a, "k");
	cr_assert(flags_of(a, "k").pinned && !flags_of(a, "k").packed);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

static int count_bad(const struct shmstore_verify_finding *f, void *arg)
{
	cr_assert(f->error == 0 || strstr(f->reason, "slots of the segment"), "%s", f->reason);
	*(unsigned *)arg += f->error != 0;
	return 0;
}

/* All slots of the store's only segment get the first one's description. */
static void describe_all_as_the_first(const char *store, unsigned n)
{
	struct shms_segment_header h;
	char path[SCRATCH_PATH];
	struct dirent *e;
	uint64_t words[4], size;
	DIR *dir = opendir(scratch_store_path(store, "segments"));
	int fd = -1;

	cr_assert_not_null(dir);
	while ((e = readdir(dir)) != NULL && e->d_name[0] == '.')
		;
	cr_assert_not_null(e);
	snprintf(path, sizeof(path), "%s/%s", scratch_store_path(store, "segments"), e->d_name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_eq(pread(fd, &h, sizeof(h), 0), (ssize_t)sizeof(h));
	size = shms_segslot_size(h.n_holders / 32);
	for (unsigned i = 0; i < n; i++) {
		off_t at = (off_t)(h.slots_off + (i + 1) * size - sizeof(words));

		cr_assert_eq(i ? pwrite(fd, words, sizeof(words), at)
			       : pread(fd, words, sizeof(words), at),
			     (ssize_t)sizeof(words));
	}
	close(fd);
	closedir(dir);
}

/* Many slots say one extent, whose checksum is right: it is not read as often as that. */
Test(packed_sums, verify_reads_no_more_than_the_segment)
{
	struct shmstore *s = open_store("a");
	unsigned n_bad = 0;
	char key[16];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%u", i);
		cr_assert_eq(put_pattern(s, key, i ? 100 : 4000, 1, SHMSTORE_CHECKSUM), 0);
	}
	describe_all_as_the_first("a", 100);
	cr_assert_eq(shmstore_partition_verify(scratch_partition(), count_bad, &n_bad), 0);
	cr_assert_eq(n_bad, 1);
	cr_assert_eq(shmstore_close(s), 0);
}
