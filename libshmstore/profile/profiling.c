/* SPDX-License-Identifier: Apache-2.0 */
/* profiling.c: a store's tasks, as the daemon profiles them, and its stages, as it divides memory
 * for them. Nothing of them is kept here but the last task's number. */
#include "profiling.h"

#include <errno.h>
#include <shmstore/profile.h>
#include <shmstore/stage.h>
#include <stdatomic.h>
#include <string.h>

#include "attach.h"
#include "detail.h"
#include "opened.h"

_Static_assert((int)SHMSTORE_PROFILE_DONE == (int)WIRE_PROFILE_DONE &&
		       (int)SHMSTORE_PROFILE_KILLED == (int)WIRE_PROFILE_KILLED &&
		       (int)SHMSTORE_PROFILE_PREEMPTED == (int)WIRE_PROFILE_PREEMPTED &&
		       (int)SHMSTORE_PROFILE_DROPPED == (int)WIRE_PROFILE_DROPPED,
	       "the public ends are the protocol's");

static _Atomic uint32_t last_task; /* of all stores: no two tasks have one number */

static bool name_fits(const char *name, bool may_be_empty)
{
	return name && (*name || may_be_empty) && strlen(name) <= SHMSTORE_PROFILE_NAME &&
	       !strchr(name, '\n');
}

int shms_profile_names(const struct shmstore_profile_kind *kind, char ret[SHMS_PROFILE_NAMES])
{
	const char *group = kind->group ? kind->group : "";
	char *at = ret;

	if (!name_fits(kind->lang, false) || !name_fits(kind->func, false) ||
	    !name_fits(group, true))
		return shms_detail(-EINVAL, NULL,
				   "a kind of tasks is a language, a function and perhaps a group, "
				   "without line breaks and of at most %u bytes each",
				   SHMSTORE_PROFILE_NAME);
	at = stpcpy(at, kind->lang);
	*at++ = '\n';
	at = stpcpy(at, kind->func);
	*at++ = '\n';
	at = stpcpy(at, group);
	return (int)(at - ret);
}

static const char UNKNOWN[] = "nothing is known of its tasks";

static int call(struct shmstore *s, const struct wire_profile *m, const char *tail, size_t n,
		struct wire_profiled *ret)
{
	const struct shms_call what = {.type = WIRE_PROFILE,
				       .answer = WIRE_PROFILED,
				       .body = m,
				       .tail = tail,
				       .tail_size = n};
	struct shms_reply reply;
	int r = shms_attach_registered(shms_attach_of(s))
			? shms_attach_call(shms_attach_of(s), &what, &reply)
			: -ENOTCONN;

	r = shms_request_error(shms_attach_of(s), r, &reply, UNKNOWN);
	if (r == 0 && ret)
		memcpy(ret, reply.body.bytes, sizeof(*ret));
	return r;
}

int shmstore_profile_begin(struct shmstore *s, const struct shmstore_profile_kind *kind,
			   uint32_t *ret_task)
{
	struct wire_profile m = {.op = WIRE_PROFILE_BEGIN};
	char names[SHMS_PROFILE_NAMES];
	int r, n;

	if (!kind || !ret_task)
		return shms_detail_null(!kind ? "kind" : "ret_task");
	n = shms_profile_names(kind, names);
	if (n < 0)
		return n;
	do {
		m.task = atomic_fetch_add_explicit(&last_task, 1, memory_order_relaxed) + 1;
	} while (!m.task);
	r = call(s, &m, names, (size_t)n, NULL);
	if (r == 0)
		*ret_task = m.task;
	return r;
}

