/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calling.c: sends calls of actors, and moves, and takes their answers. The daemon withholds an
 * answer until the call has run.
 */
#include <errno.h>
#include <shmstore/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acting.h"
#include "detail.h"
#include "sys.h"

_Static_assert((int)SHMSTORE_ACTOR_OK == (int)WIRE_ACTOR_OK &&
		       (int)SHMSTORE_ACTOR_FAILED == (int)WIRE_ACTOR_FAILED &&
		       (int)SHMSTORE_ACTOR_STOPPED == (int)WIRE_ACTOR_STOPPED &&
		       (int)SHMSTORE_ACTOR_LOST == (int)WIRE_ACTOR_LOST &&
		       SHMSTORE_ACTOR_NAME == WIRE_ACTOR_NAME &&
		       SHMSTORE_ACTOR_DATA == WIRE_TEXT_MAX - WIRE_ACTOR_NAME,
	       "the public numbers are the protocol's");

struct shmstore_actor_call {
	struct shmstore *s;
	struct shms_request q;
	struct shms_reply reply;
};

/* A line break would make two names of it. The daemon checks the other rules. */
bool shms_acting_is_name(const char *name)
{
	return name && *name && strlen(name) <= WIRE_ACTOR_NAME && !strchr(name, '\n');
}

int shms_acting_wrong_name(void)
{
	return shms_detail(-EINVAL, NULL,
			   "a name of an actor or of a place has 1 to %u printable bytes, no "
			   "blank, no slash, and no dot in front",
			   WIRE_ACTOR_NAME);
}

int shms_acting_tail(const char *name, const void *data, size_t n, char tail[WIRE_TEXT_MAX],
		     uint32_t *ret_name)
{
	size_t length;

	if (!shms_acting_is_name(name))
		return shms_acting_wrong_name();
	length = strlen(name);
	if (n > SHMSTORE_ACTOR_DATA)
		return shms_detail(-EFBIG, NULL,
				   "%zu bytes for, or of, actor %s are more than the %u of a "
				   "message: put them into the store, and send a ticket",
				   n, name, SHMSTORE_ACTOR_DATA);
	if (n && !data)
		return shms_detail_null("data");
	memcpy(tail, name, length);
	if (n)
		memcpy(tail + length, data, n);
	*ret_name = (uint32_t)length;
	return (int)(length + n);
}

int shms_acting_tell(struct shmstore *s, uint16_t type, const void *body, const char *tail,
		     size_t n)
{
	const struct shms_call call = shms_acting_call(type, WIRE_DONE, body, tail, n);
	struct shms_reply reply;
	int r = shms_attach_call(&s->attach, &call, &reply);

	if (r < 0)
		return r == -ENOTCONN ? r : shms_error(r);
	return shms_reply_error(&reply);
}

int shms_acting_gone(struct shmstore *s)
{
	return shms_attach_absent(&s->attach, "actors need shmstore-actord");
}

uint64_t shms_acting_until(uint64_t timeout_ms)
{
	uint64_t now = shms_now_mono_ns();

	return timeout_ms < (UINT64_MAX - now) / SHMS_ACTING_MS ? now + timeout_ms * SHMS_ACTING_MS
								: UINT64_MAX;
}

/* Sends a request whose answer the daemon withholds. */
static int post(struct shmstore *s, struct shms_call what, struct shmstore_actor_call **ret)
{
	struct shmstore_actor_call *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->s = s;
	c->q.reply = &c->reply;
	r = shms_request_begin(&s->attach, &what, &c->q);
	if (r < 0) {
		free(c);
		return r == -ENOTCONN ? shms_acting_gone(s) : shms_error(r);
	}
	shms_store_ref(s);
	*ret = c;
	return 0;
}

int shmstore_actor_call(struct shmstore *s, const char *name, const void *data, size_t size,
			struct shmstore_actor_call **ret)
{
	struct wire_actor_call m = {0};
	char tail[WIRE_TEXT_MAX];
	int n;

	if (!ret)
		return shms_detail_null("ret");
	n = shms_acting_tail(name, data, size, tail, &m.name);
	return n < 0 ? n
		     : post(s,
			    shms_acting_call(WIRE_ACTOR_CALL, WIRE_ACTOR_ANSWER, &m, tail,
					     (size_t)n),
			    ret);
}

int shmstore_actor_move(struct shmstore *s, const char *name, const char *place,
			struct shmstore_actor_call **ret)
{
	static const struct wire_actor_move m = {0};
	char tail[WIRE_TEXT_MAX];
	uint32_t n_name;
	int n;

	if (!ret)
		return shms_detail_null("ret");
	n = shms_acting_tail(name, NULL, 0, tail, &n_name);
	if (n < 0)
		return n;
	if (place && !shms_acting_is_name(place))
		return shms_acting_wrong_name();
	if (place)
		n += snprintf(tail + n, sizeof(tail) - (size_t)n, "\n%s", place);
	return post(s, shms_acting_call(WIRE_ACTOR_MOVE, WIRE_DONE, &m, tail, (size_t)n), ret);
}

int shmstore_actor_answer(struct shmstore_actor_call *c, uint64_t timeout_ms,
			  struct shmstore_actor_answer *ret)
{
	struct wire_actor_answer m;
	int r;

	if (!c || !ret)
		return shms_detail_null(c ? "ret" : "c");
	r = shms_store_usable(c->s, true);
	if (r < 0)
		return r;
	if (!shms_request_wait_until(&c->s->attach, &c->q, shms_acting_until(timeout_ms))) {
		shms_request_look(&c->s->attach);
		if (!shms_request_wait_until(&c->s->attach, &c->q, 0))
			return 0;
	}
	if (c->q.error < 0)
		return shms_acting_gone(c->s);
	if (c->reply.type == WIRE_REFUSED)
		return shms_reply_error(&c->reply);
	*ret = (struct shmstore_actor_answer){.how = SHMSTORE_ACTOR_OK};
	if (c->reply.type == WIRE_DONE) /* of a move */
		return 1;
	memcpy(&m, c->reply.body.bytes, sizeof(m));
	*ret = (struct shmstore_actor_answer){
		.how = m.how, .data = c->reply.tail, .data_size = c->reply.tail_size};
	return 1;
}

struct shmstore_actor_call *shmstore_actor_forget(struct shmstore_actor_call *c)
{
	if (!c)
		return NULL;
	if (shms_store_usable(c->s, true) == 0)
		shms_request_withdraw(&c->s->attach, &c->q);
	shms_store_unref(c->s);
	free(c);
	return NULL;
}
