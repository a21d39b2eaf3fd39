/* SPDX-License-Identifier: Apache-2.0 */
/*
 * printable.h: bytes of whoever (keys, paths, names of processes) as one line of valid UTF-8, and
 * back. Printable text stands for itself, every other byte is \xNN, and so is a backslash before
 * what would read as \xNN: what is shown can always be typed. Pure.
 */
#ifndef PRINTABLE_H
#define PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the printable UTF-8 sequence that text begins with, 1 for
 * printable ASCII; 0: not printable. */
size_t printable_sequence(const unsigned char *text, size_t size);
/* Whether all of it is printable; in this, \xNN stands for itself. */
bool printable_is(const void *text, size_t size);
/* On the heap; NULL: no memory. */
char *printable_new(const void *text, size_t size);
/* Writes the bytes that text stands for to ret (room bytes) and their number.
 * False: more bytes than that. */
bool printable_parse(const char *text, void *ret, size_t room, size_t *ret_size);

#endif
