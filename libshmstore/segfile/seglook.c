/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglook.c: see seglook.h.
 *
 * A copy by read() has no order among its words. So each slot is read twice, and is right if its
 * generation, state and description were the same both times: then they were those all the time in
 * between. Holders and leases change without that; what was read last counts.
 */
#include "seglook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "segfile.h"
#include "sys.h"

#define TRIES     8
/* a segment of 64 MiB, the largest that stores make, has 7 MiB */
#define BOOKS_MAX (UINT64_C(64) << 20)
#define PIECE     (UINT64_C(64) << 10) /* of slots that are compared at a time */
#define ROW_MAX   ((1 + SHMS_SEGMENT_WORDS_MAX + SHMS_SEGSLOT_PACKED_WORDS) * 8)

int shms_seglook_read(const struct shms_seglook *l, uint64_t off, void *ret, uint64_t size)
{
	ssize_t n;

	/* the kernel copies in any order, and a slot is read before and after its bytes */
	shms_segword_look_again();
	n = shms_pread_all(l->fd, ret, size, off);

	return n < 0 ? (int)n : (uint64_t)n < size ? -EBADMSG : 0;
}

/* For segment.fetch. */
static int fetch(const struct shms_segment *g, uint64_t off, void *ret, uint64_t size)
{
	struct shms_seglook *l;
	int r;

	/* A look changes by being read through, though its segment does not. */
	memcpy(&l, &g, sizeof(l));
	r = shms_seglook_read(l, off, ret, size);
	if (r < 0 && r != -EBADMSG)
		l->error = r;
	return r;
}
_Static_assert(offsetof(struct shms_seglook, segment) == 0,
	       "fetch() finds the look by its segment");

/* ---- a copy of the books --------------------------------------------------------------------- */

/* Two copies of a slot. */
static bool same(const uint8_t *a, const uint8_t *b, uint32_t n_words)
{
	size_t packed = (1 + n_words) * sizeof(uint64_t);
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return !((x ^ y) & SHMS_SEGSTATE_WHAT) &&
	       memcmp(a + packed, b + packed, SHMS_SEGSLOT_PACKED_WORDS * sizeof(uint64_t)) == 0;
}

int shms_seglook_again(const struct shms_seglook *l, uint32_t slot)
{
	const struct shms_segment_shape *shape = &l->segment.shape;
	uint64_t size = shms_segslot_size(shape->n_words), off = shape->slots_off + slot * size;
	uint8_t rows[2][ROW_MAX];
	int r = shms_seglook_read(l, off, rows[0], size);

	for (int i = 1; r == 0 && i <= TRIES; i++) {
		r = shms_seglook_read(l, off, rows[i % 2], size);
		if (same(rows[0], rows[1], shape->n_words)) {
			memcpy(l->segment.books + off, rows[i % 2], size);
			break;
		}
		if (i == TRIES)
			memcpy(l->segment.books + off, rows[i % 2], size);
	}
	return r;
}

/* Makes room for the books with n slots, and copies all before them. */
static int copy_head(struct shms_seglook *l, uint64_t n)
{
	const struct shms_segment_shape *shape = &l->segment.shape;
	uint64_t size = shape->slots_off + n * shms_segslot_size(shape->n_words);

	if (size > BOOKS_MAX)
		return -ENOTSUP;
	l->segment.books = malloc(size);
	return l->segment.books ? shms_seglook_read(l, 0, l->segment.books, shape->slots_off)
				: -ENOMEM;
}

/* Compares the copies of n slots from first on with what is there now. */
static int compare(const struct shms_seglook *l, uint32_t first, uint32_t n, uint8_t *now)
{
	const struct shms_segment_shape *shape = &l->segment.shape;
	uint64_t size = shms_segslot_size(shape->n_words), off = shape->slots_off + first * size;
	int r = shms_seglook_read(l, off, now, n * size);

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		if (!same(l->segment.books + off + i * size, now + i * size, shape->n_words))
			r = shms_seglook_again(l, first + i);
	}
	return r;
}

