/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the daemon. Whatever the other side does - nothing, late, half, nonsense, lies, death at any point - a put
 * succeeds where there is room, and the store finds its way back.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"

enum {
	SIZE = 100000
};

static struct shmstore *open_as(unsigned daemon, int *ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = NULL;

	o.daemon = daemon;
	*ret = shmstore_open(p, "a", &o, &s);
	shmstore_partition_unref(p);
	return s;
}

static struct fake *start(bool lock, fake_handler *handler, void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = fake_start(p, lock, handler, arg);

	shmstore_partition_unref(p);
	return f;
}

static bool dispatched(void *arg)
{
	return shmstore_daemon_dispatch(arg) == 1;
}

static bool registered(struct shmstore *s)
{
	uint64_t bytes;

	return shmstore_asked(s, &bytes) == 1;
}

/* On a machine that is busy the greeting may take longer than open() waits. */
static bool becomes_registered(struct shmstore *s)
{
	return wait_until(dispatched, s, 10000) && registered(s);
}

/* Puts, reads and deletes: the store works. */
static void ensure_works(struct shmstore *s)
{
	cr_assert_eq(put_pattern(s, "works", SIZE, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "works", SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(s, KEY("works")), 0);
}

/* ---- with and without ---- */

Test(attach, no_daemon_is_alone)
{
	uint64_t bytes = 1;
	int r;

	fake_nowhere();
	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_eq(shmstore_asked(s, &bytes), 0);
	cr_assert_eq(bytes, 0);
	cr_assert_eq(shmstore_asked(s, NULL), -EINVAL);
	cr_assert_eq(shmstore_daemon_fd(s), -ENOENT);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	ensure_works(s);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(attach, daemon_registers_store)
{
	struct fake *f = start(true, NULL, NULL);
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert(becomes_registered(s));
	cr_assert_str_eq(f->last_register, "stores/a");
	cr_assert_geq(shmstore_daemon_fd(s), 0);
	cr_assert_eq(shmstore_daemon_dispatch(s), 1);
	ensure_works(s);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}

static bool no_connection(void *arg)
{
	return atomic_load(&((struct fake *)arg)->n_connections) == 0;
}

Test(attach, close_says_bye)
{
	struct fake *f = start(true, NULL, NULL);
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(s));
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert(wait_until(no_connection, f, 10000));
	cr_assert_eq(f->n_requests[WIRE_BYE], 1);
	fake_stop(f);
}

Test(attach, required_without_daemon_fails_and_leaves_nothing)
{
	int r;

	fake_nowhere();
	open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert_eq(r, -ETIMEDOUT);
	cr_assert_neq(access(scratch_store_path("a", ""), F_OK), 0);
	struct fake *f = start(true, NULL, NULL);
	struct shmstore *s = open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert_eq(r, 0);
	cr_assert(becomes_registered(s));
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, off_never_connects)
{
	struct fake *f = start(true, NULL, NULL);
	struct shmstore *s;
	int r;

	s = open_as(SHMSTORE_DAEMON_OFF, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(registered(s));
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	shmstore_close(s);
	setenv("SHMSTORE_DAEMON", "off", 1);
	s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_not(registered(s));
	shmstore_close(s);
	/* The environment is for those who leave it open. */
	s = open_as(SHMSTORE_DAEMON_REQUIRED, &r);
	cr_assert(becomes_registered(s));
	shmstore_close(s);
	setenv("SHMSTORE_DAEMON", "required", 1);
	fake_nowhere();
	open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, -ETIMEDOUT);
	open_as(3, &r);
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
};

static bool late_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			 void *arg)
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
	struct fake *f = start(true, late_handler, &late);
	struct wire_welcome welcome = {.version = WIRE_VERSION, .epoch = f->epoch};
	struct wire_registered reg = {.id = 1};
	uint64_t serial;
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(registered(s));
	ensure_works(s);
	serial = atomic_load(&late.serial);
	cr_assert_neq(serial, 0);
	/* REGISTER was answered already, which a daemon that has not greeted may not do: that connection is over. */
	cr_assert_eq(f->n_requests[WIRE_REGISTER], 1);
	fake_reply(f, late.fd, WIRE_WELCOME, serial, &welcome, NULL);
	fake_reply(f, late.fd, WIRE_REGISTERED, serial + 1, &reg, NULL);
	atomic_store(&late.answer, true);
	cr_assert(wait_until(dispatched, s, 15000));
	ensure_works(s);
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, late_registration_is_heard_later)
{
	struct late late = {.type = WIRE_REGISTER};
	struct fake *f = start(true, late_handler, &late);
	struct wire_registered reg = {.id = 1};
	int r, fd;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_not(registered(s));
	fd = shmstore_daemon_fd(s);
	cr_assert_geq(fd, 0);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	fake_reply(f, late.fd, WIRE_REGISTERED, atomic_load(&late.serial), &reg, NULL);
	/* What an event loop does. */
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
	cr_assert_eq(shmstore_daemon_dispatch(s), 1);
	cr_assert_eq(f->n_requests[WIRE_HELLO], 1);
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, silence_is_waited_for_once)
{
	struct late late = {.type = WIRE_GRANT};
	struct fake *f = start(false, late_handler, &late);
	struct wire_granted granted = {0};
	int r;

	f->room = 1 << 30;
	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(s));
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

