/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the daemon: with it, without it, late, gone and back, in a child. A put
 * succeeds where there is room, whatever the other side does, and the store finds its way back.
 * test_attach_wrong.c: half, nonsense, lies; test_attach_grants.c: who is refused, waits, is asked.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <shmstore/actor.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"
#include "attached.h"
#include "handle.h"
#include "sys.h"

/* ---- with and without ---- */

Test(attach, no_daemon_is_alone)
{
	uint64_t bytes = 1;
	int r;

	fake_nowhere();
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_eq(shmstore_asked(s, &bytes), 0);
	cr_assert_eq(bytes, 0);
	cr_assert_eq(shmstore_asked(s, NULL), -EINVAL);
	cr_assert_eq(shmstore_daemon_fd(s), -ENOENT);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	attach_ensure_works(s);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(attach, daemon_registers_store)
{
	struct fake *f = attach_start(true, NULL, NULL);
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert(attach_becomes_registered(s));
	cr_assert_str_eq(f->last_register, "stores/a");
	cr_assert_geq(shmstore_daemon_fd(s), 0);
	cr_assert_eq(shmstore_daemon_dispatch(s), 1);
	attach_ensure_works(s);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}

static bool no_connection(void *arg)
{
	return atomic_load(&((struct fake *)arg)->n_connections) == 0;
}

Test(attach, close_says_bye)
{
	struct fake *f = attach_start(true, NULL, NULL);
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(s));
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert(wait_until(no_connection, f, 10000));
	cr_assert_eq(f->n_requests[WIRE_BYE], 1);
	fake_stop(f);
}

Test(attach, required_without_daemon_fails_and_leaves_nothing)
{
	int r;

	fake_nowhere();
	attach_open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert_eq(r, -ETIMEDOUT);
	cr_assert_neq(access(scratch_store_path("a", ""), F_OK), 0);
	struct fake *f = attach_start(true, NULL, NULL);
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert_eq(r, 0);
	cr_assert(attach_becomes_registered(s));
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, off_never_connects)
{
	struct fake *f = attach_start(true, NULL, NULL);
	struct shmstore *s;
	int r;

	s = attach_open_as(SHMSTORE_DAEMON_OFF, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(attach_registered(s));
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	shmstore_close(s);
	setenv("SHMSTORE_DAEMON", "off", 1);
	s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_not(attach_registered(s));
	shmstore_close(s);
	/* The environment is for those who leave it open. */
	s = attach_open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert(attach_becomes_registered(s));
	shmstore_close(s);
	setenv("SHMSTORE_DAEMON", "required", 1);
	fake_nowhere();
	attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, -ETIMEDOUT);
	attach_open_as(3, &r);
	cr_assert_eq(r, -EINVAL);
	fake_stop(f);
}

/* ---- late ---- */

/* Keeps what it is told to keep, until it may go on. */
struct late {
	uint16_t type;
	atomic_bool answer;
	int fd;
	_Atomic uint64_t serial;
	struct fake *of;
	struct shmstore *store;
};

static bool late_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			 const char *tail, void *arg)
{
	struct late *late = arg;

	(void)f;
	(void)body;
	(void)tail;
	if (h->type != late->type || atomic_load(&late->answer))
		return false;
	late->fd = fd;
	atomic_store(&late->serial, h->serial);
	return true;
}

Test(attach, late_greeting_is_heard_later)
{
	struct late late = {.type = WIRE_HELLO};
	struct fake *f = attach_start(true, late_handler, &late);
	struct wire_welcome welcome = {.version = WIRE_VERSION, .epoch = f->epoch};
	struct wire_registered reg = {.id = 1};
	uint64_t serial;
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(attach_registered(s));
	attach_ensure_works(s);
	serial = atomic_load(&late.serial);
	cr_assert_neq(serial, 0);
	/* REGISTER was answered already, which a daemon that has not greeted may not
	 * do: that connection is over. */
	cr_assert_eq(f->n_requests[WIRE_REGISTER], 1);
	fake_reply(f, late.fd, WIRE_WELCOME, serial, &welcome, NULL);
	fake_reply(f, late.fd, WIRE_REGISTERED, serial + 1, &reg, NULL);
	atomic_store(&late.answer, true);
	cr_assert(wait_until(attach_dispatched, s, 15000));
	attach_ensure_works(s);
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, late_registration_is_heard_later)
{
	struct late late = {.type = WIRE_REGISTER};
	struct fake *f = attach_start(true, late_handler, &late);
	struct wire_registered reg = {.id = 1};
	int r, fd;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_not(attach_registered(s));
	fd = shmstore_daemon_fd(s);
	cr_assert_geq(fd, 0);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	fake_reply(f, late.fd, WIRE_REGISTERED, atomic_load(&late.serial), &reg, NULL);
	/* An event loop polls, then dispatches. */
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
	cr_assert_eq(shmstore_daemon_dispatch(s), 1);
	cr_assert_eq(f->n_requests[WIRE_HELLO], 1);
	shmstore_close(s);
	fake_stop(f);
}

