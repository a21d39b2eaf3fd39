/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h: what happened, for people and programs that watch: a ring of the last EVENTS_KEPT,
 * numbered from 1. Each is one JSON object:
 * {"sequence":…,"time":…(seconds),"event":"store-came",…fields}. Repetitions of one event about one
 * object are limited to one per second; what was left out is counted in the next one ("repeated").
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
