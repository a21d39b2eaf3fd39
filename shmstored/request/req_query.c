/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_query.c: QUERY: one document about what the daemon knows. All but RECONCILE are answered at
 * once. That one first asks each partition meant for a survey, which others may ask for at the same
 * time, and answers when the last is published.
 *
 * A connection has one RECONCILE under way at most. A struct asking lives until all its surveys
 * have come, or the connection ended. The loop's thread only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "actord.h"
#include "dispatch.h"
#include "host.h"
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

static void on_end(struct conn_end *e, UNUSED struct conn *c)
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
	a->end.fn = on_end;
	conn_on_end(c, &a->end);
	return a;
}

static int reconcile(struct conn *c, uint64_t serial, const char *path)
{
	struct host *h = c->host;
	struct account *only = *path ? account_find(h, path) : NULL;
	struct asking *a;
	size_t n = 0;

	if (conn_find_end(c, on_end))
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
