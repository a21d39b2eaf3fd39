/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.c: buffers that are born in the partition.
 *
 * A draft is an unnamed file (O_TMPFILE), as large as header page and buffer, mapped shared: what
 * the program writes is in the file. It goes with the process, however that ends. Its memory is
 * taken by fallocate before the mapping is handed out, so there is no SIGBUS later.
 *
 * The rule: nobody writes to an object. So before the file gets a name the mapping becomes a
 * private one of the same file, at the same address, in one step of the kernel's (mremap over
 * it): what was written until then is in the object, what is written later goes to pages of
 * this process alone, as after a put that copied. The same step is made in front of a fork, for
 * all drafts: parent and child each keep what was there, and neither sees what the other
 * writes. The file is frozen then; it is not published, and never used again. The private
 * mapping is made of an open file of its own, for reading: the recycle pool, which may get the
 * file's first descriptor, asks the kernel whether anybody else has the file open, and a
 * mapping of that same descriptor would not count.
 *
 *   SHARED   in use; the file has what is written
 *   PRIVATE  in use; the file is an object's, or frozen
 *   KEPT     freed, with its pages: the next of like size has them at once. Bounded in bytes and
 *            age, and given back where the store's pool is (recycle.h)
 *
 * One lock for all drafts of the process; under it no other is taken and nothing is waited for, so
 * any thread may free at any time. The books: a draft is in the ledger's reserved as long as it is
 * neither published nor gone, as a writer is, and for the kernel's count it is in flight.
 *
 * Rejected: to publish when the program promises not to write any more (NumPy's arrays cannot: a
 * view may be writable); to write-protect (a write would be SIGSEGV where a copy would have been
 * fine); to move the buffer's pages into a new private mapping (copies them); files of the
 * recycle pool instead of KEPT (each take asks for a lease, and they have names: a killed
 * process would leave them to gc).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "hash.h"
#include "recycle.h"
#include "sys.h"

#define KEEP_MAX     (128ull << 20)
#define SIZE_MAX_LOG 46 /* 64 TiB: sums with pages and headers fit */

enum draft_state {
	DRAFT_SHARED,
	DRAFT_PRIVATE,
	DRAFT_KEPT,
};

struct shms_draft {
	struct shmstore *s; /* a reference to its memory only */
	UT_hash_handle hh;
	struct shms_draft *next; /* of those that a trim frees */
	pid_t pid;               /* a child inherits memory, and nothing else */
	int fd;
	char *map;
	uint64_t map_size; /* whole pages: of the mapping and of the file */
	uint64_t size;     /* of the buffer */
	uint64_t fresh;    /* bytes that go back to the kernel if it is not published */
	uint64_t stamp_ns; /* KEPT: since when */
	enum draft_state state;
	bool booked; /* in the ledger */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the table, and every store's drafts */
static struct shms_draft *all;                           /* by their addresses */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* The draft in use that has this buffer. lock is held. */
static struct shms_draft *find(const void *buffer)
{
	uintptr_t at = (uintptr_t)buffer - SHMS_DRAFT_HEAD;
	struct shms_draft *d;

