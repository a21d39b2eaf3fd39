/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.c: reading and filling the .store page, and liveness by its lock.
 *
 * The lock is a flock: it belongs to the open file description, so it ends with the owner however
 * it dies, and the kernel frees it even for a zombie. A probe takes the shared lock for a moment;
 * two probes do not disturb each other, and who wants the exclusive lock of a dead page waits a
 * probe out. Rejected: pids (reused), fcntl locks (lost when any descriptor of the file is closed),
 * /proc/locks (a scan, and blind in other pid namespaces).
 */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "process.h"
#include "sys.h"
#include "tierformat.h"

#define TRIES 3 /* at words that change meanwhile */

int shms_page_read(int storefd, struct shms_page *ret)
{
	struct shms_page page;
	_fd_ int fd = shms_open_file(storefd, SHMS_PAGE_FILE, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return shms_error(errno);
	n = shms_pread_all(fd, &page, sizeof(page), 0);
	if (n < 0)
		return shms_error((int)n);
	if (n != sizeof(page) || memcmp(page.magic, SHMS_PAGE_MAGIC, sizeof(page.magic)) != 0)
		return -EBADMSG;
	if (page.version != SHMS_PAGE_VERSION)
		return -ENOTSUP;
	if (page.size != SHMS_PAGE_SIZE || !memchr(page.name, '\0', sizeof(page.name)) ||
	    !memchr(page.label, '\0', sizeof(page.label)) ||
	    !memchr(page.address, '\0', sizeof(page.address)) ||
	    !memchr(page.leases_with, '\0', sizeof(page.leases_with)))
		return -EBADMSG;
	*ret = page;
	return 0;
}

int shms_page_read_true(int storefd, struct shms_page *ret)
{
	int r = shms_page_read(storefd, ret);

	for (int i = 0; r == 0 && i < TRIES && !wire_credit_adds_up(&ret->credit); i++)
		r = i + 1 < TRIES ? shms_page_read(storefd, ret) : -EBADMSG;
	return r;
}

void shms_page_fill(struct shms_page *page, const char *name, const char *label, bool keep)
{
	memcpy(page->magic, SHMS_PAGE_MAGIC, sizeof(page->magic));
	page->version = SHMS_PAGE_VERSION;
	page->size = SHMS_PAGE_SIZE;
	page->flags = keep ? SHMS_PAGE_KEEP : 0;
	page->pid = (uint32_t)getpid();
	page->uid = geteuid();
	page->start_time = shms_start_time(getpid());
	page->created_ns = shms_now_real_ns();
	shms_boot_id(page->boot_id);
	shms_random(page->uuid, sizeof(page->uuid));
	memset((char *)page + offsetof(struct shms_page, name), 0,
	       offsetof(struct shms_page, reserved0) - offsetof(struct shms_page, name));
	memcpy(page->name, name, strnlen(name, sizeof(page->name) - 1));
	if (label)
		memcpy(page->label, label, strnlen(label, sizeof(page->label) - 1));
}

/* Did the owner live before the host was started last? A tmpfs does not outlive that, and
 * container managers give each container a boot id of its own, or none: only a partition on a
 * disk is asked. */
static bool other_boot(const struct shms_page *page, bool tmpfs)
{
	static const uint8_t unknown[16];
	uint8_t boot[16];

	if (tmpfs || memcmp(page->boot_id, unknown, sizeof(unknown)) == 0)
		return false;
	shms_boot_id(boot);
	return memcmp(boot, unknown, sizeof(unknown)) != 0 &&
	       memcmp(page->boot_id, boot, sizeof(boot)) != 0;
}

uint64_t shms_page_linked(const struct shms_page *page)
{
	return wire_linked(atomic_load_explicit(&page->ledger.linked_bytes, memory_order_relaxed),
			   atomic_load_explicit(&page->moved.bytes, memory_order_relaxed));
}

int shms_page_open(int dirfd, const char *path)
{
	struct stat st;
	_fd_ int fd = shms_open_file(dirfd, path, O_RDWR);

	/* Root's hand in another user's directory: a page has one name, and this size. */
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
	    st.st_size != SHMS_PAGE_SIZE)
		return -1;
	return shms_take_fd(&fd);
}

