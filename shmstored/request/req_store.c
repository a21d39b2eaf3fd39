/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_store.c: a store greets, registers, asks for bytes that it may write, hands objects to other
 * users, and leaves; an administrator sets limits.
 *
 * REGISTER: a process says which store is its own. The claim is checked: the store lives in a
 * partition of ours, its page belongs to the user at the socket's end (or that is root), and names
 * the process there, in its own pid namespace.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "actord.h"
#include "admit.h"
#include "broker.h"
#include "config.h"
#include "conn.h"
#include "dispatch.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "member.h"
#include "scanner.h"
#include "wire.h"

static const struct conn_why not_watched[] = {
	{-ENOENT, "there is no live store there: register after it was opened"},
	{-EPERM, "the store belongs to another user, or lies outside the partition"},
	{-EBADMSG, "its page is not one of ours"},
	{-ENOTSUP, "its page is not one of ours"},
	{-EMFILE, "the daemon is out of descriptors or memory"},
	{-ENOMEM, "the daemon is out of descriptors or memory"},
	{0, "the store cannot be watched"}};

DISPATCH_HANDLER(register)
{
	const struct conn_peer *peer = &c->peer;
	uid_t wanted = peer->uid == 0 ? (uid_t)-1 : peer->uid;
	char path[2 * (WIRE_PATH_MAX + 1)];
	struct wire_registered reply = {0};
	struct account *a;
	struct member *m;
	int r;

	if (body->reserved || tail_size == 0 || tail[0] == '/')
		return conn_fault(c, "REGISTER: the path must be below the partition");
	if (c->member)
		return conn_fault(c, "REGISTER: this connection has a store already");
	a = account_find_uuid(c->host, body->uuid);
	if (!a)
		return conn_refuse(c, serial, -ENOENT,
				   "this partition is not among those watched here");
	snprintf(path, sizeof(path), "%s/%s", a->path, tail);
	r = member_get(a, path, wanted, &m);
	if (r < 0)
		return conn_refuse_why(c, serial, r, not_watched);
	if (m->conn)
		return conn_refuse(c, serial, -EBUSY,
				   "the store is registered by another connection");
	/* A pid of 0 is in a pid namespace that we do not see. */
	if (peer->pid > 0 && !owner_is(peer->pid, m->pid))
		return conn_refuse(c, serial, -EPERM, "the store is another process's (pid %d)",
				   m->pid);
	member_connect(m, c, peer->pid);
	reply.id = m->id;
	return conn_send(c, WIRE_REGISTERED, serial, &reply, NULL, 0);
}

/* HELLO: the version that both speak, first and once. PING: is somebody there,
 * and what the protocol costs. */
DISPATCH_HANDLER(hello)
{
	const struct host *h = c->host;
	const struct wire_welcome welcome = {
		.version = WIRE_VERSION,
		.pid = (uint32_t)getpid(),
		.epoch = h->epoch,
		.features = WIRE_FEATURE_ACTOR_OPTIONS,
		.credit = h->config->credit,
	};

	if (c->greeted)
		return conn_fault(c, "a second HELLO");
	if (body->version_min > WIRE_VERSION || body->version_max < WIRE_VERSION)
		return conn_fault(
			c, "versions %u to %u of the protocol are offered, this daemon has %u",
			body->version_min, body->version_max, WIRE_VERSION);
	c->greeted = true;
	return conn_send(c, WIRE_WELCOME, serial, &welcome, NULL, 0);
}

DISPATCH_HANDLER(ping)
{
	const struct wire_pong pong = {.cookie = body->cookie};

	return conn_send(c, WIRE_PONG, serial, &pong, NULL, 0);
}

/* BYE: the store closes in good order. Its kept or not yet removed objects stay. */
DISPATCH_HANDLER(bye)
{
	struct member *m = c->member;

	/* Its connection may be used on, but is no store's any more. */
	if (m) {
		m->leaves = true;
		member_disconnected(m);
	}
	return conn_send_done(c, serial);
}

/* SET: a limit at run time, by an administrator. accountquota_set() knows the keys. */
#define REASON_MAX 1024

DISPATCH_HANDLER(set)
{
	char reason[REASON_MAX] = "";
	int r;

	if (body->reserved)
		return conn_fault(c, "SET: reserved is not 0");
	if (!conn_is_admin(c))
		return conn_refuse_user(c, serial, "limits are set by");
	r = accountquota_set(c->host, tail, reason, sizeof(reason));
	if (r < 0)
		return conn_refuse(c, serial, r, "%s", reason);
	return conn_send_done(c, serial);
}

/* GRANT and CANCEL: a store asks for bytes that it may write, and may wait for them; it waits no
 * more, for these or at the gate. */
#define WAIT_MAX_MS UINT64_C(86400000) /* nobody waits longer than a day */

DISPATCH_HANDLER(grant)
{
	struct host *h = c->host;
	struct member *m = c->member;
	struct quota_want want = {
		.serial = serial,
		.need = body->need,
		.ahead = body->ahead,
		.wait = (body->flags & WIRE_GRANT_WAIT) != 0,
		.deadline_ns = loop_now(h->loop) + MIN(body->timeout_ms, WAIT_MAX_MS) * 1000000,
	};
	struct quota_answer a;
	struct wire_granted granted;
	int r;

	if (!body->need || body->need > WIRE_GRANT_MAX)
		return conn_fault(c,
				  "GRANT of %" PRIu64 " bytes: 1 to %" PRIu64 " can be asked for",
				  body->need, WIRE_GRANT_MAX);
	if (!m || !m->quota)
		return conn_refuse(c, serial, -ENOENT,
				   "no store is registered on this connection; register one first");
	r = accountquota_request(m, &want, &a);
	switch (r) {
	case 0:
		h->counters.n_grants++;
		granted = (struct wire_granted){.granted = a.granted, .bytes = a.bytes};
		return conn_send(c, WIRE_GRANTED, serial, &granted, NULL, 0);
	case 1:
		h->counters.n_waits++;
		return CONN_OK;
	case -EINVAL:
		return conn_fault(c, "GRANT with serial %" PRIu64 ", which waits already", serial);
	default:
		return accountquota_refuse(m->account, c, serial, r, &a);
	}
}

DISPATCH_HANDLER(cancel)
{
	const struct actord *actord = c->host->actord;
	struct admit *a = c->host->admit;
	struct member *m = c->member;
	bool waited = a && admit_cancel(a, c, body->serial);
	int r;

	if (waited || (actord->cancel && actord->cancel(c, body->serial))) {
		r = conn_refuse(c, body->serial, -ECANCELED, "it was canceled");
		if (r == CONN_OK)
			r = conn_send_done(c, serial);
		if (waited)
			admit_settle(a);
		return r;
	}
	/* A request that does not wait any more was answered before: that answer stands. */
	if (m && m->quota)
		quota_cancel(m->account->quota, m->quota, body->serial);
	return conn_send_done(c, serial);
}

/* ---- BROKER ---------------------------------------------------------------------------------- */

/*
 * A handoff to another user. Here, on the loop's thread, is decided whether it may be: a registered
 * store, the two users as the kernel and the operator's rules know them, and no more requests under
 * way than a bound. The work in the file system is in broker.c, on the thread that waits for no
 * survey. The client may be gone when that is done; what it handed on then is still handed on.
 */
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
	CONTAINER_OF(e, request, end)->conn = NULL;
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
