/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.c: one line per event, whole or not at all: made in a buffer, given away with one call. Where
 * standard error is the journal ($JOURNAL_STREAM names its device and inode, as systemd.exec(5)
 * says) lines go there with their fields; else they are text. Names and paths that come from
 * clients can hold any byte: control characters are written as '?', so that nobody forges a line.
 *
 * Threads: any. The lock is held for the limiter only, never while writing.
 * Rejected: syslog(3): no fields, and its socket may block.
 */
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"
#include "refused.h"

bool log_site_allows(struct log_site *s, uint64_t now_ns, unsigned *ret_left_out)
{
	*ret_left_out = 0;
	if (s->n == 0 || now_ns - s->since_ns >= LOG_WINDOW_NS) {
		*ret_left_out = s->n_left_out;
		s->n = s->n_left_out = 0;
		s->since_ns = now_ns;
	}
	if (s->n >= LOG_BURST) {
		s->n_left_out++;
		return false;
	}
	s->n++;
	return true;
}

#define TEXT_MAX   1536u
#define FIELD_MAX  4200u
#define FIELDS_MAX 8

static const char *const levels[] = {"emergency", "alert",  "critical", "error",
				     "warning",   "notice", "info",     "debug"};

static atomic_int log_level = LOG_INFO;
static bool to_journal;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all places that log */

static const char *error_text(int error)
{
	const char *text = strerrordesc_np(abs(error));

	return text ? text : "unknown error";
}

void log_init(int level)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;

	to_journal = stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
		     fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
	log_set_level(level);
}

void log_set_level(int level)
{
	/* stands alone: nothing is published by it */
	atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

static void make_harmless(char *text)
{
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	}
}

struct line {
	int level;
	const struct log_site *site;
	const struct log_fields *fields;
	char text[TEXT_MAX];
};

static void write_text(const struct line *l)
{
	char buf[TEXT_MAX + 2 * FIELD_MAX];
	const struct log_fields *f = l->fields;
	int n = snprintf(buf, sizeof(buf), "shmstored: %s: %s", levels[l->level & 7], l->text);
	size_t used = n < 0 ? 0 : (size_t)n, room = sizeof(buf) - 1; /* one byte for the newline */

	if (f->conn && used < room)
		used += (size_t)snprintf(buf + used, room - used, " conn=\"%s\"", f->conn);
	if (f->object && used < room)
		used += (size_t)snprintf(buf + used, room - used, " obj=\"%s\"", f->object);
	if (f->error && used < room)
		used += (size_t)snprintf(buf + used, room - used, " errno=%d (%s)", abs(f->error),
					 error_text(f->error));
	if (used > room - 1)
		used = room - 1;
	buf[used] = '\0';
	make_harmless(buf);
	buf[used++] = '\n';
	/* Nobody is left to tell where standard error is gone. */
	if (write(STDERR_FILENO, buf, used) < 0)
		return;
}

struct fields {
	char buf[FIELDS_MAX][FIELD_MAX];
	struct iovec iov[FIELDS_MAX];
	int n;
};

static void __attribute__((format(printf, 2, 3))) add(struct fields *fs, const char *format, ...)
{
	char *buf = fs->buf[fs->n];
	va_list ap;

	va_start(ap, format);
	vsnprintf(buf, FIELD_MAX, format, ap);
	va_end(ap);
	make_harmless(buf);
	fs->iov[fs->n++] = (struct iovec){buf, strlen(buf)};
}

static bool write_journal(const struct line *l)
{
	const struct log_fields *f = l->fields;
	struct fields fs;

	fs.n = 0;
	add(&fs, "MESSAGE=%s%s%s", l->text, f->error ? ": " : "",
	    f->error ? error_text(f->error) : "");
	add(&fs, "PRIORITY=%d", l->level);
	add(&fs, "SYSLOG_IDENTIFIER=shmstored");
	add(&fs, "CODE_FILE=%s", l->site->file);
	add(&fs, "CODE_LINE=%d", l->site->line);
	if (f->conn)
		add(&fs, "SHMSTORE_CONN=%s", f->conn);
	if (f->object)
		add(&fs, "SHMSTORE_OBJECT=%s", f->object);
	if (f->error)
		add(&fs, "ERRNO=%d", abs(f->error));
	return sd_journal_sendv(fs.iov, fs.n) == 0;
}

/* An error may be a filter's, not the kernel's: then which calls it refuses is said.
 * Returns the text's length. */
static int add_refused(struct line *l, int n)
{
	char names[SHMS_REFUSED_TEXT];
	int error = abs(l->fields->error);

	if (n < 0 || (size_t)n >= sizeof(l->text) ||
	    (error != ENOSYS && error != EPERM && error != ENOTSUP))
		return n;
	shms_refused_suspect();
	return !shms_refused_names(names) ? n
					  : n + snprintf(l->text + n, sizeof(l->text) - (size_t)n,
							 "; refused to this process: %s", names);
}

void log_write(struct log_site *site, int level, const struct log_fields *fields,
	       const char *format, ...)
{
	static const struct log_fields none;
	struct line l = {.level = level, .site = site, .fields = fields ? fields : &none};
	int saved = errno;
	unsigned n_left_out;
	bool allowed;
	va_list ap;
	int n;

	if (level > atomic_load_explicit(&log_level, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	allowed = log_site_allows(site, clock_ns(CLOCK_MONOTONIC), &n_left_out);
	pthread_mutex_unlock(&lock);
	if (!allowed)
		return;
	va_start(ap, format);
	n = vsnprintf(l.text, sizeof(l.text), format, ap);
	va_end(ap);
	n = add_refused(&l, n);
	if (n_left_out && n >= 0 && (size_t)n < sizeof(l.text))
		snprintf(l.text + n, sizeof(l.text) - (size_t)n,
			 " (%u more of these were left out)", n_left_out);
	if (!to_journal || !write_journal(&l))
		write_text(&l);
	errno = saved;
}
