/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packgive.c: see packgive.h.
 *
 * First the pool goes, then objects to the disk tier, where there is one. The call that finds
 * itself asked did not want to wait for a disk, so it moves a few objects, and leaves the rest to
 * the next one. An event loop, which was woken for it, goes on for a while.
 */
#include "packgive.h"

#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arbhook.h"
#include "cleanup.h"
#include "demote.h"
#include "detail.h"
#include "handle.h"
#include "nameslock.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "victim.h"

#define BYTES_MOST (UINT64_C(4) << 20)
#define POLL_NS    500000 /* of a close, for the thread that gives; of who asked */
#define N_MOST     64u    /* a few milliseconds on a common disk */

static void demote(struct shmstore *s, uint64_t bytes)
{
	struct shms_tier *t;

	if (s->uid == geteuid() && shms_tier_there(s->p) && shms_tier_join(s) == 0 &&
	    shms_tier_own(s->p, &t) == 0)
		shms_packdemote(s, t, bytes < BYTES_MOST ? bytes : BYTES_MOST, N_MOST);
}

/* The memory of the store's segments. */
static uint64_t memory_of(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t memory = 0, trimmed;

	if (pack)
		(void)shms_pack_pool(pack, &memory, &trimmed);
	return memory;
}

/* One thread's at a time. The request stands until it is dealt with, so that who waits knows that
 * there is something to wait for. */
static void give(struct shmstore *s)
{
	struct wire_packed *w = &s->page->packed;
	/* Acquire: pairs with the asker's write. */
	uint64_t wanted = atomic_load_explicit(&w->wanted, memory_order_acquire);
	uint64_t gave, before, after;

	if (!wanted)
		return;
	/* A sign of life, for who waits. */
	atomic_store_explicit(&w->asked_ns, shms_now_boot_ns(), memory_order_relaxed);
	/* Also what dead owners' segments have for nobody. */
	gave = shms_packedmem_trim(s);
	if (gave < wanted) {
		before = memory_of(s);
		demote(s, wanted - gave);
		/* In whole pages: a part of what objects had may stay. */
		after = memory_of(s);
		gave += before > after ? before - after : 0;
	}
	/* The rest is asked for as of now. */
	atomic_store_explicit(&w->asked_ns, shms_now_boot_ns(), memory_order_relaxed);
	atomic_fetch_add_explicit(&w->given, gave, memory_order_relaxed);
	/* Release: who sees it finds the memory free, and given raised. */
	atomic_store_explicit(&w->wanted, gave && gave < wanted ? wanted - gave : 0,
			      memory_order_release);
	if (gave)
		shms_hold_freed(s);
}

/* False: another thread gives, or the store is being opened or closed. */
static bool begin(struct shmstore *s)
{
	/* Acquire: pairs with shms_packgive_may(), in another thread. */
	return !atomic_flag_test_and_set_explicit(&shms_handle(s)->packed.giving,
						  memory_order_acquire);
}

void shms_packgive_may(struct shmstore *s)
{
	atomic_flag_clear_explicit(&shms_handle(s)->packed.giving, memory_order_release);
}

void shms_packgive_end(struct shmstore *s)
{
	while (!begin(s))
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

void shms_packgive_asked(struct shmstore *s)
{
	if (!begin(s))
		return;
	give(s);
	shms_detail_clear(); /* that is no business of the call */
	shms_packgive_may(s);
}

/*
 * The owner's handle in this process of the store whose page this is, to give what is asked of it
 * here and now: give_all() is owed, and the store is not closed before. NULL: another process has
 * it, or another thread gives for it.
 */
static struct shmstore *find_ours(int page_fd)
{
	struct shms_handle *h;
	struct stat page;

	if (fstat(page_fd, &page) < 0)
		return NULL;
	for (h = shms_ours_lock(); h; h = h->next) {
		if (!begin(&h->s))
			continue;
		if (page.st_ino == h->s.page_inode && page.st_dev == h->s.p->device)
			break;
		shms_packgive_may(&h->s);
	}
	shms_ours_unlock();
	return h ? &h->s : NULL;
}

static void give_all(struct shmstore *s)
{
	while (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed))
		give(s);
	shms_packgive_may(s);
}

void shms_packgive_for(struct shmstore *s, uint64_t ns)
{
	uint64_t end = shms_now_mono_ns() + ns;

	while (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed) &&
	       shms_now_mono_ns() < end)
		shms_packgive_asked(s);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/*
 * The words of a page are read and written by calls, not by a map: its owner may cut the file. An
 * owner's page is believed about who asked it, and for how much: the result is the kernel's count.
 *
 * A wanted that stands was asked for by somebody, and its owner has made no call since. If that
 * was just now, the answer may come and is waited for; else the store is silent, and is not
 * asked again, nor waited for.
 *
 * A store of our own process may have no other thread that makes a call: it gives here, at once.
 */
#define WAIT_NS 100000000ull  /* for a sign of life */
#define WORK_NS 2000000000ull /* after it */

/* struct wire_packed as it was read. */
struct words {
	uint64_t bytes, given, wanted, asked_ns;
};
_Static_assert(offsetof(struct words, wanted) == offsetof(struct wire_packed, wanted), "words");
_Static_assert(offsetof(struct words, asked_ns) == offsetof(struct wire_packed, asked_ns), "words");

static bool read_words(int page_fd, struct words *ret)
{
	return shms_pread_all(page_fd, ret, sizeof(*ret), WIRE_PACKED_OFF) == (ssize_t)sizeof(*ret);
}

