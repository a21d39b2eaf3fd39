/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: mapped objects and their references.
 *
 * A view maps the whole file (so that huge pages stay aligned) and holds a private copy of key,
 * table and metadata: nothing that is used again is read from shared memory twice. It keeps no
 * descriptor. Large views stand in a process-wide tree by address, which is how a put finds that
 * its bytes are an object already; small ones do not pay for that.
 *
 * The count ends in two steps for registered views: the tree's lock is taken before the last
 * reference goes, so that a look-up either finds a view that lives or none.
 */
#include "view.h"

#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "handle.h"
#include "hugemap.h"
#include "sys.h"

#define VIEW_MAGIC 0x53484d5356494557ull

static pthread_mutex_t tree_lock = PTHREAD_MUTEX_INITIALIZER;
static void *tree;
static _Atomic uint64_t n_registered; /* views in the tree */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static int compare(const void *a, const void *b)
{
	const struct shmstore_view *x = a, *y = b;
	uintptr_t xs = (uintptr_t)x->map, ys = (uintptr_t)y->map;

	/* Mappings do not overlap: equal means that one holds the other's start. */
	return xs >= ys + y->map_size ? 1 : ys >= xs + x->map_size ? -1 : 0;
}

static void tree_acquire(void)
{
	pthread_mutex_lock(&tree_lock);
}

static void tree_release(void)
{
	pthread_mutex_unlock(&tree_lock);
}

static void register_fork(void)
{
	/* Views live on in a child, so the tree must be whole and unlocked there. */
	pthread_atfork(tree_acquire, tree_release, tree_release);
}

static void tree_add(struct shmstore_view *v)
{
	void **node;

	pthread_once(&fork_once, register_fork);
	tree_acquire();
	node = tsearch(v, &tree, compare);
	v->registered = node && *node == v; /* out of memory: it is not found later, no more */
	if (v->registered)
		atomic_fetch_add_explicit(&n_registered, 1, memory_order_relaxed);
	tree_release();
}

struct shmstore_view *shms_view_find(const void *address)
{
	struct shmstore_view probe, *v = NULL;
	void **node;

	/* A view that the caller knows of is counted. */
	if (!atomic_load_explicit(&n_registered, memory_order_relaxed))
		return NULL;
	probe.map_size = 1;
	memcpy(&probe.map, &address, sizeof(address));
	tree_acquire();
	node = tfind(&probe, &tree, compare);
	if (node)
		v = shmstore_view_ref(*node);
	tree_release();
	return v;
}

/* Copies o's table, where it has one, and metadata, unless they live as long as the view. */
static inline struct shmstore_view *alloc_view(const struct shms_object *o, bool theirs_live,
					       const void *key, size_t key_size)
{
	const struct shms_layout *l = &o->layout;
	/* All sizes are validated and bounded by a file's size. */
	uint64_t table = theirs_live ? 0 : (uint64_t)l->n_buffers * sizeof(struct shms_entry);
	uint64_t metadata = theirs_live ? 0 : l->metadata_size;
	struct shmstore_view *v = malloc(sizeof(*v) + table + metadata + key_size + 1);

	if (!v)
		return NULL;
	memset(v, 0, offsetof(struct shmstore_view, packed));
	v->magic = VIEW_MAGIC;
	atomic_init(&v->n_ref, 1);
	v->generation = o->generation;
	v->header_size = l->header_size;
	v->buffer_size = l->buffer_size;
	v->key_size = key_size;
	v->metadata_size = l->metadata_size;
	v->n_buffers = l->n_buffers;
	v->table = theirs_live ? o->table : (const struct shms_entry *)(const void *)v->room;
	v->metadata = theirs_live ? o->metadata : v->room + table;
	v->key = v->room + table + metadata;
	if (o->table)
		memcpy(v->room, o->table, table);
	memcpy(v->room + table, o->metadata, metadata);
	if (key_size)
		memcpy(v->room + table + metadata, key, key_size);
	return v;
}

