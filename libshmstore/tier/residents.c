/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residents.c: finds residents, and drops those that only memory is paid for.
 *
 * A promoter opens a resident before it links it. So whoever drops one holds the file's lease
 * meanwhile: who has it open by then keeps it, and who comes later finds none. Otherwise one object
 * would be two files from then on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "sys.h"
#include "tier.h"
#include "transient.h"

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
