/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promote.c: a demoted object comes back.
 *
 * Its bytes go from the tier file into an unnamed file on the partition, every frame checked on the
 * way; then, under the names lock, that file gets a name in clean/ and is exchanged with the stub
 * in objects/. Killed before that: the kernel frees the file, or it stands in clean/ where the next
 * who holds the names lock removes it.
 *
 * Where other names have the stub too, the object is linked as the resident, <id>.object: they find
 * it there and read nothing. They may have come while it was read, for a stub is handed over
 * without a lock; after the exchange, this name gives the object. The tier file is locked
 * meanwhile, so that of several who want the object at once one reads, and the others wait for it -
 * for a time: a reader that was stopped must not stop them.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "engine.h"
#include "links.h"
#include "nameslock.h"
#include "object.h"
#include "page.h"
#include "parts.h"
#include "room.h"
#include "sys.h"
#include "tier.h"
#include "view.h"

#define TRIES   8
#define WAIT_MS 3000u /* for another reader of the same tier file */

int shms_tier_use(struct shmstore *s, const char *name, struct shms_tier **ret)
{
	struct stat st;
	int r;

	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = shms_tier_of(s->p, st.st_uid, ret);
	if (r != -ENOENT || !S_ISLNK(st.st_mode))
		return r;
	/* The directory may come back: a delete of the key would lose the object. */
	if (shms_detail_is(-ENOENT)) {
		shms_detail_told = -EIO;
		return -EIO;
	}
	return shms_detail(-EBADMSG, NULL,
			   "the object was demoted, but %s has no disk tier any more", s->p->path);
}

/* One name on its way back. */
struct back {
	const struct shms_promote *p;
	struct shms_tier *t;
	/* objects_fd: a description of its own, where the handle is not the owner's */
	int objects_fd, clean_fd;
	struct shms_stub stub;
	bool taken; /* memory was */
	struct shms_room room;
};

static bool owner(const struct shms_promote *p)
{
	return !p->s->readonly;
}

/* Is the file the stub's object? What lies in a directory is input. */
static int check(const struct shms_stub *stub, int fd)
{
	struct shms_header h;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : shms_header_read(&h, fd, &st, NULL);

	if (r < 0)
		return r;
	if (h.object.generation != stub->generation ||
	    h.object.layout.header_size != stub->header_size ||
	    h.object.layout.buffer_size != stub->buffer_size)
		r = -EBADMSG;
	shms_header_deinit(&h);
	return r;
}

/* The file stands in clean/: the exchange, and the books. Another name of it that came back before
 * this one has booked it already. */
static int exchange(const struct back *b, int fd)
{
	const char *name = b->p->name;
	char other[SHMS_NAME_SIZE];
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && !owner(b->p)) {
		bool more = shms_links_listed(b->objects_fd, st.st_ino, name, other);
		shms_move_begin(b->objects_fd, st.st_ino, more ? 0 : shms_blocks(&st), false);
	}
	if (r == 0)
		r = shms_exchange(b->objects_fd, name, b->clean_fd, name);
	if (r < 0)
		unlinkat(b->clean_fd, name, 0);
	if (!owner(b->p))
		shms_move_end(b->objects_fd, r == 0);
	else if (r == 0 && shms_links_back(b->p->s, name, st.st_ino))
		shms_linked_back(b->p->s, shms_blocks(&st));
	return r;
}

/* Gives the file its place: fd's own link, or where it has a name already one more of that. 0,
 * -EAGAIN (the stub has gone). */
