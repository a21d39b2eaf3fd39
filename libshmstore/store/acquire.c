/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acquire.c: makes a store, or takes over a dead owner's: directory; the .store page, linked in
 * filled and locked, which decides between two opens; three subdirectories. Without a page gc finds
 * an empty directory, which rmdir() removes unless a page is just being linked.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "books.h"
#include "cleanup.h"
#include "credit.h"
#include "detail.h"
#include "gc.h"
#include "handle.h"
#include "page.h"
#include "parts.h"
#include "process.h"
#include "sys.h"
#include "tier.h"

int shms_acquire_dirs(struct shmstore *s, bool create)
{
	static const char *const names[] = {SHMS_DIR_OBJECTS, SHMS_DIR_RECYCLE, SHMS_DIR_HANDOFF};
	struct stat st;
	int r;

	for (size_t i = 0; create && i < sizeof(names) / sizeof(names[0]); i++) {
		r = shms_make_dir(s->dir_fd, names[i]);
		if (r < 0 && r != -EEXIST)
			return shms_error(r);
	}
	shms_close_fd(s->objects_fd);
	if (fstat(s->dir_fd, &st) < 0)
		return shms_error(errno);
	s->dir_inode = st.st_ino;
	s->objects_fd = shms_open_dir(s->dir_fd, SHMS_DIR_OBJECTS);
	if (s->objects_fd < 0)
		return shms_error(s->objects_fd);
	s->file_mode = shms_mode_in(s->objects_fd, 0400);
	return 0;
}

/* Makes the page of a new store: complete and locked before it has a name. -EEXIST, -ENOENT:
 * somebody was faster, look again. */
static int new_page(struct shmstore *s, const struct shms_page *page)
{
	int r;
	/* A directory with anything in it but a page is none of ours. */
	_fd_ int fd = shms_unnamed_open(&(struct shms_unnamed){s->dir_fd, s->p->fd, "."}, O_RDWR,
					shms_mode_in(s->dir_fd, 0600));

	if (fd < 0)
		return shms_error(errno);
	r = shms_write_at(fd, page, sizeof(*page), 0);
	if (r < 0)
		return shms_error(r);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return shms_error(errno);
	r = shms_link_fd(fd, s->dir_fd, SHMS_PAGE_FILE);
	if (r < 0)
		return shms_error(r);
	shms_handle(s)->lock_fd = shms_take_fd(&fd);
	return 0;
}

/* The ledger's gauges for what a store holds already. */
static int count_objects(const struct shmstore *s, struct shms_ledger *l)
{
	struct shmstore_store_books books;
	int r = shms_books_store(s->dir_fd, &books);

	if (r < 0)
		return r;
	atomic_store_explicit(&l->linked_n, books.n_objects, memory_order_relaxed);
	atomic_store_explicit(&l->linked_bytes, books.linked, memory_order_relaxed);
	atomic_store_explicit(&l->linked_bytes_max, books.linked, memory_order_relaxed);
	return 0;
}

/*
 * Locks the names: nobody may move a dead store's objects between the count and its page. A mover
 * that was stopped in the middle books its move in that page when it goes on, so it would count
 * twice: the open fails then. The leftovers of a killed mover in clean/ go before the count.
 * *ret_fd: -1 where nothing was ever moved.
 */
static int lock_names(const struct shmstore *s, int *ret_fd)
{
	_fd_ int fd = -1;
	int r;

	*ret_fd = -1;
	if (shms_lookup(s->dir_fd, SHMS_DIR_CLEAN) < 0)
		return 0;
	fd = shms_open_dir(s->dir_fd, SHMS_DIR_OBJECTS);
	if (fd < 0)
		return fd == -ENOENT ? 0 : shms_error(fd);
	r = shms_tier_flock(fd, SHMS_TIER_NAMES_MS);
	if (r < 0)
		return r == -EBUSY ? shms_tier_names_held() : r;
	shms_move_sweep(fd);
	*ret_fd = shms_take_fd(&fd);
	return 0;
}

/* Takes over a dead owner's store, whose page we hold locked. */
static int take_over(struct shmstore *s, struct shms_page *page, const struct shmstore_options *o)
{
	struct shms_teardown t = {.tier = shms_teardown_own_tier(s->p, s->dir_fd)};
	struct shms_page old = {.flags = 0};
	bool adopt = (o->flags & SHMSTORE_OPEN_ADOPT) != 0,
	     fresh = (o->flags & SHMSTORE_OPEN_FRESH) != 0;
	int names, r;

	/* Only its page says whether to keep its objects: an unreadable one drops none. */
	r = shms_page_read(s->dir_fd, &old);
	/* A release that had no segments made a page without a uuid. */
	if (r == 0 && memcmp(old.uuid, (const uint8_t[sizeof(old.uuid)]){0}, sizeof(old.uuid)) != 0)
		memcpy(page->uuid, old.uuid, sizeof(page->uuid));
	/* Its objects are asked for, or not wanted, whatever its page says. */
	if ((adopt || fresh) && (r == -EBADMSG || r == -ENOTSUP)) {
		old.flags = 0;
		r = 0;
	}
	if (r < 0)
		return shms_error(r);
	atomic_init(&page->changes,
		    (atomic_load_explicit(&old.changes, memory_order_relaxed) | 1) + 1);
	adopt = adopt || (!fresh && (old.flags & SHMS_PAGE_KEEP));
	/* Killed from here on: a dead store still, with fewer objects of those that were to go. */
	if (!adopt)
		shms_teardown_objects(s->dir_fd, &t);
	shms_teardown_recycle(s->dir_fd, &t);
	shms_teardown_leases(s->dir_fd, shms_now_boot_ms(), &t);
	if (t.error)
		return t.error;
	/* Objects that the last owner kept stay kept until this open succeeds (set_keep()). */
	if (adopt && (old.flags & SHMS_PAGE_KEEP))
		page->flags |= SHMS_PAGE_KEEP;
	r = lock_names(s, &names);
	/* An empty store has nothing to be counted twice. */
	if (r == -ETIMEDOUT && !adopt)
		r = 0;
	if (r == 0 && adopt)
		r = count_objects(s, &page->ledger);
	if (r == 0) {
		shms_alone_leave(s->p, s->dir_fd, t.freed.memory);
		r = shms_error(shms_write_at(shms_handle(s)->lock_fd, page, sizeof(*page), 0));
	}
	shms_unlock_fd(names);
	return r;
}

