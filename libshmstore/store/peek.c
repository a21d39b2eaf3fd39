/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peek.c: what handles that can only read see of packed objects (parts.h); and lists of a store's
 * objects. The directory is the index of files: a list walks it, keeps nothing, and bears with
 * objects that come and go meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "detail.h"
#include "hash.h"
#include "name.h"
#include "object.h"
#include "pack.h"
#include "packed.h"
#include "packindex.h"
#include "parts.h"
#include "publish.h"
#include "sys.h"
#include "tierformat.h"
#include "view.h"

#define TRIES 1000

/* Looks through a store's segments, in the directory consume_fd, or -errno. uuid NULL: at those
 * alone that this process may not read; key NULL: at all objects. 0: none, or fn's value. */
static int look(int consume_fd, const uint8_t *uuid, const void *key, size_t key_size,
		int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	_fd_ int fd = consume_fd;

	if (fd < 0)
		return fd == -ENOENT ? 0 : shms_error(fd);
	return shms_packlook(fd, uuid, key, key_size, fn, arg);
}

/* How often the store's keys moved. *ret_moving: one of them moves just
 * now, by an owner that lives. */
static int read_changes(int dir_fd, uint64_t *ret, bool *ret_moving)
{
	struct shms_page page;
	int r = dir_fd < 0 ? shms_error(dir_fd) : shms_page_read(dir_fd, &page);

	if (r < 0)
		return r;
	*ret = atomic_load_explicit(&page.changes, memory_order_relaxed);
	*ret_moving = *ret % 2 && shms_page_alive(dir_fd) != SHMSTORE_DEAD;
	return 0;
}

/* The same of a store that another process may be changing. -EAGAIN: keys moved meanwhile, and may
 * have been missed. */
static int look_at_rest(struct shmstore *s, const void *key, size_t key_size,
			int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	_fd_ int dir_fd = shms_open_dir(s->objects_fd, "..");
	uint64_t before, after;
	bool moving, still;
	int r = read_changes(dir_fd, &before, &moving);

	if (r == 0)
		r = look(shms_open_dir(dir_fd, SHMS_DIR_SEGMENTS), s->page->uuid, key, key_size, fn,
			 arg);
	if (r != 0)
		return r;
	r = read_changes(dir_fd, &after, &still);
	return r == 0 && (moving || after != before) ? -EAGAIN : r;
}

/* ---- without an index ------------------------------------------------------------------------ */

struct peek {
	struct shmstore *s;
	const struct shms_keyname *k;
	unsigned flags;
	struct shmstore_view **ret;
	int hidden; /* not 0: a segment cannot be read, and may have the key */
};

static int found(const struct shms_packlook *o, void *arg)
{
	struct peek *p = arg;
	struct shms_segment copy = {.bytes = o->copy};
	struct shms_pack_view packed = {.segment = &copy,
					.object = o->object,
					.slot = o->slot,
					.generation = o->generation};
	int r;

	if (o->error) {
		/* Takes the look further: the key may be in a segment that can be read. */
		p->hidden = shms_detail(shms_error(o->error), NULL,
					"%s/" SHMS_DIR_SEGMENTS "/%s cannot be read", p->s->path,
					o->file);
		return 0;
	}
	if (!p->ret)
		return 1;
	copy.shape = o->segment->shape;
	memcpy(copy.uuid, o->segment->uuid, sizeof(copy.uuid));
	packed.object.extent_off = 0;
	r = shms_view_packed(p->s, &packed, p->flags, p->k->key, p->k->key_size, p->ret);
	/* Its bytes are their owner's, whoever looks: what it says is not to be run. */
	if (r == 0)
		(*p->ret)->uid = o->uid;
	return r < 0 ? r : 1;
}

/* 1: found; 0: the store had it nowhere at some moment; -EAGAIN: keys moved meanwhile; -errno. */
static int find(struct peek *p)
{
	int r;

	p->hidden = 0;
	r = look_at_rest(p->s, p->k->key, p->k->key_size, found, p);
	return r == 0 ? p->hidden : r == -ENOENT ? 0 : r;
}

