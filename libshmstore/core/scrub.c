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
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "filemode.h"
#include "object.h"
#include "opened.h"
#include "recycle.h"
#include "sys.h"

struct room {
	int dir_fd;
	const char *name;
	int held_fd;
	mode_t mode; /* that the file is to have */
	int fd;      /* to write; -1: nothing was found yet */
};

static int clear_page(struct room *room, size_t size, uint64_t offset)
{
	static const char zeros[SHMS_FORMAT_PAGE];

	if (room->fd < 0)
		room->fd = shms_file_open_writable(room->dir_fd, room->name, room->held_fd,
						   room->mode);
	return room->fd < 0 ? room->fd : shms_write_at(room->fd, zeros, size, offset);
}

/* The file's bytes from begin to end. */
static int clear(struct room *room, uint64_t begin, uint64_t end)
{
	unsigned char chunk[8 * SHMS_FORMAT_PAGE];
	int r = 0;

	while (r == 0 && begin < end) {
		off_t data = lseek(room->held_fd, (off_t)begin, SEEK_DATA); /* holes are zero */
		size_t want;
		ssize_t n;

		if (data < 0 || (uint64_t)data >= end)
			return data < 0 && errno != ENXIO ? -errno : 0;
		begin = (uint64_t)data;
		want = end - begin < sizeof(chunk) ? end - begin : sizeof(chunk);
		n = shms_pread_all(room->held_fd, chunk, want, begin);
		if (n != (ssize_t)want)
			return n < 0 ? (int)n : -EBADMSG;
		for (size_t at = 0, size; r == 0 && at < want; at += size) {
			size = SHMS_FORMAT_PAGE - (begin + at) % SHMS_FORMAT_PAGE;
			size = size < want - at ? size : want - at;
			if (chunk[at] || memcmp(chunk + at, chunk + at + 1, size - 1) != 0)
				r = clear_page(room, size, begin + at);
		}
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
	r = clear(&room, l.metadata_off + l.metadata_size, l.header_size);
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
