/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packdemote.c: see demote.h.
 *
 * Where this is needed the partition has no room for a file. So the object's file is laid out in
 * memory that is none of the partition's (memfd), and copied from there to the tier file, as any
 * object is (demote.h). Then, with the names locked, the stub gets the key, and the packed
 * object goes: a kill before that leaves a clean copy of an object that is no file, which is
 * dropped as such; a kill in between leaves both, and the next open keeps the stub. A view of
 * ours keeps the bytes meanwhile.
 *
 * A failure may be one object's, the disk's, or the partition's, which has no page left for a long
 * key's sidecar (demote.c). Nobody tries to tell: a batch of which no object goes is the last one,
 * and the next search begins behind it.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "demote.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "publish.h"
#include "sys.h"

struct moving {
	struct shmstore *s;
	struct shms_pack_view v;
	struct shms_keyname key; /* of the view's bytes */
	struct shms_demote d;
	struct shms_header header;
	bool laid_out;
	int error;
};

struct run {
	struct shmstore *s;
	struct shms_tier *t;
	struct shms_pack *pack;
	struct shms_packsearch search;
	uint64_t bytes, most; /* that are wanted, of so many objects at most */
	struct shms_packdemoted done;
};

/* ---- the object as a file -------------------------------------------------------------------- */

static int write_head(int fd, const struct shms_layout *l, const struct shms_pack_view *v,
		      const uint64_t *sizes, const void *metadata)
{
	_free_ void *head = calloc(1, l->metadata_off);
	struct shms_superblock *sb = head;
	int r;

	if (!head)
		return -ENOMEM;
	shms_format_head(l, shms_pack_view_key(v), sizes, shms_nonce(), head);
	if (shms_segpacked_checksum(&v->object, v->segment->bytes + v->object.extent_off,
				    sb->buffer_hash))
		sb->compat_flags |= SHMS_FORMAT_CHECKSUM;
	sb->header_hash = shms_format_hash(head, l->metadata_off, metadata, l->metadata_size);
	r = shms_write_at(fd, head, l->metadata_off, 0);
	return r == 0 ? shms_write_at(fd, metadata, l->metadata_size, l->metadata_off) : r;
}

/* Between buffers the file has holes, which read as zero. */
static int write_object(int fd, const struct shms_pack_view *v)
{
	const struct shms_segpacked *o = &v->object;
	const uint8_t *extent = v->segment->bytes + o->extent_off;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS], off = 0;
	struct shms_layout l;
	int r = o->n_buffers > SHMS_SEGOWN_BUFFERS ? -EBADMSG
						   : shms_segpacked_sizes(v->segment, o, sizes);

	if (r == 0 && !shms_layout_init(&l, o->key_size, o->metadata_size, sizes, o->n_buffers, 0))
		r = -EBADMSG;
	if (r == 0)
		r = shms_truncate(fd, l.header_size + l.buffer_size);
	if (r == 0)
		r = write_head(fd, &l, v, sizes, extent + o->metadata_off);
	for (uint32_t i = 0; r == 0 && i < o->n_buffers; i++) {
		r = shms_write_at(fd, extent + off, sizes[i], l.header_size + off);
		off = shms_layout_next(off, sizes[i]);
	}
	return r;
}

/* ---- one object ------------------------------------------------------------------------------ */

static int lay_out(struct moving *m)
{
	struct shms_demote *d = &m->d;
	int r;

	d->fd = memfd_create("shmstore-demoted", MFD_CLOEXEC);
	if (d->fd < 0)
		return -errno;
	r = write_object(d->fd, &m->v);
	if (r == 0 && fstat(d->fd, &d->st) < 0)
		r = -errno;
	return r == 0 ? shms_header_read(&m->header, d->fd, &d->st, NULL) : r;
}

/* Begins the copy. Errors here are in m->error, errors of the copy in the job's. */
static void begin(struct moving *m, struct shms_engine *e)
{
	struct shms_demote *d = &m->d;

	shms_demote_init(d);
	m->error = shms_keyname_init(&m->key, shms_pack_view_key(&m->v), m->v.object.key_size);
	m->key.instead = &m->v;
	if (m->error == 0)
		m->error = lay_out(m);
	if (m->error)
		return;
	m->laid_out = true;
	m->error = shms_demote_copy(d, &m->header);
	if (m->error == 0)
		shms_engine_store(e, &d->job);
}

