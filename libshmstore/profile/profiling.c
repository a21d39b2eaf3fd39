/* SPDX-License-Identifier: Apache-2.0 */
/* profiling.c: a store's tasks, as the daemon profiles them. Nothing of them is kept
 * here but the last number. */
#include "profiling.h"

#include <errno.h>
#include <shmstore/profile.h>
#include <stdatomic.h>
#include <string.h>

#include "attach.h"
#include "detail.h"
#include "handle.h"
#include "sys.h"

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

static int no_daemon(struct shmstore *s)
{
	return shms_attach_absent(&s->attach, "nothing is known of its tasks");
}

static int call(struct shmstore *s, const struct wire_profile *m, const char *tail, size_t n,
		struct wire_profiled *ret)
{
	const struct shms_call what = {.type = WIRE_PROFILE,
				       .answer = WIRE_PROFILED,
				       .body = m,
				       .tail = tail,
				       .tail_size = n};
	struct shms_reply reply;
	int r = shms_attach_registered(&s->attach) ? shms_attach_call(&s->attach, &what, &reply)
						   : -ENOTCONN;

	if (r < 0)
		return r == -ENOTCONN ? no_daemon(s) : shms_error(r);
	r = shms_reply_error(&reply);
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
	r = shms_request_post(&s->attach, &what, NULL);
	return r == -ENOTCONN ? no_daemon(s) : r;
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

	if (from &&
	    from->size < offsetof(struct shmstore_profile_end, cpu_ms) + sizeof(from->cpu_ms))
		return shms_detail(-EINVAL, NULL,
				   "end.size is wrong: begin with SHMSTORE_PROFILE_END_INIT");
	if (from)
		memcpy(&end, from, from->size < sizeof(end) ? from->size : sizeof(end));
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
