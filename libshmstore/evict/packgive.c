/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packgive.c: see packgive.h.
 *
 * First the pool goes, then objects to the disk tier, where there is one. The call that finds
 * itself asked did not want to wait for a disk, so it moves a few objects, and leaves the rest to
 * the next one. An event loop, which was woken for it, goes on for a while.
 */
#include "packgive.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arbhook.h"
#include "bootclock.h"
#include "detail.h"
#include "ours.h"
#include "packdemote.h"
#include "sys.h"
#include "tier.h"
#include "tierjoin.h"

#define BYTES_MOST (UINT64_C(4) << 20)
#define POLL_NS    500000 /* of a close, for the thread that gives */
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
	struct shms_pack *pack = shms_packed_pack(&s->packed);
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
	/* Acquire: pairs with end(), in another thread. */
	return !atomic_flag_test_and_set_explicit(&s->packed.giving, memory_order_acquire);
}

static void end(struct shmstore *s)
{
	atomic_flag_clear_explicit(&s->packed.giving, memory_order_release);
}

void shms_packgive_begin(struct shmstore *s)
{
	end(s);
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
	end(s);
}

/* A store that has begun to give is not closed meanwhile. */
struct shmstore *shms_packgive_ours(int page_fd)
{
	struct shmstore *s;
	struct stat page;

	if (fstat(page_fd, &page) < 0)
		return NULL;
	shms_ours_lock();
	for (s = shms_ours_first(); s; s = s->next) {
		if (!begin(s))
			continue;
		if (page.st_ino == s->page_inode && page.st_dev == s->p->device)
			break;
		end(s);
	}
	shms_ours_unlock();
	return s;
}

void shms_packgive_done(struct shmstore *s)
{
	while (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed))
		give(s);
	end(s);
}

void shms_packgive_for(struct shmstore *s, uint64_t ns)
{
	uint64_t end = shms_now_mono_ns() + ns;

	while (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed) &&
	       shms_now_mono_ns() < end)
		shms_packgive_asked(s);
}
