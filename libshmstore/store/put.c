/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c: one object from private memory.
 *
 * Fresh: an unnamed file (O_TMPFILE), one pwritev of everything, one link. write() beats stores
 * through a mapping by 2 to 20 times on new pages, and gives -ENOSPC where a mapping would give
 * SIGBUS. Killed before the link: the kernel frees the file.
 * Recycled: stores through the warm mapping of a pooled file, one rename; see
 * recycle.c for when that is safe.
 * Packed: a small one goes into a segment, where one can be had (packed.h).
 * Draft: the bytes are in a file already (shmstore_alloc()): one page of
 * header, one link; see draft.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "copy.h"
#include "credit.h"
#include "detail.h"
#include "format.h"
#include "nameslock.h"
#include "packed.h"
#include "packgive.h"
#include "parts.h"
#include "publish.h"
#include "recycle.h"
#include "room.h"
#include "sys.h"
#include "view.h"
#include "xxh3.h"

#define SMALL_BUFFERS 16
#define SMALL_HEAD    2048
#define LOOK_FIRST    (1u << 20) /* from this many bytes on a copy costs much more than a look-up */

struct put {
	struct shmstore *s;
	/* beside it: to clear 256 bytes of name for nothing takes longer than all that is here */
	struct shms_keyname *key;
	const void *header;
	size_t header_size;
	const struct iovec *buffers;
	size_t n_buffers;
	const uint64_t *sizes;
	unsigned flags;
	const uint64_t *hash;      /* of the buffers, if that is known */
	uint64_t generation;       /* that the object is to have; 0: a new one */
	struct shms_layout layout; /* of a fresh file */
	int outcome;               /* the arbiter's, for a segment */
	int n_packed_tries;
	struct shms_room room;
};

static const char ZEROS[SHMS_FORMAT_PAGE];

/* XXH3-128 of the buffers as they will lie in the file, gaps being zero. */
static int hash_buffers(const struct put *p, uint64_t ret_hash[2])
{
	XXH3_state_t *state;

	if (p->hash) {
		memcpy(ret_hash, p->hash, 2 * sizeof(*ret_hash));
		return 0;
	}
	state = XXH3_createState();
	if (!state)
		return -ENOMEM;
	XXH3_128bits_reset(state);
	for (size_t i = 0; i < p->n_buffers; i++) {
		uint64_t gap = shms_layout_next(0, p->sizes[i]) - p->sizes[i];

		if (p->sizes[i])
			XXH3_128bits_update(state, p->buffers[i].iov_base, p->sizes[i]);
		if (i + 1 < p->n_buffers && gap)
			XXH3_128bits_update(state, ZEROS, gap);
	}
	shms_xxh3_digest(state, ret_hash);
	XXH3_freeState(state);
	return 0;
}

static int make_head(const struct put *p, const struct shms_layout *l, void *head)
{
	struct shms_superblock *sb = head;
	int r;

	shms_format_head(l, p->key->key, p->sizes, p->generation ? p->generation : shms_nonce(),
			 head);
	if (p->flags & SHMSTORE_CHECKSUM) {
		sb->compat_flags |= SHMS_FORMAT_CHECKSUM;
		r = hash_buffers(p, sb->buffer_hash);
		if (r < 0)
			return r;
	}
	sb->header_hash = shms_format_hash(head, l->metadata_off, p->header, p->header_size);
	return 0;
}

static size_t fill_iov(const struct put *p, const struct shms_layout *l, void *head,
		       struct iovec *iov)
{
	uint64_t room = l->header_size - l->metadata_off - l->metadata_size;
	char *zeros;
	size_t n = 0;

	/* pwritev reads only; its iovec has no const. */
	memcpy(&zeros, &(const char *){ZEROS}, sizeof(zeros));
	iov[n++] = (struct iovec){head, l->metadata_off};
	if (p->header_size) {
		memcpy(&iov[n].iov_base, &p->header, sizeof(p->header));
		iov[n++].iov_len = p->header_size;
	}
	/* A fresh object's room is less than a page. */
	if (room && l->buffer_size)
		iov[n++] = (struct iovec){zeros, room};
	for (size_t i = 0; i < p->n_buffers; i++) {
		uint64_t gap = shms_layout_next(0, p->sizes[i]) - p->sizes[i];

		if (p->sizes[i])
			iov[n++] = p->buffers[i];
		if (i + 1 < p->n_buffers && gap)
			iov[n++] = (struct iovec){zeros, gap};
	}
	return n;
}

