/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.c: the ring of events, the limit on their rate, and who is told.
 *
 * Memory is bounded whatever happens: EVENTS_KEPT texts of at most EVENTS_JSON_MAX bytes, and
 * LIMIT_SETS * LIMIT_WAYS keys that were the last ones to emit. A key that was pushed out of there
 * starts afresh: at worst an event too many is kept. Delivery is a loop over numbers, not a call
 * within a call: a sink that emits makes the next turn of the loop, so that all sinks see all
 * events in their order and the stack does not grow.
 * Rejected: a thread or a queue per sink (who is slow is dropped by conn.c); binary records (each
 * reader would format them anew).
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include <xxhash.h>

#include "clocks.h"
#include "jsonmake.h"
#include "log.h"

#define SECOND_NS  UINT64_C(1000000000)
#define LONGEST_NS (60 * SECOND_NS) /* between two events of a key that never pauses */
#define LIMIT_SETS 128u
#define LIMIT_WAYS 4u
#define TEXT_CUT   200u /* bytes that are left of a text in an event that is too long */

#define PLAIN (JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)

static const char *const names[EVENTS_N] = {
#define EVENT(NAME, name) [EVENT_##NAME] = (name),
#include "events.def"
#undef EVENT
};

struct kept {
	enum event event;
	uid_t owner;
	char *json;
	size_t size;
};

/* When a key emitted last, and what was left out of it since. */
struct limit {
	enum event event;
	uint64_t interval_ns; /* until the next one of that key may be kept */
	char *key;            /* NULL = free */
	uint64_t at_ns, n_left_out;
};

struct events {
	struct kept ring[EVENTS_KEPT]; /* number n is at n % EVENTS_KEPT */
	uint64_t last, delivered;
	struct limit limits[LIMIT_SETS][LIMIT_WAYS];
	struct event_sink *sinks, *cursor; /* cursor: the sink to be told next, while delivering */
	bool delivering;
	uint64_t counts[EVENTS_N];
};

const char *event_name(enum event e)
{
	return (unsigned)e < EVENTS_N ? names[e] : NULL;
}

