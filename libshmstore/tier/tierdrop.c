/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierdrop.c: removes a tier file when its last name goes. The kernel counts the names: a stub's
 * st_nlink, of which one is the anchor. A name is removed first and its count read after, by the
 * descriptor: of two processes that remove the last two names, one sees that only the anchor is
 * left. If it is killed, gc removes the file.
 *
 * Of the tier file, the resident and the anchor the anchor goes last: a tier file without one would
 * be garbage, an anchor without its file is just that. Where the file cannot be removed (a disk
 * that is read-only, say) the anchor stays, and gc comes back for both.
 *
 * A dry run removes nothing: it counts in a set of inodes which names would be gone, so that the
 * last of several is the one that frees the bytes, as it would be in a run. A stub is an inode like
 * others: when all its names but the anchor are counted, what would be forgotten then counts too,
 * and the anchor is noted as gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "inodes.h"
#include "name.h"
#include "sys.h"
#include "tier.h"
#include "tierformat.h"

/* A dry run's removal of a name whose file's state is st. */
static int note(struct shms_inodes *gone, const struct stat *st, struct shms_tierdrop *io)
{
	struct shms_inode *i;

	if (S_ISDIR(st->st_mode))
		return shms_error(EISDIR);
	i = shms_inodes_get(gone, st->st_ino);
	if (!i)
		return -ENOMEM;
	if (++i->n_gone == st->st_nlink)
		io->memory += shms_blocks(st);
	return 0;
}

/* Unlinks what lies in memory and adds its blocks if this was its last name. */
static int drop(int dirfd, const char *name, struct shms_inodes *gone, struct shms_tierdrop *io)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (!gone && unlinkat(dirfd, name, 0) < 0))
		return errno == ENOENT ? 0 : shms_error(errno);
	if (gone)
		return note(gone, &st, io);
	if (st.st_nlink == 1)
		io->memory += shms_blocks(&st);
	return 0;
}