static void write_word(int page_fd, size_t member, uint64_t value)
{
	(void)shms_write_at(page_fd, &value, sizeof(value), WIRE_PACKED_OFF + member);
}

/* The page of a live store, to be written. -1: it is none, or may not be. */
static int open_page(int storefd, const struct stat *store)
{
	_fd_ int fd = shms_page_open(storefd, SHMS_PAGE_FILE);
	struct stat st;

	/* Root writes to nothing but what is the store's. */
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != store->st_uid)
		return -1;
	if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
		flock(fd, LOCK_UN);
		return -1;
	}
	return shms_take_fd(&fd);
}

/* The memory of the store's segments: a bound for the claims in its page. */
static uint64_t most_of(int storefd)
{
	_names_ struct shms_names d = shms_names(storefd, SHMS_DIR_SEGMENTS);
	uint64_t sum = 0;
	struct stat st;

	while (shms_names_next(&d))
		sum += fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? shms_blocks(&st) : 0;
	return sum;
}

/* Calls fn for each live store that has packed objects. fn returns whether it wants more, and takes
 * *page_fd by setting it to -1. */
static void each(struct shmstore_partition *p, uid_t uid, uint64_t own,
		 bool (*fn)(int *page_fd, const struct words *w, void *arg), void *arg)
{
	_names_ struct shms_names d = shms_names_beneath(p->fd, SHMS_DIR_STORES);
	uint64_t most;
	struct words w;
	struct stat st;
	bool more = true;

	while (more && shms_names_next(&d)) {
		_fd_ int fd = shms_open_beneath(d.fd, d.name, O_RDONLY | O_DIRECTORY);
		_fd_ int page_fd = -1;

		if (fd < 0 || fstat(fd, &st) < 0 ||
		    (uid != SHMSTORE_EVICT_ALL && st.st_uid != uid) || st.st_ino == own)
			continue;
		page_fd = open_page(fd, &st);
		if (page_fd < 0 || !read_words(page_fd, &w) || !w.bytes)
			continue;
		most = most_of(fd);
		w.bytes = w.bytes < most ? w.bytes : most;
		if (w.bytes)
			more = fn(&page_fd, &w, arg);
	}
}

static bool add(int *page_fd, const struct words *w, void *arg)
{
	uint64_t *sum = arg;

	(void)page_fd;
	*sum += w->bytes < UINT64_MAX - *sum ? w->bytes : 0;
	return true;
}

uint64_t shms_packask_bytes(struct shmstore_partition *p, uid_t uid, uint64_t own)
{
	uint64_t sum = 0;

	each(p, uid, own, add, &sum);
	return sum;
}

struct asking {
	struct shms_packask *k;
	uint64_t left, now_ns;
};

static bool ask(int *page_fd, const struct words *w, void *arg)
{
	struct asking *a = arg;
	uint64_t part = w->bytes < a->left ? w->bytes : a->left;
	struct shmstore *ours = find_ours(*page_fd);

	if (!ours && w->wanted && a->now_ns - w->asked_ns >= WAIT_NS)
		return true;
	if (!w->wanted) {
		write_word(*page_fd, offsetof(struct wire_packed, asked_ns), a->now_ns);
		write_word(*page_fd, offsetof(struct wire_packed, wanted), part);
	}
	if (ours)
		give_all(ours);
	a->left -= part;
	a->k->v[a->k->n++] =
		(struct shms_packasked){.page_fd = shms_take_fd(page_fd),
					.given = w->given,
					.asked_ns = w->wanted ? w->asked_ns : a->now_ns};
	return a->left && a->k->n < SHMS_PACKASK_STORES;
}

void shms_packask_begin(struct shmstore_partition *p, uid_t uid, uint64_t own, uint64_t bytes,
			struct shms_packask *ret)
{
	struct asking a = {.k = ret, .left = bytes, .now_ns = shms_now_boot_ns()};

	ret->n = 0;
	if (bytes)
		each(p, uid, own, ask, &a);
}

/* The bytes given so far. *ret_open: some have not answered; *ret_work: one of them is at it. */
static uint64_t look(const struct shms_packask *k, bool *ret_open, bool *ret_work)
{
	uint64_t sum = 0;
	struct words w;

	*ret_open = *ret_work = false;
	for (size_t i = 0; i < k->n; i++) {
		if (!read_words(k->v[i].page_fd, &w))
			continue;
		sum += w.given - k->v[i].given;
		*ret_open = *ret_open || w.wanted;
		*ret_work = *ret_work || (w.wanted && w.asked_ns != k->v[i].asked_ns);
	}
	return sum;
}

uint64_t shms_packask_end(struct shms_packask *k, uint64_t bytes)
{
	uint64_t begin = shms_now_mono_ns(), given = 0;
	bool open = k->n != 0, work;

	while (open) {
		given = look(k, &open, &work);
		if (!open || given >= bytes ||
		    shms_now_mono_ns() - begin >= (work ? WORK_NS : WAIT_NS))
			break;
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
	}
	for (size_t i = 0; i < k->n; i++)
		shms_close_fd(k->v[i].page_fd);
	k->n = 0;
	return given;
}

bool shms_packask_for(struct shmstore *s, uint64_t bytes)
{
	struct shms_packask k;
	struct shms_space space;

	if (shms_space(s->p->fd, &space) < 0)
		return false;
	shms_packask_begin(s->p, s->uid, s->readonly ? 0 : s->dir_inode,
			   bytes + shms_victim_batch(space.size), &k);
	return shms_packask_end(&k, bytes) > 0;
}
