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

/* How often one place of the program may log. A failure that a client can cause as often as it
 * likes must not fill the journal; and the flood of one place does not hide the others. */
#define LOG_BURST     10u
#define LOG_WINDOW_NS UINT64_C(10000000000)

struct log_site {
	const char *file;
	int line;
	unsigned n, n_left_out;
	uint64_t since_ns;
};

/* LOG_BURST lines in a window are said; the first one of a later window tells how many were
 * not. Pure. */
bool log_site_allows(struct log_site *s, uint64_t now_ns, unsigned *ret_left_out);

struct log_fields {
	const char *conn;   /* ()->name */
	const char *object; /* a path */
	int error;          /* -errno or errno; 0 = none */
};

void log_init(int level);
void log_set_level(int level);
void log_write(struct log_site *site, int level, const struct log_fields *fields,
	       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* log_say(LOG_WARNING, {.object = path, .error = r}, "the store could not be
 * reaped; tried again in %d s", n) */
#define LOG_FIELDS(...) (&(const struct log_fields){__VA_ARGS__})
#define log_say(level, fields, ...)                                                  \
	do {                                                                         \
		static struct log_site site_ = {.file = __FILE__, .line = __LINE__}; \
                                                                                     \
		log_write(&site_, (level), (fields), __VA_ARGS__);                   \
	} while (0)

#endif