/* ---- wrong ---- */

/* Answers each request of a type with the bytes of the right answer, cut or changed. */
struct wrong {
	uint16_t type;
	size_t keep;     /* bytes that are left of it; more: zeros are added */
	size_t flip;     /* byte that is inverted; SIZE_MAX: none */
	bool once_right; /* nothing is changed */
};

static bool wrong_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			  void *arg)
{
	struct wrong *w = arg;
	unsigned char packet[256] = {0};
	struct wire_welcome welcome = {.version = WIRE_VERSION, .epoch = f->epoch};
	struct wire_registered reg = {.id = 1};
	struct wire_granted granted = {0};

	(void)body;
	(void)tail;
	if (h->type != w->type)
		return false;
	if (h->type == WIRE_HELLO)
		wire_pack(packet, sizeof(packet), WIRE_WELCOME, h->serial, &welcome, NULL, 0);
	else if (h->type == WIRE_REGISTER)
		wire_pack(packet, sizeof(packet), WIRE_REGISTERED, h->serial, &reg, NULL, 0);
	else
		wire_pack(packet, sizeof(packet), WIRE_GRANTED, h->serial, &granted, NULL, 0);
	if (w->flip != SIZE_MAX)
		packet[w->flip] = (unsigned char)~packet[w->flip];
	fake_send(fd, packet, w->keep);
	return true;
}

/* One store's life against such a daemon. */
static void live(struct wrong *w)
{
	struct fake *f = start(false, wrong_handler, w);
	int r;

	f->room = 1 << 30;
	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	if (w->once_right || w->type == WIRE_GRANT)
		cr_assert(becomes_registered(s));
	ensure_works(s);
	cr_assert_eq(registered(s), w->once_right, "type %u keep %zu flip %zd", w->type, w->keep, (ssize_t)w->flip);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}

Test(attach, truncated_greetings_are_refused)
{
	for (size_t keep = 1; keep < sizeof(struct wire_header) + sizeof(struct wire_welcome); keep++)
		live(&(struct wrong){WIRE_HELLO, keep, SIZE_MAX, false});
	for (size_t keep = 1; keep < sizeof(struct wire_header) + sizeof(struct wire_registered); keep++)
		live(&(struct wrong){WIRE_REGISTER, keep, SIZE_MAX, false});
	live(&(struct wrong){WIRE_REGISTER, sizeof(struct wire_header) + sizeof(struct wire_registered), SIZE_MAX,
			     true});
	live(&(struct wrong){WIRE_REGISTER, 200, SIZE_MAX, false});
}

Test(attach, wrong_headers_are_refused)
{
	size_t whole = sizeof(struct wire_header) + sizeof(struct wire_registered);

	for (size_t flip = 0; flip < sizeof(struct wire_header); flip++)
		live(&(struct wrong){WIRE_REGISTER, whole, flip, false});
}

Test(attach, wrong_answers_to_a_grant_end_the_connection)
{
	size_t whole = sizeof(struct wire_header) + sizeof(struct wire_granted);

	for (size_t keep = 1; keep < whole; keep++)
		live(&(struct wrong){WIRE_GRANT, keep, SIZE_MAX, false});
	for (size_t flip = 0; flip < sizeof(struct wire_header); flip++)
		live(&(struct wrong){WIRE_GRANT, whole, flip, false});
}

/* Says a thing that is well-formed, and out of place. */
static bool misplaced_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			      void *arg)
{
	static const unsigned char zeros[64];

	(void)body;
	(void)tail;
	if (h->type != WIRE_GRANT)
		return false;
	fake_reply(f, fd, *(uint16_t *)arg, h->serial, zeros, NULL);
	return true;
}

Test(attach, misplaced_messages_end_the_connection)
{
	static const uint16_t types[] = {WIRE_WELCOME, WIRE_PONG,  WIRE_REGISTERED, WIRE_REFUSED, WIRE_DATA,
					 WIRE_EVENT,   WIRE_ERROR, WIRE_BROKERED,   WIRE_DONE};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		uint16_t type = types[i];
		struct fake *f = start(false, misplaced_handler, &type);
		int r;

		f->room = 1 << 30;
		struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert(becomes_registered(s));
		ensure_works(s);
		cr_assert_not(registered(s), "type %u", type);
		shmstore_close(s);
		fake_stop(f);
	}
}

/* Grants in words, and not in the page. */
static bool liar_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			 void *arg)
{
	struct wire_granted granted = {.granted = UINT64_MAX, .bytes = 1 << 30};

	(void)body;
	(void)tail;
	(void)arg;
	if (h->type != WIRE_GRANT)
		return false;
	fake_reply(f, fd, WIRE_GRANTED, h->serial, &granted, NULL);
	return true;
}

Test(attach, grants_that_are_none_are_an_error)
{
	struct fake *f = start(true, liar_handler, NULL);
	int r;

	f->room = 0;
	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	r = put_pattern(s, "k", SIZE, 1, 0);
	cr_assert(r == -EDQUOT || r == -ENOSPC);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	shmstore_close(s);
	fake_stop(f);
}

