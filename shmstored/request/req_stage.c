/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_stage.c: what a worker gets for a stage of a job, its begin and its end. The worker is
 * the store that the connection has registered; another's stage can be ended by the same
 * user, and by administrators. An impossible request (a name, a count) is refused; a breach
 * of the protocol ends the client.
 */
#include <errno.h>
#include <shmstore/stage.h>
#include <string.h>

#include "account.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"
#include "stages.h"

#define PPM UINT32_C(1000000)

static int refuse_store(struct conn *c, uint64_t serial)
{
	return conn_refuse(c, serial, -ENOENT,
			   "no store is registered on this connection, and a worker is a store; "
			   "register one first");
}

static int failed(struct conn *c, uint64_t serial, int r)
{
	switch (r) {
	case -ENOSPC:
		return conn_refuse(
			c, serial, r,
			"all stage profiles that the daemon remembers are in use: end some stages");
	case -ENOENT:
		return conn_refuse(c, serial, r,
				   "the daemon knows no stage profile of this number, or not any "
				   "more: ask for one");
	case -EBUSY:
		return conn_refuse(c, serial, r,
				   "this worker is in a stage, or waits for one: end that first");
	case -EEXIST:
		return conn_refuse(c, serial, r,
				   "two different profiles were asked for in one stage, and "
				   "stage.conflict is error: ask "
				   "for one, or set it to max or host");
	default:
		return conn_refuse(c, serial, r, "the daemon is out of memory");
	}
}

static bool name_fits(const char *text)
{
	return *text && strlen(text) <= STAGES_NAME && !strchr(text, '\n');
}

DISPATCH_HANDLER(stage_query)
{
	struct member *m = c->member;
	struct stages_answer a;
	struct stage_ask ask;
	int r;

	if (body->root > SHMSTORE_STAGE_FINAL || body->fallback > SHMSTORE_STAGE_FALLBACK_WHOLE)
		return conn_fault(c, "STAGE_QUERY: no such root or fallback");
	if (!m)
		return refuse_store(c, serial);
	if (!name_fits(tail))
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has a name of 1 to 240 bytes without line breaks");
	if (body->base)
		return conn_refuse(c, serial, -EINVAL,
				   "every query starts from the base, which is profile 0");
	ask = (struct stage_ask){
		.n_native = (int64_t)body->n_native,
		.n_convert = (int64_t)body->n_convert,
		.n_other = (int64_t)body->n_other,
		.has_nonshare = (body->flags & WIRE_STAGE_HAS_NONSHARE) != 0,
		.nonshare = RATIO(body->nonshare_ppm, PPM),
		.root = body->root == SHMSTORE_STAGE_FINAL ? STAGE_FINAL : STAGE_EXCHANGE,
		.fallback = (enum stage_fallback)body->fallback,
		.want_slots = body->want_slots,
	};
	if (!stage_ask_fits(&ask) || body->nonshare_ppm > PPM)
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has 0 to 2^40 operators of each kind, and no more of "
				   "its bytes than all can be unshareable");
	r = stages_query(m, &ask, &a);
	return r < 0 ? failed(c, serial, r) : stages_send(c, serial, &a);
}

DISPATCH_HANDLER(stage_begin)
{
	struct member *m = c->member;
	struct stages_answer a;
	int r;

	if (!m)
		return refuse_store(c, serial);
	if (!name_fits(tail))
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has a name of 1 to 240 bytes without line breaks");
	r = stages_begin(m, serial, tail, body->profile, body->other, body->timeout_ms, &a);
	if (r < 0)
		return failed(c, serial, r);
	return r == 1 ? CONN_OK : stages_send(c, serial, &a);
}

DISPATCH_HANDLER(stage_end)
{
	struct member *m = body->session ? member_by_id(c->host, body->session) : c->member;
	struct stages_answer a;

	if (!m && !body->session)
		return refuse_store(c, serial);
	if (m && m->uid != c->peer.uid && !conn_is_admin(c))
		return conn_refuse(c, serial, -EPERM,
				   "others' stages are for root and the daemon's own user to end; "
				   "you are user %u",
				   (unsigned)c->peer.uid);
	if (!m || stages_end(m, &a) < 0)
		return conn_refuse(c, serial, -ENOENT,
				   "no stage runs there: the daemon may have been started anew "
				   "since its begin");
	return body->session ? conn_send_done(c, serial) : stages_send(c, serial, &a);
}
