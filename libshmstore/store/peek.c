/* SPDX-License-Identifier: Apache-2.0 */
/* peek.c: see peek.h. */
#include "peek.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "packlook.h"
#include "publish.h"
#include "segsurvey.h"
#include "sys.h"
#include "view.h"

/* Looks through the store's segments. key NULL: at all objects. 0: none, or fn's value. */
static int look(struct shmstore *s, const void *key, size_t key_size,
		int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	_fd_ int fd = shms_open_dir(s->dir_fd, SHMS_DIR_SEGMENTS);

	if (fd < 0)
		return fd == -ENOENT ? 0 : shms_error(fd);
	return shms_packlook(fd, s->page->uuid, key, key_size, fn, arg);
}

struct peek {
	struct shmstore *s;
	const struct shms_keyname *k;
	unsigned flags;
	struct shmstore_view **ret;
	int hidden; /* not 0: a segment cannot be read, and may have the key */
};

/* Takes the look further: the key may be in a segment that can be read. */
static int unreadable(struct peek *p, const struct shms_packlook *o)
{
	p->hidden = shms_detail(shms_error(o->error), NULL, "%s/" SHMS_DIR_SEGMENTS "/%s cannot be read", p->s->path,
				o->file);
	return 0;
}

static int found(const struct shms_packlook *o, void *arg)
{
	struct peek *p = arg;
	struct shms_segment copy = {.bytes = o->copy};
	struct shms_pack_view packed = {
		.segment = &copy, .object = o->object, .slot = o->slot, .generation = o->generation};
	int r;

	if (o->error)
		return unreadable(p, o);
	if (!p->ret)
		return 1;
	copy.shape = o->segment->shape;
	memcpy(copy.uuid, o->segment->uuid, sizeof(copy.uuid));
	packed.object.extent_off = 0;
	if ((p->flags & SHMSTORE_VERIFY) && !shms_pack_verify(&packed.object, o->copy))
		return -EBADMSG;
	r = shms_view_packed(p->s, &packed, p->flags & SHMSTORE_COW ? SHMS_VIEW_WRITABLE : SHMS_VIEW_COPY, p->k->key,
			     p->k->key_size, p->ret);
	/* Its bytes are their owner's, whoever looks: what it says is not to be run. */
	if (r == 0)
		(*p->ret)->uid = o->uid;
	return r < 0 ? r : 1;
}

/* A packed object's key is not empty. In this order: what becomes a file is one before it is a packed object no more. */
static int find(struct peek *p)
{
	if (!p->k->key_size || shms_packed_is_file(p->s, p->k))
		return 0;
	return look(p->s, p->k->key, p->k->key_size, found, p);
}

int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags, struct shmstore_view **ret)
{
	struct peek p = {.s = s, .k = k, .flags = flags, .ret = ret};
	int r = find(&p);

	if (r == 0)
		return p.hidden ? p.hidden : -ENOENT;
	return r < 0 ? r : 0;
}

bool shms_peek_has(struct shmstore *s, const struct shms_keyname *k)
{
	return find(&(struct peek){.s = s, .k = k}) == 1;
}

/* ---- lists --------------------------------------------------------------------------------------------------------- */

struct each {
	struct shmstore *s;
	int (*fn)(const struct shmstore_object_info *info, void *arg);
	void *arg;
};

/* A segment that cannot be read: listed as a file is that is no valid object. */
static int tell_unreadable(const struct each *e, const struct shms_packlook *o)
{
	char name[sizeof(SHMS_DIR_SEGMENTS) + SHMS_NAME_SIZE];
	const struct shmstore_object_info info = {
		.size = sizeof(info), .key = "", .name = name, .error = shms_error(o->error), .packed = true};

	snprintf(name, sizeof(name), SHMS_DIR_SEGMENTS "/%s", o->file);
	return e->fn(&info, e->arg);
}

/* What the object would have as a file, and what it takes as it is. */
static int tell_object(const struct each *e, const struct shms_packlook *o)
{
	struct shms_keyname k;
	const struct shms_pack_view v = {.segment = o->segment, .slot = o->slot, .generation = o->generation};
	struct shmstore_object_info info = {
		.size = sizeof(info),
		.key = o->key,
		.key_size = o->key_size,
		.buffer_size = o->object.buffer_size,
		.blocks = shms_segsurvey_bytes(&o->object),
		.inode = o->inode,
		.links = o->n_links,
		.n_buffers = o->object.n_buffers,
		.generation = shms_pack_view_generation(&v),
		.checksum = (o->object.flags & SHMS_SEGPACKED_CHECKSUM) != 0,
		.pinned = (o->object.flags & SHMS_SEGPACKED_PINNED) != 0,
		.packed = true,
	};

	if (shms_keyname_init(&k, o->key, o->key_size) < 0)
		return 0; /* damage, which verify tells of */
	if (shms_packed_is_file(e->s, &k))
		return 0; /* the list has it as a file */
	info.header_size = shms_pack_header_size(&o->object);
	info.name = k.name;
	return e->fn(&info, e->arg);
}

static int tell(const struct shms_packlook *o, void *arg)
{
	return o->error ? tell_unreadable(arg, o) : tell_object(arg, o);
}

int shms_peek_each(struct shmstore *s, int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	return look(s, NULL, 0, tell, &(struct each){s, fn, arg});
}
