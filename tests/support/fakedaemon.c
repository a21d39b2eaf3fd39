/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakedaemon.c: see fakedaemon.h. One thread polls the listener, the connections and a pipe that
 * wakes it; all state but the counters is its own. It grants need + ahead where room has it, else
 * need, else it refuses or lets the request wait.
 */
#include "fakedaemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <shmstore/inspect.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "scratch.h"

#define CONNECTIONS 32
#define WAITS       64

struct wait {
	int fd;
	uint64_t serial, need, ahead, until_ms;
	struct wire_credit *credit;
};

struct fake_private {
	pthread_t thread;
	atomic_bool stop;
	int listener, lock_fd, wake[2];
	struct shmstore_partition *partition;
	fake_handler *handler;
	void *arg;
	int fds[CONNECTIONS];
	struct wire_credit *credits[CONNECTIONS]; /* in a page mapped for good */
	uint64_t ids[CONNECTIONS], last_id;
	struct wait waits[WAITS];
	size_t n_waits;
	_Atomic(struct wire_credit *) last;
};

static const char *socket_path(void)
{
	static char path[SCRATCH_PATH];

	snprintf(path, sizeof(path), "%s/socket", scratch_dir(NULL));
	return path;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void fake_nowhere(void)
{
	setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored", 1);
}

void fake_send(int fd, const void *bytes, size_t n)
{
	send(fd, bytes, n, MSG_NOSIGNAL);
}

void fake_reply(struct fake *f, int fd, uint16_t type, uint64_t serial, const void *body,
		const char *tail)
{
	unsigned char packet[WIRE_PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, serial, body, tail,
			     tail ? strlen(tail) : 0);

	(void)f;
	ENSURE(n != 0);
	fake_send(fd, packet, n);
}

static size_t find_fd(const struct fake *f, int fd)
{
	size_t at = 0;

	while (at < CONNECTIONS && f->private->fds[at] != fd)
		at++;
	ENSURE(at < CONNECTIONS);
	return at;
}

void *fake_page(struct fake *f, int fd)
{
	struct wire_credit *c = f->private->credits[find_fd(f, fd)];

	return c ? (char *)c - WIRE_CREDIT_OFF : NULL;
}

uint64_t fake_id(struct fake *f, int fd)
{
	return f->private->ids[find_fd(f, fd)];
}

static void refuse(struct fake *f, int fd, uint64_t serial, int error)
{
	struct wire_refused refused = {.error = error, .limit = WIRE_LIMIT_PARTITION};

	fake_reply(f, fd, WIRE_REFUSED, serial, &refused, "no room");
}

static void reg(struct fake *f, int fd, const struct wire_header *h, const char *tail, size_t at)
{
	struct wire_registered registered = {0};
	struct fake_private *k = f->private;
	struct wire_credit *c;
	char path[8192];
	int page;
	void *map;

	snprintf(f->last_register, sizeof(f->last_register), "%s", tail);
	snprintf(path, sizeof(path), "%s/%s/" WIRE_PAGE_FILE, shmstore_partition_path(k->partition),
		 tail);
	page = open(path, O_RDWR | O_CLOEXEC);
	if (page < 0) { /* closed meanwhile: its owner did not wait for us */
		refuse(f, fd, h->serial, -ENOENT);
		return;
	}
	map = mmap(NULL, WIRE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
	ENSURE(map != MAP_FAILED);
	close(page);
	c = (struct wire_credit *)(void *)((char *)map + WIRE_CREDIT_OFF);
	if (atomic_load(&f->room) == UINT64_MAX)
		atomic_store(&c->granted, WIRE_UNLIMITED);
	atomic_store(&c->credit, atomic_load(&f->ahead));
	atomic_store(&c->epoch, f->epoch);
	k->credits[at] = c;
	registered.id = k->ids[at] = ++k->last_id;
	atomic_store(&k->last, c);
	fake_reply(f, fd, WIRE_REGISTERED, h->serial, &registered, NULL);
}

/* Grants, if there is room. */
static bool grant(struct fake *f, const struct wait *w)
{
	struct wire_granted granted = {0};
	uint64_t has = atomic_load(&w->credit->granted), charged = atomic_load(&w->credit->charged),
		 more = 0;
	uint64_t room = atomic_load(&f->room);

	if (has < charged || has - charged < w->need) {
		uint64_t base = has > charged ? has : charged;

		more = charged + w->need - base;
		if (more > room)
			return false;
		if (more + w->ahead <= room)
			more += w->ahead;
		if (room != UINT64_MAX)
			atomic_fetch_sub(&f->room, more);
		atomic_store(&w->credit->granted, base + more);
	}
	granted.granted = atomic_load(&w->credit->granted);
	granted.bytes = more;
	fake_reply(f, w->fd, WIRE_GRANTED, w->serial, &granted, NULL);
	return true;
}

static void serve_waits(struct fake *f)
{
	struct fake_private *k = f->private;

	for (size_t i = 0; i < k->n_waits;) {
		struct wait *w = &k->waits[i];
		bool late = now_ms() >= w->until_ms;

		if (!grant(f, w) && !late) {
			i++;
			continue;
		}
		if (late)
			refuse(f, w->fd, w->serial, -ETIMEDOUT);
		*w = k->waits[--k->n_waits];
	}
	atomic_store(&f->n_waiting, k->n_waits);
}

static void on_grant(struct fake *f, int fd, const struct wire_header *h, const void *body,
		     size_t at)
{
	struct fake_private *k = f->private;
	struct wire_grant g;
	struct wait w = {.fd = fd, .serial = h->serial, .credit = k->credits[at]};

	memcpy(&g, body, sizeof(g));
	ENSURE(w.credit && g.need && g.need <= WIRE_GRANT_MAX);
	w.need = g.need;
	w.ahead = g.ahead < atomic_load(&f->ahead) ? g.ahead : atomic_load(&f->ahead);
	if (grant(f, &w))
		return;
	if (!(g.flags & WIRE_GRANT_WAIT)) {
		refuse(f, fd, h->serial, -ENOSPC);
		return;
	}
	ENSURE(k->n_waits < WAITS);
	w.until_ms = now_ms() + g.timeout_ms;
	k->waits[k->n_waits++] = w;
	atomic_store(&f->n_waiting, k->n_waits);
}

static void request(struct fake *f, size_t at, const unsigned char *packet, size_t n)
{
	struct fake_private *k = f->private;
	struct wire_welcome welcome = {
		.version = WIRE_VERSION, .pid = 1, .epoch = f->epoch, .credit = f->ahead};
	struct wire_done done = {0};
	_Alignas(8) unsigned char body[64] = {0};
	char tail[WIRE_PATH_MAX + 1];
	struct wire_header h;
	const char *reason = "";
	int fd = k->fds[at];
	size_t body_size;

	/* The library's messages are valid, whatever it is sent. */
	ENSURE(wire_check(packet, n, true, &reason) == 0);
	memcpy(&h, packet, sizeof(h));
	body_size = n - sizeof(h) - h.tail;
	memcpy(body, packet + sizeof(h), body_size);
	memcpy(tail, packet + sizeof(h) + body_size, h.tail);
	tail[h.tail] = '\0';
	atomic_fetch_add(&f->n_requests[h.type], 1);
	if (k->handler && k->handler(f, fd, &h, body, tail, k->arg))
		return;
	if (h.type == WIRE_HELLO)
		fake_reply(f, fd, WIRE_WELCOME, h.serial, &welcome, NULL);
	else if (h.type == WIRE_REGISTER)
		reg(f, fd, &h, tail, at);
	else if (h.type == WIRE_GRANT)
		on_grant(f, fd, &h, body, at);
	else
		fake_reply(f, fd, WIRE_DONE, h.serial, &done, NULL);
}

static void drop(struct fake *f, size_t at)
{
	struct fake_private *k = f->private;

	for (size_t i = 0; i < k->n_waits;) {
		if (k->waits[i].fd == k->fds[at])
			k->waits[i] = k->waits[--k->n_waits];
		else
			i++;
	}
	if (atomic_load(&f->dropped))
		atomic_load (&f->dropped)(f, k->fds[at], k->arg);
	close(k->fds[at]);
	k->fds[at] = -1;
	k->credits[at] = NULL;
	k->ids[at] = 0;
	atomic_fetch_sub(&f->n_connections, 1);
}

static void take_connection(struct fake *f)
{
	struct fake_private *k = f->private;
	int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	for (size_t i = 0; fd >= 0 && i < CONNECTIONS; i++) {
		if (k->fds[i] < 0) {
			k->fds[i] = fd;
			atomic_fetch_add(&f->n_connections, 1);
			return;
		}
	}
	ENSURE(fd < 0);
}

static void receive(struct fake *f, size_t at)
{
	struct fake_private *k = f->private;
	unsigned char packet[WIRE_PACKET_MAX];
	ssize_t n = recv(k->fds[at], packet, sizeof(packet), 0);

	if (n > 0)
		request(f, at, packet, (size_t)n);
	else if (n == 0 || errno != EAGAIN)
		drop(f, at);
}

static void *run(void *arg)
{
	struct fake *f = arg;
	struct fake_private *k = f->private;
	char byte;

	while (!atomic_load(&k->stop)) {
		struct pollfd p[CONNECTIONS + 2] = {{.fd = k->listener, .events = POLLIN},
						    {.fd = k->wake[0], .events = POLLIN}};

		for (size_t i = 0; i < CONNECTIONS; i++)
			p[i + 2] = (struct pollfd){.fd = k->fds[i], .events = POLLIN};
		poll(p, CONNECTIONS + 2, k->n_waits || atomic_load(&f->tick) ? 10 : -1);
		if (p[1].revents)
			ENSURE(read(k->wake[0], &byte, 1) == 1);
		for (size_t i = 0; i < CONNECTIONS; i++) {
			if (k->fds[i] >= 0 && p[i + 2].fd == k->fds[i] && p[i + 2].revents)
				receive(f, i);
		}
		serve_waits(f);
		if (atomic_load(&f->tick))
			atomic_load (&f->tick)(f, k->arg);
		if (p[0].revents)
			take_connection(f);
	}
	return NULL;
}

static int marker_lock(struct shmstore_partition *p)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/.shmstore", shmstore_partition_path(p));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ENSURE(fd >= 0 && flock(fd, LOCK_EX) == 0);
	return fd;
}

struct fake *fake_start(struct shmstore_partition *p, bool lock, fake_handler *handler, void *arg)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct fake *f = calloc(1, sizeof(*f));
	struct fake_private *k = calloc(1, sizeof(*k));
	struct timespec t;

	ENSURE(f && k);
	clock_gettime(CLOCK_BOOTTIME, &t);
	f->private = k;
	f->epoch = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	f->room = UINT64_MAX;
	f->ahead = 1 << 20;
	k->partition = shmstore_partition_ref(p);
	k->handler = handler;
	k->arg = arg;
	k->lock_fd = lock ? marker_lock(p) : -1;
	for (size_t i = 0; i < CONNECTIONS; i++)
		k->fds[i] = -1;
	ENSURE(pipe2(k->wake, O_CLOEXEC) == 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path());
	unlink(address.sun_path);
	k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ENSURE(k->listener >= 0 &&
	       bind(k->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	       listen(k->listener, CONNECTIONS) == 0);
	/* Not where it is so: other threads read the environment. */
	if (!getenv("SHMSTORE_SOCKET") || strcmp(getenv("SHMSTORE_SOCKET"), address.sun_path) != 0)
		setenv("SHMSTORE_SOCKET", address.sun_path, 1);
	ENSURE(pthread_create(&k->thread, NULL, run, f) == 0);
	return f;
}

void fake_stop(struct fake *f)
{
	struct fake_private *k = f->private;

	atomic_store(&k->stop, true);
	ENSURE(write(k->wake[1], "", 1) == 1);
	pthread_join(k->thread, NULL);
	unlink(socket_path());
	close(k->listener);
	for (size_t i = 0; i < CONNECTIONS; i++) {
		if (k->fds[i] >= 0)
			close(k->fds[i]);
	}
	if (k->lock_fd >= 0)
		close(k->lock_fd);
	close(k->wake[0]);
	close(k->wake[1]);
	shmstore_partition_unref(k->partition);
	free(k);
	free(f);
}

void fake_give(struct fake *f, uint64_t bytes)
{
	atomic_fetch_add(&f->room, bytes);
	ENSURE(write(f->private->wake[1], "", 1) == 1);
}

static bool has_last(void *arg)
{
	return atomic_load(&((struct fake *)arg)->private->last) != NULL;
}

struct wire_credit *fake_credit(struct fake *f)
{
	ENSURE(wait_until(has_last, f, 10000));
	return atomic_load(&f->private->last);
}