/* ---- by the index ---------------------------------------------------------------------------- */

/*
 * A packed object's key is not empty. Where the last owner was killed before it took a packed
 * object away whose key had become a file's, the file is what the key means.
 */
static bool may_be_packed(const struct shmstore *s, const struct shms_keyname *k)
{
	return k->key_size && !(s->unowned && shms_packed_is_file(s, k));
}

/* One look by the index: as shms_packread_get(), but 1 where ret is NULL, and the key there. */
static int look_indexed(struct shmstore *s, const struct shms_keyname *k,
			struct shms_pack_view *ret)
{
	struct shms_pack *pack;
	int r;

	do {
		r = shms_packed_reader(s, &pack);
		if (r == 0)
			r = shms_packread_get(pack, k->key, k->key_size, ret);
	} while (r == -ESTALE);
	return r == 0 && !ret ? 1 : r;
}

/* The same; where there is no index just now, as find(). An owner that puts all the time may
 * disturb that, but has the next index soon. */
static int look_for(struct peek *p, struct shms_pack_view *ret)
{
	int r = may_be_packed(p->s, p->k) ? -EAGAIN : -ENOENT;

	for (int i = 0; r == -EAGAIN && i < TRIES; i++) {
		r = look_indexed(p->s, p->k, ret);
		if (r == -ENOTSUP)
			r = find(p);
	}
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags,
		  struct shmstore_view **ret)
{
	struct peek p = {.s = s, .k = k, .flags = flags, .ret = ret};
	struct shms_pack_view packed = {.pack = NULL};
	int r = look_for(&p, &packed);

	if (!packed.pack)
		return r == 0 ? -ENOENT : r < 0 ? r : 0;
	return shms_view_packed(s, &packed, flags, k->key, k->key_size, ret);
}