struct shms_page *shms_page_map(int dirfd, const char *path, uid_t uid)
{
	struct stat st;
	_fd_ int fd = shms_page_open(dirfd, path);
	/* Another user could cut the file under the map. */
	bool ours = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == uid;
	void *map = ours ? shms_map_ours(SHMS_PAGE_SIZE, MAP_SHARED, fd) : MAP_FAILED;

	return map == MAP_FAILED ? NULL : map;
}

void shms_page_pool_taken(int storefd, uint64_t n, uint64_t bytes)
{
	uint64_t words[2];
	_fd_ int fd = shms_page_open(storefd, SHMS_PAGE_FILE);

	if (fd < 0 || shms_pread_all(fd, words, sizeof(words),
				     offsetof(struct shms_page, moved.pool_n)) != sizeof(words))
		return;
	words[0] += n;
	words[1] += bytes;
	shms_write_at(fd, words, sizeof(words), offsetof(struct shms_page, moved.pool_n));
}

void shms_page_exposed(int partition_fd, const char *store)
{
	uint64_t word = 1;
	_fd_ int dir_fd = shms_open_beneath(partition_fd, store, O_RDONLY | O_DIRECTORY);
	_fd_ int fd = dir_fd < 0 ? -1 : shms_page_open(dir_fd, SHMS_PAGE_FILE);

	if (fd >= 0)
		shms_write_at(fd, &word, sizeof(word), offsetof(struct shms_page, moved.exposed));
}

_Static_assert(offsetof(struct shms_page_moved, pool_n) == UINT64_C(8) * WIRE_MOVED_POOL, "pool");

void shms_page_counters(const struct shms_page *page, struct shmstore_counters *ret)
{
	const struct shms_ledger *ledger = &page->ledger;
	/* Same members in the same order, up to ledger->reserved. */
	const _Atomic uint64_t *from = &ledger->put_n;
	uint64_t *to = &ret->put_n;

	_Static_assert(offsetof(struct shms_ledger, reserved) == sizeof(struct shmstore_counters),
		       "ledger and counters");
	_Static_assert(offsetof(struct shms_ledger, enospc_n) ==
			       offsetof(struct shmstore_counters, enospc_n),
		       "enospc_n");
	for (size_t i = 0; i < sizeof(*ret) / sizeof(*to); i++)
		to[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
	ret->linked_bytes = shms_page_linked(page);
	ret->pool_n = wire_linked(ret->pool_n,
				  atomic_load_explicit(&page->moved.pool_n, memory_order_relaxed));
	ret->pool_bytes = wire_linked(ret->pool_bytes, atomic_load_explicit(&page->moved.pool_bytes,
									    memory_order_relaxed));
}

int shms_page_alive(int storefd)
{
	_fd_ int fd = shms_open_file(storefd, SHMS_PAGE_FILE, O_RDONLY);

	if (fd < 0) {
		if (errno == EACCES || errno == EPERM)
			return SHMSTORE_ALIVE_UNKNOWN;
		return shms_error(errno);
	}
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? SHMSTORE_ALIVE : SHMSTORE_ALIVE_UNKNOWN;
	/* Not by closing alone: where a child has the descriptor too, that
	 * would leave the lock to it. */
	flock(fd, LOCK_UN);
	return SHMSTORE_DEAD;
}

bool shms_page_owner_gone(const struct shms_page *page)
{
	return shms_start_time((pid_t)page->pid) != page->start_time ||
	       (kill((pid_t)page->pid, 0) < 0 && errno == ESRCH);
}

bool shms_page_leases_over(const struct shms_page *page, bool tmpfs, int partition_fd)
{
	char path[sizeof(SHMS_DIR_STORES "/") + sizeof(page->leases_with)];
	int alive;

	if (other_boot(page, tmpfs))
		return true; /* the clock that they end by is gone */
	if (!page->leases_with[0])
		return false;
	if (strcmp(page->leases_with, page->name) == 0)
		return true;
	snprintf(path, sizeof(path), SHMS_DIR_STORES "/%s", page->leases_with);
	_fd_ int fd = shms_open_beneath(partition_fd, path, O_RDONLY | O_DIRECTORY);

	alive = fd < 0 ? shms_error(fd) : shms_page_alive(fd);
	return alive == SHMSTORE_DEAD || alive == -ENOENT;
}

int shms_page_lock(int storefd)
{
	struct stat mine, named;
	_fd_ int fd = shms_open_file(storefd, SHMS_PAGE_FILE, O_RDWR);

	if (fd < 0)
		return shms_error(errno);
	/* A probe holds the shared lock for microseconds, an owner the exclusive one for its life:
	 * if the shared lock can be had the other one was a probe's. */
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK)
			return shms_error(errno);
		if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
			return -EBUSY;
		flock(fd, LOCK_UN);
		if (i == 1000)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	if (fstat(fd, &mine) < 0 ||
	    fstatat(storefd, SHMS_PAGE_FILE, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev)
		return -ENOENT; /* taken apart, or made anew, since we opened it */
	return shms_take_fd(&fd);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* The page may be anybody's: what is read from it can make the books of that
 * store wrong, and nothing else. */

static bool read_moved(int fd, struct shms_page_moved *ret)
{
	return shms_pread_all(fd, ret, sizeof(*ret), offsetof(struct shms_page, moved)) ==
	       (ssize_t)sizeof(*ret);
}

/* The members from inode on. */
static void write_intent(int fd, const struct shms_page_moved *m)
{
	shms_write_at(fd, &m->inode, sizeof(*m) - offsetof(struct shms_page_moved, inode),
		      offsetof(struct shms_page, moved.inode));
}

void shms_move_ask(int objects_fd, bool wanted)
{
	uint32_t word = wanted;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd >= 0)
		shms_write_at(fd, &word, sizeof(word), offsetof(struct shms_page, names_asked));
}

void shms_move_begin(int objects_fd, uint64_t inode, uint64_t bytes, bool linked)
{
	struct shms_page_moved m;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 || !read_moved(fd, &m))
		return;
	m.inode = inode;
	m.linked = linked ? m.bytes : m.bytes - bytes;
	m.unlinked = m.linked + bytes;
	write_intent(fd, &m);
}