int shmstore_profile_sample(struct shmstore *s, uint32_t task, uint64_t private_bytes)
{
	const struct wire_profile m = {.op = WIRE_PROFILE_SAMPLE,
				       .flags = WIRE_PROFILE_QUIET,
				       .task = task,
				       .private_bytes = private_bytes};
	const struct shms_call what = {.type = WIRE_PROFILE, .answer = WIRE_PROFILED, .body = &m};
	int r;

	if (!task)
		return shms_detail(-EINVAL, NULL, "0 is no task");
	r = shms_request_post(shms_attach_of(s), &what, NULL);
	return r == -ENOTCONN ? shms_attach_absent(shms_attach_of(s), UNKNOWN) : r;
}

static void tell(struct wire_profile *m, uint64_t value, uint32_t flag, uint64_t *ret)
{
	if (value == SHMSTORE_PROFILE_UNKNOWN)
		return;
	*ret = value;
	m->flags |= flag;
}

int shmstore_profile_end(struct shmstore *s, uint32_t task, const struct shmstore_profile_end *from)
{
	struct shmstore_profile_end end = SHMSTORE_PROFILE_END_INIT;
	struct wire_profile m = {.op = WIRE_PROFILE_END, .task = task};
	int r = shms_take_sized(&end, sizeof(end), from, SHMS_UPTO(shmstore_profile_end, cpu_ms),
				"end", "SHMSTORE_PROFILE_END_INIT");

	if (r < 0)
		return r;
	if (!task || end.how > SHMSTORE_PROFILE_DROPPED)
		return !task ? shms_detail(-EINVAL, NULL, "0 is no task")
			     : shms_detail(-EINVAL, NULL, "no task ends as %u", end.how);
	m.how = (uint16_t)end.how;
	tell(&m, end.private_bytes, WIRE_PROFILE_HAS_PRIVATE, &m.private_bytes);
	tell(&m, end.shared_bytes, WIRE_PROFILE_HAS_SHARED, &m.shared_bytes);
	tell(&m, end.cpu_ms, WIRE_PROFILE_HAS_CPU, &m.cpu_ms);
	return call(s, &m, NULL, 0, NULL);
}

int shmstore_profile_estimate(struct shmstore *s, const struct shmstore_profile_kind *kind,
			      const struct shmstore_profile_use *declared,
			      struct shmstore_profile_use *ret)
{
	struct wire_profile m = {.op = WIRE_PROFILE_ESTIMATE};
	struct wire_profiled reply;
	char names[SHMS_PROFILE_NAMES];
	int r, n;

	if (!kind || !ret)
		return shms_detail_null(!kind ? "kind" : "ret");
	n = shms_profile_names(kind, names);
	if (n < 0)
		return n;
	if (declared) {
		m.private_bytes = declared->private_bytes;
		m.shared_bytes = declared->shared_bytes;
		m.cpu_ms = declared->cpu_ms;
	}
	r = call(s, &m, names, (size_t)n, &reply);
	if (r == 0)
		*ret = (struct shmstore_profile_use){reply.private_bytes, reply.shared_bytes,
						     reply.cpu_ms, reply.n};
	return r;
}

/* ---- stages ---- */

_Static_assert(SHMSTORE_STAGE_NAME == WIRE_STAGE_NAME && SHMSTORE_STAGE_WHOLE == WIRE_STAGE_WHOLE &&
		       SHMSTORE_STAGE_PARTIAL == WIRE_STAGE_PARTIAL,
	       "the public numbers are the protocol's");

static int call_staged(struct shmstore *s, struct shms_call *what,
		       struct shmstore_stage_profile *ret)
{
	struct shms_reply reply;
	struct wire_staged w;
	int r;

	what->answer = WIRE_STAGED;
	/* A begin may be withheld: who waits for it must not take the daemon for dead, so it
	 * is no shms_attach_call(). */
	r = shms_request_ask(shms_attach_of(s), what, &reply);
	r = shms_request_error(shms_attach_of(s), r, &reply, "nobody divides memory for stages");
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
	r = shms_take_sized(&ask, sizeof(ask), from, SHMS_UPTO(shmstore_stage_ask, want_slots),
			    "ask", "SHMSTORE_STAGE_ASK_INIT");
	if (r == 0)
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