/* The view is a store's from here on. */
static void begin(struct shmstore *s, struct shmstore_view *v)
{
	v->s = s;
	shms_store_ref(s);
	shms_count(&shms_handle(s)->n_views, 1);
	shms_count(&shms_handle(s)->mapped, v->map_size);
}

void shms_view_told(struct shmstore *s)
{
	struct shms_ledger *l = s->ledger;
	uint64_t mapped = atomic_load_explicit(&shms_handle(s)->mapped, memory_order_relaxed);

	atomic_store_explicit(&l->mapped_n,
			      atomic_load_explicit(&shms_handle(s)->n_views, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&l->mapped_bytes, mapped, memory_order_relaxed);
	if (mapped > atomic_load_explicit(&l->mapped_bytes_max, memory_order_relaxed))
		atomic_store_explicit(&l->mapped_bytes_max, mapped, memory_order_relaxed);
}

int shms_view_new(struct shmstore *s, const struct shms_view_file *f, struct shms_header *h,
		  const void *key, size_t key_size, struct shmstore_view **ret)
{
	const struct shms_layout *l = &h->object.layout;
	struct shmstore_view *v = alloc_view(&h->object, h->head != NULL, key, key_size);
	uint64_t into;

	if (!v)
		return -ENOMEM;
	v->cow = f->cow;
	v->uid = f->uid;
	if (l->buffer_size) {
		int prot = f->cow ? PROT_READ | PROT_WRITE : PROT_READ;
		/* Most copy-on-write pages are never written: they shall not
		 * count as promised memory. */
		int flags = f->cow ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;

		v->map_size = l->header_size + l->buffer_size;
		/* A tier file's frames begin at 4 KiB, which may be within a page. */
		into = f->offset % shms_host_page();
		v->map = shms_map_aligned(v->map_size + into, prot, flags, f->fd, f->offset - into);
		if (v->map == MAP_FAILED) {
			free(v);
			return -errno;
		}
		v->map = (char *)v->map + into;
	}
	v->head = h->head;
	h->head = NULL;
	begin(s, v);
	if (v->map_size >= SHMS_FORMAT_BIG)
		tree_add(v);
	*ret = v;
	return 0;
}

/* ---- packed objects -------------------------------------------------------------------------- */

/* The table as a file has it, but for the offsets, which count from the first buffer. */
static int packed_table(const struct shms_pack_view *packed, struct shms_entry *ret)
{
	size_t n = packed->object.n_buffers;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS], off = 0;
	int r;

	if (n == 1) { /* as most have it: this is on the way of each get */
		ret[0] = (struct shms_entry){.size = packed->object.buffer_size};
		return 0;
	}
	r = n > SHMS_SEGOWN_BUFFERS ? -EBADMSG
				    : shms_segpacked_sizes(packed->segment, &packed->object, sizes);
	for (size_t i = 0; r == 0 && i < n; i++) {
		ret[i] = (struct shms_entry){.offset = off, .size = sizes[i]};
		off = shms_layout_next(off, sizes[i]);
	}
	return r;
}