/* The same of a tier file. */
static int drop_file(struct shms_tier *t, const char *name, bool dry, struct shms_tierdrop *io)
{
	struct stat st;
	int r;

	if (dry)
		r = fstatat(t->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
		    : S_ISDIR(st.st_mode)                                    ? -EISDIR
									     : 0;
	else
		r = shms_tierroom_unlink(t, name, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : shms_error(r);
	if (st.st_nlink == 1)
		io->disk += shms_blocks(&st);
	io->n_files++;
	return 0;
}

int shms_tierdrop_forget(struct shms_tier *t, uint64_t id, struct shms_inodes *gone,
			 struct shms_tierdrop *io)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_file_name(id, name);
	/* Without its disk the file is found again when that is back: it has no anchor then. */
	r = t->files_fd < 0 ? 0 : drop_file(t, name, gone, io);
	if (r < 0)
		return r;
	shms_tier_resident_name(id, name);
	r = drop(t->dir_fd, name, gone, io);
	if (r < 0)
		return r;
	shms_tier_anchor_name(id, name);
	return drop(t->dir_fd, name, gone, io);
}

/* A stub. */
static int drop_stub(struct shms_tier *t, int dirfd, const char *name, struct shms_tierdrop *io)
{
	struct shms_stub stub;
	struct stat st;
	_fd_ int fd = -1;
	int r = shms_stub_read(dirfd, name, &stub, &fd);

	if (r == -ENOENT)
		return r;
	if (unlinkat(dirfd, name, 0) < 0)
		return shms_error(errno);
	/* A name that is no stub has no tier file; another user's tier file is his. */
	if (r < 0 || !t || stub.uid != t->uid || fstat(fd, &st) < 0 || st.st_nlink > 1)
		return 0;
	/* The name has gone, whatever the disk says: a delete is done. */
	shms_tierdrop_forget(t, stub.id, NULL, io);
	return 0;
}

/* A dry run's drop of any name. */
static int count(struct shms_tier *t, struct shms_inodes *gone, int dirfd, const char *name,
		 const struct stat *st, struct shms_tierdrop *io)
{
	const struct shms_inode *i;
	struct shms_stub stub;
	int r = note(gone, st, io);

	if (r < 0 || !S_ISLNK(st->st_mode) || !t || shms_stub_read(dirfd, name, &stub, NULL) < 0 ||
	    stub.uid != t->uid)
		return r;
	i = shms_inodes_find(gone, st->st_ino);
	return i && i->n_gone + 1 == st->st_nlink ? shms_tierdrop_forget(t, stub.id, gone, io) : 0;
}

int shms_tierdrop_name(struct shms_tier *t, struct shms_inodes *gone, int dirfd, const char *name,
		       const struct stat *st, struct shms_tierdrop *io)
{
	if (gone)
		return count(t, gone, dirfd, name, st, io);
	if (S_ISLNK(st->st_mode))
		return drop_stub(t, dirfd, name, io);
	if (unlinkat(dirfd, name, 0) < 0)
		return shms_error(errno);
	if (st->st_nlink == 1)
		io->memory += shms_blocks(st);
	return 0;
}

int shms_tier_release(struct shms_tier *t, int dirfd, const char *name)
{
	struct shms_tierdrop freed = {0};

	return drop_stub(t, dirfd, name, &freed);
}

void shms_tier_released(struct shms_tier *t, int stub_fd, const struct shms_stub *stub)
{
	struct shms_tierdrop freed = {0};
	struct stat st;

	if (stub->uid == t->uid && fstat(stub_fd, &st) == 0 && st.st_nlink <= 1)
		shms_tierdrop_forget(t, stub->id, NULL, &freed);
}

/* ---- residents ------------------------------------------------------------------------------- */

/*
 * A promoter opens a resident before it links it. So whoever drops one holds the file's lease
 * meanwhile: who has it open by then keeps it, and who comes later finds none. Otherwise one object
 * would be two files from then on.
 */

static int by_inode(const void *a, const void *b)
{
	const struct shms_resident *x = a, *y = b;

	return (x->inode > y->inode) - (x->inode < y->inode);
}

int shms_residents_list(struct shms_tier *t, struct shms_residents *ret)
{
	struct shms_residents found = {0};
	_names_ struct shms_names d = shms_names(t->dir_fd, ".");
	struct stat st;
	size_t size = 0;
	uint64_t id;

	d.error = shms_error(d.error);
	while (shms_names_next(&d)) {
		if (shms_tier_parse_name(d.name, "object", &id) == 0 &&
		    fstatat(t->dir_fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode)) {
			d.error = SHMS_GROW(found.v, size, found.n, 1);
			if (d.error == 0)
				found.v[found.n++] = (struct shms_resident){
					st.st_ino, id, shms_blocks(&st), st.st_nlink};
		}
	}
	if (d.error < 0) {
		shms_residents_deinit(&found);
		return d.error;
	}
	if (found.n)
		qsort(found.v, found.n, sizeof(*found.v), by_inode);
	*ret = found;
	return 0;
}

void shms_residents_deinit(struct shms_residents *r)
{
	free(r->v);
	*r = (struct shms_residents){0};
}

size_t shms_residents_count(const struct shms_residents *r, uint64_t inode)
{
	const struct shms_resident wanted = {.inode = inode}, *found;
	size_t n = 0;

	found = r->n ? bsearch(&wanted, r->v, r->n, sizeof(wanted), by_inode) : NULL;
	while (found && found > r->v && found[-1].inode == inode)
		found--;
	for (; found && found < r->v + r->n && found->inode == inode; found++)
		n++;
	return n;
}

uint64_t shms_residents_drop(struct shms_tier *t, const struct shms_resident *r, size_t n,
			     bool *ret_held)
{
	char name[SHMS_TIER_NAME];
	bool gone = false;
	struct stat st;
	_fd_ int fd = -1;

	*ret_held = false;
	shms_tier_resident_name(r->id, name);
	fd = shms_open_file(t->dir_fd, name, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != r->inode || st.st_nlink > n)
		return 0;
	*ret_held = !shms_lease(fd);
	if (*ret_held)
		return 0;
	if (fstat(fd, &st) == 0 && st.st_nlink <= n && !(st.st_mode & S_ISVTX))
		gone = unlinkat(t->dir_fd, name, 0) == 0;
	shms_lease_end(fd);
	return gone && st.st_nlink == 1 ? shms_blocks(&st) : 0;
}

/* ---- tier files ------------------------------------------------------------------------------ */

/*
 * Tier files by their ids: made without a name and linked when they are whole, opened
 * with every check. A file system that cannot make unnamed files gets "tmp-<id>", locked by its
 * writer as long as that lives.
 */

int shms_tier_resident_open(const struct shms_tier *t, uint64_t id)
{
	char name[SHMS_TIER_NAME];

	shms_tier_resident_name(id, name);
	return shms_open_object(t->dir_fd, name);
}

/* An error of the disk, said with its path. */
static int disk_error(const struct shms_tier *t, int error, const char *what)
{
	if (error == ENOSPC || error == EDQUOT)
		return shms_detail(-ENOSPC, t->files_path, "disk full: %s: %s (%s)", t->files_path,
				   what, strerror(error));
	return shms_detail(shms_error(error), t->files_path, "%s: %s: %s", t->files_path, what,
			   strerror(error));
}

int shms_tier_file_new(struct shms_tier *t, uint64_t id, char ret_name[SHMS_TIER_NAME], int *ret_fd)
{
	int flags = O_RDWR | O_CLOEXEC | (t->direct ? O_DIRECT : 0), error = 0;
	_fd_ int fd = -1;

	ret_name[0] = '\0';
	if (t->unnamed) {
		fd = shms_openat(t->files_fd, ".", O_TMPFILE | flags, 0400);
		if (fd < 0)
			return disk_error(t, errno, "a tier file cannot be made");
	} else {
		snprintf(ret_name, SHMS_TIER_NAME, "tmp-%016" PRIx64, id);
		fd = shms_openat(t->files_fd, ret_name, O_CREAT | O_EXCL | flags, 0400);
		if (fd < 0)
			return disk_error(t, errno, "a tier file cannot be made");
		if (flock(fd, LOCK_EX | LOCK_NB) < 0)
			error = errno;
	}
	/* Root's hand, the user's file. */
	if (!error && t->uid != geteuid() && fchown(fd, t->uid, (gid_t)-1) < 0)
		error = errno;
	if (error) {
		if (ret_name[0])
			unlinkat(t->files_fd, ret_name, 0);
		return disk_error(t, error, "a tier file cannot be made");
	}
	*ret_fd = shms_take_fd(&fd);
	return 0;
}

int shms_tier_file_link(struct shms_tier *t, uint64_t id, int fd, const char *tmp_name)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_file_name(id, name);
	if (tmp_name[0])
		r = shms_rename_noreplace(t->files_fd, tmp_name, t->files_fd, name);
	else
		r = shms_link_fd(fd, t->files_fd, name);
	return r < 0 ? disk_error(t, -r, "a tier file cannot be named") : 0;
}

