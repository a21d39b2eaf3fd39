/* SPDX-License-Identifier: Apache-2.0 */
/* sys.h: the few kernel calls that libc does not wrap, or that need a loop or a fallback.
 * All return >= 0 or -errno, unless they say otherwise. */
#ifndef SHMS_SYS_H
#define SHMS_SYS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "unnamed.h"

/*
 * Of a function that most calls do not need, in the one that calls it. Inlined, its locals would be
 * part of that one's frame: an array of a page puts what is used around it on other pages, and is
 * touched by the check of the stack's end. A hand-over between two processes runs in cold caches,
 * where each page and line counts.
 */
#define SHMS_ASIDE __attribute__((noinline))

/* The difference, or 0 where b is more. */
static inline uint64_t shms_minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Maps what the kernel says to the closed list of shmstore.h. Takes errno
 * or -errno, returns -errno. */
int shms_error(int error);

/* As shms_beneath_open(), tried as below. */
int shms_open_beneath(int dirfd, const char *path, int flags);
/* How often an open was tried, and until when; {0} before the first. */
struct shms_tries {
	uint64_t until_ns;
	unsigned n;
};
/*
 * After a failed open with O_NONBLOCK (errno is looked at): is it worth another try? Sleeps a
 * little where it is. Somebody may just be asking whether the file is unused (a file lease); if
 * that does not end within a second errno is ETIMEDOUT: whoever asks was stopped.
 */
bool shms_open_again(struct shms_tries *t);
/* The regular file called name, for reading; tried as above. -ELOOP: it is a symbolic link. */
int shms_open_object(int dirfd, const char *name);
/* A directory below dirfd, not followed if it is a symlink. */
int shms_open_dir(int dirfd, const char *name);
/*
 * The mode of what is made in a directory: 0400, 0600 or 0700, and reading for the group where the
 * directory is its group's: setgid, readable for it, closed to all others.
 */
mode_t shms_mode_in(int dirfd, mode_t mode);
/* Makes a directory of that mode, whatever the umask. 0, -errno. */
int shms_make_dir(int dirfd, const char *name);
/*
 * The names of a directory but "." and "..":
 *
 *	_names_ struct shms_names d = shms_names(dirfd, "objects");
 *
 *	while (shms_names_next(&d))
 *		d.error = look_at(d.fd, d.name);
 *	return d.error;
 */
struct shms_names {
	DIR *dir; /* NULL: it could not be opened */
	int fd;   /* of the directory */
	/* Why it cannot be opened (-errno) or read (as of shms_error()): such a one is not an empty
	 * one. A body that sets it to other than 0 ends the loop. */
	int error;
	const char *name; /* this and what follows: until the next one */
	ino_t ino;
	unsigned char type; /* DT_* */
};
#define _names_ __attribute__((cleanup(shms_names_end)))
/* As shms_open_dir(). */
struct shms_names shms_names(int dirfd, const char *name);
/* As shms_open_beneath(); a directory that is not there, or not for us, has no names: 0. */
struct shms_names shms_names_beneath(int dirfd, const char *name);
struct shms_names shms_names_of(int consume_fd); /* -errno: that is its error */
bool shms_names_next(struct shms_names *d);
void shms_names_end(struct shms_names *d);
/* Gives the unnamed file fd (unnamed.c) a name; AT_EMPTY_PATH, or
 * /proc/self/fd where that is refused. */
int shms_link_fd(int fd, int dirfd, const char *name);
/* As linkat(), of a name whose file others may exchange meanwhile. linkat() fails with ENOENT also
 * where the file that it found has lost its last name since; this links the file that took its
 * place. -ENOENT: there is no such name, or no such directory. */
int shms_link_name(int olddirfd, const char *oldname, int newdirfd, const char *newname);
/* A file's, or a symlink's: by a link and an unlink where renameat2 is refused. Of several who
 * move the same one succeeds. */
int shms_rename_noreplace(int olddirfd, const char *oldname, int newdirfd, const char *newname);
/* Both names change places in one step. -ENOSYS: renameat2 is refused. */
int shms_exchange(int dirfd, const char *name, int other_dirfd, const char *other_name);
/*
 * RLIMIT_FSIZE. To whoever makes a file longer than that the kernel sends SIGXFSZ, which ends most
 * programs: so it is asked for before each call that may. shms_file_size_allowed() is 0 for a file
 * of so many bytes, or -EFBIG, with a sentence.
 */
uint64_t shms_file_size_most(void);
int shms_file_size_allowed(uint64_t end);
/* ftruncate(). -EFBIG: over the limit, also where the file is longer already. */
int shms_truncate(int fd, uint64_t size);
/* Writes all of iov at offset; changes iov while doing so. Handles IOV_MAX, short writes, EINTR.
 * -EFBIG: nothing was written. */
