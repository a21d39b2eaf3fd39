/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segfile.c: the files of segments, and the places of stores in them.
 *
 * A place is taken with a lock, and ends with it. In between, its record says whose it is. Each
 * change has its steps in an order in which a kill between any two of them leaves a state that
 * others understand:
 *   create   The file has no name until it is whole, locked and recorded.
 *   join     Lock, link, record, maps. A kill leaves a link without a place, which gc finds in
 *            the dead store, or a place without bits, which the next store recovers. A kept store's
 *            place always has a link, so that gc finds the place when the store is removed.
 *   leave    Bits, record, link, maps. A kill leaves a free place, and a link without a place.
 *
 * A place has three maps:
 *   life     One page of the description that has the lock. A forked child inherits it, which
 *            keeps its parent's byte locked.
 *   books    Writable. A child does not inherit it, so that it cannot change its parent's bits.
 *   bytes    The whole file, by a description that can only be read.
 */
#include "segfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "hexdigits.h"
#include "refused.h"
#include "seglook.h"
#include "sys.h"

void shms_segfile_name(const uint8_t uuid[16], char ret_name[SHMS_SEGFILE_NAME])
{
	shms_hexdigits_write_bytes(uuid, 16, ret_name);
	ret_name[SHMS_SEGFILE_NAME - 1] = '\0';
}

bool shms_segment_promised(const struct shms_segment *g, uint64_t now_ms)
{
	uint32_t n = shms_segment_born(g), now = shms_segnow_of_ms(now_ms);

	for (uint32_t i = 0; i < n; i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);

		if (shms_segstate_promised(shms_segword_load(slot.state), now))
			return true;
	}
	return false;
}

/* ---- what lies there ------------------------------------------------------------------------- */

int shms_segfile_check(int fd, struct shms_segment *ret, struct stat *ret_st)
{
	struct shms_segment_header header;
	ssize_t n;

	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (!S_ISREG(ret_st->st_mode))
		return -EBADMSG;
	n = shms_pread_all(fd, &header, sizeof(header), 0);
	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(header))
		return -EBADMSG;
	*ret = (struct shms_segment){0};
	return shms_segment_check(&header, (uint64_t)ret_st->st_size, ret);
}

/*
 * The owner takes memory before it publishes slots; a write to a slot without memory could find the
 * partition full. The hole is looked for first: a read through the map would fill it.
 */
int shms_segfile_check_memory(int fd, const struct shms_segment *g, uint64_t n_born)
{
	off_t hole = shms_seek(fd, 0, SEEK_HOLE);
	uint64_t told = g->shape.slots_off + n_born * shms_segslot_size(g->shape.n_words);

	if (hole < 0)
		return (int)hole;
	return (uint64_t)hole < told ? -EBADMSG : 0;
}

/* Where a mount has huge pages khugepaged makes one of the small pages that are mapped, and fills
 * the holes between them: memory that nobody was granted. */
static void keep_holes(void *map, uint64_t size)
{
	madvise(map, size, MADV_NOHUGEPAGE);
}

static int map_books(int fd, uint64_t size, struct shms_segment *g)
{
	void *map = shms_map_ours(size, MAP_SHARED, fd);

	if (map == MAP_FAILED)
		return shms_error(errno);
	keep_holes(map, size);
	g->books = map;
	return 0;
}

int shms_segfile_map(int fd, struct shms_segment *g)
{
	int r = map_books(fd, g->shape.data_off, g);

	if (r == 0)
		r = shms_segfile_check_memory(fd, g, 0);
	/* The number of slots is read through the map after what is before them was found to have
	 * memory. */
	return r < 0 ? r : shms_segfile_check_memory(fd, g, shms_segment_born(g));
}

/* ---- a place --------------------------------------------------------------------------------- */

void shms_segfile_close(struct shms_segfile *f)
{
	if (f->segment.books)
		munmap(f->segment.books, f->books_size);
	if (f->segment.bytes)
		munmap((void *)(uintptr_t)f->segment.bytes, f->segment.shape.size);
	if (f->life)
		munmap(f->life, SHMS_SEGMENT_PAGE);
	f->segment.books = NULL;
	f->segment.bytes = NULL;
	f->life = NULL;
}

