/* SPDX-License-Identifier: Apache-2.0 */
/* peek.c: see peek.h. */
#include "peek.h"

#include <errno.h>
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
	int r;

	if (fd < 0)
		return fd == -ENOENT ? 0 : shms_error(fd);
	r = shms_packlook(fd, s->page->uuid, key, key_size, fn, arg);
	if (r == -EPERM)
		return shms_detail(r, NULL, "only its own user can look into the packed objects of %s", s->path);
	return r;
}

struct peek {
	struct shmstore *s;
	const struct shms_keyname *k;
	unsigned flags;
	struct shmstore_view **ret;
};

static int found(const struct shms_packlook *o, void *arg)
{
	const struct peek *p = arg;
	struct shms_segment copy = {.bytes = o->copy, .shape = o->segment->shape};
	struct shms_pack_view packed = {
		.segment = &copy, .object = o->object, .slot = o->slot, .generation = o->generation};
	int r;

	if (!p->ret)
		return 1;
	memcpy(copy.uuid, o->segment->uuid, sizeof(copy.uuid));
	packed.object.extent_off = 0;
	r = shms_view_packed(p->s, &packed, p->flags & SHMSTORE_COW ? SHMS_VIEW_WRITABLE : SHMS_VIEW_COPY, p->k->key,
			     p->k->key_size, p->ret);
	return r < 0 ? r : 1;
}

int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags, struct shmstore_view **ret)
{
	/* A packed object's key is not empty. */
	int r = k->key_size ? look(s, k->key, k->key_size, found, &(struct peek){s, k, flags, ret}) : 0;

	return r == 0 ? -ENOENT : r < 0 ? r : 0;
}

bool shms_peek_has(struct shmstore *s, const struct shms_keyname *k)
{
	return k->key_size && look(s, k->key, k->key_size, found, &(struct peek){.s = s, .k = k}) == 1;
}

/* ---- lists --------------------------------------------------------------------------------------------------------- */

struct each {
	int (*fn)(const struct shmstore_object_info *info, void *arg);
	void *arg;
};

/* What the object would have as a file, and what it takes as it is. */
static int tell(const struct shms_packlook *o, void *arg)
{
	const struct each *e = arg;
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
		.packed = true,
	};
	char name[SHMS_NAME_SIZE];

	if (o->key_size > SHMSTORE_KEY_MAX)
		return 0; /* damage, which verify tells of */
	info.header_size = shms_pack_header_size(&o->object);
	(void)shms_name_encode(o->key, o->key_size, name);
	info.name = name;
	return e->fn(&info, e->arg);
}

int shms_peek_each(struct shmstore *s, int (*fn)(const struct shmstore_object_info *info, void *arg), void *arg)
{
	return look(s, NULL, 0, tell, &(struct each){fn, arg});
}
