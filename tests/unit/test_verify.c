/* SPDX-License-Identifier: Apache-2.0 */
/* Damage of every kind is found, with its file and a reason; what is sound is told as
 * sound; each inode is read once. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "format.h"
#include "partition.h"

#define FOUND_MAX 32

struct found {
	struct {
		char path[2 * SCRATCH_PATH], reason[200];
		int error;
	} list[FOUND_MAX];
	size_t n, n_bad;
	uint64_t bytes;
};

static int on_finding(const struct shmstore_verify_finding *f, void *arg)
{
	struct found *found = arg;
	size_t i = found->n++;

	cr_assert_lt(i, FOUND_MAX);
	snprintf(found->list[i].path, sizeof(found->list[i].path), "%s", f->path);
	snprintf(found->list[i].reason, sizeof(found->list[i].reason), "%s", f->reason);
	found->list[i].error = f->error;
	found->n_bad += f->error != 0;
	cr_assert_geq(f->bytes, found->bytes, "progress only goes on");
	found->bytes = f->bytes;
	return 0;
}

static void verify(struct found *found)
{
	struct shmstore_partition *p = scratch_partition();

	memset(found, 0, sizeof(*found));
	cr_assert_eq(shmstore_partition_verify(p, on_finding, found), 0);
	shmstore_partition_unref(p);
}

/* The one thing that is wrong. */
static void expect_bad(const char *path, int error, const char *reason)
{
	struct found found;

	verify(&found);
	cr_assert_eq(found.n_bad, 1, "%zu findings", found.n_bad);
	for (size_t i = 0; i < found.n; i++) {
		if (!found.list[i].error)
			continue;
		cr_assert_str_eq(found.list[i].path, path);
		cr_assert_eq(found.list[i].error, error, "%d", found.list[i].error);
		cr_assert(strstr(found.list[i].reason, reason), "%s", found.list[i].reason);
	}
}

/* Flips one bit of a file behind everybody's back. */
static void flip(const char *path, off_t offset)
{
	unsigned char byte;
	int fd;

	cr_assert_eq(chmod(path, 0600), 0, "%s", path);
	fd = open(path, O_RDWR);
	cr_assert_geq(fd, 0);
	cr_assert_eq(pread(fd, &byte, 1, offset), 1);
	byte ^= 4;
	cr_assert_eq(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
}

Test(verify, a_sound_partition_has_no_bad_file)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;
	struct found found;
	char key[400];

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(put_pattern(a, "x", 3000000, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, "y", 0, 2, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(a, key, 100, 2, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
	key[0] = 'l';
	cr_assert_eq(shmstore_adopt(b, KEY(key), &t, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
	cr_assert_eq(put_pattern(a, "pooled", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(a, KEY("pooled")), 0);
	verify(&found);
	for (size_t i = 0; i < found.n; i++)
		cr_assert_eq(found.list[i].error, 0, "%s: %s", found.list[i].path,
			     found.list[i].reason);
	cr_assert_eq(found.n, 1 + 2 + 3 + 1, "marker, pages, inodes of objects, sidecar; not %zu",
		     found.n);
	cr_assert_geq(found.bytes, 3000000);
	cr_assert_lt(found.bytes, 2 * 3000000, "an inode with three names is read once");
	shmstore_close(a);
	shmstore_close(b);
}

Test(verify, every_damaged_byte_of_a_header_is_found)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/x");
	struct found found;
	char *mine = strdup(path);

	cr_assert_eq(put_pattern(s, "x", 100, 1, 0), 0);
	for (off_t i = 0; i < 128; i += 4) {
		flip(mine, i);
		verify(&found);
		cr_assert_eq(found.n_bad, 1, "byte %d", (int)i);
		flip(mine, i);
	}
	verify(&found);
	cr_assert_eq(found.n_bad, 0);
	free(mine);
	shmstore_close(s);
}

Test(verify, damaged_buffers_are_found_by_their_checksum)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/x");

	cr_assert_eq(put_pattern(s, "x", 5000000, 1, SHMSTORE_CHECKSUM), 0);
	flip(path, 4100000);
	expect_bad(path, -EBADMSG, "checksum");
	shmstore_close(s);
}

Test(verify, a_truncated_object_is_found)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/x");

	cr_assert_eq(put_pattern(s, "x", 5000000, 1, 0), 0);
	cr_assert_eq(chmod(path, 0600), 0);
	cr_assert_eq(truncate(path, 4000000), 0);
	expect_bad(path, -EBADMSG, "");
	shmstore_close(s);
}

Test(verify, an_object_in_a_lease_alone_is_read_too)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "x", 1000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	flip(t.path, 3);
	expect_bad(t.path, -EBADMSG, "");
	shmstore_close(s);
}

Test(verify, a_key_that_cannot_be_told_is_found)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/%h0123456789abcdef0123456789abcdef");

	cr_assert_eq(put_pattern(s, "x", 1000, 1, 0), 0);
	cr_assert_eq(rename(scratch_store_path("a", "objects/x"), path), 0);
	expect_bad(path, -EBADMSG, "key");
	shmstore_close(s);
}

Test(verify, a_sidecar_with_another_key_is_found)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/%k0123456789abcdef0123456789abcdef");
	int fd = open(path, O_CREAT | O_WRONLY, 0400);

	cr_assert_eq(write(fd, "short", 5), 5);
	close(fd);
	expect_bad(path, -EBADMSG, "key");
	shmstore_close(s);
}

