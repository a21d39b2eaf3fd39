/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c: what every call of a store asks of its handle: may it be used, who refers to it, what
 * has it linked. See store.h. */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>
#include <xxhash.h>

#include "cleanup.h"
#include "detail.h"
#include "packed.h"
#include "sys.h"

int shms_store_usable(const struct shmstore *s, bool write)
{
	if (!s || shms_handle(s)->magic != SHMS_STORE_MAGIC)
		return shms_detail(-EINVAL, NULL, "the store is NULL, closed, or none");
	if (atomic_load_explicit(&shms_handle(s)->forked, memory_order_relaxed))
		return shms_detail(-EPERM, NULL,
				   "%s is the parent's: a store opened before a fork; open one in "
				   "this process",
				   s->path);
	if (write && s->readonly)
		return shms_detail(-EPERM, NULL, "%s was opened to be read only", s->path);
	return 0;
}

void shms_store_ref(struct shmstore *s)
{
	shms_light_add(&shms_handle(s)->n_ref, 1);
}

void shms_store_unref(struct shmstore *s)
{
	struct shms_handle *h = shms_handle(s);

	if (shms_light_unref(&h->n_ref))
		return;
	shms_pack_close(shms_packed_pack(s), shms_now_boot_ms());
	shms_close_fd(h->packed.dir_fd);
	pthread_mutex_destroy(&h->packed.lock);
	shmstore_partition_unref(s->p);
	free(s->path);
	free(h->segments);
	h->magic = 0;
	free(h);
}

struct shms_attach *shms_attach_of(const struct shmstore *s)
{
	return &shms_handle(s)->attach;
}

uint64_t shms_file_bytes(const struct shmstore *s, int fd, uint64_t size)
{
	uint64_t pages = shms_whole_pages(size);
	struct stat st;

	return shms_huge(s, pages) && fstat(fd, &st) == 0 ? shms_blocks(&st) : pages;
}

void shms_linked_back(struct shmstore *s, uint64_t bytes)
{
	uint64_t now =
		atomic_fetch_add_explicit(&s->ledger->linked_bytes, bytes, memory_order_relaxed) +
		bytes;

	if (now > atomic_load_explicit(&s->ledger->linked_bytes_max, memory_order_relaxed))
		atomic_store_explicit(&s->ledger->linked_bytes_max, now, memory_order_relaxed);
}

void shms_linked_sub(struct shmstore *s, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&s->ledger->linked_bytes, bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->ledger->linked_n, 1, memory_order_relaxed);
}

void shms_reserved(struct shmstore *s, uint64_t bytes, bool more)
{
	struct shms_ledger *l = s->ledger;

	shms_count(&l->reserved_n, more ? 1 : UINT64_MAX);
	/* Release: pairs with take_under() in credit.c. */
	atomic_fetch_add_explicit(&l->reserved_bytes, more ? bytes : -bytes, memory_order_release);
}

const char *shmstore_name(const struct shmstore *s)
{
	return s->name;
}

const char *shmstore_path(const struct shmstore *s)
{
	return s->path;
}

