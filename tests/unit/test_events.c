/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of events: numbers, what is kept, the rate per object, and who is told in which
 * order. */
#include <criterion/criterion.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "wire.h"

static struct events *ring(void)
{
	struct events *ev;

	cr_assert_eq(events_new(&ev), 0);
	return ev;
}

static struct json_object *field(const char *name, const char *text)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, name, json_object_new_string(text));
	return o;
}

struct seen {
	size_t n;
	uint64_t sequences[2 * EVENTS_KEPT];
	enum event events[2 * EVENTS_KEPT];
	char *last; /* its text */
};

static int see(enum event e, uint64_t sequence, const char *json, void *arg)
{
	struct seen *s = arg;

	s->events[s->n] = e;
	s->sequences[s->n++] = sequence;
	free(s->last);
	s->last = strdup(json);
	return 0;
}

static struct seen all(struct events *ev, uint64_t since, uint64_t mask)
{
	struct seen s = {0};

	cr_assert_eq(events_each(ev, since, mask, see, &s), 0);
	return s;
}

static struct json_object *last_object(struct events *ev)
{
	struct seen s = all(ev, 0, UINT64_MAX);
	struct json_object *o = json_tokener_parse(s.last);

	cr_assert_not_null(o, "valid JSON: %s", s.last);
	free(s.last);
	return o;
}

static const char *text_of(struct json_object *o, const char *name)
{
	struct json_object *value;

	return json_object_object_get_ex(o, name, &value) ? json_object_get_string(value) : NULL;
}

Test(events, names_and_back)
{
	for (int e = 0; e < (int)EVENTS_N; e++) {
		cr_assert_not_null(event_name((enum event)e));
		cr_assert_eq(event_parse(event_name((enum event)e)), e);
	}
	cr_assert_eq(event_parse("store"), -1);
	cr_assert_eq(event_parse(""), -1);
	cr_assert_null(event_name(EVENTS_N));
}

Test(events, numbered_from_one_with_their_fields)
{
	struct events *ev = ring();
	struct json_object *o;

	cr_assert_eq(events_last(ev), 0);
	events_emit(ev, EVENT_STORE_CAME, "a", field("path", "/p/a"));
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(events_last(ev), 2);
	events_emit(ev, EVENT_STORE_WENT, "a", field("path", "/p/a"));
	o = last_object(ev);
	cr_assert_str_eq(text_of(o, "sequence"), "3");
	cr_assert_str_eq(text_of(o, "event"), "store-went");
	cr_assert_str_eq(text_of(o, "path"), "/p/a");
	cr_assert_gt(atof(text_of(o, "time")), 1.6e9);
	json_object_put(o);
	events_free(ev);
}

Test(events, the_ring_keeps_the_newest)
{
	struct events *ev = ring();
	struct seen s;

	for (unsigned i = 0; i < EVENTS_KEPT + 10; i++)
		events_emit(ev, i % 2 ? EVENT_STORE_CAME : EVENT_STORE_WENT, NULL, NULL);
	s = all(ev, 0, UINT64_MAX);
	cr_assert_eq(s.n, EVENTS_KEPT);
	for (size_t i = 0; i < s.n; i++)
		cr_assert_eq(s.sequences[i], 11 + i);
	free(s.last);
	s = all(ev, EVENTS_KEPT + 4, UINT64_C(1) << EVENT_STORE_CAME);
	cr_assert_eq(s.n, 3);
	cr_assert_eq(s.sequences[0], EVENTS_KEPT + 6);
	free(s.last);
	cr_assert_eq(all(ev, EVENTS_KEPT + 10, UINT64_MAX).n, 0);
	cr_assert_eq(all(ev, UINT64_MAX, UINT64_MAX).n, 0, "from now on: nothing so far");
	events_free(ev);
}

static int stop_at_three(enum event e, uint64_t sequence, const char *json, void *arg)
{
	(void)e;
	(void)json;
	(void)arg;
	return sequence == 3 ? 42 : 0;
}

Test(events, a_reader_may_stop)
{
	struct events *ev = ring();

	for (int i = 0; i < 5; i++)
		events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(events_each(ev, 0, UINT64_MAX, stop_at_three, NULL), 42);
	events_free(ev);
}