/* ---- gone ---- */

static bool dying_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			  void *arg)
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
		struct fake *f = start(false, dying_handler, &type);
		int r;

		f->room = 1 << 30;
		struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert_eq(r, 0);
		if (type == WIRE_GRANT)
			cr_assert(becomes_registered(s));
		ensure_works(s);
		cr_assert_not(registered(s));
		shmstore_close(s);
		fake_stop(f);
	}
}

/* Puts; is the store registered by now? */
static bool put_registers(void *arg)
{
	ensure_works(arg);
	return registered(arg);
}

Test(attach, restarted_daemon_is_found_again)
{
	struct fake *f = start(true, NULL, NULL);
	struct wire_credit *c;
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(s));
	c = fake_credit(f);
	fake_stop(f);
	for (int i = 0; i < 10; i++)
		ensure_works(s);
	f = start(true, NULL, NULL);
	/* It finds the store by its scan, and writes to its page. */
	atomic_store(&c->epoch, f->epoch);
	cr_assert(wait_until(put_registers, s, 10000));
	cr_assert_str_eq(f->last_register, "stores/a");
	shmstore_close(s);
	fake_stop(f);
}

Test(attach, event_loop_keeps_its_descriptor)
{
	struct fake *f = start(true, NULL, NULL);
	int r, fd;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(s));
	fd = shmstore_daemon_fd(s);
	fake_stop(f);
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000), 1);
	cr_assert_eq(shmstore_daemon_dispatch(s), 0);
	cr_assert_eq(shmstore_daemon_fd(s), -ENOENT);
	cr_assert_eq(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
	f = start(true, NULL, NULL);
	cr_assert(wait_until(dispatched, s, 10000));
	cr_assert_eq(shmstore_daemon_fd(s), fd);
	shmstore_close(s);
	fake_stop(f);
}

/* ---- refused ---- */

struct refusing {
	uint16_t type;
	int error;
};

static bool refusing_handler(struct fake *f, int fd, const struct wire_header *h, const void *body, const char *tail,
			     void *arg)
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

Test(attach, refusals_are_the_puts_errors)
{
	static const int errors[] = {-ENOSPC, -EDQUOT};

	for (size_t i = 0; i < 2; i++) {
		struct refusing k = {WIRE_GRANT, errors[i]};
		struct fake *f = start(true, refusing_handler, &k);
		int r;

		f->room = 0;
		struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), errors[i]);
		cr_assert_eq(seal_pattern(s, "k", SIZE, 1, 0), errors[i]);
		cr_assert(becomes_registered(s));
		cr_assert_eq(count_in_store("a", "objects"), 0);
		shmstore_close(s);
		fake_stop(f);
	}
}

Test(attach, refused_registration_is_alone)
{
	struct refusing k = {WIRE_REGISTER, -ENOENT};
	struct fake *f = start(true, refusing_handler, &k);
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	cr_assert_not(registered(s));
	ensure_works(s);
	shmstore_close(s);
	open_as(SHMSTORE_DAEMON_REQUIRED, &r);
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

Test(attach, waiting_put_gets_room_and_stops_nobody)
{
	struct fake *f = start(true, NULL, NULL);
	struct waiter w = {0};
	pthread_t thread;
	int r;

	f->room = 400000;
	f->ahead = 0;
	w.s = open_as(SHMSTORE_DAEMON_AUTO, &r);
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

Test(attach, wait_ends_with_its_time)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = start(true, NULL, NULL);
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

Test(attach, wait_that_is_not_answered_is_cancelled)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct late late = {.type = WIRE_GRANT};
	struct fake *f = start(true, late_handler, &late);
	struct shmstore *s;

	f->room = 0;
	o.wait_ms = 50;
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	shmstore_partition_unref(p);
	/* Room that is there without it, so that the first try, which does not wait, is not the one that is overdue. */
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
	struct fake *f = start(true, NULL, NULL);
	struct parent p;
	int r;

	p.s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(p.s));
	cr_assert_geq(shmstore_daemon_fd(p.s), 0);
	p.n_sockets = count_fds("socket:");
	p.n_epolls = count_fds("[eventpoll]");
	cr_assert_eq(in_child(child_is_not_connected, &p), 0);
	cr_assert(registered(p.s));
	cr_assert_eq(shmstore_daemon_dispatch(p.s), 1);
	cr_assert_eq(f->n_requests[WIRE_BYE], 0);
	shmstore_close(p.s);
	fake_stop(f);
}

/* ---- asked ---- */

/* A look for room is good for some milliseconds: so long nothing is pooled. */
static bool pools_again(void *arg)
{
	ensure_works(arg);
	return count_in_store("a", "recycle") == 1;
}

Test(attach, asked_store_gives_its_pool_and_says_what_is_owed)
{
	struct fake *f = start(true, NULL, NULL);
	struct wire_credit *c;
	uint64_t bytes = 1;
	int r;

	struct shmstore *s = open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert(becomes_registered(s));
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