static int write_fresh(const struct put *p, const struct shms_layout *l, void *head)
{
	struct iovec small[3 + 2 * SMALL_BUFFERS], *iov = small;
	_free_ struct iovec *large = NULL;
	uint64_t size = l->header_size + l->buffer_size;
	int r;

	if (p->n_buffers > SMALL_BUFFERS) {
		iov = large = malloc((3 + 2 * p->n_buffers) * sizeof(*iov));
		if (!iov)
			return -ENOMEM;
	}
	_fd_ int fd = shms_unnamed_part(p->s->objects_fd, O_RDWR, p->s->file_mode);
	if (fd < 0)
		return -errno;
	r = shms_pwritev_all(fd, iov, fill_iov(p, l, head, iov), 0);
	if (r < 0)
		return r;
	if ((p->flags & SHMSTORE_PIN) && fchmod(fd, p->s->file_mode | S_ISVTX) < 0)
		return -errno;
	/* Without buffers, no write reached the file's end. */
	if (!l->buffer_size && l->metadata_off + l->metadata_size < size)
		r = shms_truncate(fd, size);
	if (r < 0)
		return r;
	return shms_publish_fd(p->s, &fd, p->key, l, (p->flags & SHMSTORE_REPLACE) != 0);
}

static int write_recycled(const struct put *p, struct shms_slot *slot, const struct shms_layout *l,
			  const void *head)
{
	uint64_t size = l->header_size + l->buffer_size, off = l->header_size, end;
	uint64_t used = l->metadata_off + l->metadata_size, page = shms_whole_pages(used);
	char *map = slot->map;
	int r = shms_recycle_fit(p->s, slot, size);

	if (r < 0)
		return r;
	memcpy(map, head, l->metadata_off);
	if (p->header_size)
		memcpy(map + l->metadata_off, p->header, p->header_size);
	/* The former object's whole pages may stay as slack until shms_scrub() clears them. */
	memset(map + used, 0, (page < l->header_size ? page : l->header_size) - used);
	for (size_t i = 0; i < p->n_buffers; i++) {
		end = off + p->sizes[i];
		if (p->sizes[i])
			shms_copy(map + off, p->buffers[i].iov_base, p->sizes[i]);
		off = shms_layout_next(off, p->sizes[i]);
		if (i + 1 < p->n_buffers)
			memset(map + end, 0, off - end);
	}
	r = shms_publish_slot(p->s, slot, p->key, l, (p->flags & SHMSTORE_REPLACE) != 0);
	if (r == -ENOENT)
		shms_recycle_discard(p->s, slot);
	if (r == 0) {
		shms_count(&p->s->ledger->recycled_n, 1);
		shms_count(&p->s->ledger->recycled_bytes, size);
	}
	return r;
}

static int write_booked(struct put *p, void *head)
{
	int r = shms_room_book(&p->room);

	if (r != 0)
		return r;
	r = write_fresh(p, &p->layout, head);
	shms_room_settle(&p->room, r == 0);
	return r;
}

/* A look before the copy: a key that is held, and may not be replaced, costs none. */
static bool held(const struct put *p)
{
	struct shms_keyname k = *p->key;

	if (p->flags & SHMSTORE_REPLACE)
		return false;
	return shms_packed_has(p->s, &k) || (shms_key_find(p->s->objects_fd, &k) == 1 &&
					     shms_lookup(p->s->objects_fd, k.name) == 0);
}

/* The header of a claimed draft; with a checksum, of what is in the file: the buffer
 * may be written to by now. */
