/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h: what somebody may have meant by a word that is not known. Pure. */
#ifndef NEAREST_H
#define NEAREST_H

#include <stddef.h>

/* Of n words the one that takes the fewest edits from word, where these are at most a third of its length (and two); else NULL. */
const char *nearest(const char *word, const char *const *words, size_t n);

#endif
