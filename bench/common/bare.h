/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare.h: the floors: the system calls that a put, a get and a handoff cannot do without, with no
 * store around them. Names are relative to directory descriptors, as a careful program would have
 * them. All return 0 or -errno.
 */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <stddef.h>
#include <stdint.h>

#include "place.h"

struct bare {
	/* directories: of the donor's objects, of links on their way, of the receiver's objects */
	int objects;
	int handoff;
	int other;
};

int bare_open(struct bare *b, const struct place *p);
void bare_close(struct bare *b);

/* O_TMPFILE + write + linkat(AT_EMPTY_PATH) + close: a put that publishes atomically. */
int bare_put(const struct bare *b, const char *name, const void *data, size_t size);
/* open(O_CREAT) + ftruncate + mmap + memcpy + munmap + close: how it is usually done. */
int bare_put_mapped(const struct bare *b, const char *name, const void *data, size_t size);
/* open + mmap + close + munmap, no byte touched. */
int bare_get(const struct bare *b, const char *name, size_t size);
/* The same with a byte of each page read in between; dir is one of the three. */
int bare_read(int dir, const char *name, size_t size);
/* link into handoff, link into other, unlink in handoff; and the same by absolute
 * paths, as a ticket has one. */
int bare_hand_over(const struct bare *b, const char *name);
int bare_hand_over_by_path(const char *object, const char *lease, const char *other);
int bare_delete(int dir, const char *name);

#endif
