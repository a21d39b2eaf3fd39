/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: waits until a store has a key, or another value of it.
 *
 * The store's page has two words for it. A process that waits reads woken, sets waiting, looks for
 * the key, and sleeps on woken (a futex). The owner, after it gave a key to an object, looks at
 * waiting (handle.h): where it is set it clears it, counts woken up, and wakes all that sleep; they
 * look again. A process that is killed while it waits leaves a flag that costs its owner one call.
 *
 * Each writes one word and reads the other's, and one of the two must see the other's write. So
 * that a put needs no barrier for it, the process that waits has the kernel put one into all that
 * have asked for that (membarrier(2), at the store's opening). Where the call is refused a
 * wake-up may come late, by 10 ms.
 *
 * A process that may not write to the page, another user's, sleeps for 10 ms at a time. Each 100 ms
 * whoever waits asks whether the owner lives.
 * Rejected: a count of those that wait (a killed one stays counted).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "pack.h"
#include "parts.h"
#include "sys.h"
#include "view.h"

#define LOOK_NS UINT64_C(100000000) /* between two questions whether the owner lives */
#define POLL_NS UINT64_C(10000000)

/* ---- another owner of the name --------------------------------------------------------------- */

/*
 * A store is gone when its page has no name any more, or another file has it. An owner that is
 * killed leaves the page: who opens the store again takes it over, and nothing changes for who
 * reads. The descriptor of the handle keeps its number (dup3), so that threads that are just using
 * it see the former store or the new one, and never a number that is somebody else's.
 */

static bool is_there(const struct shmstore *s)
{
	struct stat st;

	return fstatat(s->objects_fd, "../" SHMS_PAGE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_ino == s->page_inode;
}

/* The handle goes on with what fresh found. */
static int take(struct shmstore *s, struct shmstore *fresh)
{
	char *former = shms_handle(s)->segments;
	struct shms_pack *pack;
	int r;

	SHMS_HELD(&shms_handle(s)->packed.lock);
	r = dup3(fresh->objects_fd, s->objects_fd, O_CLOEXEC) < 0 ? -errno : 0;
	if (r == 0) {
		shms_handle(s)->segments = shms_handle(fresh)->segments;
		shms_handle(fresh)->segments = former;
		memcpy(s->page->uuid, fresh->page->uuid, sizeof(s->page->uuid));
		s->page->pid = fresh->page->pid;
		s->page->start_time = fresh->page->start_time;
		s->page_inode = fresh->page_inode;
		s->dir_inode = fresh->dir_inode;
		s->unowned = fresh->unowned;
		s->tier_on = fresh->tier_on;
	}
	pack = shms_packed_pack(s);
	if (pack)
		shms_packread_end(pack);
	return r;
}

int shms_renew(struct shmstore *s, bool *ret_renewed)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *fresh;
	int r;

	*ret_renewed = false;
	if (is_there(s))
		return 0;
	o.flags = SHMSTORE_OPEN_READONLY | (shms_handle(s)->any_user ? SHMSTORE_OPEN_ANY_USER : 0);
	r = shmstore_open(s->p, s->name, &o, &fresh);
	if (r == -ENOENT) {
		return shms_detail(-ENOENT, NULL,
				   "the store %s is gone since its owner, process %u, ended; the "
				   "handle goes on when a process opens the name again",
				   s->name, (unsigned)s->page->pid);
	}
	if (r < 0)
		return r;
	r = take(s, fresh);
	shmstore_close(fresh);
	*ret_renewed = r == 0;
	return r < 0 ? shms_error(r) : 0;
}

/* The owner, as its page says it; the lock says whether it lives. ret_alive: SHMSTORE_ALIVE, _DEAD,
 * _ALIVE_UNKNOWN. 0; -ENOENT; -errno. */
static int find_owner(struct shmstore *s, int *ret_pid, int *ret_alive)
{
	struct shms_page page;
	bool renewed;
	int r = shms_renew(s, &renewed);
	_fd_ int dir_fd = r < 0 ? r : shms_open_dir(s->objects_fd, "..");

	r = dir_fd < 0 ? dir_fd : shms_page_read(dir_fd, &page);
	if (r < 0)
		return shms_error(r);
	*ret_pid = (int)page.pid;
	*ret_alive = shms_page_alive(dir_fd);
	return *ret_alive < 0 ? shms_error(*ret_alive) : 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct waiting {
	struct shmstore *s;
	struct shms_page *page; /* mapped; NULL: it may not be */
};

static void sleep_ns(const struct waiting *w, uint32_t woken, uint64_t ns)
{
	const struct timespec t = shms_timespec(ns);

	if (w->page)
		syscall(SYS_futex, &w->page->woken, FUTEX_WAIT, woken, &t, NULL, 0);
	else
		nanosleep(&t, NULL);
}

/* 0: it lives, or may; -ESTALE. */
static int ask_for_owner(struct shmstore *s)
{
	int pid, alive, r;

	if (!s->readonly)
		return 0;
	r = find_owner(s, &pid, &alive);
	if (r < 0 || alive != SHMSTORE_DEAD)
		return r;
	if (!pid)
		return shms_detail(-ESTALE, NULL,
				   "nobody has the store %s open, so that nobody puts the key; "
				   "wait when it is opened",
				   s->name);
	return shms_detail(-ESTALE, NULL,
			   "process %d, which owned the store %s, is dead: nobody puts the key; "
			   "wait when another one has it",
			   pid, s->name);
}

/* 1: the store has the key, with another value than the one of that generation, where
 * that is not 0; 0; -errno. */
static int look(struct shmstore *s, const void *key, size_t key_size, uint64_t generation)
{
	struct shmstore_view *v;
	int r;

	if (!generation)
		return shmstore_contains(s, key, key_size);
	r = shmstore_get(s, key, key_size, 0, &v);
	if (r != 0)
		return r == -ENOENT ? 0 : r;
	r = v->generation != generation;
	shmstore_view_unref(v);
	return r;
}

/* Waits with the page as it is now. 0; -ETIMEDOUT; -EAGAIN: 100 ms are over; -errno. */
static int wait_some(struct waiting *w, const void *key, size_t key_size, uint64_t generation,
		     uint64_t end_ns)
{
	uint64_t most = POLL_NS, now = shms_now_mono_ns(),
		 until = now + LOOK_NS < end_ns ? now + LOOK_NS : end_ns;

	for (;;) {
		uint32_t woken = 0;
		int r;

		if (w->page) {
			bool barrier;

			woken = atomic_load_explicit(&w->page->woken, memory_order_acquire);
			atomic_exchange_explicit(&w->page->waiting, 1, memory_order_acq_rel);
			barrier =
				syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
			most = barrier ? LOOK_NS : POLL_NS;
		}
		r = look(w->s, key, key_size, generation);
		if (r != 0)
			return r < 0 ? r : 0;
		now = shms_now_mono_ns();
		if (now >= until)
			return now >= end_ns ? -ETIMEDOUT : -EAGAIN;
		sleep_ns(w, woken, until - now < most ? until - now : most);
	}
}

int shmstore_wait(struct shmstore *s, const void *key, size_t key_size, uint64_t generation,
		  uint64_t timeout_ms)
{
	struct waiting w = {.s = s};
	uint64_t end = shms_until_ns(timeout_ms);
	int r = look(s, key, key_size, generation);

	while (r == 0 || r == -EAGAIN) {
		r = ask_for_owner(s);
		if (r < 0)
			return r;
		/* By name each time: another process may own the store since. */
		w.page = shms_page_map(s->objects_fd, "../" SHMS_PAGE_FILE, geteuid());
		r = wait_some(&w, key, key_size, generation, end);
		if (w.page)
			munmap(w.page, SHMS_PAGE_SIZE);
		if (r == 0)
			return 0;
	}
	if (r == -ETIMEDOUT)
		return shms_detail(r, NULL, "no object came under the key within %llu ms",
				   (unsigned long long)timeout_ms);
	return r < 0 ? r : 0;
}

int shmstore_owner(struct shmstore *s, int *ret_pid, int *ret_alive)
{
	if (!ret_pid || !ret_alive)
		return shms_detail_null(!ret_pid ? "ret_pid" : "ret_alive");
	if (!s->readonly) {
		*ret_pid = (int)getpid();
		*ret_alive = SHMSTORE_ALIVE;
		return 0;
	}
	return find_owner(s, ret_pid, ret_alive);
}