/* The same, of one tier file. EBADMSG: it is damaged, and what says all. */
static int file_error(const struct shms_tier *t, const char *name, int error, const char *what)
{
	char path[SHMSTORE_TICKET_PATH];
	bool why = error != EBADMSG;

	snprintf(path, sizeof(path), "%s/%s", t->files_path, name);
	return shms_detail(shms_error(error), path, "%s: %s%s%s", path, what, why ? ": " : "",
			   why ? strerror(error) : "");
}

static bool is_stubs(const struct shms_stub *stub, const struct shms_tier_superblock *sb)
{
	return sb->id == stub->id && sb->generation == stub->generation &&
	       sb->object_header == stub->header_size && sb->object_buffer == stub->buffer_size;
}

/* Reads the header of the open tier file and checks it. *ret_reason is set
 * with -EBADMSG and -ENOTSUP. */
static int read_header(int fd, uint64_t size, struct shms_tier_header *h, const char **ret_reason)
{
	_free_ unsigned char *first = NULL;
	uint64_t need = 0;
	ssize_t n;
	int r;

	*ret_reason = "too short for a tier file: truncated";
	if (size < SHMS_TIER_ALIGN)
		return -EBADMSG;
	first = aligned_alloc(SHMS_TIER_ALIGN, SHMS_TIER_ALIGN);
	if (!first)
		return -ENOMEM;
	n = shms_pread_all(fd, first, SHMS_TIER_ALIGN, 0);
	if (n < 0)
		return (int)n;
	*ret_reason = "not a tier file, or its header is damaged";
	r = shms_tier_header_need(first, (size_t)n, size, &need);
	if (r < 0)
		return r;
	r = shms_tier_header_alloc(h, need);
	if (r < 0)
		return r;
	n = shms_pread_all(fd, h->bytes, need, 0);
	if (n < 0)
		r = (int)n;
	else
		r = (uint64_t)n == need ? shms_tier_header_parse(h, need, size, ret_reason)
					: -EBADMSG;
	if (r < 0)
		shms_tier_header_deinit(h);
	return r;
}

int shms_tier_file_open(struct shms_tier *t, const struct shms_stub *stub, int *ret_fd,
			struct shms_tier_header *ret_header)
{
	char name[SHMS_TIER_NAME];
	const char *reason;
	struct stat st;
	int r;
	_fd_ int fd = -1;

	shms_tier_file_name(stub->id, name);
	fd = shms_openat(
		t->files_fd, name,
		O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (t->direct ? O_DIRECT : 0), 0);
	if (fd < 0 && errno == EINVAL && t->direct)
		fd = shms_open_file(t->files_fd, name, O_RDONLY);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP
			       ? file_error(t, name, EBADMSG, "the tier file is missing")
			       : file_error(t, name, errno, "the tier file cannot be opened");
	if (fstat(fd, &st) < 0)
		return file_error(t, name, errno, "the tier file cannot be looked at");
	if (!S_ISREG(st.st_mode) || st.st_uid != t->uid)
		return file_error(t, name, EBADMSG, "not a file of ours");
	r = read_header(fd, (uint64_t)st.st_size, ret_header, &reason);
	if (r == -EBADMSG || r == -ENOTSUP)
		return file_error(t, name, EBADMSG, reason);
	if (r < 0)
		return r == -ENOMEM ? r : file_error(t, name, -r, "the tier file cannot be read");
	if (!is_stubs(stub, ret_header->sb)) {
		shms_tier_header_deinit(ret_header);
		return file_error(t, name, EBADMSG, "holds another object than the name says");
	}
	*ret_fd = shms_take_fd(&fd);
	return 0;
}

bool shms_tier_file_good(struct shms_tier *t, const struct shms_stub *stub)
{
	struct shms_tier_header h;
	int fd;

	if (shms_tier_file_open(t, stub, &fd, &h) < 0) {
		shms_detail_clear();
		return false;
	}
	shms_close_fd(fd);
	shms_tier_header_deinit(&h);
	return true;
}