/* Both steps may be repeated: killed between them, the next one books the same sum. */
static void end(int fd, bool linked)
{
	struct shms_page_moved m;

	if (!read_moved(fd, &m) || !m.inode)
		return;
	/* Else somebody booked who knows nothing of intents: an older version. */
	if (m.bytes == m.linked || m.bytes == m.unlinked) {
		m.n++;
		m.bytes = linked ? m.linked : m.unlinked;
		shms_write_at(fd, &m, offsetof(struct shms_page_moved, exposed),
			      offsetof(struct shms_page, moved));
	}
	m.inode = 0;
	write_intent(fd, &m);
}

void shms_move_end(int objects_fd, bool linked)
{
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd >= 0)
		end(fd, linked);
}

/* 1, 0, -errno: the directory cannot be read now. */
static int listed(int objects_fd, uint64_t inode)
{
	_names_ struct shms_names d = shms_names(objects_fd, ".");

	while (shms_names_next(&d)) {
		if (d.ino == inode && d.name[0] != '.')
			return 1;
	}
	return d.error;
}

void shms_move_settle(int objects_fd)
{
	struct shms_page_moved m;
	int linked;
	_fd_ int fd = shms_page_open(objects_fd, "../" SHMS_PAGE_FILE);

	if (fd < 0 || !read_moved(fd, &m) || !m.inode)
		return;
	/* A walk counts what is left in clean/ as the store's, and nobody would book that it
	 * went. */
	shms_move_sweep(objects_fd);
	linked = listed(objects_fd, m.inode);
	if (linked >= 0)
		end(fd, linked);
}

void shms_move_sweep(int objects_fd)
{
	_names_ struct shms_names d = shms_names(objects_fd, "../" SHMS_DIR_CLEAN);
	struct stat st;

	while (shms_names_next(&d)) {
		if (d.name[0] != '.' && fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			unlinkat(d.fd, d.name, 0);
	}
}
