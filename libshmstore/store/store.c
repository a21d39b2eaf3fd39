/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c: opening and closing a store.
 *
 * Life is the lock on the page: it is held through one open file description, which a forked child
 * gives up at once (pthread_atfork), so that the parent's death is seen.
 *
 * Ownership: the handle owns descriptors, page mapping and pool; views and writers own a
 * reference to the memory only.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc.h"
#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"
#include "gc.h"
#include "handle.h"
#include "nameslock.h"
#include "pack.h"
#include "packgive.h"
#include "parts.h"
#include "sys.h"
#include "tier.h"

/* up to here packed objects beat files whatever the mount (bench_peers) */
#define PACK_DEFAULT (UINT64_C(1) << 20)
#define OPEN_FLAGS                                                            \
	(SHMSTORE_OPEN_READONLY | SHMSTORE_OPEN_ADOPT | SHMSTORE_OPEN_FRESH | \
	 SHMSTORE_OPEN_ARBITRATE | SHMSTORE_OPEN_ANY_USER)

static bool name_ok(const char *name)
{
	size_t n = name ? strlen(name) : 0;

	return n > 0 && n <= SHMSTORE_NAME_MAX && name[0] != '.' && !strchr(name, '/');
}

static int read_options(const struct shmstore_options *from, struct shmstore_options *ret)
{
	static const struct shmstore_options defaults = SHMSTORE_OPTIONS_INIT;
	int r;

	*ret = defaults;
	r = shms_take_sized(ret, sizeof(*ret), from, SHMS_UPTO(shmstore_options, keep), "options",
			    "SHMSTORE_OPTIONS_INIT");
	if (r < 0)
		return r;
	if (ret->flags & ~OPEN_FLAGS)
		return shms_detail_flags(ret->flags, OPEN_FLAGS);
	if ((ret->flags & SHMSTORE_OPEN_ANY_USER) && !(ret->flags & SHMSTORE_OPEN_READONLY))
		return shms_detail(
			-EINVAL, NULL,
			"another user's store can only be read: ANY_USER goes with READONLY");
	if ((ret->flags & SHMSTORE_OPEN_READONLY) && (ret->flags & SHMSTORE_OPEN_ARBITRATE))
		return shms_detail(-EINVAL, NULL,
				   "a store that is only read reserves nothing: READONLY and "
				   "ARBITRATE exclude each other");
	if ((ret->flags & SHMSTORE_OPEN_ADOPT) && (ret->flags & SHMSTORE_OPEN_FRESH))
		return shms_detail(-EINVAL, NULL, "ADOPT and FRESH exclude each other");
	if (ret->daemon > SHMSTORE_DAEMON_OFF)
		return shms_detail(-EINVAL, NULL,
				   "options.daemon is %u, which is none of SHMSTORE_DAEMON_*",
				   ret->daemon);
	if (ret->label && strlen(ret->label) > SHMSTORE_LABEL_MAX)
		return shms_detail(-EINVAL, NULL, "a label has %u bytes at most, this one %zu",
				   SHMSTORE_LABEL_MAX, strlen(ret->label));
	if (ret->leases_with && !name_ok(ret->leases_with))
		return shms_detail(-EINVAL, NULL,
				   "options.leases_with \"%.300s\" is no store's name",
				   ret->leases_with);
	return 0;
}

/* Resolves options.directory to a path relative to the partition. */
static int relative_directory(const struct shmstore_partition *p, const char *directory,
			      char ret[PATH_MAX])
{
	size_t n = strlen(p->path);
	size_t length;

	if (directory[0] == '/') {
		if (strncmp(directory, p->path, n) != 0 || directory[n] != '/')
			return shms_detail(-EPERM, NULL,
					   "the directory %.256s is outside the partition %s",
					   directory, p->path);
		directory += n;
	}
	directory += strspn(directory, "/");
	length = strlen(directory);
	while (length && directory[length - 1] == '/')
		length--;
	if (length == 0 || length >= PATH_MAX)
		return shms_detail(
			-EINVAL, NULL,
			"the directory of the store is the partition itself, or its path too long");
	memcpy(ret, directory, length);
	ret[length] = '\0';
	return 0;
}