#define TRIES          20000 /* of 2 ms each where it waits */
/* how long it takes to remove what a dead store left, on a busy host too */
#define TAKEN_APART_NS 1000000000ull
/* an owner that is just ending is as one that lives, until its lock goes */
#define LIVES_NS       200000000ull
/* the kernel takes its memory apart before its files: gigabytes take seconds */
#define DYING_NS       30000000000ull

/* How long the lock is asked for again. page: NULL: it cannot be read. */
static uint64_t patience_ns(const struct shms_page *page)
{
	if (!page || shms_page_owner_gone(page))
		return TAKEN_APART_NS;
	if ((pid_t)page->pid == getpid())
		return 0;
	return shms_dying((pid_t)page->pid) ? DYING_NS : LIVES_NS;
}

static int held(const struct shmstore *s, const struct shms_page *page)
{
	if (!page)
		return shms_detail(-EBUSY, NULL, "a live process holds the store %s", s->path);
	if ((pid_t)page->pid == getpid())
		return shms_detail(-EBUSY, NULL,
				   "this very process (%d) has the store %s open already, and it "
				   "is live; close that one first, or use it",
				   (int)getpid(), s->path);
	if (shms_page_owner_gone(page))
		return shms_detail(-EBUSY, NULL,
				   "process %d, which held the store, is gone or in another PID "
				   "namespace; if it is gone, another removes what it left, or "
				   "stopped amid it: try again, or ask fuser %s/.store",
				   (int)page->pid, s->path);
	return shms_detail(-EBUSY, NULL, "the live process %d holds the store %s", (int)page->pid,
			   s->path);
}

/* One step after the other, each with its error.
 * NOLINTNEXTLINE(readability-function-cognitive-complexity) */
static int acquire(struct shmstore *s, const struct shmstore_options *o)
{
	struct shms_handle *h = shms_handle(s);
	struct shms_page page = {0}, read, *owner;
	struct stat st;
	uint64_t begin = 0, now;
	int r;

	h->lock_fd = shms_close_fd(h->lock_fd);
	shms_page_fill(&page, s->name, o->label, false);
	if (o->leases_with)
		memcpy(page.leases_with, o->leases_with, strlen(o->leases_with));
	for (int i = 0; i < TRIES; i++) {
		shms_close_fd(s->dir_fd);
		s->dir_fd = shms_open_dir(h->parent_fd, h->base);
		if (s->dir_fd == -ENOENT) {
			r = shms_make_dir(h->parent_fd, h->base);
			if (r < 0 && r != -EEXIST)
				return shms_error(r);
			continue;
		}
		if (s->dir_fd < 0)
			return s->dir_fd == -ELOOP || s->dir_fd == -ENOTDIR
				       ? shms_detail(-EPERM, NULL,
						     "something that is no directory is at %s",
						     s->path)
				       : shms_error(s->dir_fd);
		if (fstat(s->dir_fd, &st) < 0)
			return shms_error(errno);
		if (st.st_uid != s->uid)
			return shms_detail(-EPERM, NULL, "the store %s is user %u's", s->path,
					   (unsigned)st.st_uid);
		h->lock_fd = shms_page_lock(s->dir_fd);
		if (h->lock_fd >= 0)
			return take_over(s, &page, o);
		r = h->lock_fd;
		if (r == -ENOENT) {
			r = new_page(s, &page);
			if (r == 0)
				return 0;
			if (r != -ENOENT && r != -EEXIST)
				return r;
		} else if (r == -EBUSY) {
			/* Whether its owner lives cannot be told from another PID
			 * namespace: the lock is what counts. */
			now = shms_now_mono_ns();
			begin = begin ? begin : now;
			owner = shms_page_read(s->dir_fd, &read) == 0 ? &read : NULL;
			if (now - begin >= patience_ns(owner))
				return held(s, owner);
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		} else {
			return r;
		}
	}
	return -EBUSY;
}

int shms_acquire(struct shmstore *s, const struct shmstore_options *o)
{
	int r = acquire(s, o);

	return r < 0 ? r : shms_acquire_dirs(s, true);
}