/* Copies, so that the slot is not needed any more. */
static int map_copy(struct shmstore_view *v, const void *bytes, bool writable)
{
	v->map = mmap(NULL, v->buffer_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	if (v->map == MAP_FAILED)
		return -errno;
	memcpy(v->map, bytes, v->buffer_size);
	v->map_size = v->buffer_size;
	if (!writable && mprotect(v->map, v->map_size, PROT_READ) < 0) {
		munmap(v->map, v->map_size);
		return -ENOMEM;
	}
	return 0;
}

/* A view that is no copy keeps the object. */
static int map_packed(struct shmstore_view *v, const uint8_t *bytes)
{
	bool packed = v->packed.pack != NULL;

	if (packed && v->cow && v->buffer_size >= SHMS_FORMAT_BIG)
		v->map = shms_pack_map(&v->packed);
	v->is_packed = packed && (!v->cow || v->map);
	if (v->buffer_size && !v->is_packed)
		return map_copy(v, bytes, v->cow);
	if (v->buffer_size && !v->cow)
		v->map = (void *)(uintptr_t)bytes;
	v->map_size = v->buffer_size ? v->buffer_size + (v->cow ? 0 : v->header_size) : 0;
	return 0;
}

int shms_view_packed(struct shmstore *s, const struct shms_pack_view *packed, unsigned flags,
		     const void *key, size_t key_size, struct shmstore_view **ret)
{
	const struct shms_segpacked *p = &packed->object;
	const uint8_t *bytes = packed->segment->bytes + p->extent_off;
	const struct shms_object o = {.layout = {.metadata_size = p->metadata_size,
						 .header_size = shms_pack_header_size(p),
						 .buffer_size = p->buffer_size,
						 .n_buffers = p->n_buffers},
				      .generation = shms_pack_view_generation(packed),
				      .metadata = bytes + p->metadata_off};
	struct shmstore_view *v = alloc_view(&o, false, key, key_size);
	int r = v ? packed_table(packed, (struct shms_entry *)(void *)v->room) : -ENOMEM;

	if (r == 0 && (flags & SHMSTORE_VERIFY) && !shms_pack_verify(p, bytes))
		r = -EBADMSG;
	if (r == 0) {
		v->packed = *packed;
		v->uid = s->uid;
		v->cow = (flags & SHMSTORE_COW) != 0;
		r = map_packed(v, bytes);
	}
	if (packed->pack && (r < 0 || !v->is_packed))
		shms_pack_unget(packed->pack, packed, 0);
	if (r < 0) {
		free(v);
		return r;
	}
	begin(s, v);
	*ret = v;
	return 0;
}

struct shmstore_view *shmstore_view_ref(struct shmstore_view *v)
{
	if (v)
		atomic_fetch_add_explicit(&v->n_ref, 1, memory_order_relaxed);
	return v;
}

static void view_free(struct shmstore_view *v)
{
	SHMS_NO_CANCEL;
	struct shmstore *s = v->s;
	uint64_t into;

	if (v->map && (v->cow || !v->is_packed)) {
		into = (uintptr_t)v->map % shms_host_page();
		munmap((char *)v->map - into, v->map_size + into);
	}
	if (v->is_packed)
		shms_pack_unget(v->packed.pack, &v->packed, 0);
	shms_count(&shms_handle(s)->n_views, UINT64_MAX);
	shms_count(&shms_handle(s)->mapped, -v->map_size);
	v->magic = 0;
	free(v->head);
	free(v);
	shms_store_unref(s);
}

struct shmstore_view *shmstore_view_unref(struct shmstore_view *v)
{
	bool last;

	if (!v)
		return NULL;
	if (!v->registered) {
		if (!shms_light_unref(&v->n_ref))
			view_free(v);
		return NULL;
	}
	tree_acquire();
	last = atomic_fetch_sub_explicit(&v->n_ref, 1, memory_order_acq_rel) == 1;
	if (last && tdelete(v, &tree, compare))
		atomic_fetch_sub_explicit(&n_registered, 1, memory_order_relaxed);
	tree_release();
	if (last)
		view_free(v);
	return NULL;
}

const void *shmstore_view_key(const struct shmstore_view *v, size_t *ret_size)
{
	if (ret_size)
		*ret_size = v->key_size;
	return v->key;
}

const void *shmstore_view_header(const struct shmstore_view *v, size_t *ret_size)
{
	if (ret_size)
		*ret_size = v->metadata_size;
	return v->metadata;
}

uid_t shmstore_view_uid(const struct shmstore_view *v)
{
	return v->uid;
}

uint64_t shmstore_view_generation(const struct shmstore_view *v)
{
	return v->generation;
}

size_t shmstore_view_n_buffers(const struct shmstore_view *v)
{
	return v->n_buffers;
}

void *shmstore_view_buffer(const struct shmstore_view *v, size_t i, uint64_t *ret_size)
{
	if (i >= v->n_buffers)
		return NULL;
	if (ret_size)
		*ret_size = v->table[i].size;
	/* An object of empty buffers only is not mapped; its buffers are
	 * at the end of its header. */
	if (!v->map)
		return (void *)(uintptr_t)v->metadata;
	return (char *)v->map + v->table[i].offset;
}
