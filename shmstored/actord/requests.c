/* SPDX-License-Identifier: Apache-2.0 */
/* requests.c: ACTOR_PLACE, ACTOR_BORN, ACTOR_NEXT, ACTOR_DONE, ACTOR_CALL, ACTOR_MOVE: a user's
 * actors, by that user's processes alone (actors.h). */
#include <errno.h>
#include <string.h>

#include "actors.h"
#include "conn.h"
#include "door.h"
#include "host.h"
#include "policy.h"
#include "wire.h"

struct names {
	/* second: "" where there is none */
	char first[WIRE_ACTOR_NAME + 1], second[WIRE_ACTOR_NAME + 1];
	const char *more; /* a third line; NULL: there is none */
};

/* "first", "first\nsecond"; with a third line the second one may be empty. */
static bool cut_names(const char *text, struct names *ret)
{
	const char *end = strchrnul(text, '\n'), *second = *end ? end + 1 : end,
		   *last = strchrnul(second, '\n');
	size_t n = (size_t)(end - text), m = (size_t)(last - second);

	if (n > WIRE_ACTOR_NAME || m > WIRE_ACTOR_NAME)
		return false;
	memcpy(ret->first, text, n);
	ret->first[n] = '\0';
	memcpy(ret->second, second, m);
	ret->second[m] = '\0';
	ret->more = *last ? last + 1 : NULL;
	return actors_is_name(ret->first) &&
	       (!*end || (ret->more && !m) || actors_is_name(ret->second));
}

/* The first n bytes of a tail are a name. */
static bool take_name(const char *tail, size_t tail_size, uint32_t n, char ret[WIRE_ACTOR_NAME + 1])
{
	if (n > tail_size || n > WIRE_ACTOR_NAME || memchr(tail, '\0', n))
		return false;
	memcpy(ret, tail, n);
	ret[n] = '\0';
	return actors_is_name(ret);
}

static const char *why_not(int error)
{
	switch (error) {
	case -EEXIST:
		return "the user has another of that name";
	case -ENOENT:
		return "no such actor, or it is not here: the user has none of that name, or it is "
		       "just being found again after a start of the daemon";
	case -EBUSY:
		return "the actor is being moved, or this connection is a place of another name, "
		       "or asks for an order already";
	case -EINVAL:
		return "the actor has a level, and cannot both save and load its state, so that it "
		       "cannot be preempted";
	case -EPERM:
		return "the actor must not be moved: its level is never, or it cannot both save "
		       "and load its state";
	case -ESTALE:
		return "nobody asked for that, or not any more; or no such place is there, or the "
		       "actor is there already";
	case -EMFILE:
		return "too many actors of this place, children of children, or calls that wait: "
		       "1024 of each, and 16";
	default:
		return "the daemon is out of memory";
	}
}

/* Answers DONE, or the error. late: the answer comes by itself. */
static int answer_why(struct conn *c, uint64_t serial, int error, bool late, const char *why)
{
	if (error < 0)
		return conn_refuse(c, serial, error, "%s", why);
	return late ? CONN_OK : conn_send_done(c, serial);
}

static int answer(struct conn *c, uint64_t serial, int error, bool late)
{
	return answer_why(c, serial, error, late, why_not(error));
}

static int wrong_name(struct conn *c, uint64_t serial)
{
	return conn_refuse(c, serial, -EINVAL,
			   "a name of an actor or of a place has 1 to %u printable bytes, no "
			   "blank, no slash, and no dot in front",
			   WIRE_ACTOR_NAME);
}

static int place(struct conn *c, uint64_t serial, const struct wire_actor_place *body,
		 const char *tail)
{
	struct actors *a = c->host->actors;
	int r;

	if (!(body->flags & WIRE_ACTOR_LEAVES) && !actors_is_name(tail))
		return wrong_name(c, serial);
	r = body->flags & WIRE_ACTOR_LEAVES ? actors_leave(c)
					    : actors_place(a, c, tail, body->free);
	return answer(c, serial, r, false);
}

static int born(struct conn *c, uint64_t serial, const struct wire_actor_born *body,
		const char *tail)
{
	const unsigned known = WIRE_ACTOR_CAN_SAVE | WIRE_ACTOR_CAN_LOAD | WIRE_ACTOR_STRICT |
			       WIRE_ACTOR_NEW | WIRE_ACTOR_SURE;
	char why[CONFIG_WHY] = "";
	struct names names;
	int r;

	if (body->flags & ~known || body->level > POLICYLEVEL_ALWAYS)
		return conn_fault(c, "ACTOR_BORN: no such level, or unknown flags");
	if (!cut_names(tail, &names))
		return wrong_name(c, serial);
	r = actors_born(c->host->actors, c,
			&(struct actors_birth){body, names.first, names.second,
					       names.more ? names.more : ""},
			why);
	return answer_why(c, serial, r, false, *why ? why : why_not(r));
}

static int done(struct conn *c, uint64_t serial, const struct wire_actor_done *body,
		const char *tail, size_t tail_size)
{
	char name[WIRE_ACTOR_NAME + 1];

	if (body->how < WIRE_ACTOR_OK || body->how >= WIRE_ACTOR_HOW_END ||
	    body->how == WIRE_ACTOR_LOST)
		return conn_fault(c, "ACTOR_DONE: no such outcome");
	if (!take_name(tail, tail_size, body->name, name))
		return wrong_name(c, serial);
	return answer(c, serial,
		      actors_done(c->host->actors, c, body, name, tail + body->name,
				  tail_size - body->name),
		      false);
}

static int call(struct conn *c, uint64_t serial, const struct wire_actor_call *body,
		const char *tail, size_t tail_size)
{
	char name[WIRE_ACTOR_NAME + 1];

	if (!take_name(tail, tail_size, body->name, name))
		return wrong_name(c, serial);
	return answer(c, serial,
		      actors_call(c->host->actors, c, serial, name, tail + body->name,
				  tail_size - body->name),
		      true);
}

static int move(struct conn *c, uint64_t serial, const char *tail)
{
	struct names names;

	if (!cut_names(tail, &names) || names.more)
		return wrong_name(c, serial);
	return answer(c, serial, actors_move(c->host->actors, c, serial, names.first, names.second),
		      true);
}

int actord_request(struct conn *c, uint16_t type, uint64_t serial, const void *body,
		   const char *tail, size_t tail_size)
{
	switch (type) {
	case WIRE_ACTOR_PLACE:
		return place(c, serial, body, tail);
	case WIRE_ACTOR_BORN:
		return born(c, serial, body, tail);
	case WIRE_ACTOR_NEXT:
		return answer(c, serial, actors_next(c, serial), true);
	case WIRE_ACTOR_DONE:
		return done(c, serial, body, tail, tail_size);
	case WIRE_ACTOR_CALL:
		return call(c, serial, body, tail, tail_size);
	case WIRE_ACTOR_MOVE:
	default:
		return move(c, serial, tail);
	}
}