/* The copy has its names; the object has its key still. */
static int name_copy(struct moving *m, const struct shms_demote_name *n)
{
	int r = shms_names_lock(m->s);

	if (r < 0)
		return r;
	r = shms_packed_is_file(m->s, &m->key) ? -EAGAIN
					       : shms_packed_in_the_way(m->s, &m->key, true);
	if (r == 0) {
		r = shms_demote_name_copy(&m->d, n);
		if (r < 0)
			shms_tier_release(m->d.t, n->clean_fd, n->name);
	}
	shms_names_unlock(m->s);
	return r;
}

/* The key means something else by now: the copy is nobody's, unless somebody dropped it already. */
static void drop_copy(struct moving *m, const struct shms_demote_name *n)
{
	struct shms_stub stub;

	if (shms_names_lock(m->s) < 0)
		return; /* gc finds it */
	if (shms_stub_read(n->clean_fd, n->name, &stub, NULL) == 0 && stub.id == m->d.stub.id)
		shms_tier_release(m->d.t, n->clean_fd, n->name);
	shms_names_unlock(m->s);
}

static int exchange(struct moving *m)
{
	const struct shms_demote_name n = {.objects_fd = m->s->objects_fd,
					   .clean_fd = m->s->clean_fd,
					   .name = m->key.name,
					   .s = m->s};
	const struct shms_publish_from from = {
		.dir_fd = n.clean_fd, .name = n.name, .move = true, .other_key = true};
	int r = name_copy(m, &n);

	if (r < 0)
		return r;
	r = shms_publish_named(m->s, &from, &m->key, &m->header.object.layout, false);
	if (r < 0)
		drop_copy(m, &n);
	return r;
}

static void end(struct moving *m)
{
	if (m->error == 0)
		m->error = m->d.job.error;
	if (m->error == 0)
		m->error = exchange(m);
	if (m->laid_out)
		shms_header_deinit(&m->header);
	shms_demote_end(&m->d);
	shms_pack_unget(m->v.pack, &m->v, 0);
}

/* ---- as many as are needed ------------------------------------------------------------------- */

#define BATCH       16u                 /* under way at once */
#define BATCH_BYTES (UINT64_C(8) << 20) /* that are copied for it, unless one object has more */

/* Copies some objects side by side, and then names the copies. False: none of them went,
 * and more would not, either. */
static bool batch(struct run *k, struct shms_engine *e)
{
	struct moving m[BATCH];
	/* The copies are memory, too: one at a time, where a cgroup has none to spare. */
	uint64_t most = shms_ramroom_free(&k->s->p->ram) < BATCH_BYTES ? 1 : BATCH_BYTES;
	uint64_t before = k->done.n, bytes = 0;
	unsigned n = 0;

	while (n < BATCH && bytes < most && k->done.bytes + bytes < k->bytes &&
	       k->done.n + n < k->most) {
		m[n] = (struct moving){.s = k->s, .d.t = k->t};
		if (shms_pack_victim(k->pack, &k->search, &m[n].v) < 0)
			break;
		bytes += m[n].v.object.extent_size;
		begin(&m[n++], e);
	}
	shms_engine_drain(e);
	for (unsigned i = 0; i < n; i++) {
		end(&m[i]);
		k->done.n += m[i].error == 0;
		k->done.bytes += m[i].error == 0 ? m[i].v.object.extent_size : 0;
	}
	return k->done.n > before;
}

struct shms_packdemoted shms_packdemote(struct shmstore *s, struct shms_tier *t, uint64_t bytes,
					uint64_t most)
{
	struct shms_pack *pack = shms_packed_pack(s);
	struct run k = {.s = s, .t = t, .pack = pack, .bytes = bytes, .most = most};
	struct shms_engine *e = pack ? shms_tier_engine(t) : NULL;

	if (!e)
		return k.done;
	k.search = shms_pack_search(pack, shms_now_boot_ms());
	while (k.done.bytes < bytes && k.done.n < most && batch(&k, e))
		continue;
	shms_tier_engine_back(t, e);
	if (k.done.n)
		shms_packedmem_trim(s);
	shms_count(&s->ledger->demoted_n, k.done.n);
	shms_count(&s->ledger->demoted_bytes, k.done.bytes);
	return k.done;
}
