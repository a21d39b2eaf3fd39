/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_store.c: a store greets, registers, asks for bytes that it may write, and leaves;
 * an administrator sets limits.
 *
 * REGISTER: a process says which store is its own. The claim is checked: the store lives in a
 * partition of ours, its page belongs to the user at the socket's end (or that is root), and names
 * the process there, in its own pid namespace.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "account.h"
#include "accountquota.h"
#include "actord.h"
#include "admit.h"
#include "config.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"

static const struct conn_why not_watched[] = {
	{-ENOENT, "there is no live store there: register after it was opened"},
	{-EPERM, "the store belongs to another user, or lies outside the partition"},
	{-EBADMSG, "its page is not one of ours"},
	{-ENOTSUP, "its page is not one of ours"},
	{-EMFILE, "the daemon is out of descriptors or memory"},
	{-ENOMEM, "the daemon is out of descriptors or memory"},
	{0, "the store cannot be watched"}};

/* Is the process at the socket's end the one that the page names? A pid of 0: it is in a pid
 * namespace that we do not see. */
static bool is_its_owner(const struct member *m, const struct conn_peer *peer)
{
	return peer->pid <= 0 || owner_is(peer->pid, m->pid);
}

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
	if (!is_its_owner(m, peer))
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

	if (m)
		member_leaves(m);
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

static uint64_t deadline(const struct host *h, uint64_t timeout_ms)
{
	return loop_now(h->loop) + (timeout_ms < WAIT_MAX_MS ? timeout_ms : WAIT_MAX_MS) * 1000000;
}

DISPATCH_HANDLER(grant)
{
	struct host *h = c->host;
	struct member *m = c->member;
	struct quota_want want = {
		.serial = serial,
		.need = body->need,
		.ahead = body->ahead,
		.wait = (body->flags & WIRE_GRANT_WAIT) != 0,
		.deadline_ns = deadline(h, body->timeout_ms),
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
	struct admit *a = c->host->admit;
	struct member *m = c->member;
	bool waited = a && admit_cancel(a, c, body->serial);
	int r;

	if (waited || c->host->actord->cancel(c, body->serial)) {
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
