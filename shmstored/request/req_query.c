/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_query.c: QUERY: one document about what the daemon knows. All but RECONCILE are answered at
 * once. That one first asks each partition meant for a survey, which others may ask for at the same
 * time, and answers when the last is published.
 *
 * A connection has one RECONCILE under way at most. A struct asking lives until all its surveys
 * have come, or the connection ended. The loop's thread only.
 *
 * WATCH: a connection is told of events, from those that are kept on.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "actord.h"
#include "dispatch.h"
#include "events.h"
#include "host.h"
#include "loop.h"
#include "report.h"

struct asking {
	struct conn *conn;
	struct conn_end end;
	uint64_t serial;
	char *path;       /* "" = all */
	size_t n_to_come; /* surveys */
	int error;        /* of the first one that failed */
	size_t n_waits;
	struct asking_wait {
		struct account_wait wait;
		struct asking *asking;
		struct account *account; /* NULL: it has come */
	} waits[];
};

/* Out of the accounts, and off the connection. */
static void asking_free(struct asking *a)
{
	for (size_t i = 0; i < a->n_waits; i++) {
		if (a->waits[i].account)
			account_survey_cancel(a->waits[i].account, &a->waits[i].wait);
	}
	conn_off_end(a->conn, &a->end);
	free(a->path);
	free(a);
}

static int answer(struct conn *c, uint64_t serial, enum wire_question what, const char *path)
{
	unsigned uid = conn_is_admin(c) ? REPORT_ALL : c->peer.uid;

	if (*path && !account_find(c->host, path))
		return conn_refuse(c, serial, -ENOENT,
				   "%s is no partition that this daemon watches; \"shmstore-admin "
				   "status\" lists them",
				   path);
	return conn_send_object(c, serial, report_make(c->host, what, path, uid, 0),
				"the daemon is out of memory");
}

static void answer_late(struct asking *a)
{
	if (a->error)
		conn_refuse(a->conn, a->serial, a->error,
			    "the bytes could not be accounted for: %s",
			    shmstore_strerror(a->error));
	else
		answer(a->conn, a->serial, WIRE_QUERY_RECONCILE, a->path);
	asking_free(a);
}

static void on_survey(struct account_wait *w, const struct survey *survey, int error)
{
	struct asking_wait *wait = CONTAINER_OF(w, asking_wait, wait);
	struct asking *a = wait->asking;

	wait->account = NULL;
	if (!survey && !a->error)
		a->error = error < 0 ? error : -ECANCELED;
	if (--a->n_to_come == 0)
		answer_late(a);
}

static void asking_end(struct conn_end *e, UNUSED struct conn *c)
{
	asking_free(CONTAINER_OF(e, asking, end));
}

static struct asking *asking_new(struct conn *c, uint64_t serial, const char *path, size_t n_waits)
{
	struct asking *a = calloc(1, sizeof(*a) + n_waits * sizeof(a->waits[0]));

	if (!a)
		return NULL;
	a->path = strdup(path);
	if (!a->path) {
		free(a);
		return NULL;
	}
	a->conn = c;
	a->serial = serial;
	a->n_waits = n_waits;
	a->end.fn = asking_end;
	conn_on_end(c, &a->end);
	return a;
}

static int reconcile(struct conn *c, uint64_t serial, const char *path)
{
	struct host *h = c->host;
	struct account *only = *path ? account_find(h, path) : NULL;
	struct asking *a;
	size_t n = 0;

	if (conn_find_end(c, asking_end))
		return conn_refuse(
			c, serial, -EBUSY,
			"this connection asked for a reconcile already; wait for its answer");
	for (struct account *at = h->accounts; at; at = at->next)
		n += !only || at == only;
	if ((*path && !only) || n == 0)
		return answer(c, serial, WIRE_QUERY_RECONCILE, path);
	a = asking_new(c, serial, path, n);
	if (!a)
		return conn_refuse(c, serial, -ENOMEM, "the daemon is out of memory");
	n = 0;
	for (struct account *at = h->accounts; at; at = at->next) {
		struct asking_wait *w = &a->waits[n];
		int r;

		if (only && at != only)
			continue;
		*w = (struct asking_wait){.wait = {.fn = on_survey}, .asking = a};
		r = account_survey(at, &w->wait);
		n++;
		if (r < 0) {
			asking_free(a);
			return conn_refuse(c, serial, r, "%s cannot be surveyed now: %s", at->path,
					   shmstore_strerror(r));
		}
		w->account = at;
		a->n_to_come++;
	}
	return CONN_OK;
}

DISPATCH_HANDLER(query)
{
	if (body->reserved)
		return conn_fault(c, "QUERY: reserved is not 0");
	if (!report_answers(body->what))
		return conn_fault(c, "QUERY: no such question: %u", body->what);
	if (body->what == WIRE_QUERY_ACTORS && !c->host->actord->report)
		return c->host->actord->request(c, WIRE_QUERY, serial, body, tail, tail_size);
	if (body->what == WIRE_QUERY_RECONCILE)
		return reconcile(c, serial, tail);
	return answer(c, serial, (enum wire_question)body->what, tail);
}

/* ---- watching -------------------------------------------------------------------------------- */

/*
 * One watch a connection; it ends with it. A client that is not an administrator is told of its own
 * user's events, and of those that are nobody's. While it catches up, the events that were kept go
 * out as far as the client reads; a timer looks again; later events are kept too, and wait. Then
 * each goes out as it happens, and a client that reads too slowly is dropped by conn.c's bound,
 * like anybody.
 *
 * A client so far behind that the ring has gone round misses the oldest, and sees that by the
 * numbers. Numbers begin anew with each life of the daemon: one from before, greater than the last,
 * means from now on.
 */

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