static int draft_head(const struct put *p, const struct shms_draft_claim *c, void *head)
{
	const struct shms_layout *l = &p->layout;
	struct iovec buffer = {.iov_len = c->size};
	struct put of_file = *p;
	void *map;
	int r;

	if (!(p->flags & SHMSTORE_CHECKSUM))
		return make_head(p, l, head);
	map = mmap(NULL, l->header_size + l->buffer_size, PROT_READ, MAP_SHARED, c->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	buffer.iov_base = (char *)map + l->header_size;
	of_file.buffers = &buffer;
	r = make_head(&of_file, l, head);
	munmap(map, l->header_size + l->buffer_size);
	return r;
}

static SHMS_ASIDE int name_draft(const struct put *p, struct shms_draft_claim *c)
{
	const struct shms_layout *l = &p->layout;
	_Alignas(8) unsigned char head[SHMS_DRAFT_HEAD] = {0};
	int r = shms_draft_cut(c, l->header_size + l->buffer_size);

	if (r == 0)
		r = draft_head(p, c, head);
	if (r < 0)
		return r;
	if (p->header_size)
		memcpy(head + l->metadata_off, p->header, p->header_size);
	r = shms_write_at(c->fd, head, sizeof(head), 0);
	if (r == 0 && (p->flags & SHMSTORE_PIN) && fchmod(c->fd, p->s->file_mode | S_ISVTX) < 0)
		r = -errno;
	return r < 0 ? r
		     : shms_publish_fd(p->s, &c->fd, p->key, l, (p->flags & SHMSTORE_REPLACE) != 0);
}

/* The one buffer is a draft, whole: it becomes the object. 1: it did; 0: it is none,
 * or a copy will do; -EEXIST. */
static int put_draft(struct put *p)
{
	const struct shms_layout *l = &p->layout;
	struct shms_draft_claim c;
	int r;

	if (p->n_buffers != 1 || l->header_size != SHMS_DRAFT_HEAD ||
	    !shms_draft_is(p->s, p->buffers->iov_base, p->buffers->iov_len))
		return 0;
	shms_keyname_name(p->key);
	if (held(p))
		return -EEXIST;
	if (!shms_draft_claim(p->s, p->buffers->iov_base, p->buffers->iov_len, &c))
		return 0;
	r = name_draft(p, &c);
	shms_draft_end(&c, r == 0);
	return r == 0 ? 1 : r == -EEXIST ? r : 0;
}

static int put_once(void *arg)
{
	struct put *p = arg;
	_Alignas(8) unsigned char small[SMALL_HEAD];
	_free_ unsigned char *large = NULL;
	unsigned char *head = small;
	struct shms_layout l = p->layout;
	struct shms_slot *slot;
	int r;

	if (l.metadata_off > SMALL_HEAD) {
		head = large = malloc(l.metadata_off);
		if (!head)
			return -ENOMEM;
	}
	if (l.buffer_size >= LOOK_FIRST && held(p))
		return -EEXIST;
	slot = shms_recycle_take_for(p->s, p->flags, p->sizes, &l);
	r = make_head(p, &l, head);
	if (slot && r < 0) {
		shms_recycle_untake(p->s, slot);
		return r;
	}
	if (slot) {
		r = write_recycled(p, slot, &l, head);
		if (r != -ENOENT)
			return r;
		/* Somebody removed the pooled file (gc, or by hand): a fresh one will do. */
		r = make_head(p, &p->layout, head);
	}
	return r < 0 ? r : write_booked(p, head);
}

/* Lays the object out as a file. */
static bool lay_out(struct put *p)
{
	struct shms_layout *l = &p->layout;

	if (!shms_layout_init(l, p->key->key_size, p->header_size, p->sizes, p->n_buffers, 0))
		return false;
	p->room = (struct shms_room){.s = p->s,
				     .bytes = l->header_size + l->buffer_size,
				     .flags = p->flags,
				     .take = put_once,
				     .arg = p};
	return true;
}

/* 0: so many bytes are booked; -ENOSPC, …; an outcome of the arbiter's (> 0). */
static int book_bytes(struct shmstore *s, uint64_t bytes, struct shms_room *ret)
{
	int r;

	/* The arbiter has nobody wait for a segment: a file takes less. */
	*ret = (struct shms_room){.s = s, .bytes = bytes, .now = true};
	r = shms_room_book(ret);
	/* The thread's reservation is too small: a file may add to it. */
	if (r == 0 && ret->hold.spent && ret->hold.bytes < bytes) {
		shms_room_settle_part(ret, 0);
		r = -ENOSPC;
	}
	return r;
}

/* Books what the segment wants to grow by: with what is taken ahead if the store's
 * credit has it, else without. */
static int book_growth(struct shmstore *s, const struct shms_seggrow *grow, struct shms_room *ret)
{
	int r = -ENOSPC;

	if (!shms_hooked(s) && shms_credit_has(s, grow->wanted))
		r = book_bytes(s, grow->wanted, ret);
	return r < 0 ? book_bytes(s, grow->least, ret) : r;
}

#define GROWTHS 4 /* a put makes a segment, then slots, then an extent */

static int put_into_segment(struct put *p, const struct shms_segobject *what)
{
	struct shmstore *s = p->s;
	uint64_t unbooked = shms_room_others(&p->room) ? 0 : shms_room_unbooked(s);
	struct shms_seggrow grow = {.may = unbooked ? shms_ramroom_free(&s->p->ram) : 0};
	struct shms_room room;
	int r = shms_packed_put(s, p->key, what, (p->flags & SHMSTORE_REPLACE) != 0, &grow);

	if (unbooked)
		shms_ramroom_took(&s->p->ram, grow.taken);
	for (int i = 0; r == 0 && grow.wanted && i < GROWTHS && !shms_room_others(&p->room); i++) {
		r = book_growth(s, &grow, &room);
		if (r != 0) {
			p->outcome = r > 0 ? r : 0;
			return 0;
		}
		grow.may = room.bytes;
		r = shms_packed_put(s, p->key, what, (p->flags & SHMSTORE_REPLACE) != 0, &grow);
		shms_room_settle_part(&room, grow.taken);
	}
	return r;
}

/* As shms_packed_put(). */
static int put_packed(struct put *p)
{
	uint64_t hash[2];
	struct shms_segobject what = {.key = p->key->key,
				      .key_size = p->key->key_size,
				      .metadata = p->header,
				      .metadata_size = (uint32_t)p->header_size,
				      .buffers = p->buffers,
				      .n_buffers = (uint32_t)p->n_buffers};
	struct shmstore *s = p->s;
	int r;

	if (!shms_packed_fits(s, p->header_size + p->layout.buffer_size))
		return 0;
	if (p->flags & SHMSTORE_PIN)
		what.flags |= SHMS_SEGPACKED_PINNED;
	if (p->flags & SHMSTORE_CHECKSUM) {
		what.flags |= SHMS_SEGPACKED_CHECKSUM;
		what.checksum = (const uint8_t *)hash;
		r = hash_buffers(p, hash);
		if (r < 0)
			return r;
	}
	return put_into_segment(p, &what);
}

#define PACKED_TRIES 8 /* each failed try frees memory again, so the loop needs a bound */

/* One try: packed, else as a file. After others have left memory it may be packed again. */
static int put_anywhere(void *arg)
{
	struct put *p = arg;
	int r = p->n_packed_tries++ < PACKED_TRIES ? put_packed(p) : 0;

	if (r != 0)
		return r < 0 ? r : 0;
	if (p->outcome)
		return p->outcome;
	shms_keyname_name(p->key);
	return put_once(p);
}

/* The file of a pinned object must not come back as another one's, pinned still. */
static void forget_pinned(const struct put *p)
{
	struct shms_keyname k = *p->key;

	if ((p->flags & SHMSTORE_PIN) && k.name[0] && shms_key_find(p->s->objects_fd, &k) == 1)
		shms_recycle_forget(p->s, k.name);
}

#define AS_FILE_TRIES 8

static int as_file(struct shmstore *s, const struct shms_keyname *k, const struct shmstore_view *v)
{
	struct iovec buffers[SHMS_SEGOWN_BUFFERS];
	uint64_t sizes[SHMS_SEGOWN_BUFFERS];
	struct shms_keyname key = *k;
	struct put p = {.s = s,
			.key = &key,
			.header = v->metadata,
			.header_size = v->metadata_size,
			.buffers = buffers,
			.n_buffers = v->n_buffers,
			.sizes = sizes,
			.flags = SHMSTORE_REPLACE,
			.generation = v->generation};
	const struct shms_segpacked *o = &v->packed.object;
	uint64_t hash[2];
	int r;

	/* A damaged object stays damaged: it gets no new checksum. */
	if (shms_segpacked_checksum(o, v->packed.segment->bytes + o->extent_off, hash)) {
		p.flags |= SHMSTORE_CHECKSUM;
		p.hash = hash;
	}
	if (o->flags & SHMS_SEGPACKED_PINNED)
		p.flags |= SHMSTORE_PIN;
	for (size_t i = 0; i < v->n_buffers; i++) {
		buffers[i].iov_base = shmstore_view_buffer(v, i, &sizes[i]);
		buffers[i].iov_len = sizes[i];
	}
	key.instead = &v->packed;
	if (!lay_out(&p))
		return -EBADMSG;
	r = shms_room_take(&p.room);
	if (r == 0)
		forget_pinned(&p);
	return r < 0 ? shms_room_refused(&p.room, r) : r;
}

int shms_put_as_file(struct shmstore *s, const struct shms_keyname *k)
{
	struct shms_pack_view packed;
	struct shmstore_view *v;
	int r = -EAGAIN;

	for (int i = 0; i < AS_FILE_TRIES && r == -EAGAIN; i++) {
		r = shms_packed_get(s, k, &packed);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		r = shms_view_packed(s, &packed, 0, k->key, k->key_size, &v);
		if (r < 0)
			return r;
		r = as_file(s, k, v);
		shmstore_view_unref(v);
	}
	return r == -EAGAIN ? -ETIMEDOUT : r;
}

static int put(struct put *p)
{
	int r;

	if (p->n_buffers && !(p->flags & SHMSTORE_PIN)) {
		r = shms_alias_try(p->s, p->key, p->header, p->header_size, p->buffers,
				   p->n_buffers, p->flags);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (!lay_out(p))
		return shms_detail_shape(p->n_buffers, p->header_size);
	r = put_draft(p);
	if (r == 0) {
		p->room.take = put_anywhere;
		r = shms_room_take(&p->room);
	} else if (r > 0) {
		r = 0;
	}
	if (r < 0)
		return shms_room_refused(&p->room, r);
	if (r > 0)
		return r;
	forget_pinned(p);
	shms_count(&p->s->ledger->put_n, 1);
	shms_count(&p->s->ledger->put_bytes, p->room.bytes);
	return 0;
}

int shmstore_put(struct shmstore *s, const void *key, size_t key_size, const void *header,
		 size_t header_size, const struct iovec *buffers, size_t n_buffers, unsigned flags)
{
	struct shms_keyname k;
	struct put p = {.s = s,
			.key = &k,
			.header = header,
			.header_size = header_size,
			.buffers = buffers,
			.n_buffers = n_buffers,
			.flags = flags};
	uint64_t small[SMALL_BUFFERS], *sizes = small;
	_free_ uint64_t *large = NULL;
	int r;

	if ((flags & ~SHMS_PUT_FLAGS) || (!header && header_size) || (!buffers && n_buffers) ||
	    n_buffers > SHMSTORE_BUFFERS_MAX)
		return flags & ~SHMS_PUT_FLAGS  ? shms_detail_flags(flags, SHMS_PUT_FLAGS)
		       : !header && header_size ? shms_detail_null("header")
		       : !buffers && n_buffers  ? shms_detail_null("buffers")
						: shms_detail_shape(n_buffers, header_size);
	r = shms_keyname_key(&k, key, key_size);
	if (r < 0)
		return r;
	if (n_buffers > SMALL_BUFFERS) {
		sizes = large = malloc(n_buffers * sizeof(*sizes));
		if (!sizes)
			return -ENOMEM;
	}
	for (size_t i = 0; i < n_buffers; i++) {
		if (!buffers[i].iov_base && buffers[i].iov_len)
			return shms_detail(-EINVAL, NULL, "buffer %zu is NULL", i);
		sizes[i] = buffers[i].iov_len;
	}
	p.sizes = sizes;
	shms_credit_tend(s);
	shms_tier_notice(s);
	r = shms_there(s);
	if (r < 0)
		return r;
	shms_packgive(s);
	r = put(&p);
	return r > 0 ? r : shms_error(r);
}
