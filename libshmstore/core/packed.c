/* SPDX-License-Identifier: Apache-2.0 */
/* packed.c: see packed.h. */
#include "packed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "nameslock.h"
#include "pack.h"
#include "publish.h"
#include "sys.h"

void shms_packed_init(struct shms_packed *x)
{
	x->dir_fd = -1;
	/* Until the store is open. */
	(void)atomic_flag_test_and_set(&x->giving);
	pthread_mutex_init(&x->lock, NULL);
}

/* ---- what files and the ledger have ---------------------------------------------------------- */

int shms_packed_as_file(const struct shmstore *s, const struct shms_keyname *k)
{
	struct shms_pack *pack = shms_packed_pack(s);
	struct shms_keyname own;
	int r;

	/* The owner has counted all names in objects/: where there is none, nobody is asked. */
	if (!s->readonly && atomic_load_explicit(&s->ledger->linked_n, memory_order_relaxed) ==
				    (pack ? shms_pack_sum(pack).n : 0))
		return 0;
	own = *k;
	shms_keyname_name(&own);
	r = shms_key_find(s->objects_fd, &own);
	if (r <= 0)
		return r;
	return shms_lookup(s->objects_fd, own.name) == 0 ? 1
	       : errno == ENOENT                         ? 0
							 : shms_error(errno);
}

/* After a call that put, took or dropped a packed object. Most have nothing else to do than to be
 * counted, unless somebody wants memory. */
static void tend(struct shmstore *s, struct shms_pack *pack, uint64_t now_ms)
{
	struct shms_packedmem *m = &shms_handle(s)->packed.mem;
	bool quiet = ++m->n_calls < SHMS_PACKEDMEM_CALLS && m->freed <= m->max && !m->tight &&
		     !m->scarce;

	if (!quiet || shms_credit_counted(s) || shms_memory_wanted(s))
		shms_packedmem_tend(s, pack, now_ms);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int open_pack(struct shmstore *s)
{
	struct shms_packed *x = &shms_handle(s)->packed;
	struct shms_pack_options o = {
		.root_fd = s->p->fd, .kept = true, .huge = s->huge_from != UINT64_MAX};
	char path[SHMS_PACK_TICKET];
	struct shms_pack *pack = NULL;
	int r;

	SHMS_HELD(&x->lock);
	if ((size_t)snprintf(path, sizeof(path), "%s/" SHMS_DIR_SEGMENTS,
			     s->path + strlen(s->p->path) + 1) >= sizeof(path))
		return -ENAMETOOLONG;
	x->dir_fd = shms_open_dir(s->dir_fd, SHMS_DIR_SEGMENTS);
	if (x->dir_fd < 0) {
		r = x->dir_fd;
		x->dir_fd = -1;
		return r;
	}
	o.path = path;
	o.dir_fd = x->dir_fd;
	o.store_fd = s->dir_fd;
	memcpy(o.uuid, s->page->uuid, sizeof(o.uuid));
	r = shms_pack_open(&o, &pack);
	if (r < 0) {
		x->dir_fd = shms_close_fd(x->dir_fd);
		return r;
	}
	shms_pack_tell(pack, &(struct shms_packtold){&s->ledger->linked_n, &s->ledger->linked_bytes,
						     &s->ledger->linked_bytes_max,
						     &s->page->packed.bytes, &s->page->changes});
	/* Threads that began to look at slots before there was the index must look again. */
	atomic_fetch_add_explicit(&s->page->changes, 2, memory_order_release);
	/* release: pairs with shms_packed_pack(). */
	atomic_store_explicit(&s->pack, pack, memory_order_release);
	return 0;
}

/* The last owner was killed while the object became a file, or was
 * replaced by one: the file stays. */
static int drop_double(const struct shms_packlook *o, void *arg)
{
	struct shmstore *s = arg;
	struct shms_keyname k;
	/* No place of ours is in a segment that we may not read. */
	int r = o->error || shms_keyname_init(&k, o->key, o->key_size) < 0
			? 0
			: shms_packed_as_file(s, &k);

	if (r > 0)
		(void)shms_packed_delete(s, &k, NULL);
	return r < 0 ? r : 0;
}

int shms_packed_open(struct shmstore *s, uint64_t max, bool read)
{
	int r;

	shms_handle(s)->packed.max = s->p->tmpfs ? max : 0;
	shms_handle(s)->packed.mem.max = SHMS_PACKEDMEM_LEAST;
	shms_handle(s)->packed.mem.least = UINT64_MAX;
	if (!read)
		return 0;
	r = open_pack(s);
	if (r == 0)
		r = shms_packlook(shms_handle(s)->packed.dir_fd, s->page->uuid, NULL, 0,
				  drop_double, s);
	if (r == -EBUSY)
		return shms_detail(r, NULL,
				   "a process that still runs has views of the packed objects of "
				   "%s: one that closed the store, or a child of its last owner",
				   s->path);
	return r == -ENOENT ? 0 : shms_error(r);
}

/* Is it of the store as it is now, and of this process? */
static bool is_current(const struct shms_pack *pack)
{
	return pack && !shms_packread_ended(pack);
}

static int make_reader(struct shmstore *s)
{
	struct shms_pack_options o = {.root_fd = s->p->fd, .path = shms_handle(s)->segments};
	struct shms_pack *made;
	int r;

	if (shms_lookup(s->objects_fd, "../" SHMS_DIR_SEGMENTS) < 0)
		return shms_error(errno);
	memcpy(o.uuid, s->page->uuid, sizeof(o.uuid));
	r = shms_packread_open(&o, shms_packed_pack(s), &made);
	if (r < 0)
		return r;
	/* release: pairs with shms_packed_pack(). */
	atomic_store_explicit(&s->pack, made, memory_order_release);
	return 0;
}

int shms_packed_reader(struct shmstore *s, struct shms_pack **ret)
{
	int r = 0;

	*ret = shms_packed_pack(s);
	if (is_current(*ret))
		return 0;
	SHMS_HELD(&shms_handle(s)->packed.lock);
	if (!is_current(shms_packed_pack(s)))
		r = make_reader(s);
	*ret = shms_packed_pack(s);
	return r;
}

/* The pack, made where there is none. store.names is held exclusively.
 * NULL: there is none to be had. */
static struct shms_pack *make(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);
	int r;

	if (pack)
		return pack;
	r = shms_make_dir(s->dir_fd, SHMS_DIR_SEGMENTS);
	if (r == 0 || r == -EEXIST)
		(void)open_pack(s);
	return shms_packed_pack(s);
}