int shms_pwritev_all(int fd, struct iovec *iov, size_t n_iov, uint64_t offset);
/* The same of bytes in one piece. */
int shms_write_at(int fd, const void *bytes, uint64_t size, uint64_t offset);
/* Has the kernel take the memory for the first size bytes of a new file now,
 * signals or not. -EFBIG as above. */
int shms_allocate(int fd, uint64_t size);
/* Reads up to size bytes at offset, short only at the end of file. Returns the count. */
ssize_t shms_pread_all(int fd, void *buf, size_t size, uint64_t offset);
/* Reads a small file of text, at most size - 1 bytes, which a NUL ends, also where nothing could be
 * read. Returns their count, or -errno. */
ssize_t shms_read_text(const char *path, char *ret, size_t size);
/* The same of an open file. 0; -EBADMSG: there is a NUL in it; as shms_error(). */
int shms_read_whole(int fd, char *ret, size_t size);
/*
 * Sets the lock of this open file description (OFD) on n bytes of the file; F_UNLCK ends it. 0;
 * -EAGAIN: another description has one there; -errno.
 */
int shms_lock_bytes(int fd, short type, uint64_t from, uint64_t n);
/*
 * Has nobody else the file open or mapped, in whatever process? Then nobody can open it either
 * until the end: shms_open_object() waits for that. A file of ours, or with CAP_LEASE. recycle.c
 * says what this counts and what it does not.
 */
bool shms_lease(int fd);
bool shms_lease_end(int fd);
/* The same for that moment only. */
bool shms_unused(int fd);
void shms_random(void *buf, size_t size);
/* A number that does not repeat in practice: unique names and generations
 * without a system call each. */
uint64_t shms_nonce(void);
/* Is that name there? 0, or -1 with errno. Not faccessat(): filters refuse faccessat2, with an
 * errno after which libc does not try another way. */
static inline int shms_lookup(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW);
}
/* As lseek(). -ENOSYS: a filter refuses it, with whatever errno. */
off_t shms_seek(int fd, uint64_t offset, int whence);
/* Running out of means ends a walk or a scan; what may not be read, or is gone, does not. */
static inline bool shms_fatal(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}
/* Bytes of memory that a file takes. */
static inline uint64_t shms_blocks(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}
/* A time in ns, and back. */
static inline int64_t shms_stat_ns(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}
static inline struct timespec shms_timespec(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}
/* CLOCK_REALTIME in ns, CLOCK_MONOTONIC in ns. */
int64_t shms_now_real_ns(void);
uint64_t shms_now_mono_ns(void);
/* When so many milliseconds from now are over; UINT64_MAX: never. */
uint64_t shms_until_ns(uint64_t ms);
/*
 * bootclock.c: the clock that all processes of the host share, in whatever container:
 * CLOCK_BOOTTIME of the host. Times that others read (leases, the stamps of the disk tier's
 * accounts) are in it.
 */
/* Since the host was started. */
uint64_t shms_now_boot_ms(void);
uint64_t shms_now_boot_ns(void);
/*
 * A time of that clock, at most SHMS_BOOT_LATE_MS of the host's awake time ago: for what may be
 * seen late and not early. A fifth of the price.
 */
#define SHMS_BOOT_LATE_MS 10u
uint64_t shms_lately_boot_ms(void);
/* A time of that clock as CLOCK_BOOTTIME of this process tells it: the same outside of a time
 * namespace. UINT64_MAX stays. */
uint64_t shms_boot_ms_here(uint64_t host_ms);
/* Of a file system; size or inodes 0: it has no limit. */
struct shms_space {
	uint64_t size, used, available; /* bytes */
	uint64_t inodes, inodes_free;
};
/* 0, -errno. */
int shms_space(int fd, struct shms_space *ret);
/* 32 hexadecimal digits, with or without dashes; all zero where they are none. */
void shms_uuid_parse(const char *text, uint8_t ret[16]);
/* This boot's id, and its digits; all zero where it cannot be read. */
void shms_boot_id(uint8_t ret_id[16]);
void shms_boot_text(char ret[33]);

/*
 * The size of this host's pages: 4 KiB, or 16 or 64 on some Arm machines. The kernel gives memory,
 * takes it back and maps by whole ones. Formats have pages of 4 KiB on every host
 * (SHMS_FORMAT_PAGE, SHMS_SEGMENT_PAGE).
 */

#ifndef MADV_POPULATE_WRITE /* of Linux 5.14: all pages at once, not a fault each */
#define MADV_POPULATE_WRITE 23
#endif

static inline uint64_t shms_host_page(void)
{
	static _Atomic uint64_t page; /* sysconf() takes 27 instructions, and a put asks 14 times */

	if (!page)
		page = (uint64_t)sysconf(_SC_PAGESIZE);
	return page;
}

/* Memory that size bytes take. */
static inline uint64_t shms_whole_pages(uint64_t size)
{
	uint64_t page = shms_host_page();

	return (size + page - 1) & ~(page - 1);
}

#endif
