/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c: reads everything that can be wrong: marker, pages, sidecars, and every object's header,
 * table and checksum, each inode once.
 *
 * Files are read, not mapped: whoever truncates one meanwhile must not kill us. While we have a
 * file open its owner cannot recycle it (its lease test fails), so that what we read is one object
 * and not two halves. Files in recycle/ hold no object and are not looked at.
 *
 * A stub is checked as far as memory goes: that its anchor is the tier's, without which gc would
 * take its tier file away, and that there is such a file. tierverify.c reads its content.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "inodes.h"
#include "name.h"
#include "object.h"
#include "page.h"
#include "partition.h"
#include "seglook.h"
#include "sys.h"
#include "tier.h"
#include "tierscan.h"
#include "walk.h"

#define CHUNK (1u << 20)

struct verify {
	struct shmstore_partition *p;
	struct shms_tierfind find; /* the disk tier */
	struct shms_inodes *seen;
	char *chunk; /* CHUNK bytes */
	int (*fn)(const struct shmstore_verify_finding *finding, void *arg);
	void *arg;
	uint64_t bytes;
};

static int tell(struct verify *v, const char *dir, const char *name, int error, const char *reason)
{
	_free_ char *path = shms_printed("%s/%s", dir, name);
	const struct shmstore_verify_finding f = {.size = sizeof(f),
						  .path = path,
						  .error = error,
						  .reason = error ? reason : "",
						  .bytes = v->bytes};

	return path ? v->fn(&f, v->arg) : -ENOMEM;
}

/* The buffers against their checksum. */
static int check_buffers(struct verify *v, int fd, const struct shms_object *o,
			 const char **ret_reason)
{
	uint64_t hash[2];
	int r = shms_hash_file(fd, o->layout.header_size, o->layout.buffer_size, v->chunk, CHUNK,
			       hash);

	*ret_reason = r == -EBADMSG ? "truncated while it was read" : "cannot be read";
	if (r < 0)
		return r;
	*ret_reason = "the buffers do not match their checksum";
	return memcmp(hash, o->buffer_hash, sizeof(hash)) == 0 ? 0 : -EBADMSG;
}

static int check_object(struct verify *v, const struct shms_walk_entry *e, int fd,
			const struct stat *st, const char **ret_reason)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	struct shms_header header;
	size_t key_size;
	int r = shms_header_read(&header, fd, st, ret_reason);

	if (r < 0)
		return r;
	if (header.object.checksum)
		r = check_buffers(v, fd, &header.object, ret_reason);
	if (r == 0 && e->place == SHMS_PLACE_OBJECT) {
		*ret_reason = "its key cannot be told: neither it nor a file beside it has the key "
			      "of its name";
		r = shms_entry_key(e->dirfd, e->name, &header, key, &key_size);
	}
	shms_header_deinit(&header);
	return r;
}

/* Seen under another name before? 1, 0, -ENOMEM. */
static int seen(struct verify *v, const struct stat *st)
{
	struct shms_inode *i;

	if (st->st_nlink <= 1)
		return 0;
	i = shms_inodes_get(v->seen, st->st_ino);
	if (!i)
		return -ENOMEM;
	return i->n_here++ != 0;
}

static int object(struct verify *v, const struct shms_walk_entry *e)
{
	const char *reason = "cannot be opened";
	struct stat st;
	int r = seen(v, e->st);

	if (r != 0)
		return r < 0 ? r : 0;
	_fd_ int fd = shms_open_object(e->dirfd, e->name);
	if (fd == -ENOENT)
		return 0; /* deleted since */
	r = fd < 0               ? shms_error(fd)
	    : fstat(fd, &st) < 0 ? shms_error(errno)
				 : check_object(v, e, fd, &st, &reason);
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	v->bytes += (uint64_t)e->st->st_size;
	return tell(v, e->dir, e->name, r, reason);
}

static int stub(struct verify *v, const struct shms_walk_entry *e)
{
	const char *reason = NULL;
	struct shms_stub now;
	int r = seen(v, e->st);

	if (r != 0)
		return r < 0 ? r : 0;
	r = shms_tierfind_stub(&v->find, e->stub, &reason);
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	if (r == -EBADMSG &&
	    (shms_stub_read(e->dirfd, e->name, &now, NULL) < 0 || now.inode != e->stub->inode))
		return 0; /* promoted or deleted since */
	return tell(v, e->dir, e->name, r, reason);
}

static int config(struct verify *v, const struct shms_walk_entry *e)
{
	struct shms_tier_config c;
	int r = strcmp(e->name, SHMS_TIER_CONFIG) == 0 ? shms_tier_config_read(v->p, &c) : 0;

	if (r == -ENOENT || r == -ENOMEM || r == -EMFILE)
		return r == -ENOENT ? 0 : r;
	v->bytes += (uint64_t)e->st->st_size;
	return tell(v, e->dir, e->name, r,
		    r == -EPERM ? "the disk tier's configuration is not the partition owner's"
				: "the disk tier's configuration is damaged: set it again");
}

