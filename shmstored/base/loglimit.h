/* SPDX-License-Identifier: Apache-2.0 */
/* loglimit.h: how often one place of the program may log. Pure: time in, yes or no out. */
#ifndef LOGLIMIT_H
#define LOGLIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LOGLIMIT_BURST     10u
#define LOGLIMIT_WINDOW_NS UINT64_C(10000000000)
#define LOGLIMIT_SITES     128u

struct loglimit_site {
	const char *file; /* compared as a pointer: a literal of the program; NULL = free */
	int line;
	unsigned n, n_left_out;
	uint64_t since_ns;
};

/* Zero is a valid start. */
struct loglimit {
	struct loglimit_site sites[LOGLIMIT_SITES];
};

/* LOGLIMIT_BURST lines of one place in a window are said; the first one of a later window tells how many were not. */
bool loglimit_allow(struct loglimit *l, const char *file, int line, uint64_t now_ns, unsigned *ret_left_out);

#endif