void shms_wake_all(struct shms_page *page)
{
	atomic_exchange_explicit(&page->waiting, 0, memory_order_acq_rel);
	atomic_fetch_add_explicit(&page->woken, 1, memory_order_acq_rel);
	syscall(SYS_futex, &page->woken, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- all of this process --------------------------------------------------------------------- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shms_handle *all;

void shms_ours_add(struct shms_handle *h)
{
	SHMS_HELD(&all_lock);
	DL_PREPEND(all, h);
}

void shms_ours_del(struct shms_handle *h)
{
	SHMS_HELD(&all_lock);
	if (h->prev) {
		DL_DELETE(all, h);
		h->prev = NULL;
	}
}

struct shms_handle *shms_ours_lock(void)
{
	pthread_mutex_lock(&all_lock);
	return all;
}

void shms_ours_unlock(void)
{
	pthread_mutex_unlock(&all_lock);
}

void shms_ours_forget(void)
{
	struct shms_handle *h, *next;

	DL_FOREACH_SAFE(all, h, next)
	{
		if (h->s.readonly)
			continue;
		DL_DELETE(all, h);
		h->prev = NULL;
	}
}

/* ---- is it there ----------------------------------------------------------------------------- */

/*
 * A look takes three calls, so there are fifty a second at most. A file that
 * lost its name never gets one again.
 *
 * Sweepers go by age, and the page is written through a map, which leaves its times as they are: so
 * each ten minutes the page, the marker and the segments get new ones.
 */

#define TOUCH_MS 600000u

static bool is_named(int fd)
{
	struct stat st;

	return fd < 0 || fstat(fd, &st) < 0 || st.st_nlink > 0;
}

bool shms_there_are_descriptors(const struct shmstore *s)
{
	struct stat st;

	if ((s->readonly ? fstatat(s->objects_fd, "..", &st, 0) : fstat(s->dir_fd, &st)) < 0)
		/* one that cannot be looked at is there */
		return errno != EBADF && errno != ENOTDIR;
	return st.st_dev == s->p->device && st.st_ino == s->dir_inode;
}

bool shms_there_is_page(const struct shmstore *s)
{
	struct stat st;

	return fstatat(s->dir_fd, SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0
		       ? errno != ENOENT
		       : st.st_ino == s->page_inode;
}

int shms_there_look(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);
	const char *what = NULL;

	if (!shms_there_are_descriptors(s))
		return shms_detail(
			-EPERM, NULL,
			"this program closed the descriptors of the store %s, and may have given "
			"their numbers to files of its own; open it again after its close",
			s->path);
	if (!shms_there_is_page(s))
		what = "its page, .store, has no name any more";
	else if (!is_named(s->objects_fd))
		what = "its directory objects/ is gone";
	else if (pack && !shms_pack_is_there(pack))
		what = "a file in segments/ is gone";
	if (what) /* each time: there_ms stays */
		return shms_detail(-ENOENT, NULL,
				   "somebody removed the store %s of this process: %s (systemd's "
				   "RemoveIPC, a sweeper of old files, or rm); what it has can be "
				   "read until it is closed: close it, and open it again",
				   s->path, what);
	if (now_ms - s->touched_ms >= TOUCH_MS) {
		if (s->touched_ms) {
			(void)utimensat(s->dir_fd, SHMS_PAGE_FILE, NULL, AT_SYMLINK_NOFOLLOW);
			/* Another user's, it may be. */
			(void)utimensat(s->p->fd, SHMS_MARKER_FILE, NULL, AT_SYMLINK_NOFOLLOW);
			if (pack)
				shms_pack_touch(pack);
		}
		s->touched_ms = now_ms;
	}
	atomic_store_explicit(&s->there_ms, now_ms, memory_order_relaxed);
	return 0;
}

/* ---- what it named lately -------------------------------------------------------------------- */

void shms_recent_init(struct shms_recent *r)
{
	shms_random(&r->seed, sizeof(r->seed));
	r->entries = calloc(SHMS_RECENT_SIZE, sizeof(*r->entries));
}

static uint64_t hash(const struct shms_recent *r, const char *name)
{
	uint64_t h = XXH3_64bits_withSeed(name, strlen(name), r->seed);
	return h ? h : 1;
}

void shms_recent_set(struct shms_recent *r, const char *name, uint64_t header_size,
		     uint64_t buffer_size, bool whole)
{
	uint64_t h = hash(r, name);
	size_t i = h % SHMS_RECENT_SIZE;

	if (!r->entries)
		return;
	r->entries[i].header_size = header_size;
	r->entries[i].buffer_size = buffer_size;
	atomic_store_explicit(&r->entries[i].handed, false, memory_order_relaxed);
	atomic_store_explicit(&r->entries[i].whole, whole, memory_order_relaxed);
	atomic_store_explicit(&r->entries[i].hash, h, memory_order_relaxed);
}

struct shms_recent_entry *shms_recent_find(const struct shms_recent *r, const char *name)
{
	uint64_t h = hash(r, name);
	struct shms_recent_entry *e = r->entries ? &r->entries[h % SHMS_RECENT_SIZE] : NULL;

	return e && atomic_load_explicit(&e->hash, memory_order_relaxed) == h ? e : NULL;
}

void shms_recent_drop(struct shms_recent *r, const char *name)
{
	struct shms_recent_entry *e = shms_recent_find(r, name);

	if (e)
		atomic_store_explicit(&e->hash, 0, memory_order_relaxed);
}

void shms_recent_punched(struct shms_recent *r, const char *name)
{
	struct shms_recent_entry *e = shms_recent_find(r, name);

	/* At worst it is another object's by now, which is looked at for nothing once. */
	if (e)
		atomic_store_explicit(&e->whole, false, memory_order_relaxed);
}
