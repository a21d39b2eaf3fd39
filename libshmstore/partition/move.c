/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: see page.h. The page may be anybody's: what is read from it can make the books of that
 * store wrong, and nothing else. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "page.h"
#include "stub.h"
#include "sys.h"

static bool read_moved(int fd, struct shms_page_moved *ret)
{
	return shms_pread_all(fd, ret, sizeof(*ret), offsetof(struct shms_page, moved)) ==
	       (ssize_t)sizeof(*ret);
}

/* The members from inode on. */
static void write_intent(int fd, const struct shms_page_moved *m)
{
	shms_write_at(fd, &m->inode, sizeof(*m) - offsetof(struct shms_page_moved, inode),
		      offsetof(struct shms_page, moved.inode));
}

void shms_move_ask(int objects_fd, bool wanted)
{
	uint32_t word = wanted;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd >= 0)
		shms_write_at(fd, &word, sizeof(word), offsetof(struct shms_page, names_asked));
}

void shms_move_begin(int objects_fd, uint64_t inode, uint64_t bytes, bool linked)
{
	struct shms_page_moved m;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 || !read_moved(fd, &m))
		return;
	m.inode = inode;
	m.linked = linked ? m.bytes : m.bytes - bytes;
	m.unlinked = m.linked + bytes;
	write_intent(fd, &m);
}

/* Both steps may be repeated: killed between them, the next one books the same sum. */
static void end(int fd, bool linked)
{
	struct shms_page_moved m;

	if (!read_moved(fd, &m) || !m.inode)
		return;
	/* Else somebody booked who knows nothing of intents: an older version. */
	if (m.bytes == m.linked || m.bytes == m.unlinked) {
		m.n++;
		m.bytes = linked ? m.linked : m.unlinked;
		shms_write_at(fd, &m, offsetof(struct shms_page_moved, exposed),
			      offsetof(struct shms_page, moved));
	}
	m.inode = 0;
	write_intent(fd, &m);
}

void shms_move_end(int objects_fd, bool linked)
{
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd >= 0)
		end(fd, linked);
}

/* 1, 0, -errno: the directory cannot be read now. */
static int listed(int objects_fd, uint64_t inode)
{
	_names_ struct shms_names d = shms_names(objects_fd, ".");

	while (shms_names_next(&d)) {
		if (d.ino == inode && d.name[0] != '.')
			return 1;
	}
	return d.error;
}

void shms_move_settle(int objects_fd)
{
	struct shms_page_moved m;
	int linked;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 || !read_moved(fd, &m) || !m.inode)
		return;
	/* A walk counts what is left in clean/ as the store's, and nobody would book that it
	 * went. */
	shms_move_sweep(objects_fd);
	linked = listed(objects_fd, m.inode);
	if (linked >= 0)
		end(fd, linked);
}

void shms_move_sweep(int objects_fd)
{
	_names_ struct shms_names d = shms_names(objects_fd, "../" SHMS_DIR_CLEAN);
	struct stat st;

	while (shms_names_next(&d)) {
		if (d.name[0] != '.' && fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			unlinkat(d.fd, d.name, 0);
	}
}
