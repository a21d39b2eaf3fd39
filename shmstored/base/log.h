/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h: one line per failure, where it is handled. To the journal with fields (SHMSTORE_CONN=,
 * SHMSTORE_OBJECT=, ERRNO=) where standard error is the journal's, else to standard error as
 * "level: message conn=… obj=… errno=…". Rate-limited per call site.
 */
#ifndef LOG_H
#define LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
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

/*
 * events.c keeps what happened, for people and programs that watch: a ring of the last EVENTS_KEPT,
 * numbered from 1. Each is one JSON object:
 * {"sequence":…,"time":…(seconds),"event":"store-came",…fields}. Repetitions of one event about one
 * object are limited to one per second; what was left out is counted in the next one ("repeated").
 */
#define EVENTS_KEPT     1024u
/* bytes of one event: it fits a WIRE_EVENT; a longer one loses the ends of its texts */
#define EVENTS_JSON_MAX 4000u

enum event {
#define EVENT(NAME, name) EVENT_##NAME,
#include "events.def"
#undef EVENT
	EVENTS_N, /* not an event: how many there are */
};

/* "store-came", and back (-1: no such event). */
const char *event_name(enum event e);
int event_parse(const char *name);

struct events;
struct event_sink { /* who is told at once */
	struct event_sink *next;
	uint64_t mask; /* bits of enum event */
	void (*fn)(struct event_sink *sink, enum event e, uint64_t sequence, const char *json,
		   size_t n);
};

int events_new(struct events **ret);
struct events *events_free(struct events *ev);
/*
 * key: what it is about (a path, a limit), for the rate limit; NULL: never left out. fields:
 * further members of the JSON object, made with json-c, or NULL; taken over. Text in them may be
 * any bytes. A field "uid" says whose event it is (events_owner()). The sinks are told from within,
 * in order; one that emits, subscribes or unsubscribes in its fn may do so.
 */
struct json_object;
void events_emit(struct events *ev, enum event e, const char *key, struct json_object *fields);
void events_subscribe(struct events *ev, struct event_sink *sink);
void events_unsubscribe(struct events *ev, struct event_sink *sink);
/* The kept ones after since, oldest first; fn other than 0 ends it. */
int events_each(struct events *ev, uint64_t since, uint64_t mask,
		int (*fn)(enum event e, uint64_t sequence, const char *json, void *arg), void *arg);
uint64_t events_count(const struct events *ev, enum event e); /* ever, those left out included */
/* The user whose event it is: who may see it besides administrators. (uid_t)-1: nobody's, all may;
 * also where it is kept no more. */
uid_t events_owner(const struct events *ev, uint64_t sequence);
uint64_t events_last(const struct events *ev); /* the newest one's number; 0 = none so far */

#endif