	/* Most memory that is asked about is none of ours: a file's mapping begins with a page. */
	if (!all || (uintptr_t)buffer % SHMS_FORMAT_PAGE || (uintptr_t)buffer < SHMS_DRAFT_HEAD)
		return NULL;
	HASH_FIND(hh, all, &at, sizeof(at), d);
	return d && d->state != DRAFT_KEPT ? d : NULL;
}

/* ---- what becomes of one --------------------------------------------------------------------- */

/* The draft is not in the books any more; freed: its memory goes back to
 * the kernel. lock is held. */
static void unbook(struct shms_draft *d, bool freed)
{
	if (!d->booked)
		return;
	d->booked = false;
	if (freed)
		shms_credit_gave(d->s, d->fresh);
	shms_reserved(d->s, d->map_size, false);
}

/* It is none from here on: in no list, and not to be found. lock is held. */
static void unlist(struct shms_draft *d)
{
	HASH_DEL(all, d);
	shms_handle(d->s)->drafts.n--;
	if (d->state == DRAFT_KEPT)
		shms_handle(d->s)->drafts.kept -= d->map_size;
}

/* Its memory goes, after unlist(). No lock is held. */
static void draft_free(struct shms_draft *d)
{
	SHMS_NO_CANCEL;

	if (d->map_size)
		munmap(d->map, d->map_size);
	if (d->pid == getpid())
		shms_close_fd(d->fd);
	shms_store_unref(d->s);
	free(d);
}

/* The mapping's pages are the file's until they are written to, from here
 * on. False: all is as it was. */
static bool make_private(struct shms_draft *d)
{
	char path[sizeof("/proc/self/fd/") + 16];
	void *map;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", d->fd);
	_fd_ int fd = shms_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	/* Not over the old one at once: before Linux 6.12 an mmap(MAP_FIXED) that
	 * fails leaves nothing there. */
	map = mmap(NULL, d->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return false;
	if (mremap(map, d->map_size, d->map_size, MREMAP_MAYMOVE | MREMAP_FIXED, d->map) ==
	    MAP_FAILED) {
		munmap(map, d->map_size);
		return false;
	}
	d->state = DRAFT_PRIVATE;
	return true;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void fork_prepare(void)
{
	pthread_mutex_lock(&lock);
	for (struct shms_draft *d = all; d; d = d->hh.next) {
		/* Better no memory in the child than the parent's. */
		if (d->state == DRAFT_KEPT || (d->state == DRAFT_SHARED && !make_private(d)))
			madvise(d->map, d->map_size, MADV_DONTFORK);
	}
}

static void fork_parent(void)
{
	for (struct shms_draft *d = all; d; d = d->hh.next) {
		if (d->state != DRAFT_PRIVATE)
			madvise(d->map, d->map_size, MADV_DOFORK);
	}
	pthread_mutex_unlock(&lock);
}

/* The child has the memory that is in use, and may free it. The descriptors
 * are closed by transient.c. */
static void fork_child(void)
{
	struct shms_draft *next;

	for (struct shms_draft *d = all; d; d = next) {
		next = d->hh.next;
		d->booked = false;
		d->fd = -1;
		if (d->state != DRAFT_PRIVATE)
			d->map_size = 0; /* not inherited */
		if (d->state == DRAFT_KEPT) {
			unlist(d);
			draft_free(d);
		}
	}
	pthread_mutex_unlock(&lock);
}

static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* ---- alloc ----------------------------------------------------------------------------------- */

/* The partition has other uses for its last quarter: an object may go to the disk tier, a draft
 * cannot. Sets what may be kept, too. */
static bool roomy(struct shmstore *s, uint64_t bytes)
{
	struct shms_space space;
	uint64_t max, n;

	if (shms_credit_pressed(s) || shms_memory_wanted(s) || shms_space(s->p->fd, &space) < 0)
		return false;
	if (!space.size)
		return true;
	max = space.size / 16;
	n = shms_partition_n_stores(s->p);
	if (n)
		max /= n;
	SHMS_HELD(&lock);
	shms_handle(s)->drafts.keep_max = max < KEEP_MAX ? max : KEEP_MAX;
	return space.available >= bytes + space.size / 4 &&
	       (!space.inodes || space.inodes_free > space.inodes / 8);
}

/* Each draft has a descriptor. Most are the program's. */
static bool too_many(struct shmstore *s)
{
	struct rlimit limit;

	SHMS_HELD(&lock);
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
	       shms_handle(s)->drafts.n >= limit.rlim_cur / 4;
}

/* A kept draft in which size bytes fit, and little more, is in use again. NULL: there is none. */
static struct shms_draft *take_kept(struct shmstore *s, uint64_t size)
{
	uint64_t need = SHMS_DRAFT_HEAD + size, most = need + need / 8;
	struct shms_draft *best = NULL;

	SHMS_HELD(&lock);
	for (struct shms_draft *d = shms_handle(s)->drafts.kept ? all : NULL; d; d = d->hh.next) {
		if (d->s == s && d->state == DRAFT_KEPT && d->map_size >= need &&
		    d->map_size <= most &&
		    (!best || d->map_size < best->map_size ||
		     (d->map_size == best->map_size && d->stamp_ns > best->stamp_ns)))
			best = d;
	}
	if (best) {
		shms_handle(s)->drafts.kept -= best->map_size;
		best->state = DRAFT_SHARED;
		best->size = size;
	}
	return best;
}

static bool list(struct shms_draft *d)
{
	struct shmstore *s = d->s;

	if (shms_handle(s)->drafts.closed)
		return false;
	HASH_ADD(hh, all, map, sizeof(d->map), d);
	if (!d->hh.tbl)
		return false;
	shms_handle(s)->drafts.n++;
	d->booked = true;
	return true;
}

/* A file for d, mapped. A child has the mapping only with the draft: both come to be under the
 * lock, which fork() takes. */
static int map_file(struct shms_draft *d)
{
	struct shmstore *s = d->s;
	void *map;
	int r;
	_fd_ int fd = shms_unnamed_part(s->objects_fd, O_RDWR, s->file_mode);

	if (fd < 0)
		return -errno;
	r = shms_ramroom_take(&s->p->ram, d->map_size) ? shms_allocate(fd, d->map_size) : -ENOSPC;
	if (r < 0)
		return r;
	pthread_mutex_lock(&lock);
	map = mmap(NULL, d->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	r = map == MAP_FAILED ? -errno : 0;
	if (r == 0) {
		d->map = map;
		d->fd = fd;
		r = list(d) ? 0 : -ENOMEM;
		if (r < 0)
			munmap(map, d->map_size);
	}
	pthread_mutex_unlock(&lock);
	if (r < 0)
		return r;
	shms_transient_hold(shms_take_fd(&fd));
	/* All pages at once, not a fault each; an older kernel faults. */
	if (!shms_huge(s, d->map_size))
		madvise(map, d->map_size, MADV_POPULATE_WRITE);
	return 0;
}

static int new_draft(struct shmstore *s, uint64_t size, struct shms_draft **ret)
{
	struct shms_charge charge;
	_free_ struct shms_draft *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	*d = (struct shms_draft){.s = s,
				 .pid = getpid(),
				 .fd = -1,
				 .map_size = shms_whole_pages(SHMS_DRAFT_HEAD + size),
				 .size = size};
	shms_reserved(s, d->map_size, true);
	r = shms_credit_take(s, d->map_size, SHMS_CREDIT_RESERVED, &charge);
	if (r == 0) {
		shms_store_ref(s);
		d->fresh = charge.bytes;
		r = map_file(d);
		shms_credit_end(s, &charge, r == 0);
		if (r < 0)
			shms_store_unref(s);
	}
	if (r < 0) {
		shms_reserved(s, d->map_size, false);
		return r;
	}
	*ret = d;
	d = NULL;
	return 0;
}

int shmstore_alloc(struct shmstore *s, uint64_t size, unsigned flags, void **ret)
{
	struct shms_draft *d;
	int r;

	if (!ret || (flags & ~SHMSTORE_ALLOC_KEPT))
		return !ret ? shms_detail_null("ret")
			    : shms_detail_flags(flags, SHMSTORE_ALLOC_KEPT);
	if (!size || size >> SIZE_MAX_LOG)
		return shms_detail(-EINVAL, NULL, "a buffer has 1 byte at least and less than 2^%d",
				   SIZE_MAX_LOG);
	if (!s->p->tmpfs)
		return shms_detail(-ENOTSUP, NULL, "%s is on a disk", s->p->path);
	pthread_once(&fork_once, register_fork);
	d = take_kept(s, size);
	if (!d) {
		if (flags & SHMSTORE_ALLOC_KEPT)
			return shms_detail(-ENOSPC, NULL, "nothing of that size is kept");
		shms_credit_tend(s);
		shms_draft_trim(s, false);
		if (!roomy(s, shms_whole_pages(SHMS_DRAFT_HEAD + size)))
			return shms_detail(-ENOSPC, NULL,
					   "less than a quarter of the partition would be left");
		if (too_many(s))
			return shms_detail(
				-EMFILE, NULL,
				"a quarter of the process's descriptors are such buffers'");
		r = new_draft(s, size, &d);
		if (r < 0)
			return shms_error(r);
	}
	*ret = d->map + SHMS_DRAFT_HEAD;
	return 0;
}

uint64_t shmstore_alloc_size(const void *p)
{
	struct shms_draft *d;
	uint64_t size = 0;

	if ((uintptr_t)p % SHMS_FORMAT_PAGE)
		return 0;
	SHMS_HELD(&lock);
	d = find(p);
	if (d)
		size = d->size;
	return size;
}

/* ---- free ------------------------------------------------------------------------------------ */

/* lock is held. */
static bool keep(struct shms_draft *d)
{
	struct shmstore *s = d->s;

	if (d->state != DRAFT_SHARED || !d->booked || d->pid != getpid() ||
	    shms_credit_pressed(s) || shms_memory_wanted(s) ||
	    shms_handle(s)->drafts.kept + d->map_size > shms_handle(s)->drafts.keep_max)
		return false;
	d->state = DRAFT_KEPT;
	d->stamp_ns = shms_now_mono_ns();
	shms_handle(s)->drafts.kept += d->map_size;
	return true;
}

uint64_t shmstore_free(void *p)
{
	SHMS_NO_CANCEL;
	struct shms_draft *d;
	uint64_t size = 0;
	bool kept = false;

	if ((uintptr_t)p % SHMS_FORMAT_PAGE)
		return 0;
	pthread_mutex_lock(&lock);
	d = find(p);
	if (d) {
		size = d->size;
		kept = keep(d);
		if (!kept) {
			unlist(d);
			unbook(d, true);
		}
	}
	pthread_mutex_unlock(&lock);
	if (d && !kept)
		draft_free(d);
	return size;
}

uint64_t shms_draft_trim(struct shmstore *s, bool all_of_them)
{
	struct shms_draft *gone = NULL, *next;
	uint64_t now, freed = 0;

	if (!shms_draft_any_kept(s))
		return 0;
	now = shms_now_mono_ns();
	pthread_mutex_lock(&lock);
	for (struct shms_draft *d = all; d; d = next) {
		next = d->hh.next;
		if (d->s != s || d->state != DRAFT_KEPT ||
		    (!all_of_them && now - d->stamp_ns <= SHMS_RECYCLE_AGE_NS))
			continue;
		freed += d->map_size;
		unlist(d);
		unbook(d, true);
		d->next = gone;
		gone = d;
	}
	pthread_mutex_unlock(&lock);
	for (; gone; gone = next) {
		next = gone->next;
		draft_free(gone);
	}
	return freed;
}

bool shms_draft_any_kept(struct shmstore *s)
{
	SHMS_HELD(&lock);
	return shms_handle(s)->drafts.kept != 0;
}

void shms_draft_close(struct shmstore *s)
{
	pthread_mutex_lock(&lock);
	shms_handle(s)->drafts.closed = true;
	pthread_mutex_unlock(&lock);
	shms_draft_trim(s, true);
	SHMS_HELD(&lock);
	for (struct shms_draft *d = all; d; d = d->hh.next) {
		if (d->s == s)
			unbook(d, false);
	}
}

/* ---- publish --------------------------------------------------------------------------------- */

/* lock is held. */
static struct shms_draft *publishable(struct shmstore *s, const void *buffer, uint64_t size)
{
	struct shms_draft *d = find(buffer);

	return d && d->s == s && d->size == size && d->state == DRAFT_SHARED && d->booked &&
			       d->pid == getpid()
		       ? d
		       : NULL;
}

bool shms_draft_is(struct shmstore *s, const void *buffer, uint64_t size)
{
	if ((uintptr_t)buffer % SHMS_FORMAT_PAGE)
		return false;
	SHMS_HELD(&lock);
	return publishable(s, buffer, size) != NULL;
}

bool shms_draft_claim(struct shmstore *s, const void *buffer, uint64_t size,
		      struct shms_draft_claim *ret)
{
	struct shms_draft *d;
	bool ok;

	SHMS_HELD(&lock);
	d = publishable(s, buffer, size);
	ok = d && make_private(d);
	if (ok) {
		*ret = (struct shms_draft_claim){.d = d, .fd = d->fd, .size = size};
		d->fd = -1;
	}
	return ok;
}

int shms_draft_cut(const struct shms_draft_claim *c, uint64_t size)
{
	struct shms_draft *d = c->d;
	uint64_t bytes;
	int r;

	if (size == d->map_size)
		return 0;
	r = shms_truncate(c->fd, size);
	if (r < 0)
		return r;
	bytes = shms_file_bytes(d->s, c->fd, size);
	if (bytes < d->fresh) {
		shms_credit_gave(d->s, d->fresh - bytes);
		d->fresh = bytes;
	}
	return 0;
}

void shms_draft_end(struct shms_draft_claim *c, bool published)
{
	pthread_mutex_lock(&lock);
	if (published)
		unbook(c->d, false);
	pthread_mutex_unlock(&lock);
	c->fd = shms_close_fd(c->fd);
}