/* Finds where the store is to be: parent_fd, base, path. */
static int locate(struct shmstore *s, const char *directory)
{
	struct shms_handle *h = shms_handle(s);
	char relative[PATH_MAX], *slash;
	const char *base;
	int r;

	if (!directory) {
		s->path = shms_printed("%s/%s/%s", s->p->path, SHMS_DIR_STORES, s->name);
		if (!s->path)
			return -ENOMEM;
		h->parent_fd = shms_open_dir(s->p->fd, SHMS_DIR_STORES);
	} else {
		r = relative_directory(s->p, directory, relative);
		if (r < 0)
			return r;
		s->path = shms_printed("%s/%s", s->p->path, relative);
		if (!s->path)
			return -ENOMEM;
		slash = strrchr(relative, '/');
		if (slash)
			*slash = '\0';
		h->parent_fd =
			shms_open_beneath(s->p->fd, slash ? relative : ".", O_RDONLY | O_DIRECTORY);
		if (h->parent_fd == -EXDEV)
			return shms_detail(-EPERM, NULL,
					   "the directory %s is outside the partition %s", s->path,
					   s->p->path);
		if (h->parent_fd < 0) {
			r = shms_error(h->parent_fd);
			if (r == -EBADMSG)
				return shms_detail(-EPERM, NULL, "%s goes by a symbolic link",
						   s->path);
			return shms_detail(
				r, NULL,
				"what is to hold the store %s cannot be opened: %s; it must exist",
				s->path, shmstore_strerror(r));
		}
	}
	if (h->parent_fd < 0)
		return shms_error(h->parent_fd);
	base = strrchr(s->path, '/') + 1;
	h->base = base;
	if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
		return shms_detail(-EPERM, NULL, "%s is outside the partition %s, or the partition",
				   s->path, s->p->path);
	return 0;
}

static uint64_t recycle_bound(const struct shmstore *s, const struct shmstore_options *o)
{
	struct shms_space space;

	if (!s->p->tmpfs)
		return 0; /* on disk there are no pages to keep */
	if (o->recycle_max != SHMSTORE_RECYCLE_DEFAULT)
		return o->recycle_max;
	return shms_space(s->p->fd, &space) == 0 && space.size && space.size / 16 < SHMS_RECYCLE_MAX
		       ? space.size / 16
		       : SHMS_RECYCLE_MAX;
}

static uint64_t pack_bound(const struct shmstore_options *o)
{
	const char *text =
		o->pack_max == SHMSTORE_PACK_DEFAULT ? getenv("SHMSTORE_PACK_MAX") : NULL;
	char *end = NULL;
	uint64_t bytes;

	if (o->pack_max != SHMSTORE_PACK_DEFAULT)
		return o->pack_max;
	bytes = text ? strtoull(text, &end, 10) : 0;
	return end && end != text && !*end ? bytes : PACK_DEFAULT;
}

/* With within_size no page reaches behind a file's end: a small file has no huge page. */
static uint64_t huge_from(const char *huge)
{
	if (!huge[0] || strcmp(huge, "never") == 0 || strcmp(huge, "advise") == 0)
		return UINT64_MAX;
	return strcmp(huge, "within_size") == 0 ? SHMS_HUGE_PAGE : 0;
}

