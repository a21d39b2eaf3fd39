/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simtrace.h: the steps of one run, as lines of text with the virtual time in front. Their hash
 * says whether two runs were the same one; the last of them say how a run came to its failure.
 * They are kept in memory that the parent of the run's process sees, however that process ends.
 */
#ifndef SIM_SIMTRACE_H
#define SIM_SIMTRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIMTRACE_KEPT 16384u /* bytes, of the last lines */

struct simtrace {
	uint64_t hash, n_lines, time_ns;
	uint64_t n_answers, n_waits, n_grants, n_deaths, n_faults; /* so that a run is worth it */
	bool whole;                                                /* each line goes to stdout */
	bool failed;
	char failure[1024];
	size_t at; /* of kept, which is a ring */
	char kept[SIMTRACE_KEPT];
};

/* Where lines go from now on. */
void simtrace_to(struct simtrace *t);
struct simtrace *simtrace_now(void);
void simtrace_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An invariant does not hold: says so, and ends this process. */
_Noreturn void simtrace_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void simtrace_print_last(const struct simtrace *t);

#define SIM_ENSURE(cond)                                                                    \
	do {                                                                                \
		if (!(cond))                                                                \
			simtrace_fail("%s:%d: not so: %s (%m)", __FILE__, __LINE__, #cond); \
	} while (0)

#endif
