/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.c: nothing of a former object goes to another user: see filemode.h.
 *
 * A recycled file has whole pages of slack in the header's unused room, with what the last object
 * left there. Among processes of one user that is nothing; to clear it with each put would cost up
 * to a third of the copy. So it is cleared where it matters, once: before shmstore_handoff_to()
 * lets another user read the file, which then is never recycled again. Zeros are only read, so that
 * an object that was written into fresh memory costs one pread; only pages that hold something are
 * written, which takes no memory.
 *
 * The file can only be read, for us too, and opened for writing its mode is another one for a
 * moment (filemode.h). That must not fall together with the daemon's access list, which another
 * process of our user that links the same file may just be asking for. So the scrubbing process
 * holds the file until the daemon has answered, and one that waited for it finds the list.
 *
 * Killed while the mode is another one: the next call sets it right.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "filemode.h"
#include "handle.h"
#include "object.h"
#include "recycle.h"
#include "sys.h"

#define CHUNK ((size_t)16 * SHMS_FORMAT_PAGE)

static bool all_zero(const unsigned char *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Writes zeros over those pages of a chunk at offset that hold something. */
static int clear_pages(int fd, unsigned char *chunk, size_t size, uint64_t offset)
{
	static const char zeros[SHMS_FORMAT_PAGE];
	size_t at = 0;

	while (at < size) {
		size_t n = SHMS_FORMAT_PAGE - (offset + at) % SHMS_FORMAT_PAGE;

		n = n < size - at ? n : size - at;
		if (!all_zero(chunk + at, n)) {
			int r = shms_write_at(fd, zeros, n, offset + at);

			if (r < 0)
				return r;
		}
		at += n;
	}
	return 0;
}

struct room {
	int dir_fd;
	const char *name;
	int held_fd;
	mode_t mode; /* that the file is to have */
	int fd;      /* to write; -1: nothing was found yet */
};

static int clear_chunk(struct room *room, unsigned char *chunk, size_t size, uint64_t offset)
{
	if (all_zero(chunk, size))
		return 0;
	if (room->fd < 0) {
		room->fd = shms_file_open_writable(room->dir_fd, room->name, room->held_fd,
						   room->mode);
		if (room->fd < 0)
			return room->fd;
	}
	return clear_pages(room->fd, chunk, size, offset);
}

/* The file's bytes from begin to end. */
static int clear(struct room *room, int fd, uint64_t begin, uint64_t end)
{
	_free_ unsigned char *chunk = malloc(CHUNK);
	int r = 0;

	if (!chunk)
		return -ENOMEM;
	while (r == 0 && begin < end) {
		off_t data = lseek(fd, (off_t)begin, SEEK_DATA); /* holes are zero */
		size_t want;
		ssize_t n;

		if (data < 0 && errno != ENXIO)
			return -errno;
		if (data < 0 || (uint64_t)data >= end)
			return 0;
		begin = (uint64_t)data;
		want = end - begin < CHUNK ? end - begin : CHUNK;
		n = shms_pread_all(fd, chunk, want, begin);
		if (n < 0)
			return (int)n;
		if ((size_t)n != want)
			return -EBADMSG;
		r = clear_chunk(room, chunk, want, begin);
		begin += want;
	}
	return r;
}

/* Of a file that is locked. */
static int scrub(struct shmstore *s, int dir_fd, const char *name, int fd, const struct stat *st)
{
	struct room room = {.dir_fd = dir_fd,
			    .name = name,
			    .held_fd = fd,
			    .mode = s->file_mode | (st->st_mode & S_ISVTX),
			    .fd = -1};
	struct shms_layout l;
	struct shms_header h;
	int r = shms_header_read(&h, fd, st, NULL);

	if (r < 0)
		return r;
	l = h.object.layout;
	shms_header_deinit(&h);
	/* Somebody was killed here. */
	if ((st->st_mode & 0200) && fchmod(fd, room.mode) < 0)
		return -errno;
	/* Its slack becomes a hole, and nobody punches one where we write. */
	shms_recycle_give_away(s, st->st_ino);
	r = clear(&room, fd, l.metadata_off + l.metadata_size, l.header_size);
	shms_close_fd(room.fd);
	return r;
}

int shms_scrub(struct shmstore *s, int dir_fd, const char *name, int *ret_fd)
{
	struct stat st;
	int r;
	_fd_ int fd = shms_open_object(dir_fd, name);

	if (fd < 0)
		return fd;
	r = shms_file_hold(s, fd, SHMS_FILE_HOLD_MS, &st);
	if (r == 0 && !shms_file_handed(s, &st))
		r = scrub(s, dir_fd, name, fd, &st);
	if (r == 0)
		*ret_fd = shms_take_fd(&fd);
	return r;
}