/* Makes the maps that are missing. fd has the lock, and the file has its name. */
static int map_rest(struct shms_segfile *f, int fd, int dirfd)
{
	struct stat here, there;
	void *map;
	int r;

	/* An owner that comes back has mapped as much as anybody. */
	if (f->holder == SHMS_SEG_OWNER && f->books_size < f->segment.shape.size) {
		munmap(f->segment.books, f->books_size);
		f->segment.books = NULL;
		f->books_size = f->segment.shape.size;
		r = map_books(fd, f->books_size, &f->segment);
		if (r < 0)
			return r;
	}
	map = mmap(NULL, SHMS_SEGMENT_PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	f->life = map;
	_fd_ int read_fd = shms_open_file(dirfd, f->name, O_RDONLY);
	if (read_fd < 0)
		return -errno;
	if (fstat(fd, &here) < 0 || fstat(read_fd, &there) < 0)
		return -errno;
	if (here.st_ino != there.st_ino || here.st_dev != there.st_dev)
		return -EBADMSG;
	map = mmap(NULL, f->segment.shape.size, PROT_READ, MAP_SHARED, read_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	keep_holes(map, f->segment.shape.size);
	f->segment.bytes = map;
	f->inode = here.st_ino;
	return 0;
}

static void fill_record(struct shms_segrecord *record, const uint8_t store[16], bool kept)
{
	shms_segword_store(&record->intent, 0);
	memcpy(record->store_uuid, store, sizeof(record->store_uuid));
	record->pid = (uint32_t)getpid();
	/* release: a process that sees the state sees whose place it is. */
	shms_segword_store(&record->state, kept ? SHMS_SEGRECORD_KEPT : SHMS_SEGRECORD_ACTIVE);
}

/*
 * To SEEK_HOLE memory that was allocated and never touched is a hole, and the pages of hints in a
 * large segment are such: a store that joins would refuse it (shms_segfile_check_memory()).
 */
static void touch(const uint8_t *books, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += SHMS_SEGMENT_PAGE)
		(void)*(const volatile uint8_t *)(books + at);
}

/* Makes the whole of the file's books. It has no name yet. */
static int fill(int fd, const struct shms_segment_shape *shape, const uint8_t store[16], bool kept,
		struct shms_segfile *f)
{
	struct shms_segment_header header;
	uint8_t uuid[16];
	int r;

	shms_random(uuid, sizeof(uuid));
	shms_segfile_name(uuid, f->name);
	shms_segment_header(shape, uuid, store, &header);
	r = shms_truncate(fd, shape->size);
	if (r < 0)
		return r;
	/* Records and hints, all of them. Memory for slots is taken when they are cut
	 * (segown.c). */
	r = shms_allocate(fd, shape->slots_off);
	if (r < 0)
		return r;
	if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return errno ? -errno : -EIO;
	r = shms_segment_check(&header, shape->size, &f->segment);
	if (r < 0)
		return r;
	f->books_size = shape->size;
	r = map_books(fd, f->books_size, &f->segment);
	if (r < 0)
		return r;
	touch(f->segment.books, shape->slots_off);
	fill_record(shms_segment_record(&f->segment, SHMS_SEG_OWNER), store, kept);
	return shms_seglock_try(fd, SHMS_SEG_OWNER);
}

int shms_segfile_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16],
			bool kept, struct shms_segfile *ret)
{
	struct shms_segfile f = {.holder = SHMS_SEG_OWNER, .kept = kept};
	_fd_ int fd = shms_unnamed_part(dirfd, O_RDWR, shms_mode_in(dirfd, 0600));
	int r;

	if (fd < 0)
		return -errno;
	errno = 0;
	r = fill(fd, shape, store, kept, &f);
	if (r == 0)
		r = shms_link_fd(fd, dirfd, f.name);
	if (r == 0) {
		r = map_rest(&f, fd, dirfd);
		if (r < 0)
			unlinkat(dirfd, f.name, 0);
	}
	if (r < 0) {
		shms_segfile_close(&f);
		return r;
	}
	*ret = f;
	return 0;
}

/*
 * Takes a free place, and locks its byte; else a dead store's place, after it is recovered. A place
 * is ours when we have its lock and then still see it FREE: a process that has the lock may just be
 * filling in the record. The books are mapped.
 */
static int take_place(int fd, const struct shms_segment *g, unsigned *ret_holder)
{
	for (int dead = 0; dead < 2; dead++) {
		for (unsigned h = SHMS_SEG_OWNER + 1; h < shms_segment_holders(g); h++) {
			struct shms_segrecord *record = shms_segment_record(g, h);
			uint64_t state = shms_segword_load(&record->state);

			if (dead ? state != SHMS_SEGRECORD_ACTIVE : state != SHMS_SEGRECORD_FREE)
				continue;
			if (shms_seglock_try(fd, h) < 0)
				continue;
			state = shms_segword_load(&record->state);
			if (state == SHMS_SEGRECORD_ACTIVE)
				shms_segrescue_locked(g, h, true);
			if (state == SHMS_SEGRECORD_ACTIVE || state == SHMS_SEGRECORD_FREE) {
				*ret_holder = h;
				return 0;
			}
			shms_seglock_end(fd, h);
		}
	}
	atomic_fetch_add_explicit(&shms_segment_control(g)->n_refused, 1, memory_order_relaxed);
	return -EAGAIN;
}

