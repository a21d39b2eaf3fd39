/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_broker.c: BROKER: a handoff to another user.
 *
 * Here, on the loop's thread, is decided whether it may be: a registered store, the two users as
 * the kernel and the operator's rules know them, and no more requests under way than a bound. The
 * work in the file system is in broker.c, on the thread that waits for no survey. The client may be
 * gone when that is done; what it handed on then is still handed on.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "broker.h"
#include "config.h"
#include "conn.h"
#include "dispatch.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"
#include "member.h"
#include "scanner.h"
#include "wire.h"

#define PENDING_MAX      256u /* of all clients: each waits for its reply, as a rule */
#define PENDING_USER_MAX 32u  /* of one user's */

struct request {
	struct scanner_job job; /* first: one is cast to the other */
	struct conn_end end;
	struct request *next, *prev; /* under way */
	struct host *host;
	struct conn *conn; /* NULL: gone */
	uint64_t serial;
	char *rule; /* NULL: none was needed */
	char partition[PATH_MAX];
	struct broker_ask ask;
	struct broker_answer answer;
	int error;
};

/* The loop's thread's. */
static struct request *pending;

static struct request *request_free(struct request *q)
{
	if (!q)
		return NULL;
	if (q->ask.partition_fd >= 0)
		close(q->ask.partition_fd);
	shmstore_partition_unref(q->ask.partition);
	free(q->rule);
	free(q);
	return NULL;
}

static bool too_many(uid_t uid)
{
	unsigned n = 0, of_user = 0;

	for (const struct request *q = pending; q; q = q->next, n++)
		of_user += q->ask.from == uid;
	return of_user >= PENDING_USER_MAX || n >= PENDING_MAX;
}

static void tell(struct host *h, const struct broker_ask *ask, const char *rule,
		 const struct broker_answer *answer)
{
	struct json_object *o = jsonmake_new();
	char key[64];

	snprintf(key, sizeof(key), "%u>%u%s", (unsigned)ask->from, (unsigned)ask->to,
		 answer->why ? "!" : "");
	jsonmake_text(o, "store", ask->store);
	jsonmake_u64(o, "uid", ask->from); /* whose event it is: the donor's */
	jsonmake_u64(o, "to_uid", ask->to);
	jsonmake_flag(o, "done", !answer->why);
	jsonmake_text(o, "rule", rule);
	if (answer->why)
		jsonmake_text(o, "why", answer->why);
	else
		jsonmake_u64(o, "bytes", answer->bytes);
	events_emit(h->events, EVENT_HANDOFF_USER, key, o);
}

/* In the worker. */
static void run(struct scanner_job *job)
{
	struct request *q = (struct request *)job;

	q->error = broker_run(&q->ask, &q->answer);
	if (q->error == 0)
		q->answer.why = NULL;
}

static void answer(struct request *q)
{
	struct wire_brokered body = {0};
	char path[2 * PATH_MAX];
	int n;

	if (q->error < 0) {
		conn_refuse(q->conn, q->serial, q->error, "%s", q->answer.why);
	} else {
		n = snprintf(path, sizeof(path), "%s/%s", q->partition, q->answer.path);
		conn_send(q->conn, WIRE_BROKERED, q->serial, &body, path, (size_t)n);
	}
}

static void done(struct scanner_job *job)
{
	struct request *q = (struct request *)job;

	DL_DELETE(pending, q);
	if (q->error == 0)
		q->host->counters.n_brokered++;
	tell(q->host, &q->ask, q->rule, &q->answer);
	if (q->conn) {
		conn_off_end(q->conn, &q->end);
		answer(q);
	}
	request_free(q);
}

static void gone(struct conn_end *e, UNUSED struct conn *c)
{
	struct request *q = CONTAINER_OF(e, request, end);

	q->conn = NULL;
}

/* May it be at all? NULL: yes, and *ret_rule names the rule (NULL: none is needed). */
static const char *refusal(const struct host *h, const struct account *a,
			   const struct broker_ask *ask, const char **ret_rule)
{
	struct stat st;

	*ret_rule = NULL;
	if (geteuid() != 0)
		return "shmstored does not run as root: it cannot hand one user's objects to "
		       "another";
	if (fstat(a->fd, &st) < 0 || (st.st_mode & 01777) != 01777)
		return "the partition is not shared by several users (shmstore-admin init "
		       "--shared)";
	if (ask->to != ask->from && !rules_allow(h->config->rules, ask->from, ask->to, ret_rule))
		return "no rule in shmstored.conf allows it";
	return NULL;
}

static struct request *request_new(struct conn *c, uint64_t serial, const struct broker_ask *ask,
				   const char *rule)
{
	const struct account *a = c->member->account;
	struct request *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->job = (struct scanner_job){.worker = SCANNER_REAP, .run = run, .done = done};
	q->end.fn = gone;
	q->host = c->host;
	q->conn = c;
	/* Where it never runs: the daemon ends. */
	q->error = -ECANCELED;
	q->answer.why = "shmstored ends";
	q->serial = serial;
	q->ask = *ask;
	q->ask.partition = shmstore_partition_ref(a->partition);
	q->ask.partition_fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
	snprintf(q->partition, sizeof(q->partition), "%s", a->path);
	q->rule = rule ? strdup(rule) : NULL;
	return q->ask.partition_fd < 0 || (rule && !q->rule) ? request_free(q) : q;
}

DISPATCH_HANDLER(broker)
{
	const struct member *m = c->member;
	struct broker_ask ask = {
		.from = c->peer.uid, .to = body->to_uid, .lease_ms = body->lease_ms};
	struct broker_answer refused = {0};
	struct request *q;
	const char *rule;

	if (!m)
		return conn_refuse(c, serial, -EPERM,
				   "a store has to be registered on this connection first");
	if (ask.to == (uid_t)-1 || (ask.to == ask.from) != (ask.lease_ms != 0) || tail_size == 0)
		return conn_fault(c, "BROKER without a receiver, a path, or the right lease_ms");
	snprintf(ask.store, sizeof(ask.store), "%s", m->path + strlen(m->account->path) + 1);
	snprintf(ask.path, sizeof(ask.path), "%s", tail);
	refused.why = refusal(c->host, m->account, &ask, &rule);
	if (refused.why) {
		tell(c->host, &ask, NULL, &refused);
		return conn_refuse(c, serial, -EPERM, "%s", refused.why);
	}
	if (too_many(ask.from))
		return conn_refuse(c, serial, -EDQUOT,
				   "too many handoffs between users are under way: try again");
	q = request_new(c, serial, &ask, rule);
	if (!q)
		return conn_refuse(c, serial, -ENOMEM, "out of memory or of descriptors");
	conn_on_end(c, &q->end);
	DL_PREPEND(pending, q);
	scanner_submit(q->host->scanner, &q->job);
	return CONN_OK;
}