void shms_packed_retire(struct shmstore *s, bool keep)
{
	struct shms_pack *pack = shms_packed_pack(s);

	if (!pack)
		return;
	shms_pack_retire(pack, keep, shms_now_boot_ms());
	shms_packedmem_gave(s, pack);
}

bool shms_packed_fits(const struct shmstore *s, uint64_t bytes)
{
	uint64_t max = shms_handle(s)->packed.max;

	return max && bytes <= max;
}

/* ---- objects --------------------------------------------------------------------------------- */

int shms_packed_put(struct shmstore *s, const struct shms_keyname *k,
		    const struct shms_segobject *what, bool replace, struct shms_seggrow *io)
{
	uint64_t now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);
	struct shms_pack *pack;
	int r = shms_names_lock(s);

	if (r < 0)
		return r;
	pack = shms_packed_is_file(s, k) ? NULL : make(s);
	if (pack) {
		r = shms_pack_put(pack, what, replace, now_ms, io);
		tend(s, pack, now_ms);
	}
	shms_names_unlock(s);
	if (pack && r == 0) {
		shms_wake(s);
		return 1;
	}
	return r == -EEXIST ? r : 0;
}

int shms_packed_get(struct shmstore *s, const struct shms_keyname *k, struct shms_pack_view *ret)
{
	struct shms_pack *pack = shms_packed_pack(s);

	return pack ? shms_pack_get(pack, k->key, k->key_size, ret) : -ENOENT;
}

bool shms_packed_has(const struct shmstore *s, const struct shms_keyname *k)
{
	struct shms_pack *pack = shms_packed_pack(s);

	return pack && shms_pack_has(pack, k->key, k->key_size);
}

int shms_packed_delete(struct shmstore *s, const struct shms_keyname *k, uint64_t *ret_bytes)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t now_ms, bytes = 0;
	int r;

	if (!pack)
		return -ENOENT;
	now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);
	r = shms_pack_delete(pack, k->key, k->key_size, now_ms, &bytes);
	shms_handle(s)->packed.mem.freed += bytes;
	tend(s, pack, now_ms);
	if (ret_bytes && r == 0)
		*ret_bytes = bytes;
	return r;
}

int shms_packed_adopt(struct shmstore *s, const struct shms_keyname *k,
		      const struct shms_packticket *ticket, const struct shms_pack_sizes *expect,
		      bool replace, uint64_t may)
{
	uint64_t now_ms = shms_lately_boot_ms();
	struct shms_pack *pack;
	int r = shms_names_lock(s);

	if (r < 0)
		return r;
	if (ticket->what.end_ms <= now_ms + 1000) /* Exact where the ticket's end is near. */
		now_ms = shms_now_boot_ms();
	if (shms_packed_is_file(s, k)) {
		r = replace ? -ENOTSUP : -EEXIST;
	} else {
		pack = make(s);
		r = pack ? shms_pack_adopt(pack, ticket, expect, k->key, k->key_size, replace,
					   now_ms, may)
			 : -ENOTSUP;
		if (pack)
			tend(s, pack, now_ms);
	}
	shms_names_unlock(s);
	if (r == 0)
		shms_wake(s);
	/* No place in the segment, or one that a process of this store's name still has. */
	return r == -EAGAIN || r == -EBUSY ? -ENOTSUP : r;
}

int shms_packed_in_the_way(const struct shmstore *s, const struct shms_keyname *k, bool replace)
{
	struct shms_pack *pack = shms_packed_pack(s);

	if (k->instead)
		return pack && shms_pack_is(pack, k->key, k->key_size, k->instead) ? 0 : -EAGAIN;
	return pack && !replace && shms_pack_has(pack, k->key, k->key_size) ? -EEXIST : 0;
}