static bool waits_for_daemon(void *store)
{
	struct shms_attach *a = shms_attach_of(store);
	bool waits;

	pthread_mutex_lock(&a->lock);
	waits = a->reading;
	pthread_mutex_unlock(&a->lock);
	return waits;
}

static void *register_late(void *arg)
{
	struct late *late = arg;
	struct wire_registered reg = {.id = 1};

	wait_until(waits_for_daemon, late->store, 10000);
	fake_reply(late->of, late->fd, WIRE_REGISTERED, atomic_load(&late->serial), &reg, NULL);
	return NULL;
}

Test(attach, who_needs_a_daemon_waits_for_one_that_is_slow)
{
	struct late late = {.type = WIRE_REGISTER};
	struct fake *f = attach_start(true, late_handler, &late);
	pthread_t thread;
	int r;

	late.of = f;
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_not(attach_registered(s));
	late.store = s;
	ENSURE(pthread_create(&thread, NULL, register_late, &late) == 0);
	cr_assert(shms_attach_needed(shms_attach_of(s)));
	cr_assert(attach_registered(s));
	ENSURE(pthread_join(thread, NULL) == 0);
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, one_that_hangs_is_needed_once)
{
	struct late late = {.type = WIRE_REGISTER};
	struct fake *f = attach_start(true, late_handler, &late);
	struct shmstore_place *place;
	uint64_t begun;
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(shmstore_place_open(s, "p", 0, &place), -ENOTSUP);
	cr_assert(strstr(shmstore_error_detail(), "shmstored does not answer"), "%s",
		  shmstore_error_detail());
	begun = shms_now_mono_ns();
	for (int i = 0; i < 1000; i++)
		cr_assert_not(shms_attach_needed(shms_attach_of(s)));
	cr_assert_lt(shms_now_mono_ns() - begun, UINT64_C(20000000000),
		     "each of a thousand calls waited");
	shmstore_close(s);
	fake_stop(f);
	fake_nowhere();
	s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(shmstore_place_open(s, "p", 0, &place), -ENOTSUP);
	cr_assert(strstr(shmstore_error_detail(), "no shmstored serves the store"), "%s",
		  shmstore_error_detail());
	shmstore_close(s);
}

Test(attach, silence_is_waited_for_once)
{
	struct late late = {.type = WIRE_GRANT};
	struct fake *f = attach_start(false, late_handler, &late);
	struct wire_granted granted = {0};
	int r;

	f->room = 1 << 30;
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(s));
	/* It hangs, and holds no lock: the store grants itself what there is. */
	cr_assert_eq(put_pattern(s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(f->n_requests[WIRE_GRANT], 1);
	for (int i = 0; i < 100; i++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, SIZE, 1, 0), 0);
	}
	cr_assert_eq(f->n_requests[WIRE_GRANT], 1, "asked again of one who does not answer");
	fake_reply(f, late.fd, WIRE_GRANTED, atomic_load(&late.serial), &granted, NULL);
	atomic_store(&late.answer, true);
	for (int i = 0; i < 100; i++) {
		char key[8];

		snprintf(key, sizeof(key), "l%d", i);
		cr_assert_eq(put_pattern(s, key, SIZE, 1, 0), 0);
	}
	cr_assert_gt(f->n_requests[WIRE_GRANT], 1, "not heard again");
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, wait_that_is_not_answered_is_cancelled)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct late late = {.type = WIRE_GRANT};
	struct fake *f = attach_start(true, late_handler, &late);
	struct shmstore *s;

	f->room = 0;
	o.wait_ms = 50;
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	shmstore_partition_unref(p);
	/* Room that is there without it, so that the first try, which does not wait, is
	 * not the one that is overdue. */
	atomic_store(&fake_credit(f)->granted, 200000);
	cr_assert_eq(put_pattern(s, "first", SIZE, 1, SHMSTORE_WAIT), 0);
	atomic_store(&late.answer, true);
	cr_assert_eq(put_pattern(s, "k", 2 * SIZE, 1, 0), -ENOSPC);
	atomic_store(&late.answer, false);
	cr_assert_eq(put_pattern(s, "k", 2 * SIZE, 1, SHMSTORE_WAIT), -ETIMEDOUT);
	shmstore_close(s);
	cr_assert(wait_until(no_connection, f, 10000));
	fake_stop(f);
}