/* The key in a sidecar must be the one whose hash its name is. */
static int sidecar(struct verify *v, const struct shms_walk_entry *e)
{
	unsigned char key[SHMSTORE_KEY_MAX + 1];
	char expect[SHMS_NAME_SIZE];
	_fd_ int fd = shms_open_file(e->dirfd, e->name, O_RDONLY);
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return errno == EMFILE
			       ? -EMFILE
			       : tell(v, e->dir, e->name, shms_error(errno), "cannot be opened");
	n = shms_pread_all(fd, key, sizeof(key), 0);
	if (n < 0)
		return tell(v, e->dir, e->name, shms_error((int)n), "cannot be read");
	v->bytes += (uint64_t)n;
	snprintf(expect, sizeof(expect), "%%h%s", e->name + 2);
	if (n > (ssize_t)SHMSTORE_KEY_MAX || !shms_name_fits(expect, key, (size_t)n))
		return tell(v, e->dir, e->name, -EBADMSG,
			    "the key in it is not the one of its name");
	return tell(v, e->dir, e->name, 0, NULL);
}

static int page(struct verify *v, const struct shms_walk_entry *e)
{
	struct shms_page copy;
	const char *reason = "the page is damaged";
	int r = shms_page_read_true(e->store->fd, &copy);

	if (r == -ENOENT)
		return 0;
	if (r == -EMFILE)
		return r;
	if (r == -ENOTSUP)
		reason = "the page is of another version";
	else if (r < 0 && r != -EBADMSG)
		reason = "the page cannot be read";
	v->bytes += r == 0 ? sizeof(copy) : 0;
	return tell(v, e->dir, e->name, r, reason);
}

/* Opening the partition is the check of its marker. */
static int marker(struct verify *v, const struct shms_walk_entry *e)
{
	struct shmstore_partition *again;
	const char *reason = "the marker is damaged";
	char path[48];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", v->p->fd);
	r = shmstore_partition_open(path, 0, &again);
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	if (r == 0) {
		reason = "the marker is not the one that was opened";
		r = strcmp(again->uuid, v->p->uuid) == 0 ? 0 : -EBADMSG;
		shmstore_partition_unref(again);
	} else if (r == -ENOTSUP) {
		reason = "the marker is of another version";
	} else if (r != -EBADMSG) {
		reason = "the marker cannot be read";
	}
	v->bytes += (uint64_t)e->st->st_size;
	return tell(v, e->dir, e->name, r, reason);
}

/* A segment whose objects are checked. */
struct packed {
	const struct shms_walk_entry *e;
	const struct shms_seglook *l;
	uint64_t bytes; /* that were read */
	/* the objects would be more than the segment: extents overlap, and the rest was not read */
	bool overlaps;
};

/* Tells of a damaged object by the name that its file would have, below its segment. */
static int tell_packed(struct verify *v, const struct packed *x, const struct shms_segpacked *o)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	char name[SHMS_NAME_SIZE], dir[PATH_MAX];

	/* The slot says what cannot be; or the next look finds that the file was cut. */
	if (o->key_size > SHMSTORE_KEY_MAX || shms_seglook_key(x->l, o, key) < 0)
		return 0;
	shms_name_encode(key, o->key_size, name);
	snprintf(dir, sizeof(dir), "%s/%s", x->e->dir, x->e->name);
	return tell(v, dir, name, -EBADMSG, "the buffers do not match their checksum");
}

/*
 * The object's bytes are read without a reference. If they do not match, the slot is looked at
 * again: if it still has the same object, the owner did not write to the extent meanwhile
 * (segslot.h), and the object is damaged; so it is if its bytes cannot be read.
 */
static int check_slot(struct verify *v, struct packed *x, uint32_t index)
{
	const struct shms_seglook *l = x->l;
	struct shms_segslot slot = shms_segslot_at(&l->segment, index);
	uint64_t state = shms_segword_load(slot.state), right[2], is[2];
	struct shms_segpacked o;
	int r;

	if (!shms_segstate_published(state) || shms_segpacked_read(&l->segment, &slot, &o) < 0 ||
	    !(o.flags & SHMS_SEGPACKED_CHECKSUM))
		return 0;
	/* A hostile owner may have many slots say one extent, for us to read it as often. */
	x->overlaps = o.buffer_size > l->segment.shape.size - x->bytes;
	if (x->overlaps)
		return 0;
	r = shms_seglook_read(l, o.extent_off + o.checksum_off, right, sizeof(right));
	if (r == 0)
		r = shms_hash_file(l->fd, o.extent_off, o.buffer_size, v->chunk, CHUNK, is);
	x->bytes += o.buffer_size;
	if (r == 0 && is[0] == right[0] && is[1] == right[1])
		return 0;
	if (r == -ENOMEM)
		return r;
	return shms_seglook_has(l, index, shms_segstate_generation(state)) ? tell_packed(v, x, &o)
									   : 0;
}

