/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calling.c: sends calls of actors, and moves, and takes their answers. The daemon withholds an
 * answer until the call has run.
 */
#include <errno.h>
#include <shmstore/actor.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acting.h"
#include "detail.h"
#include "parts.h"
#include "publish.h"
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
	int r = shms_attach_call(shms_attach_of(s), &call, &reply);

	if (r < 0)
		return r == -ENOTCONN ? r : shms_error(r);
	return shms_reply_error(&reply);
}

int shms_acting_gone(struct shmstore *s)
{
	return shms_attach_absent(shms_attach_of(s), "actors need shmstore-actord");
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
	r = shms_request_begin(shms_attach_of(s), &what, &c->q);
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
	if (!shms_request_wait_until(shms_attach_of(c->s), &c->q, shms_until_ns(timeout_ms))) {
		shms_request_look(shms_attach_of(c->s));
		if (!shms_request_wait_until(shms_attach_of(c->s), &c->q, 0))
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
		shms_request_withdraw(shms_attach_of(c->s), &c->q);
	shms_store_unref(c->s);
	free(c);
	return NULL;
}

/* ---- an actor's state, from one store to another --------------------------------------------- */

/*
 * An object goes from one store of this user to another, in any partition of the host. The text
 * that is sent has the donor's partition, and the ticket of a lease there. If the partition is
 * another one, a store is opened there for the time of the copy, and takes the lease. If its
 * process is killed meanwhile, the store is dead, and gc removes it.
 */

int shms_state_send(struct shmstore *s, const char *key, uint64_t lease_ms, char *ret_text,
		    size_t size, uint64_t *ret_bytes)
{
	size_t n = strlen(s->p->path);
	struct shmstore_ticket ticket;
	char text[SHMSTORE_TICKET_TEXT];
	struct shms_keyname k;
	int r = shms_keyname_init(&k, key, strlen(key));

	/* The daemon, which copies it to others, reads files alone. */
	if (r == 0)
		r = shms_put_as_file(s, &k);
	if (r == 0)
		r = shmstore_handoff(s, key, strlen(key), lease_ms, &ticket);
	if (r == 0)
		r = shmstore_ticket_format(&ticket, text, sizeof(text));
	if (r < 0)
		return r;
	if (n + 1 + strlen(text) >= size)
		return shms_detail(-EFBIG, s->p->path,
				   "the path of partition %s is too long for an actor to be moved",
				   s->p->path);
	*ret_bytes = ticket.header_size + ticket.buffer_size;
	return snprintf(ret_text, size, "%s\n%s", s->p->path, text);
}

/* Puts a copy of what a view shows into s. */
static int copy_view(struct shmstore *s, const char *key, const struct shmstore_view *v)
{
	size_t n = shmstore_view_n_buffers(v), n_header;
	struct iovec *buffers = calloc(n ? n : 1, sizeof(*buffers));
	const void *header = shmstore_view_header(v, &n_header);
	uint64_t bytes;
	int r;

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		buffers[i].iov_base = shmstore_view_buffer(v, i, &bytes);
		buffers[i].iov_len = bytes;
	}
	r = shmstore_put(s, key, strlen(key), header, n_header, buffers, n, SHMSTORE_REPLACE);
	free(buffers);
	return r;
}

static int copy_through(struct shmstore *s, struct shmstore *there, const char *key,
			const struct shmstore_ticket *ticket)
{
	struct shmstore_view *v;
	int r = shmstore_adopt(there, key, strlen(key), ticket, 0);

	if (r == 0)
		r = shmstore_get(there, key, strlen(key), 0, &v);
	if (r < 0)
		return r;
	r = copy_view(s, key, v);
	shmstore_view_unref(v);
	return r;
}

static int copy(struct shmstore *s, const char *key, const char *partition,
		const struct shmstore_ticket *ticket)
{
	static _Atomic unsigned n_copies;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *there;
	char name[64];
	int r = shmstore_partition_open(partition, 0, &p);

	if (r < 0)
		return r;
	options.daemon = SHMSTORE_DAEMON_OFF;
	options.label = "an actor's state on its way";
	snprintf(name, sizeof(name), "actor-%d-%u", (int)getpid(), atomic_fetch_add(&n_copies, 1u));
	r = shmstore_open(p, name, &options, &there);
	if (r == 0) {
		r = copy_through(s, there, key, ticket);
		shmstore_close(there);
	}
	shmstore_partition_unref(p);
	return r;
}

int shms_state_fetch(struct shmstore *s, const char *key, const char *text)
{
	const char *end = strchr(text, '\n');
	char partition[SHMSTORE_TICKET_PATH];
	struct shmstore_ticket ticket;
	int r;

	if (!end || (size_t)(end - text) >= sizeof(partition))
		return -EBADMSG;
	memcpy(partition, text, (size_t)(end - text));
	partition[end - text] = '\0';
	r = shmstore_ticket_parse(end + 1, &ticket);
	if (r < 0)
		return r;
	if (strcmp(partition, s->p->path) == 0)
		return shmstore_adopt(s, key, strlen(key), &ticket, SHMSTORE_REPLACE);
	return copy(s, key, partition, &ticket);
}
