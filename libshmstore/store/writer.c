/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c: create, seal, abort: the producer writes straight into shared memory.
 *
 * The file is unnamed until it is sealed: abort, or death at any point, leaves nothing. Its memory
 * is taken by fallocate before the mapping is handed out, so that a full partition is an error code
 * here and never SIGBUS there. Sealing unmaps: the library keeps no writable mapping, and the file
 * was 0400 from birth. A writer belongs to one thread at a time.
 *
 * A file of the pool (recycle.h), where one fits, has its memory already, and is mapped; sealing
 * moves that mapping away from the producer (slots.c). Killed before that: the file stands in
 * recycle/, as after a kill within a put. It counts as pool, not as in flight. If somebody removed
 * it from there it can have no name again, and sealing puts a copy.
 *
 * A small object that may be packed is written to private memory, of which sealing puts a copy:
 * that takes less than the file, and a slot that is being written would be its owner's alone
 * for as long as the producer likes. Where the arbiter grants the memory it is a file, since a
 * seal neither waits nor splits.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "format.h"
#include "handle.h"
#include "nameslock.h"
#include "packgive.h"
#include "parts.h"
#include "publish.h"
#include "recycle.h"
#include "room.h"
#include "sys.h"
#include "tierformat.h"

#define PRIVATE_MAX  (64u << 10)
#define CREATE_FLAGS (SHMS_PUT_FLAGS | SHMSTORE_UNCLEARED)

struct shmstore_writer {
	struct shmstore *s; /* a reference to its memory only */
	pid_t pid;          /* a child did not inherit the mapping */
	int fd;
	unsigned flags;
	char *map;
	uint64_t map_size;
	struct shms_room room;
	struct shms_hold hold;  /* till it is sealed */
	struct shms_slot *slot; /* taken; NULL: the file is new, or none */
	bool is_private;        /* map is no file's, and takes nothing of the partition */
	bool booked;            /* in the ledger, as reserved */
	bool abandoned;         /* its memory went back to the kernel */
	uint64_t fresh;         /* bytes that go back to the kernel if it is not sealed */
	struct shms_layout layout;
	uint64_t *sizes;   /* n_buffers; offsets behind them in one allocation */
	uint64_t *offsets; /* n_buffers */
	unsigned char key[];
};

/* ---- private memory for small objects -------------------------------------------------------- */

/*
 * A small object that is to be packed is made in private memory. Memory that is mapped anew
 * costs a fault for each page, and that of 64 KiB so 30 us: as much as the file that packing
 * saves. So one map is kept for the next. The program that was given the address must not write
 * there after the seal, so a kept map is closed meanwhile: 3 us and back. Any thread takes and
 * gives: by one exchange each.
 */
#define SMALL_SIZE ((size_t)96 << 10)

/* SMALL_SIZE bytes that no child inherits, with anything in them that was written to
 * such before. NULL: no memory. */
