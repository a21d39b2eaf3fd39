/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_reap.c: REAP: a user asks for a dead store to go now, and is told each step. The daemon reaps
 * the dead on its own (reaper.c); this is for a store that it was not told of, or whose owner's
 * process hangs without the lock, and for users who want to see.
 *
 * The work is a worker's, in the reaps' thread. Until it is done the struct reaping belongs to
 * that; it forgets its connection where that ends. One at a time for each connection, so that
 * nobody fills the queue. The lock decides: a store whose owner lives is -EBUSY, whoever asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "accountquota.h"
#include "beneath.h"
#include "dispatch.h"
#include "events.h"
#include "fields.h"
#include "host.h"
#include "jsonmake.h"
#include "member.h"
#include "reaper.h"
#include "scanner.h"

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

static void reply(struct reaping *r)
{
	struct json_object *o;

	if (r->result < 0) {
		refuse(r);
		return;
	}
	jsonmake_begin();
	o = jsonmake_end(document(r));
	conn_send_object(r->conn, r->serial, o, "it was reaped, but there is no memory to say how");
}

/* Tells the books and the watchers what the reap changed. */
static void tell(const struct reaping *r)
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
		tell(r);
	if (r->result == 0 && !r->account->closing && r->expiry_ms != UINT64_MAX)
		reaper_look(r->account, r->path); /* which waits for the leases */
	if (r->conn)
		reply(r);
	reaping_free(r);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct reaping *r = CONTAINER_OF(e, reaping, end);

	r->conn = NULL;
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
	r->end.fn = on_end;
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
	if (conn_find_end(c, on_end))
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
