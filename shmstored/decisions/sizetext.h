/* SPDX-License-Identifier: Apache-2.0 */
/* sizetext.h: bytes as people read them: "512 bytes", "40.0 MiB". */
#ifndef SIZETEXT_H
#define SIZETEXT_H

#include <stdint.h>
#include <stdio.h>

struct sizetext {
	char text[32];
};

static inline struct sizetext sizetext(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	struct sizetext s;
	size_t i = 0;

	for (; value >= 1024; i++)
		value /= 1024;
	snprintf(s.text, sizeof(s.text), i ? "%.1f %s" : "%.0f %s", value, units[i]);
	return s;
}

#endif