static void *take_small(struct shmstore *s)
{
	/* acquire: of the release in give_small(), so that what its thread did there is done. */
	void *map =
		atomic_exchange_explicit(&shms_handle(s)->small_map, NULL, memory_order_acquire);

	if (map && mprotect(map, SMALL_SIZE, PROT_READ | PROT_WRITE) == 0)
		return map;
	if (map)
		munmap(map, SMALL_SIZE);
	map = shms_map_ours(SMALL_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	return map == MAP_FAILED ? NULL : map;
}

/* Nobody can read or write there any more. */
static void give_small(struct shmstore *s, void *map)
{
	void *none = NULL;

	/* release: pairs with take_small(). */
	if (mprotect(map, SMALL_SIZE, PROT_NONE) < 0 ||
	    !atomic_compare_exchange_strong_explicit(&shms_handle(s)->small_map, &none, map,
						     memory_order_release, memory_order_relaxed))
		munmap(map, SMALL_SIZE);
}

void shms_writer_deinit(struct shmstore *s)
{
	void *map =
		atomic_exchange_explicit(&shms_handle(s)->small_map, NULL, memory_order_acquire);

	if (map)
		munmap(map, SMALL_SIZE);
}

/* ---- writers --------------------------------------------------------------------------------- */

/* Is the handle that made the writer still open, in this process? Else there is
 * no ledger and no directory. */
static bool handle_open(const struct shmstore_writer *w)
{
	return shms_store_usable(w->s, true) == 0;
}

/* In the process that made the writer. */
static void unmap(struct shmstore_writer *w)
{
	if (w->map && w->is_private && handle_open(w))
		give_small(w->s, w->map);
	else if (w->map)
		munmap(w->map, w->map_size);
	w->map = NULL;
}

static void writer_free(struct shmstore_writer *w)
{
	/* After seal() both are gone. A child's were unmapped and closed at its fork; the address
	 * and the number may be something else by now. */
	if ((w->map || w->fd >= 0) && w->pid == getpid()) {
		unmap(w);
		shms_close_fd(w->fd);
	}
	if (w->slot && handle_open(w))
		shms_recycle_untake(w->s, w->slot);
	if (w->booked && handle_open(w)) {
		shms_credit_gave(w->s, w->fresh);
		shms_reserved(w->s, w->map_size, false);
		shms_hold_end(w->s, &w->hold, !w->abandoned);
		if (w->abandoned)
			shms_hold_freed(w->s);
	}
	shms_store_unref(w->s);
	free(w->sizes);
	free(w);
}

static int map_file(struct shmstore *s, uint64_t size, int *ret_fd, char **ret_map)
{
	void *map;
	int r;
	_fd_ int fd = shms_unnamed_part(s->objects_fd, O_RDWR, s->file_mode);

	if (fd < 0)
		return -errno;
	r = shms_allocate(fd, size);
	if (r < 0)
		return r;
	map = shms_map_ours(size, MAP_SHARED, fd);
	if (map == MAP_FAILED)
		return -errno;
	shms_transient_hold(fd);
	*ret_fd = shms_take_fd(&fd);
	*ret_map = map;
	return 0;
}

static int map_booked(void *arg)
{
	struct shmstore_writer *w = arg;
	struct shms_room *m = &w->room;
	int r = shms_room_book(m);

	if (r != 0)
		return r;
	r = map_file(w->s, w->map_size, &w->fd, &w->map);
	if (r == 0)
		w->fresh = m->charge.bytes;
	/* An attempt's need counts whole: it stays reserved until the object is sealed. */
	if (r == 0 && !m->hold.spent) {
		w->hold = m->hold;
		m->hold.bytes = 0;
	}
	shms_room_settle(m, r == 0);
	return r;
}

static void lay_out(struct shmstore_writer *w, const struct shms_layout *l)
{
	uint64_t off = l->header_size;

	w->layout = *l;
	w->map_size = l->header_size + l->buffer_size;
	for (size_t i = 0; i < l->n_buffers; i++) {
		w->offsets[i] = off;
		off = shms_layout_next(off, w->sizes[i]);
	}
}

static int new_writer(struct shmstore *s, const struct shms_keyname *k, const struct shms_layout *l,
		      const uint64_t *sizes, struct shmstore_writer **ret)
{
	struct shmstore_writer *w = calloc(1, sizeof(*w) + k->key_size + 1);

	if (!w)
		return -ENOMEM;
	w->sizes = calloc(2 * (size_t)l->n_buffers + 1, sizeof(*w->sizes));
	if (!w->sizes) {
		free(w);
		return -ENOMEM;
	}
	w->offsets = w->sizes + l->n_buffers;
	if (l->n_buffers)
		memcpy(w->sizes, sizes, l->n_buffers * sizeof(*sizes));
	lay_out(w, l);
	w->fd = -1;
	w->pid = getpid();
	if (k->key_size)
		memcpy(w->key, k->key, k->key_size);
	w->s = s;
	shms_store_ref(s);
	*ret = w;
	return 0;
}

/* Clears the last object's bytes, but no whole pages of slack (recycle.h) or uncleared buffers. */
static void clear(struct shmstore_writer *w)
{
	const struct shms_layout *l = &w->layout;
	uint64_t used = shms_whole_pages(l->metadata_off + l->metadata_size), end;

	memset(w->map, 0, used < l->header_size ? used : l->header_size);
	if (!(w->flags & SHMSTORE_UNCLEARED)) {
		memset(w->map + l->header_size, 0, l->buffer_size);
		return;
	}
	for (size_t i = 0; i + 1 < l->n_buffers; i++) {
		end = w->offsets[i] + w->sizes[i];
		memset(w->map + end, 0, w->offsets[i + 1] - end);
	}
}

/* Takes a file of the pool. 1: done; 0: there is none that fits; -errno. */
static int take_recycled(struct shmstore_writer *w)
{
	struct shms_layout l = w->layout;
	struct shms_slot *slot = shms_recycle_take_for(w->s, w->flags, w->sizes, &l);
	int r;

	if (!slot)
		return 0;
	r = shms_recycle_fit(w->s, slot, l.header_size + l.buffer_size);
	if (r < 0)
		return r;
	lay_out(w, &l);
	w->slot = slot;
	w->map = slot->map;
	slot->map = NULL;
	w->map_size = slot->capacity;
	clear(w);
	return 1;
}

/* Takes the writer's memory. */
static int take(struct shmstore_writer *w)
{
	int r = take_recycled(w);

	if (r != 0)
		return r < 0 ? r : 0;
	shms_reserved(w->s, w->map_size, true);
	w->booked = true;
	w->room = (struct shms_room){.s = w->s,
				     .bytes = w->map_size,
				     .flags = w->flags,
				     .credit = SHMS_CREDIT_RESERVED,
				     .take = map_booked,
				     .arg = w};
	r = shms_room_take(&w->room);
	if (r != 0)
		(void)shms_room_refused(&w->room, r);
	return r;
}

static bool may_be_packed(const struct shmstore *s, const struct shms_keyname *k,
			  const struct shms_layout *l)
{
	uint64_t bytes = l->metadata_size + l->buffer_size;

	return bytes <= PRIVATE_MAX && l->header_size + l->buffer_size <= SMALL_SIZE &&
	       shms_packed_fits(s, bytes) && k->key_size && l->n_buffers <= SHMS_SEGOWN_BUFFERS &&
	       !shms_hooked(s);
}

static int take_private(struct shmstore_writer *w)
{
	w->is_private = true;
	w->map = take_small(w->s);
	if (!w->map)
		return -ENOMEM;
	w->map_size = SMALL_SIZE;
	clear(w);
	return 0;
}

int shmstore_create(struct shmstore *s, const void *key, size_t key_size, size_t header_size,
		    const uint64_t *buffer_sizes, size_t n_buffers, unsigned flags,
		    struct shmstore_writer **ret)
{
	struct shmstore_writer *w;
	struct shms_keyname k;
	struct shms_layout l;
	int r;

	if (!ret || (flags & ~CREATE_FLAGS) || (!buffer_sizes && n_buffers))
		return !ret                    ? shms_detail_null("ret")
		       : flags & ~CREATE_FLAGS ? shms_detail_flags(flags, CREATE_FLAGS)
					       : shms_detail_null("buffer_sizes");
	r = shms_keyname_init(&k, key, key_size);
	if (r < 0)
		return r;
	if (!shms_layout_init(&l, key_size, header_size, buffer_sizes, n_buffers, 0))
		return shms_detail_shape(n_buffers, header_size);
	r = new_writer(s, &k, &l, buffer_sizes, &w);
	if (r < 0)
		return r;
	w->flags = flags;
	shms_credit_tend(s);
	shms_tier_notice(s);
	r = shms_there(s);
	shms_packgive(s);
	if (r == 0)
		r = may_be_packed(s, &k, &l) ? take_private(w) : take(w);
	if (r != 0) {
		w->abandoned = true;
		writer_free(w);
		return r > 0 ? r : shms_error(r);
	}
	*ret = w;
	return 0;
}

void *shmstore_writer_header(struct shmstore_writer *w, size_t *ret_size)
{
	if (ret_size)
		*ret_size = w->layout.metadata_size;
	return w->map + w->layout.metadata_off;
}

void *shmstore_writer_buffer(struct shmstore_writer *w, size_t i, uint64_t *ret_size)
{
	if (i >= w->layout.n_buffers)
		return NULL;
	if (ret_size)
		*ret_size = w->sizes[i];
	return w->map + w->offsets[i];
}

/* The header, in front of what the producer wrote. */
static void write_head(struct shmstore_writer *w)
{
	struct shms_superblock *sb = (struct shms_superblock *)(void *)w->map;
	const struct shms_layout *l = &w->layout;

	shms_format_head(l, w->key, w->sizes, shms_nonce(), w->map);
	if (w->flags & SHMSTORE_CHECKSUM) {
		sb->compat_flags |= SHMS_FORMAT_CHECKSUM;
		shms_tier_hash(w->map + l->header_size, l->buffer_size, sb->buffer_hash);
	}
	sb->header_hash = shms_format_hash(w->map, l->metadata_off, w->map + l->metadata_off,
					   l->metadata_size);
}

static void count_put(const struct shmstore_writer *w)
{
	shms_count(&w->s->ledger->put_n, 1);
	shms_count(&w->s->ledger->put_bytes, w->layout.header_size + w->layout.buffer_size);
}

static int seal_fresh(struct shmstore_writer *w, struct shms_keyname *k)
{
	int r;

	unmap(w);
	if ((w->flags & SHMSTORE_PIN) && fchmod(w->fd, w->s->file_mode | S_ISVTX) < 0)
		return -errno;
	r = shms_publish_fd(w->s, &w->fd, k, &w->layout, (w->flags & SHMSTORE_REPLACE) != 0);
	if (r < 0)
		return r;
	w->fresh = 0;
	if ((w->flags & SHMSTORE_PIN) && shms_key_find(w->s->objects_fd, k) == 1)
		shms_recycle_forget(w->s, k->name);
	count_put(w);
	return 0;
}

/* Puts what was written, at map, by a copy. */
static int put_copy(const struct shmstore_writer *w, char *map)
{
	_free_ struct iovec *buffers = calloc((size_t)w->layout.n_buffers + 1, sizeof(*buffers));
	int r;

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < w->layout.n_buffers; i++)
		buffers[i] = (struct iovec){map + w->offsets[i], w->sizes[i]};
	r = shmstore_put(w->s, w->key, w->layout.key_size, map + w->layout.metadata_off,
			 w->layout.metadata_size, buffers, w->layout.n_buffers,
			 w->flags & SHMS_PUT_FLAGS);
	/* the thread came to be the arbiter's after the writer was made */
	return r > 0 ? -ENOSPC : r;
}

