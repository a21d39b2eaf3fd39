/* SPDX-License-Identifier: Apache-2.0 */
/* arbslab.h: memory of objects of one size, many in a piece. */
#ifndef ARBSLAB_H
#define ARBSLAB_H

#include <stddef.h>

struct arbslab_free {
	struct arbslab_free *next;
};

struct arbslab_piece;

struct arbslab {
	size_t size; /* of an object */
	struct arbslab_free *free;
	char *next, *end; /* of the youngest piece: never used so far */
	size_t n_piece;   /* objects of the youngest piece */
	struct arbslab_piece *pieces;
};

void arbslab_init(struct arbslab *s, size_t size);
void arbslab_deinit(struct arbslab *s);            /* with all that is in it */
void *arbslab_get(struct arbslab *s);              /* zeroed; NULL: no memory */
void arbslab_put(struct arbslab *s, void *object); /* NULL is none */

#endif