static int place(const struct back *b, int fd, const char *resident)
{
	struct shmstore *own = owner(b->p) ? b->p->s : NULL;
	const char *name = b->p->name;
	struct shms_stub now;
	int r = shms_names_lock_of(own, b->objects_fd);

	if (r < 0)
		return r;
	r = shms_stub_read(b->objects_fd, name, &now, NULL);
	r = r < 0 || now.inode != b->stub.inode ? -EAGAIN : 0;
	if (r == 0) {
		/* A leftover of this name in clean/ goes. */
		if (shms_tier_release(b->t, b->clean_fd, b->p->name) < 0)
			unlinkat(b->clean_fd, b->p->name, 0);
		if (resident)
			r = linkat(b->t->dir_fd, resident, b->clean_fd, name, 0) < 0 ? -errno : 0;
		else
			r = shms_link_fd(fd, b->clean_fd, name);
	}
	if (r == 0)
		r = exchange(b, fd);
	shms_names_unlock_of(own, b->objects_fd);
	return r;
}

/* Somebody has brought it back already. 1: it has its place now; 0: nobody has. */
static int from_resident(const struct back *b)
{
	char resident[SHMS_TIER_NAME];
	int r;

	_fd_ int fd = shms_tier_resident_open(b->t, b->stub.id);
	if (fd < 0)
		return fd == -ENOENT || fd == -ETIMEDOUT ? 0 : fd;
	shms_tier_resident_name(b->stub.id, resident);
	if (check(&b->stub, fd) < 0) {
		unlinkat(b->t->dir_fd, resident, 0);
		return 0;
	}
	r = place(b, fd, resident);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int load(const struct back *b, int tier_fd, struct shms_tier_header *h, int fd)
{
	struct shms_job job = {.object_fd = fd, .tier_fd = tier_fd, .header = h};
	struct shms_engine *e = b->p->engine ? b->p->engine : shms_tier_engine(b->t);
	char path[SHMSTORE_TICKET_PATH], name[SHMS_TIER_NAME];
	int r;

	if (!e)
		return -ENOMEM;
	shms_engine_load(e, &job);
	shms_engine_drain(e);
	if (!b->p->engine)
		shms_tier_engine_back(b->t, e);
	r = job.error;
	shms_tier_file_name(b->stub.id, name);
	if (r == -EBADMSG || r == -EIO) {
		snprintf(path, sizeof(path), "%s/%s", b->t->files_path, name);
		shms_detail(r, path, "%s: %s", path, job.reason);
	}
	if (r == 0)
		r = check(&b->stub, fd);
	return r;
}

/* For those who have the stub too: names besides this one and the anchor. */
static void make_resident(const struct back *b, const struct shms_stub *stub, int fd)
{
	char resident[SHMS_TIER_NAME];

	if (stub->n_names <= 2)
		return;
	shms_tier_resident_name(stub->id, resident);
	shms_link_fd(fd, b->t->dir_fd, resident);
}

/* Reads the tier file into a new file on the partition and gives that its place. */
static int from_file(struct back *b, int tier_fd, struct shms_tier_header *h)
{
	struct shms_stub stub;
	_fd_ int fd = -1;
	int r = shms_room_charge(&b->room);

	if (r < 0)
		return r;
	fd = shms_unnamed_part(b->objects_fd, O_RDWR, shms_mode_in(b->objects_fd, 0400));
	r = fd < 0 ? -errno : load(b, tier_fd, h, fd);
	if (r == 0 && b->t->uid != geteuid() && fchown(fd, b->t->uid, (gid_t)-1) < 0)
		r = -errno;
	if (r == 0) {
		make_resident(b, &b->stub, fd);
		r = place(b, fd, NULL);
	}
	if (r == 0 && b->stub.n_names <= 2 &&
	    shms_stub_read(b->clean_fd, b->p->name, &stub, NULL) == 0 &&
	    stub.inode == b->stub.inode)
		make_resident(b, &stub, fd);
	b->taken = r == 0;
	return r;
}

static int bring(struct back *b)
{
	struct shms_tier_header h;
	_locked_ int tier_fd = -1;
	struct shms_stub now;
	int r = shms_tier_file_open(b->t, &b->stub, &tier_fd, &h);
	if (r < 0) {
		/* Brought back or deleted meanwhile, it may be right that the file has gone. */
		if (shms_stub_read(b->objects_fd, b->p->name, &now, NULL) < 0 ||
		    now.inode != b->stub.inode)
			r = -EAGAIN;
		return r;
	}
	shms_tier_flock(tier_fd, WAIT_MS);
	r = from_resident(b);
	if (r == 0 && (shms_stub_read(b->objects_fd, b->p->name, &now, NULL) < 0 ||
		       now.inode != b->stub.inode))
		r = -EAGAIN; /* the one that we waited for */
	if (r == 0)
		r = from_file(b, tier_fd, &h);
	shms_tier_header_deinit(&h);
	return r < 0 ? r : 0;
}

/* Reserves before the tier file is locked, so that waiters block no reader. 0, outcome, -errno. */
static int bring_reserved(struct back *b)
{
	int r = from_resident(b);

	if (r != 0)
		return r < 0 ? r : 0;
	b->room.bytes = b->stub.header_size + b->stub.buffer_size;
	r = shms_room_reserve(&b->room);
	if (r != 0)
		return r;
	b->taken = false;
	r = bring(b);
	shms_room_settle(&b->room, b->taken);
	return r;
}

static int one_try(struct back *b)
{
	int r = shms_stub_read(b->objects_fd, b->p->name, &b->stub, NULL);

	if (r == -EINVAL)
		return 0; /* in memory */
	if (r < 0)
		return r;
	if (b->stub.uid != b->t->uid)
		return shms_detail(-EPERM, NULL,
				   "it is user %u's object, and in that user's part of the tier",
				   (unsigned)b->stub.uid);
	return bring_reserved(b);
}

/* -EAGAIN: the name may mean another stub by now, or the object. */
static int some_tries(void *arg)
{
	int r = -EAGAIN;

	for (int i = 0; i < TRIES && r == -EAGAIN; i++)
		r = one_try(arg);
	return r;
}

static int promote(const struct shms_promote *p, struct shms_tier *t)
{
	_fd_ int own_fd = owner(p) ? -1 : shms_open_dir(p->s->objects_fd, ".");
	_fd_ int clean_fd = -1;
	struct back b = {.p = p, .t = t, .objects_fd = owner(p) ? p->s->objects_fd : own_fd};
	int r;

	if (b.objects_fd < 0)
		return b.objects_fd;
	b.clean_fd = clean_fd = shms_open_dir(b.objects_fd, "../" SHMS_DIR_CLEAN);
	if (clean_fd < 0)
		return clean_fd;
	b.room = (struct shms_room){.s = p->s,
				    .flags = p->no_evict ? SHMSTORE_NO_EVICT : 0,
				    .unbooked = !owner(p),
				    .now = p->no_wait,
				    .take = some_tries,
				    .arg = &b};
	r = shms_room_take(&b.room);
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

int shms_promote(const struct shms_promote *p)
{
	struct shms_tier *t;
	int r = shms_tier_use(p->s, p->name, &t);

	if (r < 0)
		return r;
	r = promote(p, t);
	shms_tier_done(t);
	return r;
}

/* ---- without bringing it back ---------------------------------------------------------------- */

/* Checks all bytes of a raw tier file by read(): a bad disk is an error here, no signal later. */
static int verify_raw(const struct shms_tier *t, int fd, const struct shms_tier_header *h)
{
	_free_ unsigned char *frame = malloc(SHMS_TIER_FRAME);
	char path[SHMSTORE_TICKET_PATH], name[SHMS_TIER_NAME];
	uint64_t hash[2], size;
	ssize_t n;

	if (!frame)
		return -ENOMEM;
	shms_tier_file_name(h->sb->id, name);
	snprintf(path, sizeof(path), "%s/%s", t->files_path, name);
	for (uint32_t i = 0; i < h->sb->n_frames; i++) {
		size = shms_tier_pad(h->frames[i].stored);
		n = shms_pread_all(fd, frame, size, h->frames[i].offset);
		if (n < 0)
			return shms_detail(shms_error((int)n), path,
					   "%s: frame %u cannot be read: %s", path, i,
					   strerror((int)-n));
		shms_tier_hash(frame, (size_t)n, hash);
		if ((uint64_t)n != size ||
		    memcmp(hash, h->frames[i].stored_hash, sizeof(hash)) != 0)
			return shms_detail(-EBADMSG, path, "%s: frame %u is damaged", path, i);
	}
	return 0;
}

static int copy_aside(struct shms_tier *t, int tier_fd, struct shms_tier_header *h,
		      const struct shms_stub *stub, int *ret_fd)
{
	static const struct shms_promote p = {.name = NULL};
	struct back b = {.p = &p, .t = t, .stub = *stub};
	_fd_ int fd = memfd_create("shmstore-tier", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : load(&b, tier_fd, h, fd);

	if (r == 0)
		*ret_fd = shms_take_fd(&fd);
	return r;
}

/*
 * A descriptor that has the object's bytes at an offset, without bringing it back: the tier file
 * itself, checked, where it is raw; else a copy in private memory (only where copy is allowed).
 * -ENOSPC: it would need a copy. For readers that may not change the store, and for a full
 * partition. -EINVAL: it is another stub, or none, by now.
 */
static int open_aside(struct shms_tier *t, int objects_fd, const char *name, bool copy,
		      struct shms_view_file *ret, uint64_t *ret_size)
{
	struct shms_tier_header h;
	struct shms_stub stub, now;
	_fd_ int fd = -1;
	int r = shms_stub_read(objects_fd, name, &stub, NULL);

	if (r < 0)
		return r;
	ret->offset = 0;
	*ret_size = stub.header_size + stub.buffer_size;
	fd = shms_tier_resident_open(t, stub.id);
	if (fd >= 0 && check(&stub, fd) == 0) {
		ret->fd = shms_take_fd(&fd);
		return 0;
	}
	fd = shms_close_fd(fd);
	r = shms_tier_file_open(t, &stub, &fd, &h);
	if (r < 0) {
		/* Brought back or deleted meanwhile, it may be right that the file has gone:
		 * -EINVAL is to look again. */
		int again = shms_stub_read(objects_fd, name, &now, NULL);

		return again < 0 ? again : now.inode != stub.inode ? -EINVAL : r;
	}
	if (h.sb->flags & SHMS_TIER_RAW) {
		/* Through the page cache: it is to be mapped. */
		r = fcntl(fd, F_SETFL, 0) < 0 ? -errno : verify_raw(t, fd, &h);
		if (r == 0) {
			ret->offset = h.sb->header_size;
			ret->fd = shms_take_fd(&fd);
		}
	} else {
		r = copy ? copy_aside(t, fd, &h, &stub, &ret->fd) : -ENOSPC;
	}
	shms_tier_header_deinit(&h);
	return r;
}

static int fetch(struct shmstore *s, struct shms_tier *t, const char *name,
		 struct shms_view_file *ret, uint64_t *ret_size)
{
	struct shms_promote p = {.s = s, .name = name, .no_evict = true, .no_wait = true};
	int r, full;

	/* A read-only handle leaves the store as it is. */
	if (s->readonly)
		return open_aside(t, s->objects_fd, name, true, ret, ret_size);
	r = full = promote(&p, t);
	if (!shms_room_wanted(r))
		return r;
	/* No room: the tier file itself, where it can be mapped; else others have to go first. */
	r = open_aside(t, s->objects_fd, name, false, ret, ret_size);
	if (r == -EINVAL)
		return 0; /* in memory by now */
	if (r != -ENOSPC)
		return r;
	p.no_evict = p.no_wait = false;
	r = promote(&p, t);
	return shms_room_wanted(r) ? full : r;
}

int shms_promote_fetch(struct shmstore *s, const char *name, struct shms_view_file *ret,
		       uint64_t *ret_size)
{
	struct shms_tier *t;
	int r;

	ret->fd = -1;
	r = shms_tier_use(s, name, &t);
	if (r < 0)
		return r;
	r = fetch(s, t, name, ret, ret_size);
	shms_tier_done(t);
	return r == -EINVAL ? 0 : r;
}
