/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_profile.c: PROFILE and PROFILE_ADMIN: what a client's tasks use, into the profile of its own
 * user and no other; and what tools ask of profiles.
 *
 * A text that is loaded comes in parts. They are kept with the connection, one text each, and
 * PARTS_MAX bytes of all together.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "host.h"
#include "profiletasks.h"

#define PARTS_MAX (4 * WIRE_PROFILE_TEXT_MAX)

static int refuse_off(struct conn *c, uint64_t serial)
{
	return conn_refuse(
		c, serial, -ENOTSUP,
		"profiles are off here: set profile { private = conservative } in shmstored.conf");
}

/* ---- tasks ---- */

static int estimate(struct conn *c, uint64_t serial, const struct profile_name *name,
		    const struct wire_profile *w)
{
	const uint64_t declared[PROFILE_RESOURCES] = {w->private_bytes, w->shared_bytes, w->cpu_ms};
	struct profiles_estimate e =
		profiles_estimate(c->host->profiles, c->peer.uid, name, declared);
	struct wire_profiled body = {e.used[PROFILE_PRIVATE], e.used[PROFILE_SHARED],
				     e.used[PROFILE_CPU], e.n};

	return conn_send(c, WIRE_PROFILED, serial, &body, NULL, 0);
}

static const struct conn_why not_begun[] = {
	{-EMFILE, "too many tasks of one client run: end some first"},
	{-EEXIST, "a task with this number runs already"},
	{0, NULL}};

static int begin(struct conn *c, uint64_t serial, const struct wire_profile *w, char *tail)
{
	struct profile_name name;
	int r = 0;

	if (!profilename_cut(tail, &name))
		return conn_refuse(c, serial, -EINVAL, PROFILENAME_WRONG);
	if (w->op == WIRE_PROFILE_BEGIN)
		r = profiletasks_begin(c->host->profiletasks, c, w->task, &name);
	if (r < 0)
		return conn_refuse_why(c, serial, r, not_begun);
	return estimate(c, serial, &name, w);
}

static int done(struct conn *c, uint64_t serial, const struct wire_profile *w, int r)
{
	static const struct conn_why not_ended[] = {{-ENOENT, "no task with this number runs"},
						    {-EMFILE, "too many users have a profile"},
						    {0, NULL}};
	static const struct wire_profiled nothing;

	if (r < 0)
		return conn_refuse_why(c, serial, r, not_ended);
	return w->flags & WIRE_PROFILE_QUIET
		       ? CONN_OK
		       : conn_send(c, WIRE_PROFILED, serial, &nothing, NULL, 0);
}

static int end(struct conn *c, uint64_t serial, const struct wire_profile *w)
{
	static const enum profiles_end how[WIRE_PROFILE_HOW_END] = {
		[WIRE_PROFILE_DONE] = PROFILES_DONE,
		[WIRE_PROFILE_KILLED] = PROFILES_KILLED,
		[WIRE_PROFILE_PREEMPTED] = PROFILES_PREEMPTED,
		[WIRE_PROFILE_DROPPED] = PROFILES_DROPPED,
	};
	const struct profile_task told = {
		.used = {w->private_bytes, w->shared_bytes, w->cpu_ms},
		.has = {(w->flags & WIRE_PROFILE_HAS_PRIVATE) != 0,
			(w->flags & WIRE_PROFILE_HAS_SHARED) != 0,
			(w->flags & WIRE_PROFILE_HAS_CPU) != 0},
	};

	return done(c, serial, w,
		    profiletasks_end(c->host->profiletasks, c, w->task, &told, how[w->how]));
}

DISPATCH_HANDLER(profile)
{
	if (body->op < WIRE_PROFILE_BEGIN || body->op >= WIRE_PROFILE_OP_END ||
	    body->how >= WIRE_PROFILE_HOW_END || (body->how && body->op != WIRE_PROFILE_END) ||
	    (!body->task && body->op != WIRE_PROFILE_ESTIMATE))
		return conn_fault(c, "PROFILE: no such operation, end or task");
	if (!c->host->profiles)
		return refuse_off(c, serial);
	switch ((enum wire_profile_op)body->op) {
	case WIRE_PROFILE_BEGIN:
	case WIRE_PROFILE_ESTIMATE:
		return begin(c, serial, body, tail);
	case WIRE_PROFILE_SAMPLE:
		return done(c, serial, body,
			    profiletasks_sample(c->host->profiletasks, c, body->task,
						body->private_bytes));
	case WIRE_PROFILE_END:
	case WIRE_PROFILE_OP_END:
	default:
		return end(c, serial, body);
	}
}

/* ---- tools ---- */

