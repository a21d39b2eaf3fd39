/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierroom.c: a claim is entered first and added up after: the user's account under its lock, so
 * one user's processes take turns; then all accounts. Of two users who claim the same room at once,
 * at least the later sees both, and withdraws. So the accounts never pass the limit, and have all
 * files.
 *
 * An account may be too high, never too low:
 *   a claim is entered before its file is begun, and settled after it has its name
 *   a file is removed and deducted under the lock, or removed without it and not deducted
 *   counting holds the lock, so that nobody claims, settles or deducts meanwhile. It takes the
 *   living claims before the files: a file that gets its name just now is counted twice, or once,
 *   and once more of it is settled away
 * An account that stays too high (a writer was killed, a lock was late) is counted anew by the
 * first claim that it refuses, once a second at most: not every claim on a full tier may walk it.
 *
 * Rejected: the sum of all tier files at every claim (too many, and other users' cannot be seen);
 * what the disk's free bytes changed by since the last sum (others write there, too, and delete); a
 * file for each claim (names to clean up, and two for every demotion).
 */
#include "tierroom.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "tierscan.h"

#define LOCK_MS    1000u                /* for who claims */
#define DEDUCT_MS  5u                   /* for who removes, and may hold a store's names */
#define RECOUNT_MS 1000u                /* that a count is good for, where it is in the way */
#define STAMPS     UINT64_C(1000000000) /* so many times differ */
#define RANGE      (UINT64_C(1) << 48)  /* bytes of the account that are an open tier's to lock */
#define N_RANGES   (UINT64_C(1) << 14)  /* of which there are so many */
#define RANGES_END ((off_t)(RANGE * N_RANGES))
#define TRIES      16

struct account {
	uint64_t used, claimed;
	uint32_t stamp;
	ino_t inode;
};

static struct account read_account(const struct stat *st)
{
	return (struct account){.used = st->st_mtim.tv_sec > 0 ? (uint64_t)st->st_mtim.tv_sec : 0,
				.claimed =
					st->st_atim.tv_sec > 0 ? (uint64_t)st->st_atim.tv_sec : 0,
				.stamp = (uint32_t)st->st_mtim.tv_nsec,
				.inode = st->st_ino};
}

static int write_account(int fd, const struct account *a)
{
	struct timespec times[2] = {{.tv_sec = (time_t)a->claimed},
				    {.tv_sec = (time_t)a->used, .tv_nsec = (long)a->stamp}};

	return futimens(fd, times) < 0 ? -errno : 0;
}

/* ---- the account's file ---------------------------------------------------------------------- */

static void name_of(uid_t uid, char ret_name[32])
{
	snprintf(ret_name, 32, "%u" SHMS_TIER_ACCOUNT, (unsigned)uid);
}

/* Opens the account that is there. The descriptor, -ENOENT, -EPERM
 * (another's, in its place), -errno. */
static int open_account(const struct shms_tier *t)
{
	char name[32];
	struct stat st;
	_fd_ int tier_fd = shms_open_dir(t->p->fd, SHMS_DIR_TIER);
	_fd_ int fd = -1;

	if (tier_fd < 0)
		return tier_fd;
	name_of(t->uid, name);
	fd = openat(tier_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT                     ? -ENOENT
		       : errno == ELOOP || errno == EACCES ? -EPERM
							   : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_uid == t->uid ? shms_take_fd(&fd) : -EPERM;
}

void shms_tierroom_close(struct shms_tier *t)
{
	if (t->room.open)
		shms_close_fd(t->room.fd);
	t->room.open = false;
	t->room.claimed = 0;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Bytes of the user's files. A file that is still being written is in its writer's claim. */
static int count_files(const struct shms_tier *t, uint64_t *ret_bytes)
{
	_names_ struct shms_names d = shms_names(t->files_fd, ".");
	struct stat st;
	bool writing;

	*ret_bytes = 0;
	while (shms_names_next(&d)) {
		if (d.name[0] == '.' || (shms_tierscan_tmp(d.fd, d.name, &writing) && writing))
			continue;
		if (fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			*ret_bytes += shms_tierroom_of(&st);
	}
	return t->files_fd < 0 ? -ENOENT : d.error;
}

/* Bytes of [from, to) that are locked. fd holds no lock itself. */
static int count_locked(int fd, off_t from, off_t to, uint64_t *io_bytes)
{
	struct flock lock;
	int r = 0;

	while (r == 0 && from < to) {
		lock = (struct flock){.l_type = F_WRLCK,
				      .l_whence = SEEK_SET,
				      .l_start = from,
				      .l_len = to - from};
		if (fcntl(fd, F_OFD_GETLK, &lock) < 0)
			return -errno;
		if (lock.l_type == F_UNLCK)
			return 0;
		/* Any of them: there may be others before it. */
		*io_bytes += (uint64_t)lock.l_len;
		r = count_locked(fd, from, lock.l_start, io_bytes);
		from = lock.l_start + lock.l_len;
	}
	return r;
}

/* Claims of the living, by a new description: a holder does not see its own lock. */
static int count_claims(const struct shms_tier *t, ino_t account, uint64_t *ret_bytes)
{
	_fd_ int fd = open_account(t);
	struct stat st;

	*ret_bytes = 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_ino != account)
		return -EAGAIN; /* the tier was taken away meanwhile */
	return count_locked(fd, 0, RANGES_END, ret_bytes);
}

static uint32_t stamp_now(void)
{
	return (uint32_t)(shms_now_boot_ms() % STAMPS);
}

/* The account whose lock we hold. On failure it stays as it is. */
static int recount(const struct shms_tier *t, struct account *io)
{
	uint64_t files = 0, claims;
	int r = count_claims(t, io->inode, &claims);

	if (r == 0)
		r = count_files(t, &files);
	if (r < 0)
		return r;
	io->used = files + claims;
	io->claimed = claims;
	io->stamp = stamp_now();
	return write_account(t->room.fd, io);
}

/* Makes the account. Files may be there from before there were any.
 * -EEXIST: somebody was faster. */
static int make_account(const struct shms_tier *t)
{
	struct account a = {.stamp = stamp_now()};
	char name[32];
	int r;
	_fd_ int tier_fd = shms_open_dir(t->p->fd, SHMS_DIR_TIER);
	_fd_ int fd = tier_fd < 0
			      ? -1
			      : shms_unnamed_open(&(struct shms_unnamed){tier_fd, t->p->fd, "."},
						  O_RDWR, 0600);

	if (fd < 0)
		return tier_fd < 0 ? tier_fd : -errno;
	/* Root's hand, the user's file. */
	if (t->uid != geteuid() && fchown(fd, t->uid, (gid_t)-1) < 0)
		return -errno;
	r = count_files(t, &a.used);
	if (r == 0)
		r = write_account(fd, &a);
	name_of(t->uid, name);
	return r < 0 ? r : shms_link_fd(fd, tier_fd, name);
}

/* ---- holding it ------------------------------------------------------------------------------ */

/* Opens it, if it is not open. make: or makes it. */
static int reach(struct shms_tier *t, bool make)
{
	struct shms_tierroom *room = &t->room;
	int r = 0;

	if (room->open && room->pid != getpid())
		shms_tierroom_close(t);
	if (room->open)
		return 0;
	room->fd = open_account(t);
	if (room->fd == -ENOENT && make) {
		r = make_account(t);
		if (r < 0 && r != -EEXIST)
			return r;
		room->fd = open_account(t);
	}
	if (room->fd < 0)
		return room->fd;
	room->open = true;
	room->pid = getpid();
	return 0;
}

static void let_go(struct shms_tier *t)
{
	flock(t->room.fd, LOCK_UN);
	pthread_mutex_unlock(&t->room.lock);
}

/* Holds the account against our threads and against others, and reads it. 0: let_go() is due;
 * -ENOENT, -EBUSY (not in time), -errno. */
static int hold(struct shms_tier *t, bool make, unsigned wait_ms, struct account *ret)
{
	struct stat st;
	int r = -ENOENT;

	pthread_mutex_lock(&t->room.lock);
	for (int i = 0; i < TRIES; i++) {
		r = reach(t, make);
		if (r == 0)
			r = shms_tier_flock(t->room.fd, wait_ms);
		if (r < 0)
			break;
		if (fstat(t->room.fd, &st) == 0 && st.st_nlink) {
			*ret = read_account(&st);
			return 0;
		}
		/* The tier was taken away, and perhaps set again, since it was opened. */
		flock(t->room.fd, LOCK_UN);
		shms_tierroom_close(t);
		r = -ENOENT;
	}
	pthread_mutex_unlock(&t->room.lock);
	return r;
}

static int set_range(const struct shms_tierroom *room, short type, uint64_t from, uint64_t to)
{
	return shms_lock_bytes(room->fd, type, room->base + from, to - from);
}

/* The first claim looks for a range that nobody else has. */
static int find_range(struct shms_tierroom *room, uint64_t claimed)
{
	int r = -EAGAIN;

	for (int i = 0; i < TRIES && r == -EAGAIN; i++) {
		room->base = shms_nonce() % N_RANGES * RANGE;
		r = set_range(room, F_WRLCK, 0, claimed);
	}
	return r;
}

/* Locks as much as is claimed now. -ENOSPC: more than a range. */
static int lock_claims(struct shms_tierroom *room, uint64_t claimed)
{
	int r = 0;

	if (claimed > RANGE)
		return -ENOSPC;
	if (claimed < room->claimed)
		r = set_range(room, F_UNLCK, claimed, room->claimed);
	else if (claimed > room->claimed)
		r = room->claimed ? set_range(room, F_WRLCK, 0, claimed)
				  : find_range(room, claimed);
	if (r == 0)
		room->claimed = claimed;
	return r;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Adds what the accounts of the other users say. */
static int add_others(const struct shms_tier *t, struct account *io)
{
	_names_ struct shms_names d = shms_names(t->p->fd, SHMS_DIR_TIER);
	struct account a;
	struct stat st;
	uid_t uid;

	while (shms_names_next(&d)) {
		if (!shms_tier_account_name(d.name, &uid) || uid == t->uid ||
		    fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		/* A file that another user made under this name says nothing about him. */
		if (!S_ISREG(st.st_mode) || st.st_uid != uid)
			continue;
		a = read_account(&st);
		if (__builtin_add_overflow(io->used, a.used, &io->used))
			io->used = UINT64_MAX;
		if (__builtin_add_overflow(io->claimed, a.claimed, &io->claimed))
			io->claimed = UINT64_MAX;
	}
	return d.error;
}

/* Is there room for what own says, of which wanted are claimed just now? */
static int judge(const struct shms_tier *t, const struct account *own, uint64_t wanted)
{
	struct account all = *own;
	uint64_t free_bytes;
	struct statvfs fs;
	int r = add_others(t, &all);

	if (r < 0)
		return shms_detail(shms_error(r), t->p->path, "%s/tier cannot be read: %s",
				   t->p->path, strerror(-r));
	if (fstatvfs(t->files_fd, &fs) < 0)
		return shms_detail(shms_error(errno), t->files_path,
				   "%s: its file system does not answer: %s", t->files_path,
				   strerror(errno));
	if (fs.f_flag & ST_RDONLY)
		return shms_detail(-ENOSPC, t->files_path,
				   "disk full: %s: the file system is read-only", t->files_path);
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	/* Claimed bytes may be on the disk in part already: the disk is full early, never late. */
	if (all.claimed > free_bytes || free_bytes - all.claimed < t->config.min_free)
		return shms_detail(-ENOSPC, t->files_path,
				   "disk full: %s: %" PRIu64 " bytes free, %" PRIu64
				   " wanted, and %" PRIu64 " are to stay free (min-free)",
				   t->files_path, free_bytes, wanted, t->config.min_free);
	if (t->config.max && all.used > t->config.max)
		return shms_detail(-ENOSPC, t->files_path,
				   "disk full: %s: %" PRIu64 " bytes of tier files, %" PRIu64
				   " more wanted, limit %" PRIu64 " (max); %" PRIu64 " bytes free",
				   t->files_path, shms_minus(all.used, wanted), wanted,
				   t->config.max, free_bytes);
	return 0;
}

static int account_error(const struct shms_tier *t, int r)
{
	if (r == -EBUSY)
		return shms_detail(-EAGAIN, t->p->path,
				   "another process holds the disk tier's account %s/tier/%u%s, "
				   "and does not go on",
				   t->p->path, (unsigned)t->uid, SHMS_TIER_ACCOUNT);
	return shms_detail(shms_error(r), t->p->path,
			   "the disk tier's account %s/tier/%u%s cannot be used: %s", t->p->path,
			   (unsigned)t->uid, SHMS_TIER_ACCOUNT, strerror(-r));
}

/* No room by the account is looked at again by the files, where that was not done lately. */
static int judge_surely(struct shms_tier *t, struct account *a, uint64_t wanted)
{
	int r = judge(t, a, wanted);

	if (r == -ENOSPC && (stamp_now() + STAMPS - a->stamp) % STAMPS >= RECOUNT_MS &&
	    recount(t, a) == 0)
		r = judge(t, a, wanted);
	return r;
}

/* Enters the claim, unless there is no room. The account is held. */
static int enter(struct shms_tier *t, uint64_t bytes, struct account *a)
{
	uint64_t before = t->room.claimed;
	int r = lock_claims(&t->room, before + bytes);

	if (r < 0)
		return account_error(t, r);
	/* Said first, and asked then: others do the same. */
	a->used += bytes;
	a->claimed += bytes;
	r = write_account(t->room.fd, a);
	/* Our claim is among those that are counted. */
	r = r < 0 ? account_error(t, r) : judge_surely(t, a, bytes);
	if (r < 0) {
		a->used = shms_minus(a->used, bytes);
		a->claimed = shms_minus(a->claimed, bytes);
		write_account(t->room.fd, a);
		lock_claims(&t->room, before);
	}
	return r;
}

int shms_tier_claim(struct shms_tier *t, uint64_t bytes)
{
	struct account a;
	int r = hold(t, true, LOCK_MS, &a);

	if (r < 0)
		return account_error(t, r);
	r = enter(t, bytes, &a);
	let_go(t);
	return r;
}

void shms_tier_settle(struct shms_tier *t, uint64_t claimed, uint64_t taken)
{
	struct account a;

	if (!claimed)
		return;
	if (hold(t, false, LOCK_MS, &a) < 0) {
		/* The account stays too high until it is counted anew. */
		SHMS_HELD(&t->room.lock);
		if (t->room.open && t->room.pid == getpid())
			lock_claims(&t->room, shms_minus(t->room.claimed, claimed));
		return;
	}
	a.used = shms_minus(a.used + taken, claimed);
	a.claimed = shms_minus(a.claimed, claimed);
	write_account(t->room.fd, &a);
	lock_claims(&t->room, shms_minus(t->room.claimed, claimed));
	let_go(t);
}

/* ---- files that go --------------------------------------------------------------------------- */

int shms_tierroom_unlink(struct shms_tier *t, const char *name, struct stat *ret)
{
	struct account a;
	bool held = hold(t, false, DEDUCT_MS, &a) == 0;
	int r = fstatat(t->files_fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ||
				unlinkat(t->files_fd, name, 0) < 0
			? -errno
			: 0;

	if (!held)
		return r;
	if (r == 0) {
		a.used = shms_minus(a.used, shms_tierroom_of(ret));
		write_account(t->room.fd, &a);
	}
	let_go(t);
	return r;
}

void shms_tierroom_recount(struct shms_tier *t)
{
	struct account a;

	if (hold(t, false, LOCK_MS, &a) < 0)
		return;
	recount(t, &a);
	let_go(t);
}

void shms_tierroom_remove(int tier_fd)
{
	_names_ struct shms_names d = shms_names(tier_fd, ".");
	uid_t uid;

	while (shms_names_next(&d)) {
		if (shms_tier_account_name(d.name, &uid))
			unlinkat(tier_fd, d.name, 0);
	}
}

void shms_tierroom_forked(struct shms_tier *t)
{
	pthread_mutex_init(&t->room.lock, NULL);
	shms_tierroom_close(t);
}
