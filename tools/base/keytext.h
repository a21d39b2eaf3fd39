/* SPDX-License-Identifier: Apache-2.0 */
/* keytext.h: keys, which are any bytes, as printable.h writes them. */
#ifndef KEYTEXT_H
#define KEYTEXT_H

#include <stddef.h>

/* The text of a key, on the heap; ends the program where memory is out. */
char *keytext_new(const void *key, size_t key_size);
/* Prints text of whoever on standard output, as the text of a key. */
void keytext_print(const char *text);

#endif
