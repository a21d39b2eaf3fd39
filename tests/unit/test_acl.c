/* SPDX-License-Identifier: Apache-2.0 */
/* acl: one more reader in an access list; what comes out the kernel takes. */
#include <criterion/criterion.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "acl.h"
#include "scratch.h"

struct flat {
	unsigned tag, perm;
	uint32_t id;
};

static size_t flatten(const unsigned char *list, size_t n, struct flat *ret)
{
	struct posix_acl_xattr_entry e;
	size_t count = 0;

	cr_assert_eq((n - 4) % 8, 0);
	for (size_t at = 4; at < n; at += 8) {
		memcpy(&e, list + at, sizeof(e));
		ret[count++] = (struct flat){le16toh(e.e_tag), le16toh(e.e_perm), le32toh(e.e_id)};
	}
	return count;
}

static size_t pack(unsigned char *list, const struct flat *entries, size_t n)
{
	uint32_t version = htole32(POSIX_ACL_XATTR_VERSION);

	memcpy(list, &version, 4);
	for (size_t i = 0; i < n; i++) {
		struct posix_acl_xattr_entry e = {htole16((uint16_t)entries[i].tag), htole16((uint16_t)entries[i].perm),
						  htole32(entries[i].id)};
		memcpy(list + 4 + 8 * i, &e, sizeof(e));
	}
	return 4 + 8 * n;
}

static bool has(const struct flat *f, size_t n, unsigned tag, unsigned perm, uint32_t id)
{
	for (size_t i = 0; i < n; i++) {
		if (f[i].tag == tag && f[i].perm == perm && f[i].id == id)
			return true;
	}
	return false;
}

#define NONE ((uint32_t)ACL_UNDEFINED_ID)

Test(acl, without_a_list_the_mode_is_kept)
{
	unsigned char list[ACL_SIZE_MAX];
	struct flat f[ACL_USERS_MAX + 4];
	size_t n;

	cr_assert_eq(acl_add_reader(NULL, 0, 0100400, 1000, list, &n), 0);
	cr_assert_eq(n, 4 + 8 * 5);
	cr_assert_eq(flatten(list, n, f), 5);
	cr_assert(f[0].tag == ACL_USER_OBJ && f[0].perm == 4);
	cr_assert(f[1].tag == ACL_USER && f[1].perm == 4 && f[1].id == 1000);
	cr_assert(f[2].tag == ACL_GROUP_OBJ && f[2].perm == 0);
	cr_assert(f[3].tag == ACL_MASK && f[3].perm == 4);
	cr_assert(f[4].tag == ACL_OTHER && f[4].perm == 0);
}

Test(acl, readers_are_kept_and_nobody_gets_more_than_reading)
{
	static const struct flat before[] = {{ACL_USER_OBJ, 6, NONE},  {ACL_USER, 7, 5},  {ACL_USER, 2, 6},
					     {ACL_GROUP_OBJ, 7, NONE}, {ACL_GROUP, 6, 7}, {ACL_MASK, 7, NONE},
					     {ACL_OTHER, 6, NONE}};
	unsigned char had[256], list[ACL_SIZE_MAX];
	struct flat f[ACL_USERS_MAX + 4];
	size_t n;

	cr_assert_eq(acl_add_reader(had, pack(had, before, 7), 0100676, 1000, list, &n), 0);
	n = flatten(list, n, f);
	cr_assert_eq(n, 7);
	cr_assert(has(f, n, ACL_USER_OBJ, 6, NONE));
	cr_assert(has(f, n, ACL_USER, 4, 5) && has(f, n, ACL_USER, 4, 1000) && has(f, n, ACL_GROUP, 4, 7));
	cr_assert(has(f, n, ACL_GROUP_OBJ, 4, NONE) && has(f, n, ACL_MASK, 4, NONE) && has(f, n, ACL_OTHER, 4, NONE));
}

