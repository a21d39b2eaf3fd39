/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: one line per failure, where it is handled. To the journal with fields (SHMSTORE_CONN=,
 * SHMSTORE_OBJECT=, ERRNO=) where standard error is the journal's, else to standard error as
 * "level: message conn=… obj=… errno=…". Rate-limited per call site.
 */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/* How often one place of the program may log. Pure: time in, yes or no out. */
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

/* LOGLIMIT_BURST lines of one place in a window are said; the first one of a later
 * window tells how many were not. */
bool loglimit_allow(struct loglimit *l, const char *file, int line, uint64_t now_ns,
		    unsigned *ret_left_out);

struct log_fields {
	const char *conn;   /* ()->name */
	const char *object; /* a path */
	int error;          /* -errno or errno; 0 = none */
};

void log_init(int level);
void log_set_level(int level);
void log_write(int level, const char *file, int line, const struct log_fields *fields,
	       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* log_say(LOG_WARNING, {.object = path, .error = r}, "the store could not be
 * reaped; tried again in %d s", n) */
#define LOG_FIELDS(...)             (&(const struct log_fields){__VA_ARGS__})
#define log_say(level, fields, ...) log_write((level), __FILE__, __LINE__, (fields), __VA_ARGS__)

#endif
