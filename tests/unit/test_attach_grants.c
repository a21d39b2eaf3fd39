/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon that refuses room, lets a put wait for it, or asks for some back. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>

#include "api.h"
#include "attached.h"

/* ---- refused ---- */

struct refusing {
	uint16_t type;
	int error;
};

static bool refusing_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			     const char *tail, void *arg)
{
	struct refusing *k = arg;
	struct wire_refused refused = {.error = k->error};

	(void)body;
	(void)tail;
	if (h->type != k->type)
		return false;
	fake_reply(f, fd, WIRE_REFUSED, h->serial, &refused, "because");
	return true;
}

Test(attach_grants, refusals_are_the_puts_errors)
{
	static const int errors[] = {-ENOSPC, -EDQUOT};

	for (size_t i = 0; i < 2; i++) {
		struct refusing k = {WIRE_GRANT, errors[i]};
		struct fake *f = attach_start(true, refusing_handler, &k);
		int r;

		f->room = 0;
		struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), errors[i]);
		cr_assert_eq(seal_pattern(s, "k", SIZE, 1, 0), errors[i]);
		cr_assert(attach_becomes_registered(s));
		cr_assert_eq(count_in_store("a", "objects"), 0);
		shmstore_close(s);
		fake_stop(f);
	}
}

Test(attach_grants, refused_registration_is_alone)
{
	struct refusing k = {WIRE_REGISTER, -ENOENT};
	struct fake *f = attach_start(true, refusing_handler, &k);
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(attach_registered(s));
	attach_ensure_works(s);
	shmstore_close(s);
	attach_open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert_eq(r, -ETIMEDOUT);
	fake_stop(f);
}

/* ---- waiting ---- */

struct waiter {
	struct shmstore *s;
	atomic_bool done;
	int r;
};

static void *wait_for_room(void *arg)
{
	struct waiter *w = arg;

	w->r = put_pattern(w->s, "large", 10 * SIZE, 1, SHMSTORE_WAIT);
	atomic_store(&w->done, true);
	return NULL;
}

static bool one_waits(void *arg)
{
	return atomic_load(&((struct fake *)arg)->n_waiting) == 1;
}

Test(attach_grants, waiting_put_gets_room_and_stops_nobody)
{
	struct fake *f = attach_start(true, NULL, NULL);
	struct waiter w = {0};
	pthread_t thread;
	int r;

	f->room = 400000;
	f->ahead = 0;
	w.s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(put_pattern(w.s, "large", 10 * SIZE, 1, 0), -ENOSPC);
	pthread_create(&thread, NULL, wait_for_room, &w);
	cr_assert(wait_until(one_waits, f, 10000));
	/* Another thread: grants and recycled puts go on. */
	cr_assert_eq(put_pattern(w.s, "small", SIZE, 2, 0), 0);
	cr_assert_eq(get_pattern(w.s, "small", SIZE, 2), 0);
	cr_assert_eq(put_pattern(w.s, "other", SIZE, 2, 0), 0);
	cr_assert_not(atomic_load(&w.done));
	fake_give(f, 100 * SIZE);
	pthread_join(thread, NULL);
	cr_assert_eq(w.r, 0);
	cr_assert_eq(get_pattern(w.s, "large", 10 * SIZE, 1), 0);
	shmstore_close(w.s);
	fake_stop(f);
}

Test(attach_grants, wait_ends_with_its_time)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = attach_start(true, NULL, NULL);
	struct shmstore *s;

	f->room = 0;
	o.wait_ms = 50;
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	shmstore_partition_unref(p);
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, SHMSTORE_WAIT), -ETIMEDOUT);
	cr_assert_eq(seal_pattern(s, "k", SIZE, 1, SHMSTORE_WAIT), -ETIMEDOUT);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(f->n_requests[WIRE_CANCEL], 0);
	shmstore_close(s);
	fake_stop(f);
}

/* ---- asked ---- */

/* A look for room is good for some milliseconds: so long nothing is pooled. */
static bool pools_again(void *arg)
{
	attach_ensure_works(arg);
	return count_in_store("a", "recycle") == 1;
}

Test(attach_grants, asked_store_gives_its_pool_and_says_what_is_owed)
{
	struct fake *f = attach_start(true, NULL, NULL);
	struct wire_credit *c;
	uint64_t bytes = 1;
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(s));
	c = fake_credit(f);
	cr_assert_eq(put_pattern(s, "pooled", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "kept", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "stays", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("pooled")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	cr_assert_eq(shmstore_asked(s, &bytes), 1);
	cr_assert_eq(bytes, 0);
	atomic_store(&c->asked_bytes, 500000);
	atomic_fetch_add(&c->asked_n, 1);
	cr_assert_eq(shmstore_asked(s, &bytes), 1);
	cr_assert_eq(bytes, 500000);
	/* The next call gives the pool back, and does not fill it again. */
	cr_assert_eq(shmstore_delete(s, KEY("kept")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	cr_assert_eq(atomic_load(&c->given_n), 1);
	cr_assert_eq(shmstore_asked(s, &bytes), 1);
	cr_assert_eq(bytes, 500000 - 2 * 26 * 4096);
	atomic_store(&c->asked_bytes, 0);
	atomic_fetch_add(&c->asked_n, 1);
	cr_assert_eq(shmstore_asked(s, &bytes), 1);
	cr_assert_eq(bytes, 0);
	cr_assert_eq(shmstore_delete(s, KEY("stays")), 0);
	cr_assert(wait_until(pools_again, s, 10000));
	shmstore_close(s);
	fake_stop(f);
}
