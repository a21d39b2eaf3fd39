/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c: takes memory from stores whose owners may make no call for hours.
 *
 * A cold file is a name in a store's recycle/, and nobody's open file: unlinking it frees its
 * memory, unless somebody still has a link, a view or a descriptor of what it was, for whom
 * the kernel keeps it. Nothing is written to it and nothing is cut, so nobody can see a wrong
 * byte. Its owner renames it before it uses it again: one of the two calls fails, and the
 * owner takes a fresh file then.
 *
 * Takers book their bytes in the store's page, one after the other, under a flock on recycle/.
 * Killed between the unlink and the booking: the store's ledger shows a pool that is too large by
 * that file, till the owner is gone.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "gc.h"
#include "gcaction.h"
#include "opened.h"
#include "page.h"
#include "partition.h"
#include "recycle.h"
#include "seglook.h"
#include "seguse.h"
#include "sys.h"
#include "walk.h"
#include "wire.h"

uint64_t shms_pool_take_one(int storefd, uint64_t age_ns)
{
	_names_ struct shms_names d = shms_names_beneath(storefd, SHMS_DIR_RECYCLE);
	uint64_t freed = 0, n = 0, bytes = 0;
	struct stat st;

	if (!d.dir || flock(d.fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	while (shms_names_next(&d)) {
		if (d.name[0] != SHMS_RECYCLE_COLD ||
		    fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		    /* Its last rename was when it became cold. */
		    (age_ns && shms_now_real_ns() - shms_stat_ns(&st.st_ctim) < (int64_t)age_ns) ||
		    unlinkat(d.fd, d.name, 0) < 0)
			continue;
		n++;
		bytes += shms_blocks(&st);
		/* Only the last link frees memory, and while a view maps the file, later. */
		freed += st.st_nlink == 1 ? shms_blocks(&st) : 0;
	}
	if (n)
		shms_page_pool_taken(storefd, n, bytes);
	flock(d.fd, LOCK_UN);
	return freed;
}

/* Frees memory that the store's own segments hold for no object. */
static uint64_t take_packed(int storefd, uint64_t now_ms, bool *io_again)
{
	struct shms_seglook l;
	struct shms_page page;
	uint64_t freed = 0;

	if (shms_page_read(storefd, &page) < 0 ||
	    !atomic_load_explicit(&page.packed.looks, memory_order_relaxed))
		return 0;
	_names_ struct shms_names d = shms_names_beneath(storefd, SHMS_DIR_SEGMENTS);

	while (shms_names_next(&d)) {
		if (shms_seglook_open(d.fd, d.name, true, &l) < 0)
			continue;
		if (memcmp(l.segment.owner_uuid, page.uuid, sizeof(page.uuid)) == 0)
			freed += shms_seguse_take(&l, now_ms, io_again);
		shms_seglook_close(&l);
	}
	return freed;
}

uint64_t shms_pool_take(struct shmstore_partition *p, uid_t uid, ino_t own, bool *ret_again)
{
	_names_ struct shms_names d = shms_names_beneath(p->fd, SHMS_DIR_STORES);
	uint64_t freed = 0, packed = 0, now_ms = shms_now_boot_ms();
	bool vain = now_ms - atomic_load_explicit(&p->vain_ms, memory_order_relaxed) <
		    SHMS_SEGUSE_AGAIN_MS;
	struct stat st;

	*ret_again = false;
	if (!d.dir)
		return 0;
	while (shms_names_next(&d)) {
		_fd_ int fd = shms_open_beneath(d.fd, d.name, O_RDONLY | O_DIRECTORY);

		if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != uid)
			continue;
		freed += shms_pool_take_one(fd, 0);
		packed += st.st_ino != own && !vain ? take_packed(fd, now_ms, ret_again) : 0;
	}
	if (!vain && !packed && !*ret_again)
		atomic_store_explicit(&p->vain_ms, now_ms, memory_order_relaxed);
	return freed + packed;
}

/* ---- the memory that tickets of dead stores keep --------------------------------------------- */

#define COARSE_NS 20000000 /* files' times are of the last tick */

struct lease {
	uint64_t expiry_ms;
	struct stat st;
};

/* The next lease of a file in the directory; false: there are no more. */
static bool next_lease(struct shms_names *d, struct lease *ret)
{
	while (shms_names_next(d)) {
		if (shms_lease_parse(d->name, &ret->expiry_ms) &&
		    fstatat(d->fd, d->name, &ret->st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(ret->st.st_mode))
			return true;
	}
	return false;
}

uint64_t shms_deadleases_end_former(struct shmstore *s)
{
	_names_ struct shms_names d = shms_names(s->dir_fd, SHMS_DIR_HANDOFF);
	uint64_t freed = 0;
	struct lease l;

	while (next_lease(&d, &l)) {
		/* One of ours was linked after we opened the store, and that is the file's last
		 * change or before it. */
		if (shms_stat_ns(&l.st.st_ctim) + COARSE_NS < s->page->created_ns &&
		    unlinkat(d.fd, d.name, 0) == 0 && l.st.st_nlink == 1)
			freed += shms_blocks(&l.st);
	}
	return freed;
}

static int on_store(const struct shms_walk_store *store, void *arg)
{
	struct shms_deadleases *sum = arg;
	struct lease l;

	if (store->fd < 0 || shms_page_alive(store->fd) != SHMSTORE_DEAD)
		return 0;
	_names_ struct shms_names d = shms_names(store->fd, SHMS_DIR_HANDOFF);

	while (next_lease(&d, &l)) {
		sum->bytes += shms_blocks(&l.st) / l.st.st_nlink;
		if (l.expiry_ms > sum->expiry_ms)
			sum->expiry_ms = l.expiry_ms;
	}
	return 0;
}

void shms_deadleases_look(struct shmstore_partition *p, struct shms_deadleases *ret)
{
	*ret = (struct shms_deadleases){0};
	(void)shms_walk_stores(p, on_store, ret);
}
