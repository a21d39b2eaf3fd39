/* SPDX-License-Identifier: Apache-2.0 */
#include "simtrace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "simclock.h"

static struct simtrace *trace;

void simtrace_to(struct simtrace *t)
{
	trace = t;
}

struct simtrace *simtrace_now(void)
{
	return trace;
}

static void keep(const char *line, size_t n)
{
	for (size_t i = 0; i < n; i++)
		trace->kept[(trace->at + i) % SIMTRACE_KEPT] = line[i];
	trace->at += n;
}

__attribute__((format(printf, 1, 0))) static void add(const char *format, va_list args)
{
	uint64_t now = simclock_now();
	char line[512];
	int n = snprintf(line, sizeof(line), "%8" PRIu64 ".%06" PRIu64 " ", now / 1000000000u,
			 now / 1000 % 1000000),
	    m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);

	n += m < (int)sizeof(line) - n - 1 ? m : (int)sizeof(line) - n - 2;
	line[n++] = '\n';
	trace->hash = XXH3_64bits_withSeed(line, (size_t)n, trace->hash);
	trace->n_lines++;
	trace->time_ns = now;
	keep(line, (size_t)n);
	if (trace->whole)
		fwrite(line, 1, (size_t)n, stdout);
}

void simtrace_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(format, args);
	va_end(args);
}

void simtrace_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(trace->failure, sizeof(trace->failure), format, args);
	va_end(args);
	trace->failed = true;
	simtrace_say("FAILED: %s", trace->failure);
	fflush(stdout);
	_exit(1);
}

void simtrace_print_last(const struct simtrace *t)
{
	size_t n = t->at < SIMTRACE_KEPT ? t->at : SIMTRACE_KEPT, from = t->at - n;

	/* The first line of a ring is cut. */
	while (from > 0 && n > 0 && t->kept[(from - 1) % SIMTRACE_KEPT] != '\n') {
		from++;
		n--;
	}
	for (size_t i = 0; i < n; i++)
		putchar(t->kept[(from + i) % SIMTRACE_KEPT]);
}
