/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keytext.h: keys, which are any bytes, as one line of text and back. Printable ASCII and valid UTF-8 stand for themselves,
 * every other byte is \xNN. A backslash stands for itself too, unless \x and two hex digits would be read as an escape:
 * then it is \x5c. So what is shown can always be typed. Pure but for keytext_print().
 */
#ifndef KEYTEXT_H
#define KEYTEXT_H

#include <stdbool.h>
#include <stddef.h>

/* The text of a key, on the heap; ends the program where memory is out. */
char *keytext_new(const void *key, size_t key_size);
/* Prints text of whoever on standard output, as the text of a key. */
void keytext_print(const char *text);
/* Writes the key to ret_key (room for key_room bytes) and its size. False: more bytes than that. */
bool keytext_parse(const char *text, void *ret_key, size_t key_room, size_t *ret_size);
/* Bytes of the printable UTF-8 sequence that text begins with, 1 for printable ASCII; 0: not printable. */
size_t keytext_printable(const unsigned char *text, size_t size);

#endif