Test(verify, a_keys_name_that_is_no_file_is_found)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/link");

	cr_assert_eq(put_pattern(s, "x", 1000, 1, 0), 0);
	cr_assert_eq(symlink("x", path), 0);
	expect_bad(path, -EBADMSG, "not a regular file");
	shmstore_close(s);
}

Test(verify, a_fifo_does_not_block_it)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", "objects/fifo");

	cr_assert_eq(mkfifo(path, 0600), 0);
	expect_bad(path, -EBADMSG, "not a regular file");
	shmstore_close(s);
}

Test(verify, a_damaged_page_and_another_version_are_told_apart)
{
	struct shmstore *s = scratch_store("a");
	const char *path = scratch_store_path("a", ".store");

	flip(path, 0);
	expect_bad(path, -EBADMSG, "page is damaged");
	flip(path, 0);
	flip(path, 8);
	expect_bad(path, -ENOTSUP, "another version");
	flip(path, 8);
	shmstore_close(s);
}

Test(verify, a_damaged_marker_is_found)
{
	char path[SCRATCH_PATH + 32];

	shmstore_partition_unref(scratch_partition());
	snprintf(path, sizeof(path), "%.300s/%s", scratch_partition_path(), SHMS_MARKER_FILE);
	flip(path, 2);
	expect_bad(path, -EBADMSG, "marker");
	flip(path, 2);
	/* one digit of the uuid: sound in itself, but not the one that was opened */
	flip(path, (off_t)strlen("shmstore partition 1\nuuid "));
	expect_bad(path, -EBADMSG, "marker");
}

static int verify_as_nobody(void *arg)
{
	struct found *found = calloc(1, sizeof(*found));
	size_t refused = 0;

	(void)arg;
	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	verify(found);
	for (size_t i = 0; i < found->n; i++)
		refused += found->list[i].error == -EPERM;
	if (refused != found->n || refused < 2)
		return 2;
	free(found);
	return 0;
}

Test(verify, what_may_not_be_read_is_no_silence)
{
	struct shmstore *s = scratch_store("a");

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	cr_assert_eq(chmod(scratch_partition_path(), 0755), 0);
	cr_assert_eq(chmod(scratch_store_path("", ""), 0755), 0);
	cr_assert_eq(in_child(verify_as_nobody, NULL), 0);
	shmstore_close(s);
}

static int stop(const struct shmstore_verify_finding *f, void *arg)
{
	(void)f;
	++*(int *)arg;
	return 42;
}

Test(verify, a_callbacks_value_ends_it_and_is_returned)
{
	struct shmstore_partition *p = scratch_partition();
	int n = 0;

	cr_assert_eq(shmstore_partition_verify(p, stop, &n), 42);
	cr_assert_eq(n, 1);
	cr_assert_eq(shmstore_partition_verify(p, NULL, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_verify(NULL, stop, &n), -EINVAL);
	shmstore_partition_unref(p);
}
