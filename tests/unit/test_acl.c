/* SPDX-License-Identifier: Apache-2.0 */
/* acl: one more reader in an access list; what comes out the kernel takes. */
#include <acl/libacl.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "broker.h"
#include "scratch.h"

#define ATTRIBUTE "system.posix_acl_access"

/* The list, with one reader more, must say this. */
static void expect(const char *before, uid_t uid, const char *after)
{
	acl_t list = acl_from_text(before), with;
	char *text, *was;

	cr_assert_not_null(list, "%s", before);
	was = acl_to_any_text(list, NULL, ',', TEXT_NUMERIC_IDS | TEXT_ABBREVIATE);
	with = acl_with_reader(list, uid);
	cr_assert_not_null(with, "%s", before);
	text = acl_to_any_text(with, NULL, ',', TEXT_NUMERIC_IDS | TEXT_ABBREVIATE);
	cr_assert_str_eq(text, after);
	acl_free(text);
	text = acl_to_any_text(list, NULL, ',', TEXT_NUMERIC_IDS | TEXT_ABBREVIATE);
	cr_assert_str_eq(text, was, "the list itself has not changed");
	acl_free(text);
	acl_free(was);
	acl_free(with);
	acl_free(list);
}

Test(acl, without_a_list_the_mode_is_kept)
{
	expect("u::r,g::-,o::-", 1000, "u::r--,u:1000:r--,g::---,m::r--,o::---");
}

Test(acl, readers_are_kept_and_nobody_gets_more_than_reading)
{
	expect("u::rw,u:5:rwx,u:6:w,g::rwx,g:7:rw,m::rwx,o::rw", 1000,
	       "u::rw-,u:5:r--,u:1000:r--,g::r--,g:7:r--,m::r--,o::r--");
}

Test(acl, who_was_masked_out_stays_out)
{
	expect("u::r,u:5:r,g::r,g:7:r,m::-,o::-", 1000, "u::r--,u:1000:r--,g::---,m::r--,o::---");
}

Test(acl, the_same_reader_twice_is_one)
{
	expect("u::r,u:1000:r,g::-,m::r,o::-", 1000, "u::r--,u:1000:r--,g::---,m::r--,o::---");
	expect("u::r,u:1000:w,g::-,m::rw,o::-", 1000, "u::r--,u:1000:r--,g::---,m::r--,o::---");
	expect("u::r,g::-,g:1000:r,m::r,o::-", 1000,
	       "u::r--,u:1000:r--,g::---,g:1000:r--,m::r--,o::---");
}

Test(acl, what_is_no_list_is_refused)
{
	acl_t list = acl_init(1);
	acl_entry_t e;

	cr_assert(list && !acl_with_reader(list, 1000) && errno == EINVAL, "an empty one");
	cr_assert(acl_create_entry(&list, &e) == 0 && acl_set_tag_type(e, ACL_USER_OBJ) == 0);
	cr_assert(!acl_with_reader(list, 1000) && errno == EINVAL, "without others");
	acl_free(list);
}

static int file_of_mode_0400(char path[SCRATCH_PATH])
{
	int fd;

	snprintf(path, SCRATCH_PATH, "%s/file", scratch_dir(NULL));
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0400);
	cr_assert_geq(fd, 0);
	return fd;
}

static mode_t mode(int fd)
{
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	return st.st_mode & 07777;
}

Test(acl, readers_are_bounded_and_the_kernel_takes_every_list_on_the_way)
{
	char path[SCRATCH_PATH];
	int fd = file_of_mode_0400(path);
	acl_t had, list;

	for (uid_t uid = 0; uid < ACL_READERS_MAX; uid++) {
		had = acl_get_file(path, ACL_TYPE_ACCESS);
		cr_assert_not_null(had);
		list = acl_with_reader(had, 100000 + uid);
		cr_assert_not_null(list, "%u", uid);
		if (acl_set_file(path, ACL_TYPE_ACCESS, list) < 0 && errno == ENOTSUP)
			cr_skip("no access lists on this file system");
		acl_free(had);
		had = acl_get_file(path, ACL_TYPE_ACCESS);
		cr_assert_eq(acl_cmp(had, list), 0, "%u", uid);
		acl_free(list);
		acl_free(had);
	}
	cr_assert_eq(mode(fd), 0440, "the mask shows in the group bits");
	had = acl_get_file(path, ACL_TYPE_ACCESS);
	cr_assert(!acl_with_reader(had, 99) && errno == EDQUOT);
	list = acl_with_reader(had, 100000);
	cr_assert_not_null(list, "one of them again");
	acl_free(list);
	acl_free(had);
	close(fd);
}

Test(acl, of_a_mode_the_kernel_makes_none)
{
	char path[SCRATCH_PATH];
	int fd = file_of_mode_0400(path);
	acl_t had = acl_get_file(path, ACL_TYPE_ACCESS), list;

	cr_assert_not_null(had);
	list = acl_with_reader(had, 1000);
	cr_assert_not_null(list);
	cr_assert_eq(acl_set_file(path, ACL_TYPE_ACCESS, list), 0);
	cr_assert_eq(mode(fd), 0440, "the mask shows in the group's bits");
	cr_assert_eq(acl_set_file(path, ACL_TYPE_ACCESS, had), 0);
	cr_assert_eq(mode(fd), 0400);
	cr_assert(fgetxattr(fd, ATTRIBUTE, NULL, 0) < 0 && errno == ENODATA);
	acl_free(list);
	acl_free(had);
	close(fd);
}
