/* SPDX-License-Identifier: Apache-2.0 */
/*
 * teardown.c: takes a dead or closing store apart; see gc.h for the order and why. Everything
 * is idempotent: two that do it at once, or one that starts where another was killed, do no harm.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "credit.h"
#include "gc.h"
#include "packlines.h"
#include "page.h"
#include "seglook.h"
#include "sys.h"
#include "tier.h"
#include "wire.h"

#define TRIES 3 /* more, where names come while a store is taken apart */

static void note(struct shms_teardown *io, int error)
{
	if (error && !io->error && error != ENOENT)
		io->error = shms_error(error);
}

struct shms_tier *shms_teardown_own_tier(struct shmstore_partition *p, int storefd)
{
	struct shms_tier *t;
	struct stat st;

	if (!shms_tier_there(p) || fstat(storefd, &st) < 0 || st.st_uid != geteuid())
		return NULL;
	return shms_tier_own(p, &t) == 0 ? t : NULL;
}

/* One name goes, or would; what that frees is booked. */
static bool drop(int dirfd, const char *name, struct shms_teardown *io)
{
	struct stat st = {0};
	int r = 0;

	/* Where it cannot be looked at it goes all the same, and nothing is booked. */
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && io->gone)
		r = shms_error(errno);
	if (r == 0)
		r = shms_tierdrop_name(io->tier, io->gone, dirfd, name, &st, &io->freed);
	note(io, -r);
	return r == 0;
}

static void empty(int storefd, const char *name, uint64_t *io_n, struct shms_teardown *io)
{
	_names_ struct shms_names d = shms_names(storefd, name);

	while (shms_names_next(&d)) {
		if (drop(d.fd, d.name, io))
			++*io_n;
	}
	note(io, -d.error);
}

/* Counts the store's keys in a segment that goes. An unreadable segment counts as a file. */
static void count_keys(int dirfd, const char *name, const struct shms_page *page,
		       struct shms_teardown *io)
{
	struct shms_segsurvey s = {.n_named = 1};
	struct shms_seglook l;

	if (shms_seglook_open(dirfd, name, false, &l) == 0) {
		shms_segsurvey(&l, page->uuid, shms_now_boot_ms(), &s);
		shms_seglook_close(&l);
	}
	io->n_objects += s.n_named;
}

/* One link of a segment: what the store had there goes, then the link. A segment that tells
 * nothing goes as any file. */
static void drop_segment(int dirfd, const char *name, const struct shms_page *page,
			 struct shms_teardown *io)
{
	struct shms_segrescued done = {0};
	int r = io->gone ? -ENOTSUP
			 : shms_segrescue_unlink(dirfd, name, page->uuid, shms_now_boot_ms(),
						 io->end_leases, &done);

	if (r == 0 || r == 1) {
		io->n_left += r == 1;
		io->n_leases += done.n_leases;
		io->freed.memory += done.freed;
	} else if (r == -ENOTSUP || r == -EBADMSG || r == -EPERM) {
		drop(dirfd, name, io);
	} else {
		note(io, -r);
	}
}

static void empty_segments(int storefd, struct shms_teardown *io)
{
	_names_ struct shms_names d = shms_names(storefd, SHMS_DIR_SEGMENTS);
	struct shms_page page = {0};

	if (shms_page_read(storefd, &page) == -ENOENT)
		return;
	while (shms_names_next(&d)) {
		count_keys(d.fd, d.name, &page, io);
		drop_segment(d.fd, d.name, &page, io);
	}
	note(io, -d.error);
}

/* Locks the names of a store that takes part in the tier, others from demoting what goes. -1: no
 * need, or, with io->error, it cannot be. */
static int lock_names(int storefd, struct shms_teardown *io)
{
	int r;

	if (io->gone || shms_lookup(storefd, SHMS_DIR_CLEAN) < 0)
		return -1;
	_fd_ int fd = shms_open_dir(storefd, SHMS_DIR_OBJECTS);
	if (fd < 0) {
		note(io, -fd);
		return -1;
	}
	r = shms_tier_lock_names(fd);
	note(io, -r);
	return r < 0 ? -1 : shms_take_fd(&fd);
}

static void empty_objects(int storefd, struct shms_teardown *io)
{
	uint64_t n_clean = 0; /* second names of objects that are counted */

	shms_teardown_recycle(storefd, io);
	if (!io->gone)
		shms_packlines_supersede(storefd);
	drop(storefd, SHMS_INDEX_FILE, io);
	empty(storefd, SHMS_DIR_OBJECTS, &io->n_objects, io);
	empty(storefd, SHMS_DIR_CLEAN, &n_clean, io);
	empty_segments(storefd, io);
}

void shms_teardown_recycle(int storefd, struct shms_teardown *io)
{
	empty(storefd, SHMS_DIR_RECYCLE, &io->n_objects, io);
}

void shms_teardown_objects(int storefd, struct shms_teardown *io)
{
	_locked_ int names = lock_names(storefd, io);

	/* Where it takes no part in a tier there is nothing to lock. */
	(void)names;
	if (!io->error)
		empty_objects(storefd, io);
}

void shms_teardown_leases(int storefd, uint64_t now_ms, struct shms_teardown *io)
{
	_names_ struct shms_names d = shms_names(storefd, SHMS_DIR_HANDOFF);
	uint64_t expiry;

	while (shms_names_next(&d)) {
		/* Files that are no leases are not ours; they go with the store. */
		if (shms_lease_parse(d.name, &expiry) && expiry > now_ms)
			io->n_left++;
		else if (drop(d.fd, d.name, io))
			io->n_leases++;
	}
	note(io, -d.error);
}

/* Once; false: something came while we were at it, io->error is -EEXIST. */
static bool take_apart(int parentfd, const char *name, int storefd, uint64_t now_ms,
		       struct shms_teardown *io)
{
	static const char *const parts[] = {SHMS_DIR_RECYCLE, SHMS_DIR_OBJECTS, SHMS_DIR_CLEAN,
					    SHMS_DIR_SEGMENTS, SHMS_DIR_HANDOFF};
	_locked_ int names = lock_names(storefd, io);
	bool filled = false;

	(void)names;
	if (io->error)
		return true;
	empty_objects(storefd, io);
	shms_teardown_leases(storefd, now_ms, io);
	if (io->n_left || io->error)
		return true;
	for (size_t i = 0; !io->gone && i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (unlinkat(storefd, parts[i], AT_REMOVEDIR) == 0)
			continue;
		filled = filled || errno == ENOTEMPTY;
		/* clean/ and segments/ are missing where nobody needed them: ENOENT is none */
		note(io, errno);
	}
	if (!io->error && io->p && !io->gone)
		shms_alone_leave(io->p, storefd, io->freed.memory);
	if (io->error || (!drop(storefd, SHMS_PAGE_FILE, io) && io->error))
		return !filled;
	if (io->gone)
		return true;
	/* A directory that holds more than ours (a Dask worker's own)
	 * stays: it is not only ours. */
	if (unlinkat(parentfd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST &&
	    errno != EBUSY)
		note(io, errno);
	return true;
}

void shms_teardown_store(int parentfd, const char *name, int storefd, uint64_t now_ms,
			 struct shms_teardown *io)
{
	io->end_leases = now_ms == UINT64_MAX;
	/* A first demotion makes clean/ and a name in it before it has the lock: try again. */
	for (int tries = 0; !take_apart(parentfd, name, storefd, now_ms, io) && tries < TRIES;
	     tries++)
		io->error = 0;
}
