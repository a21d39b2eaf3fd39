/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: options, rows, targets and output of a benchmark: a table for people, JSON
 * with --json. A target is one number that this project promises, with what it must be
 * and whether this run met it.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "measure.h"

struct report_options {
	bool json;
	bool check;      /* exit 1 where a target is not met */
	bool quick;      /* smaller and shorter; good for a look, not for docs/measured.md */
	unsigned rounds; /* >= 5 */
	int cpu;         /* -1 = the last one allowed */
	uint64_t limit;  /* what the program makes of --limit; 0 = its default */
};

struct report;

/* Parses the command line (exits on --help and on nonsense, with 2) and begins a report. what:
 * one line. NULL = no memory. */
struct report *report_new(int argc, char **argv, const char *name, const char *what,
			  struct report_options *ret);
struct report *report_free(struct report *r);

/* The same for a program that has options of its own: own parses them,
 * with own_input as its input. */
struct argp;
struct report_program {
	const char *name, *what;
	const struct argp *own;
	void *own_input;
};
struct report *report_new_own(int argc, char **argv, const struct report_program *program,
			      struct report_options *ret);

/* A sentence on how this run was made: placement, mounts, what was skipped. */
void report_note(struct report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One measured line. bytes: size of the object, 0 = none. An empty series is left out. */
void report_row(struct report *r, const char *where, const char *operation, const char *variant,
		uint64_t bytes, const struct measure_series *series);
/* The same for a single figure, in seconds. */
void report_seconds(struct report *r, const char *where, const char *operation, const char *variant,
		    uint64_t count, double seconds);
/* A measurement that could not be run, and why. */
void report_skip(struct report *r, const char *what, const char *reason);

enum report_relation {
	REPORT_AT_LEAST,
	REPORT_AT_MOST
};
struct report_target {
	const char *id;   /* "1a": paragraph of the list in bench/README.md */
	const char *what; /* in words, with the size and the mount */
	const char *unit; /* "x memcpy", "us", "s" */
	enum report_relation relation;
	double target, value, min, max; /* min, max: over the rounds; 0, 0 = a single figure */
};
void report_target(struct report *r, const struct report_target *t);
/* a / b against target, where both were measured. */
void report_ratio(struct report *r, const char *id, const char *what, const char *unit,
		  enum report_relation relation, double target, const struct measure_series *a,
		  const struct measure_series *b);

/* Prints all to stdout. Returns the exit status: 0; 1 with --check where a target was missed. */
int report_print(struct report *r);

/* "1 KiB", "64 MiB". */
const char *report_size(uint64_t bytes, char *buf, size_t size);

#endif
