/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c: the stages of a store, as the daemon divides memory for them.
 * Nothing of them is kept here. */
#include <errno.h>
#include <shmstore/stage.h>
#include <string.h>

#include "attach.h"
#include "detail.h"
#include "handle.h"
#include "sys.h"

_Static_assert(SHMSTORE_STAGE_NAME == WIRE_STAGE_NAME && SHMSTORE_STAGE_WHOLE == WIRE_STAGE_WHOLE &&
		       SHMSTORE_STAGE_PARTIAL == WIRE_STAGE_PARTIAL,
	       "the public numbers are the protocol's");

static int no_daemon(struct shmstore *s)
{
	return shms_attach_absent(&s->attach, "nobody divides memory for stages");
}

/* A begin may be withheld: who waits for it must not take the daemon for dead, so it
 * is no shms_attach_call(). */
static int call(struct shmstore *s, const struct shms_call *what, struct shms_reply *reply)
{
	struct shms_request q = {.reply = reply};
	int r = -ENOTCONN;

	if (shms_attach_needed(&s->attach))
		r = shms_request_post(&s->attach, what, &q);
	if (r == 0)
		r = shms_request_wait(&s->attach, &q);
	if (r < 0)
		return r == -ENOTCONN ? no_daemon(s) : shms_error(r);
	return shms_reply_error(reply);
}

static int call_staged(struct shmstore *s, struct shms_call *what,
		       struct shmstore_stage_profile *ret)
{
	struct shms_reply reply;
	struct wire_staged w;
	int r;

	what->answer = WIRE_STAGED;
	r = call(s, what, &reply);
	if (r < 0)
		return r;
	memcpy(&w, reply.body.bytes, sizeof(w));
	*ret = (struct shmstore_stage_profile){
		.profile = w.profile,
		.rules = w.rules,
		.clamped = (w.flags & WIRE_STAGED_CLAMPED) != 0,
		.degraded = (w.flags & WIRE_STAGED_DEGRADED) != 0,
		.slots = w.slots,
		.private_bytes = w.private_bytes,
		.shared_bytes = w.shared_bytes,
		.private_per_slot = w.private_per_slot,
		.shared_per_slot = w.shared_per_slot,
		.expires_ms = w.expires_ms,
	};
	return 0;
}

static int check_name(const char *name)
{
	if (!name)
		return shms_detail_null("name");
	if (!*name || strlen(name) > SHMSTORE_STAGE_NAME || strchr(name, '\n'))
		return shms_detail(-EINVAL, NULL,
				   "a stage has a name of 1 to %u bytes without line breaks",
				   SHMSTORE_STAGE_NAME);
	return 0;
}

int shmstore_stage_query(struct shmstore *s, const struct shmstore_stage_ask *from,
			 struct shmstore_stage_profile *ret)
{
	struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
	struct shms_call what = {.type = WIRE_STAGE_QUERY};
	struct wire_stage_query m;
	int r;

	if (!from || !ret)
		return shms_detail_null(!from ? "ask" : "ret");
	if (from->size < offsetof(struct shmstore_stage_ask, want_slots) + sizeof(from->want_slots))
		return shms_detail(-EINVAL, NULL,
				   "ask.size is wrong: begin with SHMSTORE_STAGE_ASK_INIT");
	memcpy(&ask, from, from->size < sizeof(ask) ? from->size : sizeof(ask));
	r = check_name(ask.name);
	if (r < 0)
		return r;
	if (ask.root > SHMSTORE_STAGE_FINAL || ask.fallback > SHMSTORE_STAGE_FALLBACK_WHOLE)
		return shms_detail(-EINVAL, NULL,
				   "there is no root %u or no fallback %u of a stage", ask.root,
				   ask.fallback);
	m = (struct wire_stage_query){
		.base = ask.base_profile,
		.flags = ask.nonshare_ppm == SHMSTORE_STAGE_UNKNOWN ? 0 : WIRE_STAGE_HAS_NONSHARE,
		.root = (uint16_t)ask.root,
		.fallback = (uint16_t)ask.fallback,
		.nonshare_ppm = ask.nonshare_ppm == SHMSTORE_STAGE_UNKNOWN ? 0 : ask.nonshare_ppm,
		.n_native = ask.n_native,
		.n_convert = ask.n_convert,
		.n_other = ask.n_other,
		.want_slots = ask.want_slots,
	};
	what.body = &m;
	what.tail = ask.name;
	what.tail_size = strlen(ask.name);
	return call_staged(s, &what, ret);
}

int shmstore_stage_begin(struct shmstore *s, const char *name, uint32_t profile, uint32_t other,
			 uint64_t wait_ms, struct shmstore_stage_profile *ret)
{
	const struct wire_stage_begin m = {
		.profile = profile, .other = other, .timeout_ms = wait_ms};
	struct shms_call what = {.type = WIRE_STAGE_BEGIN, .body = &m, .tail = name};
	int r = check_name(name);

	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	what.tail_size = strlen(name);
	return call_staged(s, &what, ret);
}

int shmstore_stage_end(struct shmstore *s, struct shmstore_stage_profile *ret)
{
	static const struct wire_stage_end own = {0};
	struct shms_call what = {.type = WIRE_STAGE_END, .body = &own};

	return ret ? call_staged(s, &what, ret) : shms_detail_null("ret");
}