static int send_text(struct conn *c, uint64_t serial, uint32_t uid)
{
	struct profile *p = profiles_of(c->host->profiles, uid);
	size_t n;
	char *text = p ? profile_text(p, &n) : NULL;
	int r = text ? conn_send_document(c, serial, text, n)
		     : conn_refuse(c, serial, -ENOMEM,
				   "the daemon is out of memory, or too many users have a profile");

	free(text);
	return r;
}

/* A text of which not all parts have come. */
struct parts {
	struct conn_end end;
	uint32_t uid;
	size_t n, total;
	char text[];
};

static size_t all_parts; /* the bytes of all together, as they will be */

static void parts_free(struct parts *a)
{
	all_parts -= a->total;
	free(a);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	parts_free(CONTAINER_OF(e, parts, end));
}

static struct parts *parts_of(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, parts, end) : NULL;
}

static void parts_forget(struct conn *c)
{
	struct parts *a = parts_of(c);

	if (a) {
		conn_off_end(c, &a->end);
		parts_free(a);
	}
}

/* NULL: no memory, or others load so much. */
static struct parts *parts_new(struct conn *c, uint32_t uid, size_t total)
{
	struct parts *a = all_parts + total > PARTS_MAX ? NULL : malloc(sizeof(*a) + total);

	if (!a)
		return NULL;
	*a = (struct parts){.end = {.fn = on_end}, .uid = uid, .total = total};
	all_parts += total;
	conn_on_end(c, &a->end);
	return a;
}

static int load(struct conn *c, uint64_t serial, const struct wire_profile_admin *w, uint32_t uid,
		const char *tail, size_t n)
{
	const char *why = NULL;
	struct parts *a;
	int r = 0;

	if (w->offset == 0)
		parts_forget(c);
	if (!n || w->total > WIRE_PROFILE_TEXT_MAX || w->offset > w->total ||
	    n > w->total - w->offset) {
		parts_forget(c);
		return conn_refuse(
			c, serial, -EINVAL,
			"a profile has 1 to 16777216 bytes, and no part of it goes beyond them");
	}
	a = w->offset ? parts_of(c) : parts_new(c, uid, w->total);
	if (!a && !w->offset)
		return conn_refuse(
			c, serial, -ENOMEM,
			"the daemon has no memory for it, or others load theirs: try again");
	if (!a || a->uid != uid || a->n != w->offset || a->total != w->total) {
		parts_forget(c);
		return conn_refuse(c, serial, -EINVAL,
				   "the parts of a profile come one after the other, from 0 on");
	}
	memcpy(a->text + a->n, tail, n);
	a->n += n;
	if (a->n == a->total) {
		r = profiles_load(c->host->profiles, uid, a->text, a->n, &why);
		parts_forget(c);
	}
	if (r < 0)
		return conn_refuse(c, serial, r == -EPROTONOSUPPORT ? -ENOTSUP : r,
				   "the profile is refused: %s; nothing was changed", why);
	return conn_send_done(c, serial);
}

static int reset(struct conn *c, uint64_t serial, bool all, uint32_t uid)
{
	struct profiles *p = c->host->profiles;

	if (!all)
		profiles_reset(p, uid);
	for (uint32_t u = 0; all && (u = profiles_next(p, u)) != UINT32_MAX; u++)
		profiles_reset(p, u);
	return conn_send_done(c, serial);
}

DISPATCH_HANDLER(profile_admin)
{
	uint32_t mine = c->peer.uid, uid = body->uid == WIRE_PROFILE_MINE ? mine : body->uid;
	bool all = uid == WIRE_PROFILE_ALL;

	if (body->op < WIRE_PROFILE_ADMIN_SHOW || body->op >= WIRE_PROFILE_ADMIN_OP_END ||
	    (all && (body->op == WIRE_PROFILE_ADMIN_TEXT || body->op == WIRE_PROFILE_ADMIN_LOAD)))
		return conn_fault(c, "PROFILE_ADMIN: no such operation");
	if (!c->host->profiles)
		return refuse_off(c, serial);
	if (uid != mine && !conn_is_admin(c))
		return conn_refuse_user(c, serial, "others' profiles are for");
	switch ((enum wire_profile_admin_op)body->op) {
	case WIRE_PROFILE_ADMIN_SHOW:
		return conn_send_object(c, serial, profilereport_make(c->host, all, uid),
					"the daemon is out of memory");
	case WIRE_PROFILE_ADMIN_TEXT:
		return send_text(c, serial, uid);
	case WIRE_PROFILE_ADMIN_LOAD:
		return load(c, serial, body, uid, tail, tail_size);
	case WIRE_PROFILE_ADMIN_RESET:
	case WIRE_PROFILE_ADMIN_OP_END:
	default:
		return reset(c, serial, all, uid);
	}
}