/* ---- gone ---- */

static bool dying_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			  const char *tail, void *arg)
{
	(void)f;
	(void)body;
	(void)tail;
	if (h->type != *(uint16_t *)arg)
		return false;
	shutdown(fd, SHUT_RDWR);
	return true;
}

Test(attach, death_at_any_request_leaves_the_store_alone)
{
	static const uint16_t types[] = {WIRE_HELLO, WIRE_REGISTER, WIRE_GRANT};

	for (size_t i = 0; i < 3; i++) {
		uint16_t type = types[i];
		struct fake *f = attach_start(false, dying_handler, &type);
		int r;

		f->room = 1 << 30;
		struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert_eq(r, 0);
		if (type == WIRE_GRANT)
			cr_assert(attach_becomes_registered(s));
		attach_ensure_works(s);
		cr_assert_not(attach_registered(s));
		shmstore_close(s);
		fake_stop(f);
	}
}

/* Puts; is the store registered by now? */
static bool put_registers(void *arg)
{
	attach_ensure_works(arg);
	return attach_registered(arg);
}

Test(attach, restarted_daemon_is_found_again)
{
	struct fake *f = attach_start(true, NULL, NULL);
	struct wire_credit *c;
	int r;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(s));
	c = fake_credit(f);
	fake_stop(f);
	for (int i = 0; i < 10; i++)
		attach_ensure_works(s);
	f = attach_start(true, NULL, NULL);
	/* It finds the store by its scan, and writes to its page. */
	atomic_store(&c->epoch, f->epoch);
	cr_assert(wait_until(put_registers, s, 10000));
	cr_assert_str_eq(f->last_register, "stores/a");
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, event_loop_keeps_its_descriptor)
{
	struct fake *f = attach_start(true, NULL, NULL);
	int r, fd;

	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(s));
	fd = shmstore_daemon_fd(s);
	fake_stop(f);
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	cr_assert_eq(shmstore_daemon_fd(s), -ENOENT);
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
	f = attach_start(true, NULL, NULL);
	cr_assert(wait_until(attach_dispatched, s, 10000));
	cr_assert_eq(shmstore_daemon_fd(s), fd);
	shmstore_close(s);
	fake_stop(f);
}

/* ---- fork ---- */

/* Descriptors of this process that are of that kind. */
static int count_fds(const char *kind)
{
	char link[300], target[300];
	struct dirent *e;
	int n = 0;
	DIR *dir = opendir("/proc/self/fd");

	cr_assert_not_null(dir);
	while ((e = readdir(dir)) != NULL) {
		ssize_t length;

		snprintf(link, sizeof(link), "/proc/self/fd/%s", e->d_name);
		length = readlink(link, target, sizeof(target) - 1);
		if (length <= 0)
			continue;
		target[length] = '\0';
		n += strstr(target, kind) != NULL;
	}
	closedir(dir);
	return n;
}

struct parent {
	struct shmstore *s;
	int n_sockets, n_epolls;
};

static int child_is_not_connected(void *arg)
{
	struct parent *p = arg;
	uint64_t bytes;

	if (count_fds("socket:") != p->n_sockets - 1 || count_fds("[eventpoll]") != p->n_epolls - 1)
		return 1;
	if (shmstore_asked(p->s, &bytes) != -EPERM || shmstore_daemon_fd(p->s) != -EPERM ||
	    shmstore_daemon_dispatch(p->s) != -EPERM)
		return 2;
	return shmstore_close(p->s) == -EPERM ? 0 : 3;
}

Test(attach, child_of_a_fork_is_not_connected)
{
	struct fake *f = attach_start(true, NULL, NULL);
	struct parent p;
	int r;

	p.s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(attach_becomes_registered(p.s));
	cr_assert_geq(shmstore_daemon_fd(p.s), 0);
	p.n_sockets = count_fds("socket:");
	p.n_epolls = count_fds("[eventpoll]");
	cr_assert_eq(in_child(child_is_not_connected, &p), 0);
	cr_assert(attach_registered(p.s));
	cr_assert_eq(shmstore_daemon_dispatch(p.s), 1);
	cr_assert_eq(f->n_requests[WIRE_BYE], 0);
	shmstore_close(p.s);
	fake_stop(f);
}