static int open_owned(struct shmstore *s, const struct shmstore_options *o)
{
	struct shms_handle *h = shms_handle(s);
	struct stat st;
	void *map;
	int r;

	/* Ours first, so that the sweep finds it locked: a dead one whose objects are to be
	 * adopted must not be swept. */
	r = shms_acquire(s, o);
	if (r == 0 || r == -ENOSPC)
		shms_gc_sweep(s->p);
	if (r == -ENOSPC)
		r = shms_acquire(s, o);
	if (r < 0)
		return r;
	/* A child must not keep the page of a store alive that its parent left. */
	map = shms_map_ours(SHMS_PAGE_SIZE, MAP_SHARED, h->lock_fd);
	if (map == MAP_FAILED)
		return shms_error(errno);
	s->page = map;
	s->ledger = &s->page->ledger;
	if (fstat(h->lock_fd, &st) < 0)
		return shms_error(errno);
	s->page_inode = st.st_ino;
	/* The map is of the same open file, and keeps the lock. */
	h->lock_fd = shms_close_fd(h->lock_fd);
	h->recycle.max = h->recycle.warm_max = recycle_bound(s, o);
	s->huge_from = huge_from(s->p->huge);
	r = atomic_load_explicit(&s->ledger->linked_n, memory_order_relaxed) ? shms_links_read(s)
									     : 0;
	if (r < 0)
		return shms_error(r);
	r = shms_packed_open(s, pack_bound(o),
			     atomic_load_explicit(&s->ledger->linked_n, memory_order_relaxed) != 0);
	if (r < 0)
		return r;
	h->credit.wait_ms = o->wait_ms ? o->wait_ms : SHMSTORE_WAIT_DEFAULT;
	/* A kept store took part in the tier before, a new one does from the
	 * begin where there is one. */
	if (shms_tier_there(s->p) || shms_lookup(s->dir_fd, SHMS_DIR_CLEAN) == 0) {
		r = shms_tier_join(s);
		if (r < 0)
			return r;
	}
	/* For those that wait for a key (wait.c), and those that take memory of its segments. */
	atomic_store_explicit(
		&s->page->packed.looks,
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0,
		memory_order_relaxed);
	r = shms_daemon_open(s, o->daemon);
	/* The last step of an open that succeeds. A new store that nobody could use is not to stay,
	 * and what an open found kept it must leave kept where it fails, or is killed: else the
	 * next sweep takes the objects. */
	if (r == 0)
		s->page->flags = h->keep ? s->page->flags | SHMS_PAGE_KEEP
					 : s->page->flags & ~SHMS_PAGE_KEEP;
	return r;
}

/* Finds the directory of the store called name: our user's, or with any_user anybody's. */
struct find {
	const char *name;
	uid_t uid;
	bool any_user;
	char *path;
};

static int find_named(const struct shmstore_store_info *info, void *arg)
{
	struct find *f = arg;

	if (info->readable && (f->any_user || info->uid == f->uid) &&
	    strcmp(info->name, f->name) == 0) {
		f->path = strdup(info->path);
		return 1;
	}
	return 0;
}

/* Opens the directory that was located, if it is a store of whom we mean. */
static int look_into(struct shmstore *s, bool any_user, struct shms_page *ret)
{
	struct stat st;

	s->dir_fd = shms_open_dir(shms_handle(s)->parent_fd, shms_handle(s)->base);
	if (s->dir_fd < 0)
		return shms_error(s->dir_fd);
	if (fstat(s->dir_fd, &st) < 0)
		return shms_error(errno);
	/* The directory's owner, not what its page says: anybody can make a page, and an
	 * object that we would run. */
	if (!any_user && st.st_uid != s->uid)
		return shms_detail(-EPERM, s->path,
				   "the store %s belongs to user %u, not to our user (%u): who "
				   "means it says so, by SHMSTORE_OPEN_ANY_USER",
				   s->path, (unsigned)st.st_uid, (unsigned)s->uid);
	return shms_page_read(s->dir_fd, ret);
}

