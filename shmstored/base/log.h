/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: one line per failure, where it is handled. To the journal with fields (SHMSTORE_CONN=, SHMSTORE_OBJECT=, ERRNO=) where
 * standard error is the journal's, else to standard error as "level: message conn=… obj=… errno=…". Rate-limited per call site.
 */
#ifndef LOG_H
#define LOG_H

#include <syslog.h>

struct log_fields {
	const char *conn;   /* conn_name() */
	const char *object; /* a path */
	int error;          /* -errno or errno; 0 = none */
};

void log_init(int level);
void log_set_level(int level);
void log_write(int level, const char *file, int line, const struct log_fields *fields, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* log_say(LOG_WARNING, {.object = path, .error = r}, "the store could not be reaped; tried again in %d s", n) */
#define LOG_FIELDS(...)             (&(const struct log_fields){__VA_ARGS__})
#define log_say(level, fields, ...) log_write((level), __FILE__, __LINE__, (fields), __VA_ARGS__)

#endif
