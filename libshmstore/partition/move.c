/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: see move.h. The page may be anybody's: what is read from it can make the books of that
 * store wrong, and nothing else. */
#include "move.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "stub.h"
#include "sys.h"

/* As in the page. */
struct words {
	uint64_t n, bytes;
};
struct intent {
	uint64_t inode, linked, unlinked;
};

_Static_assert(offsetof(struct shms_page_moved, bytes) - offsetof(struct shms_page_moved, n) ==
		       offsetof(struct words, bytes),
	       "words");
_Static_assert(offsetof(struct shms_page_moved, unlinked) -
			       offsetof(struct shms_page_moved, inode) ==
		       offsetof(struct intent, unlinked),
	       "intent");

static bool read_at(int fd, void *to, size_t size, size_t offset)
{
	return shms_pread_all(fd, to, size, offset) == (ssize_t)size;
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
	struct intent i = {.inode = inode};
	struct words w;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 || !read_at(fd, &w, sizeof(w), offsetof(struct shms_page, moved)))
		return;
	i.linked = linked ? w.bytes : w.bytes - bytes;
	i.unlinked = i.linked + bytes;
	shms_write_at(fd, &i, sizeof(i), offsetof(struct shms_page, moved.inode));
}

/* Both steps may be repeated: killed between them, the next one books the same sum. */
static void end(int fd, bool linked)
{
	struct words w;
	struct intent i;
	uint64_t none = 0;

	if (!read_at(fd, &w, sizeof(w), offsetof(struct shms_page, moved)) ||
	    !read_at(fd, &i, sizeof(i), offsetof(struct shms_page, moved.inode)) || !i.inode)
		return;
	/* Else somebody booked who knows nothing of intents: an older version. */
	if (w.bytes == i.linked || w.bytes == i.unlinked) {
		w.n++;
		w.bytes = linked ? i.linked : i.unlinked;
		shms_write_at(fd, &w, sizeof(w), offsetof(struct shms_page, moved));
	}
	shms_write_at(fd, &none, sizeof(none), offsetof(struct shms_page, moved.inode));
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
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int error = shms_list_dir(objects_fd, ".", &dir);

	while ((e = shms_readdir(dir, &error)) != NULL) {
		if (e->d_ino == inode && e->d_name[0] != '.')
			return 1;
	}
	return error;
}

void shms_move_settle(int objects_fd)
{
	uint64_t inode;
	int linked;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 ||
	    !read_at(fd, &inode, sizeof(inode), offsetof(struct shms_page, moved.inode)) || !inode)
		return;
	/* A walk counts what is left in clean/ as the store's, and nobody would book that it
	 * went. */
	shms_move_sweep(objects_fd);
	linked = listed(objects_fd, inode);
	if (linked >= 0)
		end(fd, linked);
}

void shms_move_sweep(int objects_fd)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	struct stat st;
	int error = shms_list_dir(objects_fd, "../" SHMS_DIR_CLEAN, &dir);

	while ((e = shms_readdir(dir, &error)) != NULL) {
		if (e->d_name[0] != '.' &&
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			unlinkat(dirfd(dir), e->d_name, 0);
	}
}
