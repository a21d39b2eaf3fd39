/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest.c: the distance of Damerau and Levenshtein in its restricted form (insert, delete, replace, swap of neighbours), row by row.
 * Words longer than WORD_MAX are nobody's key: they have no neighbour.
 */
#include "nearest.h"

#include <string.h>

#define WORD_MAX 64u

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][WORD_MAX + 1], *two = rows[0], *one = rows[1], *now = rows[2], *spare;

	for (size_t j = 0; j <= nb; j++)
		one[j] = j;
	for (size_t i = 1; i <= na; i++) {
		now[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = least(least(one[j], now[j - 1]) + 1, one[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], two[j - 2] + 1);
		}
		spare = two;
		two = one;
		one = now;
		now = spare;
	}
	return one[nb];
}

const char *nearest(const char *word, const char *const *words, size_t n)
{
	size_t length = strlen(word), best, bound = length / 3 > 2 ? length / 3 : 2;
	const char *found = NULL;

	if (length > WORD_MAX)
		return NULL;
	best = bound + 1;
	for (size_t i = 0; i < n; i++) {
		size_t other = strlen(words[i]), d;

		if (other > WORD_MAX)
			continue;
		d = distance(word, length, words[i], other);
		/* A word that shares nothing but its length is no neighbour. */
		if (d < best && d < length) {
			best = d;
			found = words[i];
		}
	}
	return found;
}