static int seal_recycled(struct shmstore_writer *w, const struct shms_keyname *k)
{
	struct shms_ledger *ledger = w->s->ledger;
	struct shms_slot *slot = w->slot;
	int r = shms_slotmap_return(slot, w->map);

	if (r < 0)
		return r;
	w->map = NULL;
	w->slot = NULL;
	r = shms_publish_slot(w->s, slot, k, &w->layout, (w->flags & SHMSTORE_REPLACE) != 0);
	if (r == -ENOENT) {
		r = put_copy(w, slot->map);
		shms_recycle_discard(w->s, slot);
		return r;
	}
	if (r < 0)
		return r;
	shms_count(&ledger->recycled_n, 1);
	shms_count(&ledger->recycled_bytes, w->layout.header_size + w->layout.buffer_size);
	count_put(w);
	return 0;
}

static int seal(struct shmstore_writer *w)
{
	struct shms_keyname k;
	int r = shms_keyname_init(&k, w->key, w->layout.key_size);

	if (r < 0)
		return r;
	write_head(w);
	return w->slot ? seal_recycled(w, &k) : seal_fresh(w, &k);
}

int shmstore_seal(struct shmstore_writer *w)
{
	int r;

	if (!w)
		return shms_detail_null("w");
	r = handle_open(w) ? w->is_private ? put_copy(w, w->map) : seal(w)
			   : shms_detail(-EPERM, NULL,
					 "the writer's store was closed, or is the process's that "
					 "this one was forked from");
	if (r == -EEXIST)
		(void)shms_detail(r, NULL, "the key is held: %s has an object of it already",
				  w->s->path);
	w->abandoned = r < 0;
	writer_free(w);
	return shms_error(r);
}

void shmstore_abort(struct shmstore_writer *w)
{
	SHMS_NO_CANCEL;

	if (!w)
		return;
	w->abandoned = true;
	writer_free(w);
}