/* The clock is the real one: it is asked again and again until the second is over. */
Test(events, one_a_second_of_one_object)
{
	struct events *ev = ring();
	struct json_object *o;
	uint64_t n = 0;
	time_t deadline = time(NULL) + 30;

	events_emit(ev, EVENT_QUOTA_REFUSED, "b", NULL);
	while (events_last(ev) < 2) {
		events_emit(ev, EVENT_QUOTA_REFUSED, "b", NULL);
		n++;
		cr_assert(time(NULL) < deadline);
	}
	cr_assert_gt(n, 1, "some were left out");
	o = last_object(ev);
	cr_assert_eq((uint64_t)atoll(text_of(o, "repeated")), n - 1);
	cr_assert_eq(events_count(ev, EVENT_QUOTA_REFUSED), n + 1, "all are counted");
	json_object_put(o);
	events_free(ev);
}

/* An event that never pauses is kept after 0, 1 and 3 s, and not after 2: as long as it takes. */
Test(events, what_never_pauses_is_damped)
{
	struct events *ev = ring();
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		events_emit(ev, EVENT_QUOTA_REFUSED, "b", NULL);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 <
		    2900)
			cr_assert_leq(events_last(ev), 2);
		cr_assert_lt(now.tv_sec - begin.tv_sec, 60);
	} while (events_last(ev) < 3);
	events_free(ev);
}

Test(events, other_objects_and_other_events_are_not_left_out)
{
	struct events *ev = ring();
	char key[32];

	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "store-%d", i);
		events_emit(ev, EVENT_STORE_CAME, key, NULL);
		events_emit(ev, EVENT_STORE_WENT, key, NULL);
	}
	cr_assert_eq(events_last(ev), 200);
	events_emit(ev, EVENT_STORE_CAME, "store-99", NULL);
	cr_assert_eq(events_last(ev), 200);
	events_free(ev);
}

Test(events, any_bytes_become_valid_text)
{
	struct events *ev = ring();
	struct json_object *o;

	events_emit(ev, EVENT_STORE_CAME, NULL, field("path", "/p/\xff\n\xc3\xa9"));
	o = last_object(ev);
	cr_assert_str_eq(text_of(o, "path"), "/p/\\xff\\x0a\xc3\xa9");
	json_object_put(o);
	events_free(ev);
}

Test(events, a_long_one_fits_a_message)
{
	struct events *ev = ring();
	struct json_object *fields = json_object_new_object(), *o;
	char *path = malloc(4096);
	struct seen s;

	memset(path, 1, 4095); /* four bytes each once escaped */
	path[4095] = '\0';
	json_object_object_add(fields, "path", json_object_new_string(path));
	json_object_object_add(fields, "uid", json_object_new_int(7));
	events_emit(ev, EVENT_STORE_CAME, path, fields);
	s = all(ev, 0, UINT64_MAX);
	cr_assert_leq(strlen(s.last), EVENTS_JSON_MAX);
	cr_assert_leq(strlen(s.last), WIRE_TEXT_MAX);
	o = last_object(ev);
	cr_assert_str_eq(text_of(o, "uid"), "7");
	cr_assert_gt(strlen(text_of(o, "path")), 100);
	json_object_put(o);
	free(s.last);
	fields = json_object_new_object();
	for (int i = 0; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		json_object_object_add(fields, name,
				       json_object_new_string("some text that is not that short"));
	}
	events_emit(ev, EVENT_STORE_CAME, NULL, fields);
	o = last_object(ev);
	cr_assert_str_eq(text_of(o, "sequence"), "2");
	json_object_put(o);
	free(path);
	events_free(ev);
}

Test(events, whose_it_is)
{
	struct events *ev = ring();
	struct json_object *fields = field("path", "/p/a");

	json_object_object_add(fields, "uid", json_object_new_int64(4000000000));
	events_emit(ev, EVENT_STORE_CAME, NULL, fields);
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	events_emit(ev, EVENT_CONFIG, NULL, field("uid", "0"));
	cr_assert_eq(events_owner(ev, 1), 4000000000u);
	cr_assert_eq(events_owner(ev, 2), (uid_t)-1);
	cr_assert_eq(events_owner(ev, 3), (uid_t)-1, "a text is no user");
	cr_assert_eq(events_owner(ev, 0), (uid_t)-1);
	cr_assert_eq(events_owner(ev, 4), (uid_t)-1);
	events_free(ev);
}

/* ---- who is told ----------------------------------------------------------------------------- */

