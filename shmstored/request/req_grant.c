/* SPDX-License-Identifier: Apache-2.0 */
/* req_grant.c: GRANT and CANCEL: a store asks for bytes that it may write, and may wait for them; it waits no more, for these or at the gate. */
#include <errno.h>
#include <inttypes.h>

#include "account.h"
#include "accountquota_state.h"
#include "actors.h"
#include "admit.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"

#define WAIT_MAX_MS UINT64_C(86400000) /* nobody waits longer than a day */

static uint64_t deadline(const struct host *h, uint64_t timeout_ms)
{
	return loop_now(h->loop) + (timeout_ms < WAIT_MAX_MS ? timeout_ms : WAIT_MAX_MS) * 1000000;
}

DISPATCH_HANDLER(grant)
{
	struct host *h = conn_host(c);
	struct member *m = conn_member(c);
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
		return conn_fault(c, CONN_E_PROTOCOL, "GRANT of %" PRIu64 " bytes: 1 to %" PRIu64 " can be asked for",
				  body->need, WIRE_GRANT_MAX);
	if (!m || !m->quota)
		return conn_refuse(c, serial, -ENOENT, WIRE_LIMIT_NONE, 0, 0,
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
		return conn_fault(c, CONN_E_PROTOCOL, "GRANT with serial %" PRIu64 ", which waits already", serial);
	default:
		return accountquota_refuse(m->account, c, serial, r, &a);
	}
}

DISPATCH_HANDLER(cancel)
{
	struct admit *a = conn_host(c)->admit;
	struct member *m = conn_member(c);
	struct wire_done done = {0};
	int r;

	if (a && admit_cancel(a, c, body->serial)) {
		r = conn_refuse(c, body->serial, -ECANCELED, WIRE_LIMIT_NONE, 0, 0, "it was canceled");
		if (r == CONN_OK)
			r = conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
		admit_settle(a);
		return r;
	}
	if (actors_cancel(conn_host(c)->actors, c, body->serial)) {
		r = conn_refuse(c, body->serial, -ECANCELED, WIRE_LIMIT_NONE, 0, 0, "it was canceled");
		return r == CONN_OK ? conn_send(c, WIRE_DONE, serial, &done, NULL, 0) : r;
	}
	/* A request that does not wait any more was answered before: that answer stands. */
	if (m && m->quota)
		accountquota_cancel(m, body->serial);
	return conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
}