Test(acl, who_was_masked_out_stays_out)
{
	static const struct flat before[] = {{ACL_USER_OBJ, 4, NONE}, {ACL_USER, 4, 5},    {ACL_GROUP_OBJ, 4, NONE},
					     {ACL_GROUP, 4, 7},       {ACL_MASK, 0, NONE}, {ACL_OTHER, 0, NONE}};
	unsigned char had[256], list[ACL_SIZE_MAX];
	struct flat f[ACL_USERS_MAX + 4];
	size_t n;

	cr_assert_eq(acl_add_reader(had, pack(had, before, 6), 0100400, 1000, list, &n), 0);
	n = flatten(list, n, f);
	cr_assert_eq(n, 5);
	cr_assert(has(f, n, ACL_USER, 4, 1000) && has(f, n, ACL_GROUP_OBJ, 0, NONE) && has(f, n, ACL_MASK, 4, NONE));
}

Test(acl, the_same_reader_twice_is_one)
{
	unsigned char list[ACL_SIZE_MAX], again[ACL_SIZE_MAX];
	size_t n, m;

	cr_assert_eq(acl_add_reader(NULL, 0, 0100400, 1000, list, &n), 0);
	cr_assert_eq(acl_add_reader(list, n, 0100440, 1000, again, &m), 0);
	cr_assert_eq(n, m);
	cr_assert_eq(memcmp(list, again, n), 0);
}

Test(acl, what_is_no_list_is_refused)
{
	static const struct flat unknown[] = {{ACL_USER_OBJ, 4, NONE}, {0x40, 4, NONE}};
	unsigned char had[256] = {0}, list[ACL_SIZE_MAX];
	size_t n;

	for (size_t size = 1; size < 12; size++)
		cr_assert_eq(acl_add_reader(had, size, 0100400, 1000, list, &n), -EINVAL, "%zu", size);
	cr_assert_eq(acl_add_reader(had, pack(had, unknown, 2), 0100400, 1000, list, &n), -EINVAL);
	cr_assert_eq(acl_add_reader(had, pack(had, unknown, 1) - 1, 0100400, 1000, list, &n), -EINVAL);
	had[0] = 3;
	cr_assert_eq(acl_add_reader(had, 12, 0100400, 1000, list, &n), -EINVAL, "another version");
}

Test(acl, readers_are_bounded_and_the_kernel_takes_every_list_on_the_way)
{
	unsigned char list[ACL_SIZE_MAX], had[ACL_SIZE_MAX];
	size_t n = 0, m;
	char path[SCRATCH_PATH];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/file", scratch_dir(NULL));
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0400);
	cr_assert_geq(fd, 0);
	for (uid_t uid = 0; uid < ACL_USERS_MAX; uid++) {
		cr_assert_eq(acl_add_reader(had, n, 0100400, 100000 + uid, list, &m), 0);
		if (fsetxattr(fd, ACL_ATTRIBUTE, list, m, 0) < 0 && errno == EOPNOTSUPP)
			cr_skip("no access lists on this file system");
		cr_assert_eq(fgetxattr(fd, ACL_ATTRIBUTE, had, sizeof(had)), (ssize_t)m, "%u", uid);
		n = m;
	}
	cr_assert_eq(n, (size_t)ACL_SIZE_MAX);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0440, "the mask shows in the group bits");
	cr_assert_eq(acl_add_reader(had, n, 0100440, 99, list, &m), -EDQUOT);
	cr_assert_eq(acl_add_reader(had, n, 0100440, 100000, list, &m), 0, "one of them again");
	close(fd);
}

Test(acl, of_a_mode_the_kernel_makes_none)
{
	unsigned char list[ACL_SIZE_MAX];
	char path[SCRATCH_PATH];
	struct stat st;
	size_t n;

	snprintf(path, sizeof(path), "%s/f", scratch_dir(NULL));
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0400);
	cr_assert_geq(fd, 0);
	cr_assert_eq(acl_add_reader(NULL, 0, 0100400, 1000, list, &n), 0);
	cr_assert_eq(fsetxattr(fd, ACL_ATTRIBUTE, list, n, 0), 0);
	cr_assert(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0440, "the mask shows in the group's bits");
	acl_from_mode(0100400, list, &n);
	cr_assert_eq(fsetxattr(fd, ACL_ATTRIBUTE, list, n, 0), 0);
	cr_assert(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0400);
	cr_assert(fgetxattr(fd, ACL_ATTRIBUTE, NULL, 0) < 0 && errno == ENODATA);
	close(fd);
}
