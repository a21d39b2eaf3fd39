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
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "beneath.h"
#include "dispatch.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "report.h"
#include "scanner.h"

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

static void on_survey(struct account_wait *w, const struct survey *survey, int error)
{
	struct asking_wait *wait = CONTAINER_OF(w, asking_wait, wait);
	struct asking *a = wait->asking;

	wait->account = NULL;
	if (!survey && !a->error)
		a->error = error < 0 ? error : -ECANCELED;
	if (--a->n_to_come)
		return;
	if (a->error)
		conn_refuse(a->conn, a->serial, a->error,
			    "the bytes could not be accounted for: %s",
			    shmstore_strerror(a->error));
	else
		answer(a->conn, a->serial, WIRE_QUERY_RECONCILE, a->path);
	asking_free(a);
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

static int tell(struct watch *w, uint64_t sequence, const char *json, size_t n)
{
	struct wire_event event = {.sequence = sequence};
	uid_t owner = events_owner(w->conn->host->events, sequence);

	w->told = sequence;
	return owner == (uid_t)-1 || owner == w->conn->peer.uid || conn_is_admin(w->conn)
		       ? conn_send(w->conn, WIRE_EVENT, 0, &event, json, n)
		       : CONN_OK;
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

/* ---- REAP ------------------------------------------------------------------------------------ */

/*
 * A user asks for a dead store to go now, and is told each step. The daemon reaps the dead on its
 * own (reaper.c); this is for a store that it was not told of, or whose owner's process hangs
 * without the lock, and for users who want to see.
 *
 * The work is a worker's, in the reaps' thread. Until it is done the struct reaping belongs to
 * that; it forgets its connection where that ends. One at a time for each connection, so that
 * nobody fills the queue. The lock decides: a store whose owner lives is -EBUSY, whoever asks.
 */
#define ACTIONS_MAX 1000u

struct reaping {
	struct scanner_job job;
	struct conn *conn; /* NULL: it ended */
	struct conn_end end;
	uint64_t serial;
	struct account *account;
	char *path;
	int partition_fd;
	uid_t asker;
	bool any_user;  /* the asker may reap everybody's */
	uint64_t books; /* quota_books() when it was submitted */
	/* The worker's. */
	int result;
	bool known; /* the page was there, and said the rest of */
	struct page_head owner;
	struct json_object *actions;
	uint64_t n_actions, n_failed;
	struct shmstore_gc_report report;
	uint64_t expiry_ms;
};

static void reaping_free(struct reaping *r)
{
	if (r->conn)
		conn_off_end(r->conn, &r->end);
	if (r->partition_fd >= 0)
		close(r->partition_fd);
	json_object_put(r->actions);
	if (r->account)
		account_unref(r->account);
	free(r->path);
	free(r);
}

/* ---- in the worker ---- */

static int add_action(const struct shmstore_gc_action *action, void *arg)
{
	struct reaping *r = arg;
	struct json_object *o;

	r->n_failed += action->error != 0;
	if (r->n_actions++ >= ACTIONS_MAX)
		return 0;
	o = jsonmake_append(r->actions, jsonmake_new());
	fields_of(o, action, PLACE("what"), SAME(path), SAME(bytes), NUMBER(objects),
		  SAME(evidence));
	jsonmake_text(o, "what", shmstore_gc_what_name(action->what));
	jsonmake_text(o, "error", action->error ? shmstore_strerror(action->error) : NULL);
	return 0;
}

/* Finds owner (the directory's), name and label (the page's). 0, -ENOENT, -EPERM. */
static int identify(struct reaping *r)
{
	const char *below = r->path + strlen(r->account->path) + 1;
	struct stat st;
	int dir = beneath_open(r->partition_fd, below, O_RDONLY | O_DIRECTORY), fd;

	if (dir < 0)
		return dir == -ENOENT || dir == -ENOTDIR ? -ENOENT : -EPERM;
	if (fstat(dir, &st) < 0 || (st.st_uid != r->asker && !r->any_user)) {
		close(dir);
		return -EPERM;
	}
	fd = beneath_open(dir, WIRE_PAGE_FILE, O_RDONLY | O_NONBLOCK);
	close(dir);
	if (fd >= 0) {
		r->known = pages_read_head(fd, &r->owner) == 0;
		close(fd);
	}
	r->owner.uid = st.st_uid; /* the kernel's word, not the page's */
	return 0;
}

static void run(struct scanner_job *job)
{
	struct reaping *r = CONTAINER_OF(job, reaping, job);

	r->result = identify(r);
	if (r->result < 0)
		return;
	jsonmake_begin();
	r->actions = jsonmake_new_list();
	r->result = shmstore_partition_reap(r->account->partition, r->path, 0, add_action, r,
					    &r->report, &r->expiry_ms);
	r->actions = jsonmake_end(r->actions);
	if (r->result == 0 && !r->actions)
		r->result = -ENOMEM;
}

/* ---- in the loop's thread ---- */

static struct json_object *document(struct reaping *r)
{
	struct json_object *o = account_json(r->account);

	jsonmake_text(o, "path", r->path);
	jsonmake_text(o, "name", r->known ? r->owner.name : NULL);
	jsonmake_child(o, "actions", r->actions);
	r->actions = NULL;
	jsonmake_u64(o, "left_out", r->n_actions > ACTIONS_MAX ? r->n_actions - ACTIONS_MAX : 0);
	fields_of(o, &r->report, SAME(freed), NUMBER(stores), NUMBER(leases), NUMBER(objects));
	jsonmake_u64(o, "failed", r->n_failed);
	jsonmake_flag(o, "leases_stay", r->expiry_ms != UINT64_MAX);
	return o;
}

static void refuse(const struct reaping *r)
{
	const char *why = shmstore_strerror(r->result);

	switch (r->result) {
	case -EBUSY:
		why = "its owner lives: a store is reaped only when nobody holds its lock";
		break;
	case -ENOENT:
		why = "there is no such store, or not any more";
		break;
	case -EPERM:
		why = r->any_user ? "this is no store of the partition's"
				  : "the store is another user's";
		break;
	default:
		break;
	}
	conn_refuse(r->conn, r->serial, r->result, "%s: %s", r->path, why);
}

/* Tells the books and the watchers what the reap changed. */
static void tell_reaped(const struct reaping *r)
{
	struct host *h = r->account->host;
	struct json_object *fields;

	reaper_book(r->account, r->books, r->known ? &r->owner : NULL, &r->report);
	if (!r->report.n_stores && !r->report.n_objects && !r->report.n_leases)
		return;
	h->counters.n_reaped++;
	fields = account_json(r->account);
	jsonmake_text(fields, "path", r->path);
	jsonmake_text(fields, "name", r->known ? r->owner.name : NULL);
	jsonmake_u64(fields, "uid", r->owner.uid);
	jsonmake_u64(fields, "asked_by", r->asker);
	fields_of(fields, &r->report, SAME(freed), NUMBER(objects), NUMBER(leases));
	jsonmake_flag(fields, "leases_stay", r->expiry_ms != UINT64_MAX);
	events_emit(h->events, EVENT_STORE_REAPED, r->path, fields);
}

static void done(struct scanner_job *job)
{
	struct reaping *r = CONTAINER_OF(job, reaping, job);

	if (r->result == 0 && !r->account->closing)
		tell_reaped(r);
	if (r->result == 0 && !r->account->closing && r->expiry_ms != UINT64_MAX)
		reaper_look(r->account, r->path); /* which waits for the leases */
	if (r->conn && r->result < 0) {
		refuse(r);
	} else if (r->conn) {
		jsonmake_begin();
		conn_send_object(r->conn, r->serial, jsonmake_end(document(r)),
				 "it was reaped, but there is no memory to say how");
	}
	reaping_free(r);
}

static void reaping_end(struct conn_end *e, UNUSED struct conn *c)
{
	CONTAINER_OF(e, reaping, end)->conn = NULL;
}

static struct reaping *reaping_new(struct conn *c, uint64_t serial, struct account *a,
				   const char *path)
{
	struct reaping *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->partition_fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
	r->path = strdup(path);
	if (r->partition_fd < 0 || !r->path) {
		reaping_free(r);
		return NULL;
	}
	account_ref(a);
	r->account = a;
	r->conn = c;
	r->serial = serial;
	r->asker = c->peer.uid;
	r->any_user = conn_is_admin(c);
	r->expiry_ms = UINT64_MAX;
	r->result = -ECANCELED; /* as long as it did not run */
	r->end.fn = reaping_end;
	conn_on_end(c, &r->end);
	return r;
}

static struct account *account_above(struct host *h, const char *path)
{
	for (struct account *a = h->accounts; a; a = a->next) {
		size_t n = strlen(a->path);

		if (strncmp(a->path, path, n) == 0 && path[n] == '/' && path[n + 1])
			return a;
	}
	return NULL;
}

DISPATCH_HANDLER(reap)
{
	struct account *a = account_above(c->host, tail);
	struct member *m = a ? member_find(a, tail) : NULL;
	struct reaping *r;

	if (body->reserved || !tail_size)
		return conn_fault(c, "REAP: there must be a path, and reserved must be 0");
	if (!a)
		return conn_refuse(c, serial, -ENOENT,
				   "%s is in no partition that this daemon watches", tail);
	if (conn_find_end(c, reaping_end))
		return conn_refuse(
			c, serial, -EBUSY,
			"this connection has a store reaped already; wait for its answer");
	/* A dead one that we took for alive: its credit returns before its memory does. */
	if (m && member_state(m) == MEMBER_DEAD && (conn_is_admin(c) || m->uid == c->peer.uid))
		member_gone(m, "died");
	r = reaping_new(c, serial, a, tail);
	if (!r)
		return conn_refuse(c, serial, -ENOMEM, "the daemon is out of memory");
	r->books = quota_books(a->quota);
	r->job = (struct scanner_job){.worker = SCANNER_REAP, .run = run, .done = done};
	scanner_submit(c->host->scanner, &r->job);
	return CONN_OK;
}