static int check_packed(struct verify *v, struct packed *x)
{
	uint32_t n = shms_segment_born(&x->l->segment);
	int r = seen(v, x->e->st);

	if (r != 0)
		return r < 0 ? r : 0;
	for (uint32_t i = 0; r == 0 && i < n && !x->overlaps; i++)
		r = check_slot(v, x, i);
	v->bytes += x->bytes;
	return r;
}

/* A segment: each slot with an object must describe one, and of those with a
 * checksum the bytes must be right. */
static int segment(struct verify *v, const struct shms_walk_entry *e)
{
	const char *reason = "not a segment, or a damaged one";
	struct shms_segsurvey s = {0};
	struct shms_seglook l;
	struct packed x = {.e = e, .l = &l};
	int r = shms_seglook_open(e->dirfd, e->name, false, &l);

	if (r == -ENOENT)
		return 0;
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	if (r == 0) {
		shms_segsurvey(&l, (const uint8_t[16]){0}, shms_now_boot_ms(), &s);
		v->bytes += l.segment.shape.data_off;
		r = check_packed(v, &x);
		shms_seglook_close(&l);
		if (r != 0)
			return r;
		r = s.n_bad || x.overlaps ? -EBADMSG : 0;
		reason = "slots of the segment say what cannot be";
	} else if (r == -EPERM) {
		reason = "the segment is another user's";
	} else if (r == -ENOSYS) {
		r = -EPERM;
		reason = "it cannot be looked at: the system call lseek is refused to this process";
	}
	return tell(v, e->dir, e->name, r, reason);
}

/* A key's name that is no file: get() would fail on it. */
static int no_file(struct verify *v, const struct shms_walk_entry *e)
{
	static const char objects[] = "/" SHMS_DIR_OBJECTS;
	unsigned char key[SHMS_NAME_SIZE];
	size_t n = strlen(e->dir), key_size;

	if (!e->store || S_ISREG(e->st->st_mode) || n < sizeof(objects) ||
	    strcmp(e->dir + n - (sizeof(objects) - 1), objects) != 0 ||
	    shms_name_decode(e->name, key, &key_size) == SHMS_NAME_FOREIGN)
		return 0;
	return tell(v, e->dir, e->name, -EBADMSG, "not a regular file");
}

static int on_entry(const struct shms_walk_entry *e, void *arg)
{
	struct verify *v = arg;

	switch (e->place) {
	case SHMS_PLACE_MARKER:
		return marker(v, e);
	case SHMS_PLACE_PAGE:
		return page(v, e);
	case SHMS_PLACE_RESIDENT:
		/* With a name in a store it is checked there, with its key. */
		return e->st->st_nlink == 1 ? object(v, e) : 0;
	case SHMS_PLACE_OBJECT:
		return object(v, e);
	case SHMS_PLACE_LEASE:
		return e->stub ? stub(v, e) : object(v, e);
	case SHMS_PLACE_STUB:
		return stub(v, e);
	case SHMS_PLACE_TIER:
		return config(v, e);
	case SHMS_PLACE_SIDECAR:
		return sidecar(v, e);
	case SHMS_PLACE_SEGMENT:
		return segment(v, e);
	case SHMS_PLACE_FOREIGN:
		return no_file(v, e);
	case SHMS_PLACE_PEER:
	case SHMS_PLACE_POOL:
	case SHMS_PLACE_INDEX: /* a cache: who searches by it believes the slots */
	case SHMS_PLACE_DIRECTORY:
	case SHMS_PLACE_CLEAN: /* nothing is lost with one: gc puts it right */
	case SHMS_PLACE_MOVING:
	case SHMS_PLACE_ANCHOR:
	default:
		return 0;
	}
}

/* A store of another user, or a part of one. */
static int on_store(const struct shms_walk_store *s, void *arg)
{
	return s->fd < 0 ? tell(arg, s->path, SHMS_PAGE_FILE, -EPERM,
				"the store cannot be looked into")
			 : 0;
}

static int on_unreadable(const char *path, const struct stat *st, int error, void *arg)
{
	(void)st;
	return tell(arg, path, ".", shms_error(error), "the directory cannot be looked into");
}

int shmstore_partition_verify(struct shmstore_partition *p,
			      int (*fn)(const struct shmstore_verify_finding *finding, void *arg),
			      void *arg)
{
	struct verify v = {.p = p, .find = SHMS_TIERFIND_INIT(p), .fn = fn, .arg = arg};
	struct shms_walk w = {
		.flags = SHMS_WALK_ENTRIES,
		.store = on_store,
		.entry = on_entry,
		.unreadable = on_unreadable,
		.arg = &v,
	};
	int r = -ENOMEM;

	if (!p || !fn)
		return shms_detail_null(!p ? "p" : "fn");
	v.seen = shms_inodes_new();
	v.chunk = malloc(CHUNK);
	if (v.seen && v.chunk)
		r = shms_tierfind_open(&v.find);
	/* A configuration that cannot be believed is said where it is met. */
	if (r == 0 || (r != -ENOMEM && r != -EMFILE))
		r = shms_walk_run(&w, p);
	shms_tierfind_close(&v.find);
	shms_inodes_free(v.seen);
	free(v.chunk);
	return r;
}
