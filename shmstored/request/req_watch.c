/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_watch.c: WATCH: a connection is told of events, from those that are kept on. One watch a
 * connection; it ends with it. A client that is not an administrator is told of its own user's
 * events, and of those that are nobody's.
 *
 *   catching up   the kept ones go out as far as the client reads; a timer looks again. Later
 *                 events are kept too, and wait
 *   live          each goes out as it happens; a client that reads too slowly is dropped by
 *                 conn.c's bound, like anybody
 *
 * A client so far behind that the ring has gone round misses the oldest, and sees that by the
 * numbers. Numbers begin anew with each life of the daemon: one from before, greater than the last,
 * means from now on.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "events.h"
#include "host.h"
#include "loop.h"

#define NAME_MAX_SIZE  64
#define CATCH_UP_BYTES 32768u             /* that may wait while catching up */
#define CATCH_UP_NS    UINT64_C(20000000) /* between looks at whether the client has read on */

struct watch {
	struct event_sink sink;
	struct conn_end end;
	struct conn *conn;
	struct host *host;
	uint64_t told; /* number of the last event that was looked at */
	struct loop_op timer;
	bool catching_up;
};

static bool may_see(const struct watch *w, uint64_t sequence)
{
	uid_t owner = events_owner(w->conn->host->events, sequence);

	return owner == (uid_t)-1 || owner == w->conn->peer.uid || conn_is_admin(w->conn);
}

static int tell(struct watch *w, uint64_t sequence, const char *json, size_t n)
{
	struct wire_event event = {.sequence = sequence};

	w->told = sequence;
	return may_see(w, sequence) ? conn_send(w->conn, WIRE_EVENT, 0, &event, json, n) : CONN_OK;
}

static void on_event(struct event_sink *sink, UNUSED enum event e, uint64_t sequence,
		     const char *json, size_t n)
{
	struct watch *w = CONTAINER_OF(sink, watch, sink);

	if (!w->catching_up && sequence > w->told)
		tell(w, sequence, json, n);
}

#define NO_ROOM (-1) /* tell_kept(): later */

static int tell_kept(UNUSED enum event e, uint64_t sequence, const char *json, void *arg)
{
	struct watch *w = arg;

	if (conn_waiting(w->conn) > CATCH_UP_BYTES)
		return NO_ROOM;
	return tell(w, sequence, json, strlen(json));
}

/* Tells what is kept and was not told. Afterwards it is live, or the timer runs. */
static void catch_up(struct watch *w)
{
	w->catching_up =
		events_each(w->host->events, w->told, w->sink.mask, tell_kept, w) == NO_ROOM;
	if (w->catching_up &&
	    loop_timer(w->host->loop, &w->timer, loop_clock() + CATCH_UP_NS, 0) < 0)
		conn_drop(w->conn, CONN_E_LIMIT, "no timer to wait for it with");
}

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	catch_up(CONTAINER_OF(op, watch, timer));
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct watch *w = CONTAINER_OF(e, watch, end);

	events_unsubscribe(w->host->events, &w->sink);
	loop_release(w->host->loop, &w->timer, w);
}

/* "a,b" as bits; "" = all. False: ret_bad is the name that there is not. */
static bool parse_names(const char *text, uint64_t *ret_mask, char ret_bad[NAME_MAX_SIZE])
{
	uint64_t mask = 0;

	if (!*text)
		mask = UINT64_MAX;
	while (*text) {
		size_t n = strcspn(text, ",");
		int e;

		snprintf(ret_bad, NAME_MAX_SIZE, "%.*s",
			 n < NAME_MAX_SIZE ? (int)n : NAME_MAX_SIZE - 1, text);
		e = n < NAME_MAX_SIZE ? event_parse(ret_bad) : -1;
		if (e < 0)
			return false;
		mask |= UINT64_C(1) << e;
		text += n;
		text += *text == ',';
	}
	*ret_mask = mask;
	return true;
}

static int refuse_name(struct conn *c, uint64_t serial, const char *bad)
{
	char names[512] = "";
	size_t n = 0;

	for (int e = 0; e < (int)EVENTS_N && n < sizeof(names); e++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", e ? ", " : "",
				      event_name((enum event)e));
	return conn_refuse(c, serial, -EINVAL, "\"%s\" is no event; there are: %s", bad, names);
}

DISPATCH_HANDLER(watch)
{
	struct events *events = c->host->events;
	char bad[NAME_MAX_SIZE];
	struct watch *w;
	uint64_t mask;
	int r;

	if (conn_find_end(c, on_end))
		return conn_refuse(c, serial, -EBUSY, "this connection watches already");
	if (!parse_names(tail, &mask, bad))
		return refuse_name(c, serial, bad);
	w = calloc(1, sizeof(*w));
	if (!w)
		return conn_refuse(c, serial, -ENOMEM, "the daemon is out of memory");
	*w = (struct watch){.sink = {.mask = mask, .fn = on_event},
			    .end = {.fn = on_end},
			    .conn = c,
			    .host = c->host,
			    .timer = {.fn = on_timer},
			    .told = body->since < events_last(events) ? body->since
								      : events_last(events)};
	events_subscribe(events, &w->sink);
	conn_on_end(c, &w->end);
	r = conn_send_done(c, serial);
	catch_up(w);
	return r;
}
