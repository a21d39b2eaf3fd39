/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packdemote.c: see packdemote.h.
 *
 * Where this is needed the partition has no room for a file. So the object's file is laid out in memory that is none of the partition's
 * (memfd), and copied from there to the tier file, as any object is (demote.h). Then, with the names locked, the stub gets the key, and the
 * packed object goes: a kill before that leaves a clean copy of an object that is no file, which is dropped as such; a kill in between
 * leaves both, and the next open keeps the stub. A view of ours keeps the bytes meanwhile.
 */
#include "packdemote.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cleanup.h"
#include "demote.h"
#include "detail.h"
#include "handle.h"
#include "nameslock.h"
#include "object.h"
#include "publish.h"
#include "sys.h"
#include "transient.h"

struct moving {
	struct shmstore *s;
	const struct shms_pack_view *v;
	struct shms_keyname key;
	struct shms_demote d;
	struct shms_header header;
};

/* ---- the object as a file -------------------------------------------------------------------------------------------- */

static int write_part(int fd, const void *bytes, uint64_t size, uint64_t off)
{
	struct iovec iov = {.iov_len = size};

	memcpy(&iov.iov_base, &bytes, sizeof(bytes)); /* only read */
	return size ? shms_pwritev_all(fd, &iov, 1, off) : 0;
}

static int write_head(int fd, const struct shms_layout *l, const struct shms_pack_view *v, const uint64_t *sizes,
		      const void *metadata)
{
	_free_ void *head = calloc(1, l->metadata_off);
	struct shms_superblock *sb = head;
	int r;

	if (!head)
		return -ENOMEM;
	shms_format_head(l, shms_pack_view_key(v), sizes, shms_nonce(), head);
	sb->header_hash = shms_format_hash(head, l->metadata_off, metadata, l->metadata_size);
	r = write_part(fd, head, l->metadata_off, 0);
	return r == 0 ? write_part(fd, metadata, l->metadata_size, l->metadata_off) : r;
}

/* Between buffers the file has holes, which read as zero. */
static int write_object(int fd, const struct shms_pack_view *v)
{
	const struct shms_segpacked *o = &v->object;
	const uint8_t *extent = v->segment->bytes + o->extent_off;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS], off = 0;
	struct shms_layout l;
	int r = o->n_buffers > SHMS_SEGOWN_BUFFERS ? -EBADMSG : shms_segpacked_sizes(v->segment, o, sizes);

	if (r == 0 && !shms_layout_init(&l, o->key_size, o->metadata_size, sizes, o->n_buffers, 0))
		r = -EBADMSG;
	if (r == 0 && ftruncate(fd, (off_t)(l.header_size + l.buffer_size)) < 0)
		r = -errno;
	if (r == 0)
		r = write_head(fd, &l, v, sizes, extent + o->metadata_off);
	for (uint32_t i = 0; r == 0 && i < o->n_buffers; i++) {
		r = write_part(fd, extent + off, sizes[i], l.header_size + off);
		off = shms_layout_next(off, sizes[i]);
	}
	return r;
}

/* ---- one object ------------------------------------------------------------------------------------------------------ */

static int lay_out(struct moving *m)
{
	struct shms_demote *d = &m->d;
	int r;

	d->fd = memfd_create("shmstore-demoted", MFD_CLOEXEC);
	if (d->fd < 0)
		return -errno;
	r = write_object(d->fd, m->v);
	if (r == 0 && fstat(d->fd, &d->st) < 0)
		r = -errno;
	return r == 0 ? shms_header_read(&m->header, d->fd, &d->st, NULL) : r;
}

/* The drain is what waits for it. */
static void nothing(struct shms_job *job)
{
	(void)job;
}

static int copy(struct moving *m, struct shms_engine *e)
{
	struct shms_demote *d = &m->d;
	int r;

	d->job.done = nothing;
	r = shms_demote_copy(d, &m->header);
	if (r < 0)
		return r;
	shms_engine_store(e, &d->job);
	shms_engine_drain(e);
	return d->job.error;
}

/* The copy has its names; the object has its key still. */
static int name_copy(struct moving *m, const struct shms_demote_name *n)
{
	int r = shms_names_lock(m->s);

	if (r < 0)
		return r;
	r = shms_packed_is_file(m->s, &m->key) ? -EAGAIN : shms_packed_in_the_way(m->s, &m->key, true);
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
	const struct shms_demote_name n = {
		.objects_fd = m->s->objects_fd, .clean_fd = m->s->clean_fd, .name = m->key.name, .s = m->s};
	const struct shms_publish_from from = {.dir_fd = n.clean_fd, .name = n.name, .move = true, .other_key = true};
	int r = name_copy(m, &n);

	if (r < 0)
		return r;
	r = shms_publish_named(m->s, &from, &m->key, &m->header.object.layout, false);
	if (r < 0)
		drop_copy(m, &n);
	return r;
}

static int move(struct shmstore *s, struct shms_tier *t, struct shms_engine *e, const struct shms_pack_view *v)
{
	struct moving m = {.s = s, .v = v, .d.t = t};
	int r = shms_keyname_init(&m.key, shms_pack_view_key(v), v->object.key_size);

	shms_demote_init(&m.d);
	m.key.instead = v;
	if (r == 0)
		r = lay_out(&m);
	if (r == 0) {
		r = copy(&m, e);
		if (r == 0)
			r = exchange(&m);
		shms_header_deinit(&m.header);
	}
	shms_demote_end(&m.d);
	return r;
}

/* ---- as many as are needed ------------------------------------------------------------------------------------------- */

/* What is wrong with one object only, which then stays. */
static bool goes_on(int error)
{
	return error == -EAGAIN || error == -EEXIST || error == -ENOENT || error == -EBADMSG ||
	       /* It is the partition that lacks a page, for a long key's sidecar (demote.c). */
	       (error == -ENOSPC && !shmstore_error_path()[0]);
}

struct shms_packdemoted shms_packdemote(struct shmstore *s, struct shms_tier *t, uint64_t bytes)
{
	struct shms_pack *pack = shms_packed_pack(&s->packed);
	struct shms_packdemoted done = {0};
	struct shms_packcursor at = {0};
	struct shms_engine *e = pack ? shms_tier_engine(t) : NULL;
	struct shms_pack_view v;
	int r = 0;

	while (e && (r == 0 || goes_on(r)) && done.bytes < bytes && shms_pack_victim(pack, &at, &v) == 0) {
		r = move(s, t, e, &v);
		shms_packed_unget(s, &v);
		if (r == 0) {
			done.n++;
			done.bytes += v.object.extent_size;
		}
	}
	if (e)
		shms_tier_engine_back(t, e);
	if (done.n)
		shms_packedmem_trim(s);
	shms_count(&s->ledger->demoted_n, done.n);
	shms_count(&s->ledger->demoted_bytes, done.bytes);
	return done;
}
