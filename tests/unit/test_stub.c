/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs: the text of the link that stands for a demoted object, and reading it from a directory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "tierformat.h"

static const struct shms_stub SAMPLE = {.id = 0x0123456789abcdef,
					.generation = 0xfedcba9876543210,
					.header_size = 4096,
					.buffer_size = 8u << 20};

Test(stub, text_round_trips)
{
	static const uint64_t sizes[] = {0, 1, 9, 10, 4096, UINT32_MAX, INT64_MAX / 20};
	char text[SHMS_STUB_SIZE];
	struct shms_stub back;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct shms_stub s = {.id = sizes[i] * 3,
				      .generation = ~sizes[i],
				      .header_size = sizes[i],
				      .buffer_size = sizes[i]};

		shms_stub_format(&s, text);
		cr_assert_lt(strlen(text), SHMS_STUB_SIZE - 1,
			     "room for a NUL and to tell a longer one");
		cr_assert_eq(shms_stub_parse(text, &back), 0, "%s", text);
		cr_assert_eq(back.id, s.id);
		cr_assert_eq(back.generation, s.generation);
		cr_assert_eq(back.header_size, s.header_size);
		cr_assert_eq(back.buffer_size, s.buffer_size);
	}
}

Test(stub, other_texts_are_refused)
{
	static const char *const texts[] = {
		"",
		"shmstore-tier:1:",
		"shmstore-tier:2:0123456789abcdef:fedcba9876543210:4096:0",
		"shmstore-tier:1:0123456789abcde:fedcba9876543210:4096:0",
		"shmstore-tier:1:0123456789ABCDEF:fedcba9876543210:4096:0",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:04096:0",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210::0",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:4096:",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:4096:0x",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:-1:0",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:4096:18446744073709551616",
		"shmstore-tier:1:0123456789abcdef:fedcba9876543210:9223372036854775807:0",
		"/etc/passwd",
		"../elsewhere",
	};
	struct shms_stub s;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		cr_assert_eq(shms_stub_parse(texts[i], &s), -EBADMSG, "%s", texts[i]);
}

Test(stub, every_changed_character_is_another_stub_or_none)
{
	char text[SHMS_STUB_SIZE], changed[SHMS_STUB_SIZE], again[SHMS_STUB_SIZE];
	struct shms_stub s;

	shms_stub_format(&SAMPLE, text);
	for (size_t i = 0; text[i]; i++) {
		for (int c = 1; c < 256; c++) {
			strcpy(changed, text);
			if (changed[i] == (char)c)
				continue;
			changed[i] = (char)c;
			if (shms_stub_parse(changed, &s) < 0)
				continue;
			/* An accepted text is what would be written: one text, one meaning. */
			shms_stub_format(&s, again);
			cr_assert_str_eq(again, changed);
		}
	}
}

static int directory(void)
{
	int fd, parent = open(scratch_dir(NULL), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ENSURE(parent >= 0 && mkdirat(parent, "dir", 0700) == 0);
	fd = openat(parent, "dir", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(parent);
	ENSURE(fd >= 0);
	return fd;
}

Test(stub, is_read_with_its_links)
{
	char text[SHMS_STUB_SIZE];
	struct shms_stub s;
	struct stat st;
	int dirfd = directory(), fd = -1;

	shms_stub_format(&SAMPLE, text);
	cr_assert_eq(symlinkat(text, dirfd, "k"), 0);
	cr_assert_eq(linkat(dirfd, "k", dirfd, "anchor", 0), 0);
	cr_assert_eq(shms_stub_read(dirfd, "k", &s, &fd), 0);
	cr_assert_eq(s.id, SAMPLE.id);
	cr_assert_eq(s.uid, geteuid());
	cr_assert_eq(s.n_names, 2);
	cr_assert_eq(fstatat(dirfd, "k", &st, AT_SYMLINK_NOFOLLOW), 0);
	cr_assert_eq(s.inode, st.st_ino);
	cr_assert_eq(st.st_blocks, 0, "a stub takes no page");
	/* The descriptor is the link's: what becomes of its names can be seen. */
	cr_assert_eq(unlinkat(dirfd, "k", 0), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_nlink, 1);
	close(fd);
	close(dirfd);
}

Test(stub, what_is_none_is_told_apart)
{
	char text[512];
	struct shms_stub s;
	int dirfd = directory(), fd;

	cr_assert_eq(shms_stub_read(dirfd, "k", &s, NULL), -ENOENT);
	fd = openat(dirfd, "file", O_CREAT | O_WRONLY, 0400);
	cr_assert_geq(fd, 0);
	close(fd);
	cr_assert_eq(shms_stub_read(dirfd, "file", &s, NULL), -EINVAL);
	cr_assert_eq(symlinkat("file", dirfd, "link"), 0);
	cr_assert_eq(shms_stub_read(dirfd, "link", &s, NULL), -EBADMSG);
	/* A link that begins like a stub and does not end. */
	shms_stub_format(&SAMPLE, text);
	memset(text + strlen(text), '0', sizeof(text) - strlen(text));
	text[sizeof(text) - 1] = '\0';
	cr_assert_eq(symlinkat(text, dirfd, "long"), 0);
	cr_assert_eq(shms_stub_read(dirfd, "long", &s, NULL), -EBADMSG);
	close(dirfd);
}