/* Reads the page's inode again: a look that finds nothing renews the page. */
static int read_page_inode(struct shmstore *s)
{
	struct stat st;

	if (fstatat(s->dir_fd, SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	s->page_inode = st.st_ino;
	s->unowned = shms_page_alive(s->dir_fd) != SHMSTORE_ALIVE;
	return 0;
}

static int open_readonly(struct shmstore *s, const struct shmstore_options *o)
{
	struct shms_handle *h = shms_handle(s);
	bool any_user = (o->flags & SHMSTORE_OPEN_ANY_USER) != 0;
	struct find f = {.name = s->name, .uid = s->uid, .any_user = any_user};
	struct shms_page page;
	int r, taken;
	void *map;

	r = taken = look_into(s, any_user, &page);
	/* The usual place has no store, or another user's: ours may be elsewhere. */
	if ((r == -ENOENT || r == -EPERM) && !o->directory) {
		r = shmstore_partition_stores(s->p, find_named, &f);
		if (r < 0)
			return r;
		if (!f.path)
			return taken;
		h->parent_fd = shms_close_fd(h->parent_fd);
		s->dir_fd = shms_close_fd(s->dir_fd);
		free(s->path);
		s->path = NULL;
		r = locate(s, f.path);
		free(f.path);
		if (r < 0)
			return r;
		r = look_into(s, any_user, &page);
	}
	if (r < 0)
		return r;
	r = shms_acquire_dirs(s, false);
	if (r < 0)
		return r;
	/* A ledger of our own: counting needs no exception for those who only look. */
	map = mmap(NULL, SHMS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		   0);
	if (map == MAP_FAILED)
		return shms_error(errno);
	s->page = map;
	*s->page = page;
	s->ledger = &s->page->ledger;
	h->keep = (page.flags & SHMS_PAGE_KEEP) != 0;
	h->any_user = any_user;
	h->segments = shms_printed("%s/" SHMS_DIR_SEGMENTS, s->path + strlen(s->p->path) + 1);
	if (!h->segments)
		return -ENOMEM;
	r = read_page_inode(s);
	/* objects/ is what each get needs; from there the directory is found again (handle.h). */
	s->dir_fd = shms_close_fd(s->dir_fd);
	return r;
}

static struct shms_handle *new_store(struct shmstore_partition *p, const char *name)
{
	struct shms_handle *h = calloc(1, sizeof(*h));
	struct shmstore *s = &h->s;

	if (!h)
		return NULL;
	s->arb = shms_arb_new(s);
	if (!s->arb) {
		free(h);
		return NULL;
	}
	h->magic = SHMS_STORE_MAGIC;
	atomic_init(&h->n_ref, 1);
	s->p = shmstore_partition_ref(p);
	s->uid = geteuid();
	s->dir_fd = s->objects_fd = s->clean_fd = h->parent_fd = h->lock_fd = -1;
	snprintf(s->name, sizeof(s->name), "%s", name);
	shms_fairlock_init(&s->names);
	shms_recycle_init(&h->recycle);
	shms_recent_init(&s->recent);
	shms_links_init(&h->links);
	shms_packed_init(&h->packed);
	shms_credit_off(s);
	shms_attach_init(&h->attach);
	shms_running_init(&h->running);
	return h;
}

/* Frees the handle's things; the memory stays for views and writers. */
static void release(struct shms_handle *h)
{
	struct shmstore *s = &h->s;

	shms_ours_del(h);
	shms_recycle_deinit(&h->recycle, s->dir_fd);
	h->recycle.max = 0;
	shms_writer_deinit(s);
	free(s->recent.entries);
	s->recent.entries = NULL;
	shms_links_deinit(&h->links);
	shms_credit_off(s);
	shms_arb_close(s);
	shms_attach_deinit(&h->attach);
	shms_running_deinit(&h->running);
	if (s->page)
		munmap(s->page, SHMS_PAGE_SIZE);
	s->page = NULL;
	s->ledger = NULL;
	shms_atfork_close_fds(h);
	pthread_rwlock_destroy(&s->names.lock);
	h->magic = 0;
	shms_store_unref(s);
}

/* An owned store that could not be opened to its end (there is no daemon, and it is required) goes,
 * unless it holds something. */
static void undo_open(struct shmstore *s)
{
	struct shms_handle *h = shms_handle(s);
	struct shms_teardown t = {.tier = NULL}; /* nothing of it was demoted */

	if (s->ledger && !s->readonly && !(s->page->flags & SHMS_PAGE_KEEP) &&
	    !atomic_load_explicit(&s->ledger->linked_n, memory_order_relaxed))
		shms_teardown_store(h->parent_fd, h->base, s->dir_fd, shms_now_boot_ms(), &t);
}

int shmstore_open(struct shmstore_partition *p, const char *name,
		  const struct shmstore_options *options, struct shmstore **ret)
{
	struct shmstore_options o;
	struct shms_handle *h;
	struct shmstore *s;
	int r;

	if (!p || !ret || !name_ok(name))
		return !p || !ret || !name
			       ? shms_detail_null(!p     ? "p"
						  : !ret ? "ret"
							 : "name")
			       : shms_detail(-EINVAL, NULL,
					     "a store's name has 1 to %u bytes without '/' or a "
					     "leading '.', and \"%.300s\" is none",
					     SHMSTORE_NAME_MAX, name);
	r = read_options(options, &o);
	if (r < 0)
		return r;
	h = new_store(p, name);
	if (!h)
		return -ENOMEM;
	s = &h->s;
	h->keep = o.keep;
	s->readonly = (o.flags & SHMSTORE_OPEN_READONLY) != 0;
	s->arb->hook = (o.flags & SHMSTORE_OPEN_ARBITRATE) != 0;
	/* In the list before anything is locked: a fork in another thread must find it. */
	shms_atfork_add(h);
	r = locate(s, o.directory);
	if (r == 0)
		r = s->readonly ? open_readonly(s, &o) : open_owned(s, &o);
	if (r < 0) {
		if (r == -ENOENT && s->readonly)
			(void)shms_detail(r, NULL,
					  "there is no store %s; shmstore-admin du lists those "
					  "that there are",
					  s->path);
		undo_open(s);
		release(h);
		return r;
	}
	h->parent_fd = shms_close_fd(h->parent_fd);
	if (!s->readonly)
		shms_packgive_may(s);
	*ret = s;
	return 0;
}

/* No descriptor is closed, since others have their numbers; nor what is reached by them. The
 * memory stays with the process. */
static int abandon(struct shmstore *s)
{
	shms_ours_del(shms_handle(s));
	shms_credit_off(s);
	munmap(s->page, SHMS_PAGE_SIZE); /* the lock's last reference, if it is an owner's */
	s->page = NULL;
	s->ledger = NULL;
	shms_handle(s)->magic = 0;
	return shms_detail(-EPERM, NULL,
			   "this program closed the descriptors of the store %s, and may have "
			   "given their numbers to files of its own; nothing was closed or "
			   "removed, and gc removes the store",
			   s->path);
}

int shmstore_close(struct shmstore *s)
{
	struct shms_handle *h = shms_handle(s);
	struct shms_teardown t = {0};
	int r = 0;

	if (!s)
		return 0;
	if (h->magic != SHMS_STORE_MAGIC)
		return shms_detail(-EINVAL, NULL, "the store is closed, or none");
	if (atomic_load_explicit(&h->forked, memory_order_relaxed)) {
		r = shms_store_usable(s, false);
		release(h);
		return r;
	}
	if (!shms_there_are_descriptors(s))
		return abandon(s);
	if (!s->readonly) {
		shms_packgive_end(s);
		shms_peer_withdraw(s);
		shms_recycle_trim(s);
		shms_draft_close(s);
		shms_packed_retire(s, h->keep);
		/* Without its page the store is gone, and the name may be another process's. */
		bool there = shms_there_is_page(s);
		if (there && !h->keep) {
			t.p = s->p;
			t.tier = shms_teardown_own_tier(s->p, s->dir_fd);
			h->parent_fd = shms_open_dir(s->dir_fd, "..");
			shms_teardown_store(h->parent_fd, h->base, s->dir_fd,
					    strcmp(s->page->leases_with, s->name) == 0
						    ? UINT64_MAX
						    : shms_now_boot_ms(),
					    &t);
		} else if (there) {
			/* what could not be trimmed: it says why */
			shms_teardown_recycle(s->dir_fd, &t);
			/* nobody's: whoever had it last, a tool perhaps, is not whose it is */
			s->page->pid = 0;
		}
		r = t.error;
		shms_credit_gave(s, t.freed.memory);
		shms_attach_bye(&h->attach);
	} else if (shms_packed_pack(s)) {
		shms_packread_end(shms_packed_pack(s));
	}
	release(h);
	return r;
}
