/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c: requests and their replies on the connection of attach.c.
 *
 * Two sorts. A reply that is due at once is awaited for a second; a daemon that misses it is
 * "silent" until it speaks. A reply that may be withheld (the arbiter's) is awaited as long as the
 * daemon's socket lives. After seconds without a word a PING asks whether it can speak: so a daemon
 * that hangs ends the wait too.
 *
 * A reply that is due to nobody's thread is told by a call-back, by whoever reads it: that
 * is how event loops get theirs.
 *
 * Rejected: a timeout of our own for what is withheld. The daemon's is known to it alone, and a
 * reply on its way would be lost with what it grants.
 */
#include <errno.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <utlist.h>

#include "attach.h"
#include "cleanup.h"
#include "detail.h"
#include "sys.h"

#define MS       SHMS_MS
#define REPLY_NS (1000 * MS)
#define QUIET_NS (5000 * MS)  /* without a word, before it is asked whether it lives */
#define DEAD_NS  (20000 * MS) /* after that */

static int (*_Atomic on_wait)(void);

void shmstore_on_wait(int (*fn)(void))
{
	/* release: who calls it sees what it needs. */
	atomic_store_explicit(&on_wait, fn, memory_order_release);
}

bool shms_interrupted(void)
{
	int (*fn)(void) = atomic_load_explicit(&on_wait, memory_order_acquire);

	return fn && fn();
}

void shms_request_end(struct shms_attach *a, struct shms_request *q, int error)
{
	q->error = error;
	q->done = true;
	if (q->ended)
		q->ended(q);
	else
		pthread_cond_broadcast(&a->changed);
}

static void withdraw(struct shms_attach *a, const struct shms_request *q)
{
	if (a->requests)
		LL_DELETE(a->requests, q);
}

/* Puts q (may be NULL) into the list and sends. 0; -EAGAIN: it takes no more
 * just now; -ENOTCONN, -EINVAL. */
static int send_request(struct shms_attach *a, const struct shms_call *call, struct shms_request *q)
{
	uint64_t serial = ++a->last_serial;
	int r;

	if (q) {
		q->serial = serial;
		q->answer = call->answer;
		q->done = false;
		q->error = 0;
		LL_PREPEND(a->requests, q);
		a->polls = false;
	}
	errno = 0;
	r = shms_attach_send(a, call->type, serial, call->body, call->tail, call->tail_size);
	if (r < 0 && q)
		withdraw(a, q);
	return r == -ENOTCONN && errno == EAGAIN ? -EAGAIN : r;
}

/* q was sent: waits for its reply. */
static int await(struct shms_attach *a, struct shms_request *q, uint64_t timeout_ms)
{
	uint64_t until = shms_now_mono_ns() + REPLY_NS, now;
	bool interrupted = false;
	struct wire_cancel cancel = {.serial = q->serial};

	until += timeout_ms < UINT64_MAX / MS / 2 ? timeout_ms * MS : UINT64_MAX / 2;
	while (!q->done && !interrupted && (now = shms_now_mono_ns()) < until) {
		/* Only what may wait for long is asked: a reply comes in a shorter way
		 * (attach.c). */
		bool ask = timeout_ms && now + SHMS_INTERRUPT_NS < until;

		shms_attach_wait(a, POLLIN, ask ? now + SHMS_INTERRUPT_NS : until);
		if (ask && !q->done) {
			pthread_mutex_unlock(&a->lock);
			interrupted = shms_interrupted();
			pthread_mutex_lock(&a->lock);
		}
	}
	if (q->done)
		return q->error;
	withdraw(a, q);
	a->silent = !interrupted;
	if (timeout_ms && !a->ended)
		shms_attach_send(a, WIRE_CANCEL, ++a->last_serial, &cancel, NULL, 0);
	return interrupted ? -ECANCELED : -ENOTCONN;
}

/* May call go out now? */
static bool registered(const struct shms_attach *a, const struct shms_call *call)
{
	return a->state == SHMS_ATTACH_REGISTERED &&
	       (!call->generation || call->generation == a->n_registered);
}

int shms_attach_call(struct shms_attach *a, const struct shms_call *call, struct shms_reply *ret)
{
	struct shms_request q = {.reply = ret};
	int r = -ENOTCONN;

	SHMS_HELD(&a->lock);
	if (a->silent)
		shms_attach_read(a);
	if (a->state == SHMS_ATTACH_ALONE)
		shms_attach_connect(a, SHMS_GREETING_NS);
	if (registered(a, call) && !a->silent) {
		r = send_request(a, call, &q);
		if (r == 0)
			r = await(a, &q, call->timeout_ms);
		else if (r == -EAGAIN)
			a->silent = true;
		else if (r == -ENOTCONN)
			shms_attach_end(a, 0);
		r = r == -EAGAIN ? -ENOTCONN : r;
	}
	return r;
}

int shms_reply_error(const struct shms_reply *reply)
{
	if (reply->type != WIRE_REFUSED)
		return 0;
	return shms_detail(shms_error(reply->body.refused.error), NULL, "%s", reply->tail);
}

int shms_request_error(struct shms_attach *a, int r, const struct shms_reply *reply,
		       const char *then)
{
	if (r == -ENOTCONN)
		return shms_attach_absent(a, then);
	return r < 0 ? shms_error(r) : shms_reply_error(reply);
}

int shms_request_post(struct shms_attach *a, const struct shms_call *call, struct shms_request *q)
{
	uint64_t until = 0, now;
	int r = -ENOTCONN;

	SHMS_HELD(&a->lock);
	while (registered(a, call)) {
		r = send_request(a, call, q);
		if (r != -EAGAIN)
			break;
		r = -ENOTCONN;
		now = shms_now_mono_ns();
		until = until ? until : now + REPLY_NS;
		if (now >= until)
			break;
		/* Somebody reads: he is not woken by room to write, so that
		 * is looked for now and then. */
		shms_attach_wait(a, POLLIN | POLLOUT, a->reading ? now + MS : until);
	}
	if (r == -ENOTCONN && registered(a, call))
		shms_attach_end(a, 0);
	return r;
}

/* Somebody waits for what may come late: does the daemon live? Returns until when to wait
 * before this is looked at again. */
static uint64_t look_after(struct shms_attach *a)
{
	uint64_t now = shms_now_mono_ns();
	struct wire_ping ping = {.cookie = now};

	if (!a->pinged_ns && now - a->heard_ns >= QUIET_NS) {
		a->pinged_ns = now;
		/* One who reads nothing gets none; one whose PONG is under way needs none. */
		if (!a->ping_serial &&
		    shms_attach_send(a, WIRE_PING, a->last_serial + 1, &ping, NULL, 0) == 0)
			a->ping_serial = ++a->last_serial;
	}
	if (!a->pinged_ns)
		return a->heard_ns + QUIET_NS;
	if (now - a->pinged_ns >= DEAD_NS)
		shms_attach_end(a, 0);
	return a->pinged_ns + DEAD_NS;
}

bool shms_request_wait_until(struct shms_attach *a, struct shms_request *q, uint64_t until_ns)
{
	uint64_t look;

	SHMS_HELD(&a->lock);
	while (!q->done && shms_now_mono_ns() < until_ns) {
		look = look_after(a);
		if (!q->done)
			shms_attach_wait(a, POLLIN, look < until_ns ? look : until_ns);
	}
	return q->done;
}

void shms_request_withdraw(struct shms_attach *a, struct shms_request *q)
{
	SHMS_HELD(&a->lock);
	if (!q->done)
		withdraw(a, q);
}

void shms_request_look(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	shms_attach_read(a);
	if (a->requests && !a->ended)
		look_after(a);
}

/* ---- calls that can do nothing without a daemon ---------------------------------------------- */

/* They wait for one that is slow, and say why there is none. */
bool shms_attach_registered(struct shms_attach *a)
{
	return shms_attach_generation(a) || shms_attach_again(a);
}

bool shms_attach_needed(struct shms_attach *a)
{
	uint64_t until = shms_now_mono_ns() + SHMS_REQUIRED_NS;
	bool registered = shms_attach_registered(a);

	if (registered)
		return true;
	SHMS_HELD(&a->lock);
	while (a->state == SHMS_ATTACH_GREETING && !a->needed && shms_now_mono_ns() < until)
		shms_attach_wait(a, POLLIN, until);
	a->needed = a->state == SHMS_ATTACH_GREETING;
	registered = a->state == SHMS_ATTACH_REGISTERED;
	return registered;
}

int shms_request_begin(struct shms_attach *a, const struct shms_call *call, struct shms_request *q)
{
	return call->generation || shms_attach_needed(a) ? shms_request_post(a, call, q)
							 : -ENOTCONN;
}

int shms_request_ask(struct shms_attach *a, const struct shms_call *call, struct shms_reply *ret)
{
	struct shms_request q = {.reply = ret};
	int r = shms_request_begin(a, call, &q);

	if (r == 0)
		shms_request_wait_until(a, &q, UINT64_MAX);
	return r < 0 ? r : q.error;
}

int shms_attach_absent(struct shms_attach *a, const char *then)
{
	bool hangs;

	SHMS_HELD(&a->lock);
	hangs = a->state != SHMS_ATTACH_ALONE && a->silent;
	return shms_detail(
		-ENOTSUP, NULL, "%s: %s; %s", a->place.store,
		hangs ? "shmstored does not answer: it is stopped, or the host is too busy"
		      : "no shmstored serves the store, or it ended meanwhile",
		then);
}
