/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loglimit.c: a table of the places that log, by file and line. A failure that a client can cause as often as it likes must not
 * fill the journal. Per place rather than in all: the flood of one does not hide the others. The table has room for every place of
 * the program; were it full, the rest would go unlimited, which errs on the side of saying it.
 */
#include "loglimit.h"

#include <stddef.h>

static struct loglimit_site *find(struct loglimit *l, const char *file, int line)
{
	uint64_t hash =
		((uint64_t)(uintptr_t)file ^ (uint64_t)(unsigned)line * 0x9e3779b1u) * UINT64_C(0x9e3779b97f4a7c15);

	for (unsigned i = 0; i < LOGLIMIT_SITES; i++) {
		struct loglimit_site *s = &l->sites[((hash >> 32) + i) % LOGLIMIT_SITES];

		if (s->file == file && s->line == line)
			return s;
		if (!s->file) {
			s->file = file;
			s->line = line;
			return s;
		}
	}
	return NULL;
}

bool loglimit_allow(struct loglimit *l, const char *file, int line, uint64_t now_ns, unsigned *ret_left_out)
{
	struct loglimit_site *s = find(l, file, line);

	*ret_left_out = 0;
	if (!s)
		return true;
	if (s->n == 0 || now_ns - s->since_ns >= LOGLIMIT_WINDOW_NS) {
		*ret_left_out = s->n_left_out;
		s->n = s->n_left_out = 0;
		s->since_ns = now_ns;
	}
	if (s->n >= LOGLIMIT_BURST) {
		s->n_left_out++;
		return false;
	}
	s->n++;
	return true;
}
