/* SPDX-License-Identifier: Apache-2.0 */
/* damage.c: see damage.h. */
#include "damage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 4096u
#define PAGE      4096u
#define SECTOR    512u

const char *const damage_name[N_DAMAGES] = {"none",      "flipped bit", "flipped bit in the header",
					    "truncated", "extended",    "wrong sector",
					    "swapped",   "removed"};

struct entry {
	uint64_t id;
	ino_t inode; /* 0: removed */
	enum damage_kind kind;
};

struct damage_book {
	int dir;
	uint64_t random;
	struct entry entries[FILES_MAX];
	size_t n;
	uint64_t whole[FILES_MAX]; /* of list_whole() */
};

static uint64_t draw(struct damage_book *b, uint64_t n)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random % n;
}

struct damage_book *damage_new(const char *files, uint64_t seed)
{
	struct damage_book *b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->random = seed * 0x9e3779b97f4a7c15ull | 1;
	b->dir = open(files, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return b->dir < 0 ? damage_free(b) : b;
}

struct damage_book *damage_free(struct damage_book *b)
{
	if (b && b->dir >= 0)
		close(b->dir);
	free(b);
	return NULL;
}

static void name_of(uint64_t id, char ret[17])
{
	snprintf(ret, 17, "%016" PRIx64, id);
}

static bool look(struct damage_book *b, uint64_t id, struct stat *ret)
{
	char name[17];
	name_of(id, name);
	return fstatat(b->dir, name, ret, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(ret->st_mode);
}

enum damage_kind damage_of(struct damage_book *b, uint64_t id)
{
	struct stat st;
	ino_t inode = look(b, id, &st) ? st.st_ino : 0;
	for (size_t i = 0; i < b->n; i++)
		if (b->entries[i].id == id)
			return b->entries[i].inode == inode ? b->entries[i].kind : DAMAGE_NONE;
	return DAMAGE_NONE;
}

/* Takes note; forgets what is no longer there, where the book is full. */
static void note(struct damage_book *b, uint64_t id, enum damage_kind kind)
{
	struct stat st;
	struct entry e = {id, look(b, id, &st) ? st.st_ino : 0, kind};
	for (size_t i = 0; i < b->n; i++)
		if (b->entries[i].id == id) {
			b->entries[i] = e;
			return;
		}
	for (size_t i = 0; b->n == FILES_MAX && i < b->n; i++)
		if (b->entries[i].inode == 0 || !look(b, b->entries[i].id, &st))
			b->entries[i--] = b->entries[--b->n];
	if (b->n == FILES_MAX)
		abort();
	b->entries[b->n++] = e;
}

static size_t list(struct damage_book *b, bool whole_only)
{
	size_t n = 0;
	int fd = openat(b->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	while (dir && n < FILES_MAX && (e = readdir(dir))) {
		char *end;
		uint64_t id = strtoull(e->d_name, &end, 16);
		if (strlen(e->d_name) == 16 && *end == '\0' &&
		    (!whole_only || damage_of(b, id) == DAMAGE_NONE))
			b->whole[n++] = id;
	}
	if (dir)
		closedir(dir);
	return n;
}

void damage_count(struct damage_book *b, size_t *ret_files, size_t *ret_damaged)
{
	*ret_files = list(b, false);
	*ret_damaged = *ret_files - list(b, true);
}

/* ---- what is done to a file ------------------------------------------------------------------ */

static bool flip(struct damage_book *b, int fd, uint64_t size)
{
	unsigned char byte;
	uint64_t at = draw(b, size);
	if (pread(fd, &byte, 1, (off_t)at) != 1)
		return false;
	byte ^= (unsigned char)(1u << draw(b, 8));
	return pwrite(fd, &byte, 1, (off_t)at) == 1;
}

/* False also where the two sectors are alike: that is no damage. */
static bool copy_sector(struct damage_book *b, int fd, uint64_t size)
{
	unsigned char from[SECTOR], to[SECTOR];
	if (size < 2 * SECTOR)
		return false;
	off_t a = (off_t)(draw(b, size / SECTOR) * SECTOR),
	      z = (off_t)(draw(b, size / SECTOR) * SECTOR);
	if (pread(fd, from, SECTOR, a) != SECTOR || pread(fd, to, SECTOR, z) != SECTOR ||
	    memcmp(from, to, SECTOR) == 0)
		return false;
	return pwrite(fd, from, SECTOR, z) == SECTOR;
}

static bool change(struct damage_book *b, int fd, enum damage_kind kind)
{
	struct stat st;
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return false;
	uint64_t size = (uint64_t)st.st_size;
	switch (kind) {
	case DAMAGE_FLIP:
		return flip(b, fd, size);
	case DAMAGE_HEAD:
		return flip(b, fd, size < PAGE ? size : PAGE);
	case DAMAGE_TRUNCATE:
		return ftruncate(fd, (off_t)draw(b, size)) == 0;
	case DAMAGE_EXTEND:
		return ftruncate(fd, (off_t)(size + 1 + draw(b, (uint64_t)2 * PAGE))) == 0;
	case DAMAGE_SECTOR:
		return copy_sector(b, fd, size);
	case DAMAGE_NONE:
	case DAMAGE_SWAP:
	case DAMAGE_REMOVE:
	case N_DAMAGES:
		break;
	}
	return false;
}

static bool swap(struct damage_book *b, const char *name, size_t n)
{
	uint64_t other = b->whole[draw(b, n)];
	char other_name[17];
	name_of(other, other_name);
	if (strcmp(name, other_name) == 0 ||
	    renameat2(b->dir, name, b->dir, other_name, RENAME_EXCHANGE) < 0)
		return false;
	note(b, other, DAMAGE_SWAP);
	return true;
}

enum damage_kind damage_one(struct damage_book *b)
{
	size_t n = list(b, true);
	if (n == 0)
		return DAMAGE_NONE;
	uint64_t id = b->whole[draw(b, n)];
	char name[17];
	name_of(id, name);
	enum damage_kind kind = (enum damage_kind)(1 + draw(b, N_DAMAGES - 1));
	bool ok;
	if (kind == DAMAGE_SWAP) {
		ok = swap(b, name, n);
	} else if (kind == DAMAGE_REMOVE) {
		ok = unlinkat(b->dir, name, 0) == 0;
	} else {
		int fd = openat(b->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		ok = fd >= 0 && change(b, fd, kind);
		if (fd >= 0)
			close(fd);
	}
	if (!ok)
		return DAMAGE_NONE;
	note(b, id, kind);
	return kind;
}

bool damage_stub_id(const char *path, uint64_t *ret_id)
{
	char text[256];
	ssize_t n = readlink(path, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return sscanf(text, "shmstore-tier:1:%16" SCNx64 ":", ret_id) == 1;
}
