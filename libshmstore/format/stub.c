/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stub.c: a stub's text, and reading it. The text is input like everything that lies in a
 * directory: it is parsed strictly, and what it says of the tier file is checked against that
 * file's own header before a byte is used.
 */
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "hexdigits.h"

#define PREFIX "shmstore-tier:1:"

void shms_stub_format(const struct shms_stub *stub, char ret_text[SHMS_STUB_SIZE])
{
	snprintf(ret_text, SHMS_STUB_SIZE,
		 PREFIX "%016" PRIx64 ":%016" PRIx64 ":%" PRIu64 ":%" PRIu64, stub->id,
		 stub->generation, stub->header_size, stub->buffer_size);
}

static bool parse_hex(const char **at, uint64_t *ret)
{
	bool is = strnlen(*at, 16) == 16 && shms_hexdigits_read(*at, ret);

	*at += is ? 16 : 0;
	return is;
}

/* A number without leading zeros that a file's size can be. */
static bool parse_size(const char **at, uint64_t *ret)
{
	const char *begin = *at;
	uint64_t n = 0;

	for (; **at >= '0' && **at <= '9'; ++*at) {
		if (n > INT64_MAX / 20)
			return false;
		n = n * 10 + (uint64_t)(**at - '0');
	}
	*ret = n;
	return *at != begin && (begin[0] != '0' || *at == begin + 1);
}

int shms_stub_parse(const char *text, struct shms_stub *ret)
{
	struct shms_stub s = {0};
	const char *at = text + sizeof(PREFIX) - 1;

	if (strncmp(text, PREFIX, sizeof(PREFIX) - 1) != 0)
		return -EBADMSG;
	if (!parse_hex(&at, &s.id) || *at++ != ':' || !parse_hex(&at, &s.generation) ||
	    *at++ != ':')
		return -EBADMSG;
	if (!parse_size(&at, &s.header_size) || *at++ != ':' || !parse_size(&at, &s.buffer_size) ||
	    *at != '\0')
		return -EBADMSG;
	*ret = s;
	return 0;
}

int shms_stub_of(int dirfd, const char *name, const struct stat *st, struct shms_stub *ret)
{
	char text[SHMS_STUB_SIZE];
	ssize_t n = readlinkat(dirfd, name, text, sizeof(text));
	int r;

	if (n < 0 || (size_t)n >= sizeof(text))
		return n < 0 ? -errno : -EBADMSG;
	text[n] = '\0';
	r = shms_stub_parse(text, ret);
	ret->uid = st->st_uid;
	ret->inode = st->st_ino;
	ret->n_names = st->st_nlink;
	return r;
}

int shms_stub_read(int dirfd, const char *name, struct shms_stub *ret, int *ret_fd)
{
	struct stat st;
	int r;
	_fd_ int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = S_ISLNK(st.st_mode) ? shms_stub_of(fd, "", &st, ret) : -EINVAL;
	if (r == 0 && ret_fd)
		*ret_fd = shms_take_fd(&fd);
	return r;
}