struct listener {
	struct event_sink sink;
	struct events *ev;
	struct listener *drops; /* unsubscribed when told */
	unsigned emits;         /* so many more */
	struct seen seen;
};

static void told(struct event_sink *sink, enum event e, uint64_t sequence, const char *json,
		 size_t n)
{
	struct listener *l = (struct listener *)(void *)sink;

	cr_assert_eq(strlen(json), n);
	l->seen.events[l->seen.n] = e;
	l->seen.sequences[l->seen.n++] = sequence;
	if (l->drops)
		events_unsubscribe(l->ev, &l->drops->sink);
	if (l->emits) {
		l->emits--;
		events_emit(l->ev, EVENT_CLIENT_DROPPED, NULL, NULL);
	}
}

static struct listener *listen_to(struct events *ev, uint64_t mask)
{
	struct listener *l = calloc(1, sizeof(*l));

	l->sink = (struct event_sink){.mask = mask, .fn = told};
	l->ev = ev;
	events_subscribe(ev, &l->sink);
	return l;
}

Test(events, sinks_are_told_what_they_want)
{
	struct events *ev = ring();
	struct listener *some = listen_to(ev, UINT64_C(1) << EVENT_CONFIG),
			*every = listen_to(ev, UINT64_MAX);

	events_emit(ev, EVENT_STORE_CAME, NULL, NULL);
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(some->seen.n, 1);
	cr_assert_eq(some->seen.sequences[0], 2);
	cr_assert_eq(every->seen.n, 2);
	events_unsubscribe(ev, &every->sink);
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(some->seen.n, 2);
	cr_assert_eq(every->seen.n, 2);
	free(some);
	free(every);
	events_free(ev);
}

/* Each drops the other and itself: the one that is told first stays the only one told, and
 * nothing freed is touched. */
Test(events, a_sink_may_take_others_away)
{
	for (int turn = 0; turn < 3; turn++) {
		struct events *ev = ring();
		struct listener *l[3];

		for (int i = 0; i < 3; i++)
			l[i] = listen_to(ev, UINT64_MAX);
		/* The newest is told first. */
		l[2]->drops = l[turn];
		events_emit(ev, EVENT_CONFIG, NULL, NULL);
		for (int i = 0; i < 3; i++)
			cr_assert_eq(l[i]->seen.n, i == turn && turn != 2 ? 0 : 1);
		events_emit(ev, EVENT_CONFIG, NULL, NULL);
		for (int i = 0; i < 3; i++) {
			if (i == turn)
				cr_assert_eq(l[i]->seen.n, turn == 2 ? 1 : 0);
			else
				cr_assert_eq(l[i]->seen.n, 2);
		}
		for (int i = 0; i < 3; i++)
			free(l[i]);
		events_free(ev);
	}
}

Test(events, what_a_sink_emits_comes_to_all_in_order)
{
	struct events *ev = ring();
	struct listener *l[2] = {listen_to(ev, UINT64_MAX), listen_to(ev, UINT64_MAX)};

	l[0]->emits = 5;
	l[1]->emits = 5;
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(events_last(ev), 11);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(l[i]->seen.n, 11);
		for (size_t k = 0; k < 11; k++)
			cr_assert_eq(l[i]->seen.sequences[k], k + 1);
	}
	for (int i = 0; i < 2; i++)
		free(l[i]);
	events_free(ev);
}

static void flood(struct event_sink *sink, enum event e, uint64_t sequence, const char *json,
		  size_t n)
{
	struct listener *l = (struct listener *)(void *)sink;

	(void)e;
	if (sequence == 1)
		for (unsigned i = 0; i < 3 * EVENTS_KEPT; i++)
			events_emit(l->ev, EVENT_CLIENT_DROPPED, NULL, NULL);
	cr_assert_eq(strlen(json), n, "what is being delivered is still there");
	l->seen.n++;
}

Test(events, a_sink_that_floods_is_bounded)
{
	struct events *ev = ring();
	struct listener *l = listen_to(ev, UINT64_MAX);

	l->sink.fn = flood;
	events_emit(ev, EVENT_CONFIG, NULL, NULL);
	cr_assert_eq(l->seen.n, events_last(ev));
	cr_assert_lt(events_last(ev), EVENTS_KEPT + 1);
	cr_assert_eq(events_count(ev, EVENT_CLIENT_DROPPED), 3 * EVENTS_KEPT);
	free(l);
	events_free(ev);
}
