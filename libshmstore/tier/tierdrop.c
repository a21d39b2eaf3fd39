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
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "inodes.h"
#include "sys.h"
#include "tier.h"

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

static int add(struct shms_residents *r, size_t *io_size, const struct stat *st, uint64_t id)
{
	if (SHMS_GROW(r->v, *io_size, r->n, 1) < 0)
		return -ENOMEM;
	r->v[r->n++] = (struct shms_resident){st->st_ino, id, shms_blocks(st), st->st_nlink};
	return 0;
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
		    S_ISREG(st.st_mode))
			d.error = add(&found, &size, &st, id);
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