int shms_peek_has(struct shmstore *s, const struct shms_keyname *k)
{
	struct peek p = {.s = s, .k = k};
	int r = look_for(&p, NULL);

	return r == -ENOENT ? 0 : r;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct each {
	struct shmstore *s;
	int (*fn)(const struct shmstore_object_info *info, void *arg);
	void *arg;
};

/* A segment that cannot be read: listed as a file is that is no valid object. */
static int tell_unreadable(const struct each *e, const struct shms_packlook *o)
{
	char name[sizeof(SHMS_DIR_SEGMENTS) + SHMS_NAME_SIZE];
	const struct shmstore_object_info info = {.size = sizeof(info),
						  .key = "",
						  .name = name,
						  .error = shms_error(o->error),
						  .packed = true};

	snprintf(name, sizeof(name), SHMS_DIR_SEGMENTS "/%s", o->file);
	return e->fn(&info, e->arg);
}

/* Tells sizes as the object would have them as a file, and the bytes that it takes as it is. */
static int tell_view(const struct each *e, const struct shms_pack_view *v, const void *key,
		     size_t key_size, uint64_t inode, uint64_t n_links)
{
	const struct shms_segpacked *o = &v->object;
	struct shms_keyname k;
	struct shmstore_object_info info = {
		.size = sizeof(info),
		.key = key,
		.key_size = key_size,
		.buffer_size = o->buffer_size,
		.blocks = shms_segsurvey_bytes(o),
		.inode = inode,
		.links = n_links,
		.n_buffers = o->n_buffers,
		.generation = shms_pack_view_generation(v),
		.checksum = (o->flags & SHMS_SEGPACKED_CHECKSUM) != 0,
		.pinned = (o->flags & SHMS_SEGPACKED_PINNED) != 0,
		.packed = true,
	};
	int r;

	if (shms_keyname_init(&k, key, key_size) < 0)
		return 0; /* damage, which verify tells of */
	r = shms_packed_as_file(e->s, &k);
	if (r != 0)
		return r < 0 ? r : 0; /* the list has it as a file */
	info.header_size = shms_pack_header_size(o);
	info.name = k.name;
	return e->fn(&info, e->arg);
}

static int tell(const struct shms_packlook *o, void *arg)
{
	const struct shms_pack_view v = {.segment = o->segment,
					 .object = o->object,
					 .slot = o->slot,
					 .generation = o->generation};

	return o->error ? tell_unreadable(arg, o)
			: tell_view(arg, &v, o->key, o->key_size, o->inode, o->n_links);
}

/* ---- lists by the index ---------------------------------------------------------------------- */

static int tell_indexed(const struct shms_pack_view *v, uint64_t inode, uint64_t n_links, void *arg)
{
	return tell_view(arg, v, shms_pack_view_key(v), v->object.key_size, inode, n_links);
}

/* *io_from: as shms_packread_each(). */
static int each_indexed(struct shmstore *s, uint64_t *io_from,
			int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	struct shms_pack *pack;
	int r = shms_packed_reader(s, &pack);

	return r < 0 ? r
		     : shms_packread_each(pack, io_from, tell_indexed, &(struct each){s, fn, arg});
}

/* ---- lists that begin anew ------------------------------------------------------------------- */

struct told {
	UT_hash_handle hh;
	unsigned char key[];
};

/* Tells each key once, however often the store is listed. */
struct once {
	int (*fn)(const struct shmstore_object_info *info, void *arg);
	void *arg;
	int r; /* of fn: not to be taken for an error of the list */
	struct told *told;
	uint64_t from; /* all keys with a lower hash were told before, by the index */
};

static int tell_user(const struct shmstore_object_info *info, void *arg)
{
	struct once *o = arg;

	o->r = o->fn(info, o->arg);
	return o->r;
}

static int tell_once(const struct shmstore_object_info *info, void *arg)
{
	struct once *o = arg;
	struct told *t = NULL;

	if (!info->error && (uint32_t)shms_packhash(info->key, info->key_size).hash < o->from)
		return 0;
	if (!info->error)
		HASH_FIND(hh, o->told, info->key, info->key_size, t);
	if (t)
		return 0;
	t = info->error ? NULL : malloc(sizeof(*t) + info->key_size);
	if (!t && !info->error)
		return -ENOMEM;
	if (t) {
		memcpy(t->key, info->key, info->key_size);
		HASH_ADD(hh, o->told, key, info->key_size, t);
		if (!t->hh.tbl) {
			free(t);
			return -ENOMEM;
		}
	}
	return tell_user(info, o);
}

static void forget(struct once *o)
{
	struct told *t, *next;

	HASH_ITER(hh, o->told, t, next)
	{
		HASH_DEL(o->told, t);
		free(t);
	}
}

static int each_packed(struct shmstore *s,
		       int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	struct once o = {.fn = fn, .arg = arg};
	struct each once = {s, tell_once, &o};
	int r;

	if (!s->readonly)
		return look(shms_open_dir(s->dir_fd, SHMS_DIR_SEGMENTS), s->page->uuid, NULL, 0,
			    tell, &(struct each){s, fn, arg});
	/* -ESTALE: fn has renewed the handle, or this is a child that it has forked. */
	do
		r = each_indexed(s, &o.from, tell_user, &o);
	while (r == -ESTALE && o.r == 0);
	/* The index speaks of no file that this process may not read. */
	if (r == 0)
		r = look(shms_open_dir(s->objects_fd, "../" SHMS_DIR_SEGMENTS), NULL, NULL, 0, tell,
			 &(struct each){s, tell_user, &o});
	/* The index may end in the middle, with its owner. */
	else if (r == -ENOTSUP && o.r == 0)
		r = look_at_rest(s, NULL, 0, tell, &once);
	for (int i = 0; r == -EAGAIN && o.r == 0 && i < TRIES; i++) {
		r = each_indexed(s, &o.from, tell_once, &o);
		if (r == -ENOTSUP && o.r == 0)
			r = look_at_rest(s, NULL, 0, tell, &once);
	}
	forget(&o);
	if (o.r != 0)
		return o.r;
	return r == -ENOENT ? 0 : r == -EAGAIN ? -ETIMEDOUT : r;
}

/* ---- lists of files -------------------------------------------------------------------------- */

/* A demoted object, as its stub tells it: its key is in its name or in the sidecar. */
static int describe_stub(struct shmstore *s, const char *name, struct shmstore_object_info *info,
			 unsigned char *key)
{
	struct shms_stub stub;
	struct stat st;
	int r = shms_stub_read(s->objects_fd, name, &stub, NULL);

	if (r == -EINVAL)
		return -ENOENT; /* another file by now */
	if (fstatat(s->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ENOENT : shms_error(errno);
	*info = (struct shmstore_object_info){
		.size = sizeof(*info),
		.key = key,
		.inode = st.st_ino,
		.links = st.st_nlink,
		.mtime_ns = shms_stat_ns(&st.st_mtim),
		.name = name,
		.demoted = r == 0,
		.error = r == -ENOENT ? 0 : shms_error(r),
	};
	if (r == -ENOENT)
		return r;
	if (r == 0) {
		info->header_size = stub.header_size;
		info->buffer_size = stub.buffer_size;
		info->generation = stub.generation;
		info->links = stub.n_names > 1 ? stub.n_names - 1 : 1; /* less the anchor */
		info->error = shms_entry_key(s->objects_fd, name, NULL, key, &info->key_size);
	}
	return 0;
}

/* Describes one entry. 0; -ENOENT: gone or no object's name; -errno. */
static int describe(struct shmstore *s, const char *name, struct shmstore_object_info *info,
		    unsigned char *key)
{
	unsigned char plain[SHMS_NAME_SIZE];
	enum shms_name_kind kind = shms_name_decode(name, plain, &info->key_size);
	struct shms_header h;
	struct stat st;
	int r;

	if (kind == SHMS_NAME_SIDECAR || kind == SHMS_NAME_FOREIGN)
		return -ENOENT;
	_fd_ int fd = shms_open_object(s->objects_fd, name);
	if (fd == -ELOOP)
		return describe_stub(s, name, info, key);
	if (fd < 0)
		return shms_error(fd);
	if (fstat(fd, &st) < 0)
		return shms_error(errno);
	*info = (struct shmstore_object_info){
		.size = sizeof(*info),
		.key = key,
		.key_size = info->key_size,
		.blocks = shms_blocks(&st),
		.inode = st.st_ino,
		.links = st.st_nlink,
		.mtime_ns = shms_stat_ns(&st.st_mtim),
		.name = name,
		.pinned = (st.st_mode & S_ISVTX) != 0,
	};
	memcpy(key, plain, kind == SHMS_NAME_PLAIN ? info->key_size : 0);
	r = shms_header_read(&h, fd, &st, NULL);
	if (r == 0) {
		info->header_size = h.object.layout.header_size;
		info->buffer_size = h.object.layout.buffer_size;
		info->n_buffers = h.object.layout.n_buffers;
		info->generation = h.object.generation;
		info->checksum = h.object.checksum;
		if (kind == SHMS_NAME_HASHED)
			r = shms_entry_key(s->objects_fd, name, &h, key, &info->key_size);
		shms_header_deinit(&h);
	}
	if (r == -ENOMEM || r == -EMFILE)
		return r;
	info->error = r;
	if (r < 0 && kind == SHMS_NAME_HASHED)
		info->key_size = 0;
	return 0;
}

int shmstore_foreach(struct shmstore *s,
		     int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	struct shmstore_object_info info;
	int r;

	if (!fn)
		return shms_detail_null("fn");
	if (s->readonly) {
		bool renewed;

		r = shms_renew(s, &renewed);
		if (r < 0)
			return r;
	}
	_names_ struct shms_names d = shms_names(s->objects_fd, ".");

	r = shms_error(d.error);
	while (r == 0 && shms_names_next(&d)) {
		r = describe(s, d.name, &info, key);
		r = r == 0 ? fn(&info, arg) : r == -ENOENT ? 0 : r;
	}
	r = r == 0 ? d.error : r;
	if (r == 0 && (s->readonly || shms_packed_pack(s)))
		r = each_packed(s, fn, arg);
	return r;
}