static int copy_all(struct shms_seglook *l)
{
	const struct shms_segment_shape *shape = &l->segment.shape;
	uint32_t at_once = (uint32_t)(PIECE / shms_segslot_size(shape->n_words)), n = 0;
	uint8_t *books, *now;
	uint64_t size;
	int r = copy_head(l, 0);

	if (r == 0) {
		n = shms_segment_born(&l->segment);
		r = shms_segfile_check_memory(l->fd, &l->segment, n);
	}
	size = n * shms_segslot_size(shape->n_words);
	if (r == 0 && shape->slots_off + size > BOOKS_MAX)
		r = -ENOTSUP;
	if (r < 0 || n == 0)
		return r;
	books = realloc(l->segment.books, shape->slots_off + size);
	if (!books)
		return -ENOMEM;
	l->segment.books = books;
	now = malloc(PIECE);
	if (!now)
		return -ENOMEM;
	r = shms_seglook_read(l, shape->slots_off, books + shape->slots_off, size);
	for (uint32_t i = 0; r == 0 && i < n; i += at_once)
		r = compare(l, i, n - i < at_once ? n - i : at_once, now);
	free(now);
	return r;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Opens and checks; maps and copies nothing. */
static int open_file(int dirfd, const char *name, bool write, struct shms_seglook *ret)
{
	_fd_ int fd = shms_open_file(dirfd, name, write ? O_RDWR : O_RDONLY);
	struct shms_seglook l = {.fd = -1};
	char right_name[SHMS_SEGFILE_NAME];
	struct stat st, dir;
	int r;

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	r = shms_segfile_check(fd, &l.segment, &st);
	if (r < 0)
		return r;
	/* A link that a user made to another's segment says nothing here, and
	 * root changes nothing in it. */
	if (st.st_uid != geteuid() && (write || fstat(dirfd, &dir) < 0 || dir.st_uid != st.st_uid))
		return -EPERM;
	shms_segfile_name(l.segment.uuid, right_name);
	if (strcmp(name, right_name) != 0)
		return -EBADMSG;
	l.n_blocks = shms_blocks(&st);
	l.inode = st.st_ino;
	l.uid = st.st_uid;
	l.fd = shms_take_fd(&fd);
	*ret = l;
	return 0;
}

static int copy_one(struct shms_seglook *l, uint32_t slot)
{
	int r = slot < l->segment.shape.n_slots ? copy_head(l, slot + UINT64_C(1)) : -EBADMSG;

	if (r == 0 && slot >= shms_segment_born(&l->segment))
		r = -EBADMSG;
	return r < 0 ? r : shms_seglook_again(l, slot);
}

/* slot: NULL: all of them. */
static int open_look(int dirfd, const char *name, bool write, const uint32_t *slot,
		     struct shms_seglook *ret)
{
	struct shms_seglook l;
	int r = open_file(dirfd, name, write, &l);

	if (r < 0)
		return r;
	if (write) {
		r = shms_segfile_map(l.fd, &l.segment);
		l.mapped = l.segment.books ? l.segment.shape.data_off : 0;
	} else {
		l.segment.fetch = fetch;
		r = slot ? copy_one(&l, *slot) : copy_all(&l);
	}
	if (r < 0)
		shms_seglook_close(&l);
	else
		*ret = l;
	return r;
}

int shms_seglook_open(int dirfd, const char *name, bool write, struct shms_seglook *ret)
{
	return open_look(dirfd, name, write, NULL, ret);
}

int shms_seglook_open_slot(int dirfd, const char *name, uint32_t slot, struct shms_seglook *ret)
{
	return open_look(dirfd, name, false, &slot, ret);
}

void shms_seglook_close(struct shms_seglook *l)
{
	if (l->mapped)
		munmap(l->segment.books, l->mapped);
	else
		free(l->segment.books);
	l->segment.books = NULL;
	l->mapped = 0;
	l->fd = shms_close_fd(l->fd);
}

bool shms_seglook_has(const struct shms_seglook *l, uint32_t slot, uint32_t generation)
{
	uint64_t state;

	if (shms_seglook_again(l, slot) < 0)
		return false;
	state = shms_segword_load(shms_segslot_at(&l->segment, slot).state);
	return shms_segstate_published(state) && shms_segstate_generation(state) == generation;
}

int shms_seglook_key(const struct shms_seglook *l, const struct shms_segpacked *o, void *ret)
{
	if (o->key_size > SHMS_SEGPACKED_KEY)
		return shms_seglook_read(l, o->extent_off + o->key_off, ret, o->key_size);
	memcpy(ret, o->key, o->key_size);
	return 0;
}

/*
 * ---- one pass over the copies of the slots. Of an object with a table, the number of buffers is
 * read from its extent; the slot is copied again then, and all is repeated where its generation has
 * changed.
 */

struct seen {
	uint64_t state;
	bool view;
	bool ours; /* the store that was asked for has it by name */
	uint32_t n_names;
	int error;
	uint64_t bytes;
	struct shms_segpacked object;
};

static struct seen look(const struct shms_seglook *l, uint32_t i, unsigned ours)
{
	const struct shms_segment *g = &l->segment;
	struct shms_segslot slot = shms_segslot_at(g, i);
	struct seen seen = {0};

	for (int tries = 0; tries < TRIES; tries++) {
		seen = (struct seen){.state = shms_segword_load(slot.state)};
		for (uint32_t w = 0; w < slot.n_words; w++) {
			uint64_t bits = shms_segword_load(&slot.holders[w]);

			seen.n_names +=
				(uint32_t)__builtin_popcountll(bits & UINT64_C(0x5555555555555555));
			seen.view = seen.view || (bits & UINT64_C(0xaaaaaaaaaaaaaaaa));
		}
		seen.ours = ours < shms_segment_holders(g) && shms_segslot_named(&slot, ours);
		seen.error = shms_segpacked_read(g, &slot, &seen.object);
		if (seen.error == 0)
			seen.bytes = shms_segsurvey_bytes(&seen.object);
		if ((seen.error == 0 && !(seen.object.flags & SHMS_SEGPACKED_TABLE)) ||
		    shms_seglook_again(l, i) < 0 ||
		    (shms_segword_load(slot.state) & SHMS_SEGSTATE_WHAT) ==
			    (seen.state & SHMS_SEGSTATE_WHAT))
			break;
	}
	return seen;
}

static bool is_ghost(const struct seen *seen, bool promised)
{
	return shms_segstate_published(seen->state) && seen->error == 0 && seen->view &&
	       !seen->n_names && !promised;
}

/* Its bytes are known, too. */
static bool is_inflight(const struct seen *seen)
{
	return shms_segstate_of(seen->state) == SHMS_SEG_WRITING && seen->error == 0;
}

/* Adds the pages that an object has bytes of, each once: extents come in
 * the order of their slots. */
static void add_pages(const struct seen *seen, uint64_t *io_end, uint64_t *io_bytes)
{
	uint64_t from = seen->object.extent_off & ~(shms_host_page() - 1);
	uint64_t end = shms_whole_pages(seen->object.extent_off + seen->bytes);

	from = from > *io_end ? from : *io_end;
	if (end > from) {
		*io_bytes += end - from;
		*io_end = end;
	}
}

static void add_named(const struct seen *seen, bool promised, struct shms_segsurvey *s)
{
	s->n_named++;
	s->named_bytes += seen->bytes;
	s->shared += (seen->bytes << SHMS_SHARE_SHIFT) / seen->n_names;
	s->own_bytes += seen->n_names == 1 && !promised ? seen->bytes : 0;
}

void shms_segsurvey(const struct shms_seglook *l, const uint8_t store[16], uint64_t now_ms,
		    struct shms_segsurvey *ret)
{
	const struct shms_segment *g = &l->segment;
	uint32_t n = shms_segment_born(g), now = shms_segnow_of_ms(now_ms);
	unsigned ours = shms_segment_place(g, store);
	struct shms_segsurvey s = {.is_owner = ours == SHMS_SEG_OWNER};
	uint64_t used = 0, pages = 0, pages_end = 0, over;

	for (uint32_t i = 0; i < n; i++) {
		struct seen seen = look(l, i, ours);
		bool promised = shms_segstate_promised(seen.state, now);

		s.n_leases +=
			promised ? (uint32_t)__builtin_popcount(shms_segstate_leases(seen.state))
				 : 0;
		if (shms_segstate_of(seen.state) == SHMS_SEG_WRITING) {
			/* its description is the one before: its extent is none of the others' */
			s.n_inflight++;
		} else if (shms_segstate_published(seen.state) && seen.error < 0) {
			s.n_bad++;
		} else if (shms_segstate_published(seen.state) && (seen.n_names || promised)) {
			s.n_linked++;
			s.linked_bytes += seen.bytes;
			if (seen.ours)
				add_named(&seen, promised, &s);
		} else if (is_ghost(&seen, promised)) {
			s.n_ghosts++;
			s.ghosts_bytes += seen.bytes;
		}
		if (is_inflight(&seen))
			s.inflight_bytes += seen.bytes;
		if (s.linked_bytes + s.ghosts_bytes + s.inflight_bytes > used)
			add_pages(&seen, &pages_end, &pages);
		used = s.linked_bytes + s.ghosts_bytes + s.inflight_bytes;
	}
	/* A put takes its slot first and memory then: it may have less than the slot says. */
	over = used > l->n_blocks ? used - l->n_blocks : 0;
	s.inflight_bytes -= over < s.inflight_bytes ? over : s.inflight_bytes;
	s.pool_bytes = l->n_blocks > used ? l->n_blocks - used : 0;
	s.stranded_bytes = pages > used ? pages - used : 0;
	if (s.stranded_bytes > s.pool_bytes)
		s.stranded_bytes = s.pool_bytes;
	*ret = s;
}

int shms_segsurvey_unnamed(const struct shms_seglook *l, uint64_t now_ms,
			   int (*fn)(const struct shms_segunnamed *o, void *arg), void *arg)
{
	uint32_t n = shms_segment_born(&l->segment), now = shms_segnow_of_ms(now_ms);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		struct seen seen = look(l, i, SHMS_SEGMENT_NO_PLACE);
		const struct shms_segunnamed o = {.slot = i,
						  .generation =
							  shms_segstate_generation(seen.state),
						  .inflight = is_inflight(&seen),
						  .bytes = seen.bytes,
						  .object = &seen.object};

		if (o.inflight || is_ghost(&seen, shms_segstate_promised(seen.state, now)))
			r = fn(&o, arg);
	}
	return r;
}