int event_parse(const char *name)
{
	for (int i = 0; i < (int)EVENTS_N; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

int events_new(struct events **ret)
{
	struct events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return -ENOMEM;
	*ret = ev;
	return 0;
}

struct events *events_free(struct events *ev)
{
	if (!ev)
		return NULL;
	for (size_t i = 0; i < EVENTS_KEPT; i++)
		free(ev->ring[i].json);
	for (size_t i = 0; i < LIMIT_SETS; i++)
		for (size_t way = 0; way < LIMIT_WAYS; way++)
			free(ev->limits[i][way].key);
	free(ev);
	return NULL;
}

/* ---- the rate -------------------------------------------------------------------------------- */

/* True: it may be kept, *ret_left_out were not since the last one of this key.
 * False: it is one too many. */
static bool rate_allows(struct events *ev, enum event e, const char *key, uint64_t *ret_left_out)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	/* A client that picks keys which meet in one set gains events that are not limited, of a
	 * ring that is bounded anyway. */
	uint64_t hash = XXH3_64bits_withSeed(key, strlen(key), (uint64_t)e);
	struct limit *set = ev->limits[hash % LIMIT_SETS], *oldest = set;

	*ret_left_out = 0;
	for (struct limit *l = set; l < set + LIMIT_WAYS; l++) {
		if (l->key && l->event == e && strcmp(l->key, key) == 0) {
			if (now_ns - l->at_ns < l->interval_ns) {
				l->n_left_out++;
				return false;
			}
			*ret_left_out = l->n_left_out;
			l->n_left_out = 0;
			/* Events of a user that stays at its limit get rarer; a pause resets it. */
			l->interval_ns = now_ns - l->at_ns < 2 * l->interval_ns ? 2 * l->interval_ns
										: SECOND_NS;
			if (l->interval_ns > LONGEST_NS)
				l->interval_ns = LONGEST_NS;
			l->at_ns = now_ns;
			return true;
		}
		if (!l->key || (oldest->key && l->at_ns < oldest->at_ns))
			oldest = l;
	}
	free(oldest->key);
	*oldest = (struct limit){
		.event = e, .key = strdup(key), .at_ns = now_ns, .interval_ns = SECOND_NS};
	return true;
}

/* ---- the text -------------------------------------------------------------------------------- */

/* A text of at most most bytes; 0 = any. */
static struct json_object *clean_text(struct json_object *value, size_t most)
{
	const char *text = json_object_get_string(value);
	size_t n = (size_t)json_object_get_string_len(value);
	struct json_object *made;
	char *escaped;

	if ((!most || n <= most) && printable_is(text, n))
		return json_object_get(value);
	escaped = printable_new(text, most && n > most ? most : n);
	made = escaped ? json_object_new_string(escaped) : NULL;
	free(escaped);
	return made;
}

static struct json_object *compose(struct events *ev, enum event e, struct json_object *fields,
				   uint64_t n_left_out, size_t most)
{
	struct json_object *o = jsonmake_new();

	jsonmake_u64(o, "sequence", ev->last + 1);
	jsonmake_seconds(o, "time", (int64_t)clock_ns(CLOCK_REALTIME));
	jsonmake_text(o, "event", names[e]);
	if (fields) {
		json_object_object_foreach(fields, name, value)
		{
			if (json_object_is_type(value, json_type_string))
				jsonmake_child(o, name, clean_text(value, most));
			else if (!value)
				jsonmake_null(o, name);
			else if (!most || json_object_is_type(value, json_type_int))
				jsonmake_child(o, name, json_object_get(value));
		}
	}
	if (n_left_out)
		jsonmake_u64(o, "repeated", n_left_out);
	return o;
}

/* On the heap; NULL: no memory. */
static char *event_text(struct events *ev, enum event e, struct json_object *fields,
			uint64_t n_left_out, size_t *ret_size)
{
	struct json_object *o = NULL;
	const char *text = NULL;
	char *copied;
	size_t n = 0;

	/* Too long: once more with shorter texts; still too long, which takes
	 * dozens of fields: without them. */
	for (int attempt = 0; attempt < 3; attempt++) {
		json_object_put(o);
		o = compose(ev, e, attempt < 2 ? fields : NULL, n_left_out, attempt ? TEXT_CUT : 0);
		text = o ? json_object_to_json_string_length(o, PLAIN, &n) : NULL;
		if (!text || n <= EVENTS_JSON_MAX)
			break;
	}
	copied = text ? strdup(text) : NULL;
	json_object_put(o);
	*ret_size = n;
	return copied;
}

static uid_t owner_of(struct json_object *fields)
{
	struct json_object *uid;

	if (!fields || !json_object_object_get_ex(fields, "uid", &uid) ||
	    !json_object_is_type(uid, json_type_int))
		return (uid_t)-1;
	return (uid_t)json_object_get_int64(uid);
}

/* ---- who is told ----------------------------------------------------------------------------- */

static void deliver(struct events *ev)
{
	if (ev->delivering)
		return;
	ev->delivering = true;
	while (ev->delivered < ev->last) {
		uint64_t sequence = ev->delivered + 1;
		const struct kept *k = &ev->ring[sequence % EVENTS_KEPT];
		struct event_sink *sink;

		for (ev->cursor = ev->sinks; (sink = ev->cursor) != NULL;) {
			ev->cursor = sink->next;
			if (sink->mask & (UINT64_C(1) << k->event))
				sink->fn(sink, k->event, sequence, k->json, k->size);
		}
		ev->delivered = sequence;
	}
	ev->delivering = false;
}

void events_emit(struct events *ev, enum event e, const char *key, struct json_object *fields)
{
	uint64_t n_left_out = 0;
	struct kept *k = &ev->ring[(ev->last + 1) % EVENTS_KEPT];
	size_t size;
	char *json;

	ev->counts[e]++;
	/* A sink that emits a ring full during its turn would write over what is being
	 * delivered. */
	if (ev->last - ev->delivered >= EVENTS_KEPT - 1 ||
	    (key && !rate_allows(ev, e, key, &n_left_out))) {
		json_object_put(fields);
		return;
	}
	json = event_text(ev, e, fields, n_left_out, &size);
	if (json) {
		free(k->json);
		*k = (struct kept){
			.event = e, .owner = owner_of(fields), .json = json, .size = size};
		ev->last++;
	}
	json_object_put(fields);
	deliver(ev);
}

void events_subscribe(struct events *ev, struct event_sink *sink)
{
	LL_PREPEND(ev->sinks, sink);
}

void events_unsubscribe(struct events *ev, struct event_sink *sink)
{
	if (ev->sinks)
		LL_DELETE(ev->sinks, sink);
	if (ev->cursor == sink)
		ev->cursor = sink->next;
}

int events_each(struct events *ev, uint64_t since, uint64_t mask,
		int (*fn)(enum event e, uint64_t sequence, const char *json, void *arg), void *arg)
{
	uint64_t oldest = ev->last > EVENTS_KEPT ? ev->last - EVENTS_KEPT + 1 : 1;

	for (uint64_t n = since < oldest ? oldest : since + 1; n <= ev->last && n > since; n++) {
		const struct kept *k = &ev->ring[n % EVENTS_KEPT];
		int r;

		if (!(mask & (UINT64_C(1) << k->event)))
			continue;
		r = fn(k->event, n, k->json, arg);
		if (r)
			return r;
	}
	return 0;
}

uint64_t events_count(const struct events *ev, enum event e)
{
	return ev->counts[e];
}

uid_t events_owner(const struct events *ev, uint64_t sequence)
{
	if (sequence == 0 || sequence > ev->last || ev->last - sequence >= EVENTS_KEPT)
		return (uid_t)-1;
	return ev->ring[sequence % EVENTS_KEPT].owner;
}

uint64_t events_last(const struct events *ev)
{
	return ev->last;
}
