/* SPDX-License-Identifier: Apache-2.0 */
/* configvalue.h: the values of configuration keys as text: sizes,
 * durations, numbers, switches. Pure. */
#ifndef CONFIGVALUE_H
#define CONFIGVALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All: 0 or -EINVAL. config_parse_size() is in config.h. */
/* "250ms", "10s", "5min", "1h"; a bare number is seconds. */
int configvalue_duration(const char *text, uint64_t *ret_ns);
int configvalue_number(const char *text, int base, uint64_t min, uint64_t max, uint64_t *ret);
/* yes, no, true, false, on, off. */
int configvalue_switch(const char *text, bool *ret);
/* "90%" as parts per million, else bytes (1000001 at least). */
int configvalue_watermark(const char *text, uint64_t *ret);
/* A whole number of percent, with its sign. */
int configvalue_percent(const char *text, uint64_t min, uint64_t max, uint64_t *ret);
/* Is it one of the words, which have ", " between them? Its place. */
int configvalue_word(const char *text, const char *words, int *ret);

/* The word that somebody may have meant by one that is not known. */

/* Of n words the one that takes the fewest edits from word, where these are at most a third of its
 * length (and two); else NULL. */
const char *nearest(const char *word, const char *const *words, size_t n);

#endif