unsigned shms_segment_place(const struct shms_segment *g, const uint8_t store[16])
{
	for (unsigned h = 0; h < shms_segment_holders(g); h++) {
		struct shms_segrecord *record = shms_segment_record(g, h);

		/* In one that is ACTIVE there are objects of a store that was taken apart, as long
		 * as a child keeps it locked. */
		if (shms_segword_is(&record->state, UINT64_MAX, SHMS_SEGRECORD_KEPT) &&
		    memcmp(record->store_uuid, store, sizeof(record->store_uuid)) == 0)
			return h;
	}
	return SHMS_SEGMENT_NO_PLACE;
}

/* Tries for a second, as long as somebody else may recover the place. -EBUSY: in vain. */
static int lock_place(int fd, unsigned holder)
{
	uint64_t until = shms_now_mono_ns() + UINT64_C(1000000000);
	int r;

	while ((r = shms_seglock_try(fd, holder)) == -EAGAIN) {
		if (shms_now_mono_ns() > until)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return r;
}

/*
 * Takes the place that a kept store had before, locks its byte, and finishes or undoes what the
 * store's last process was about. -ENOENT: it had none; -EBUSY.
 */
static int take_old_place(int fd, struct shms_segfile *f, const uint8_t store[16])
{
	unsigned h = f->kept ? shms_segment_place(&f->segment, store) : SHMS_SEGMENT_NO_PLACE;
	int r;

	if (h == SHMS_SEGMENT_NO_PLACE)
		return -ENOENT;
	r = lock_place(fd, h);
	if (r < 0)
		return r;
	/* Another process of the store may have been quicker. */
	if (shms_segment_place(&f->segment, store) != h) {
		shms_seglock_end(fd, h);
		return -ENOENT;
	}
	shms_segrescue_locked(&f->segment, h, false);
	f->holder = h;
	return 0;
}

/*
 * Links the segment here. A link that is there from an earlier place is as good, and a ticket may
 * name it; another file of that name is an error.
 */
static int link_here(int fd, int dirfd, const char *name, bool *ret_linked)
{
	struct stat here, there;
	int r = shms_link_fd(fd, dirfd, name);

	if (r == -ENOENT)
		return -ESTALE; /* its last link went meanwhile */
	if ((r == -EPERM || r == -ENOSYS) && shms_refused(SYS_linkat))
		return -ENOTSUP; /* whoever wants an object of it copies that */
	*ret_linked = r == 0;
	if (r != -EEXIST)
		return r;
	if (fstat(fd, &here) < 0 || fstatat(dirfd, name, &there, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return here.st_ino == there.st_ino && here.st_dev == there.st_dev ? 0 : -EBADMSG;
}

enum way {
	JOIN,
	VISIT,
	REOPEN
};

/* Takes a place in the segment fd, which has that name, and makes its maps. Returns as the function
 * that goes this way; after an error nothing is mapped. */
static int enter(enum way way, int fd, const char *name, int dirfd, const uint8_t store[16],
		 struct shms_segfile *f)
{
	struct stat st;
	int r = shms_segfile_check(fd, &f->segment, &st);

	/* Of another user's file we make no map to write to. */
	if (r == 0 && st.st_uid != geteuid())
		r = -EPERM;
	if (r < 0)
		return r;
	shms_segfile_name(f->segment.uuid, f->name);
	if (strcmp(name, f->name) != 0)
		return -EBADMSG;
	f->books_size = f->segment.shape.data_off;
	r = shms_segfile_map(fd, &f->segment);
	if (r == 0)
		r = take_old_place(fd, f, store);
	if (r == -ENOENT && way != REOPEN)
		r = take_place(fd, &f->segment, &f->holder);
	if (r < 0) {
		shms_segfile_close(f);
		return r;
	}
	if (way == JOIN)
		r = link_here(fd, dirfd, f->name, &f->linked);
	if (r == 0) {
		fill_record(shms_segment_record(&f->segment, f->holder), store, f->kept);
		r = map_rest(f, fd, dirfd);
	}
	if (r < 0) {
		/* A kept store's old place may have names: it stays. */
		if (!f->kept)
			shms_segrescue_locked(&f->segment, f->holder, true);
		shms_seglock_end(fd, f->holder);
		shms_segfile_close(f);
	}
	return r;
}

/* The same of the segment that has this name in dirfd. */
static int enter_name(enum way way, int dirfd, const char *name, const uint8_t store[16],
		      struct shms_segfile *f)
{
	_fd_ int fd = shms_open_file(dirfd, name, O_RDWR);

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	return enter(way, fd, name, dirfd, store, f);
}

int shms_segfile_join(int fromfd, const char *path, const uint8_t uuid[16], int dirfd,
		      const uint8_t store[16], bool kept, struct shms_segfile *ret)
{
	_fd_ int fd =
		shms_openat_beneath(fromfd, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	char name[SHMS_SEGFILE_NAME];

	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd == -ELOOP ? -EBADMSG : fd;
	shms_segfile_name(uuid, name);
	*ret = (struct shms_segfile){.kept = kept};
	return enter(JOIN, fd, name, dirfd, store, ret);
}

int shms_segfile_visit(int dirfd, const uint8_t uuid[16], const uint8_t visitor[16],
		       struct shms_segfile *ret)
{
	char name[SHMS_SEGFILE_NAME];

	shms_segfile_name(uuid, name);
	*ret = (struct shms_segfile){0};
	return enter_name(VISIT, dirfd, name, visitor, ret);
}

int shms_segfile_reopen(int dirfd, const char *name, const uint8_t store[16],
			struct shms_segfile *ret)
{
	*ret = (struct shms_segfile){.kept = true};
	return enter_name(REOPEN, dirfd, name, store, ret);
}

/* Returns the bytes that go with the last link, and the last map; 0 where another process takes
 * memory of free slots (seguse.h): it counts what it takes, and a survey finds the rest gone. */
static uint64_t drop_link(const struct shms_segfile *f, int dirfd)
{
	_fd_ int fd = shms_open_file(dirfd, f->name, O_RDWR); /* to its end */
	bool alone = fd >= 0 && shms_seglock_try(fd, SHMS_SEGLOCK_TRIM) == 0;
	struct stat st;
	bool last = alone && fstat(fd, &st) == 0 && st.st_nlink == 1;

	return unlinkat(dirfd, f->name, 0) == 0 && last ? shms_blocks(&st) : 0;
}

static uint64_t leave(struct shms_segfile *f, int dirfd, bool unlink)
{
	uint64_t freed;

	shms_segrescue_locked(&f->segment, f->holder, true);
	freed = unlink ? drop_link(f, dirfd) : 0;
	shms_segfile_close(f);
	return freed;
}

uint64_t shms_segfile_leave(struct shms_segfile *f, int dirfd, uint64_t now_ms)
{
	return leave(f, dirfd, dirfd >= 0 && !shms_segment_promised(&f->segment, now_ms));
}

uint64_t shms_segfile_unjoin(struct shms_segfile *f, int dirfd, uint64_t now_ms)
{
	return leave(f, dirfd, f->linked || !shms_segment_promised(&f->segment, now_ms));
}

uint64_t shms_segfile_retire(struct shms_segfile *f, int dirfd, bool keep, uint64_t now_ms)
{
	struct shms_segrecord *record = shms_segment_record(&f->segment, f->holder);
	uint64_t freed = 0;

	if (!keep) {
		shms_segword_store(&record->state, SHMS_SEGRECORD_ACTIVE);
		if (dirfd >= 0 && !shms_segment_promised(&f->segment, now_ms))
			freed = drop_link(f, dirfd);
	}
	munmap(f->segment.books, f->books_size);
	f->segment.books = NULL;
	return freed;
}

void shms_segfile_fork_child(struct shms_segfile *f, bool views)
{
	f->segment.books = NULL; /* it was not inherited */
	if (!views)
		shms_segfile_close(f);
}

/* ---- locks of single bytes ------------------------------------------------------------------- */

/*
 * OFD locks of single bytes.
 *
 * Rejected: flock (one lock for a file, and not one for each holder); process locks of fcntl (any
 * close() in the process ends them); pids (they are reused); a robust mutex in the segment (a
 * stopped holder stops all others).
 */

int shms_seglock_try(int fd, unsigned holder)
{
	return shms_lock_bytes(fd, F_WRLCK, holder, 1);
}

bool shms_seglock_taken(int fd, unsigned byte)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void shms_seglock_end(int fd, unsigned holder)
{
	(void)shms_lock_bytes(fd, F_UNLCK, holder, 1);
}
