/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c: what every call of a store asks of its handle: may it be used, who refers to it, what
 * has it linked. See store.h. */
#include "handle.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "bootclock.h"
#include "cleanup.h"
#include "detail.h"
#include "hostpage.h"
#include "sys.h"

int shms_store_usable(const struct shmstore *s, bool write)
{
	if (!s || s->magic != SHMS_STORE_MAGIC)
		return shms_detail(-EINVAL, NULL, "the store is NULL, closed, or none");
	if (atomic_load_explicit(&s->forked, memory_order_relaxed))
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
	shms_light_add(&s->n_ref, 1);
}

void shms_store_unref(struct shmstore *s)
{
	if (shms_light_unref(&s->n_ref))
		return;
	shms_pack_close(shms_packed_pack(&s->packed), shms_now_boot_ms());
	shms_close_fd(s->packed.dir_fd);
	pthread_mutex_destroy(&s->packed.lock);
	shmstore_partition_unref(s->p);
	free(s->path);
	free(s->segments);
	s->magic = 0;
	free(s);
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

void shms_linked_add(struct shmstore *s, uint64_t bytes)
{
	shms_linked_back(s, bytes);
	shms_count(&s->ledger->linked_n, 1);
}

void shms_linked_sub(struct shmstore *s, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&s->ledger->linked_bytes, bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->ledger->linked_n, 1, memory_order_relaxed);
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
static struct shmstore *all;

void shms_ours_add(struct shmstore *s)
{
	SHMS_HELD(&all_lock);
	DL_PREPEND(all, s);
}

void shms_ours_del(struct shmstore *s)
{
	SHMS_HELD(&all_lock);
	if (s->prev) {
		DL_DELETE(all, s);
		s->prev = NULL;
	}
}

void shms_ours_lock(void)
{
	pthread_mutex_lock(&all_lock);
}

void shms_ours_unlock(void)
{
	pthread_mutex_unlock(&all_lock);
}

struct shmstore *shms_ours_first(void)
{
	return all;
}

void shms_ours_forget(void)
{
	struct shmstore *s, *next;

	DL_FOREACH_SAFE(all, s, next)
	{
		if (s->readonly)
			continue;
		DL_DELETE(all, s);
		s->prev = NULL;
	}
}
