/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbslab.c: memory of objects of one size, many in a piece; and the lists of a client's objects.
 *
 * A message looks at a context, its task, accounts and reservations, each last seen thousands of
 * messages ago. As blocks of malloc() they lie all over its heap, and each costs a walk of page
 * tables besides its lines of memory. Here they lie together, four times as many in each piece as
 * in the one before, and the large pieces are huge pages if the kernel has some. Measured with
 * 10,000 contexts (bench_arbiter).
 *
 * Freed objects are used again, last first; pieces go with the slab. Under a sanitizer every object
 * is a block of its own, so that it sees a use after free.
 */
#include <sys/mman.h>

#include "arbcore.h"

#define HUGE_SIZE (UINT64_C(2) << 20)
#define LINE      64u /* of memory */

struct arbslab_piece {
	struct arbslab_piece *next;
};

void arbslab_init(struct arbslab *s, size_t size)
{
	const size_t unit = size < LINE ? sizeof(void *) : LINE;

	*s = (struct arbslab){.size = (size + unit - 1) & ~(unit - 1)};
}

void arbslab_deinit(struct arbslab *s)
{
	struct arbslab_piece *piece;

	while (s->pieces) {
		piece = s->pieces;
		s->pieces = piece->next;
		free(piece);
	}
	arbslab_init(s, s->size);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || \
	__has_feature(thread_sanitizer)
#define BLOCKS 1
#endif
#endif

#ifdef BLOCKS

void *arbslab_get(struct arbslab *s)
{
	return calloc(1, s->size);
}

void arbslab_put(struct arbslab *s, void *object)
{
	(void)s;
	free(object);
}

#else

static int grow(struct arbslab *s)
{
	size_t n = s->n_piece ? s->n_piece * 4 : 1,
	       bytes = LINE + ((n * s->size + LINE - 1) & ~(size_t)(LINE - 1));
	struct arbslab_piece *piece;

	if (bytes >= HUGE_SIZE) {
		bytes = HUGE_SIZE;
		n = (bytes - LINE) / s->size;
		piece = aligned_alloc(HUGE_SIZE, HUGE_SIZE);
	} else {
		piece = aligned_alloc(LINE, bytes);
	}
	if (!piece)
		return -1;
	if (bytes == HUGE_SIZE)
		(void)madvise(piece, HUGE_SIZE, MADV_HUGEPAGE); /* small ones will do */
	piece->next = s->pieces;
	s->pieces = piece;
	s->n_piece = n;
	s->next = (char *)piece + LINE;
	s->end = s->next + n * s->size;
	return 0;
}

void *arbslab_get(struct arbslab *s)
{
	void *object = s->free;

	if (object) {
		s->free = s->free->next;
	} else {
		if (s->next == s->end && grow(s) < 0)
			return NULL;
		object = s->next;
		s->next += s->size;
	}
	return memset(object, 0, s->size);
}

void arbslab_put(struct arbslab *s, void *object)
{
	struct arbslab_free *f = object;

	if (!f)
		return;
	f->next = s->free;
	s->free = f;
}

#endif

/* ---- the lists of clients -------------------------------------------------------------------- */

void arbitem_enter(const struct arb *a, struct arb_item *i, enum arb_sort sort, uint64_t id)
{
	*i = (struct arb_item){.id = id, .group = a->message->group};
	if (!i->group)
		return;
	DL_APPEND(i->group->items[sort], i);
	i->group->n[sort]++;
}

void arb_unwant(struct arb_hold *h)
{
	if (h->wanted)
		DL_DELETE2(h->item.group->wanted, h, wanted_prev, wanted_next);
	h->wanted = false;
}

void arb_leave(struct arb_item *i, enum arb_sort sort)
{
	struct arb_group *g = i->group;
	struct arb_hold *h = sort == ARB_HOLDS ? CONTAINER_OF(i, arb_hold, item) : NULL;

	if (!g)
		return;
	if (h) {
		arb_unwant(h);
		g->called = g->called == h ? NULL : g->called;
		g->cursor = g->cursor == h ? CONTAINER_OF(i->next, arb_hold, item) : g->cursor;
	}
	DL_DELETE(g->items[sort], i);
	g->n[sort]--;
	i->group = NULL;
}
