/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c: the connection to shmstored.
 *
 * States: ALONE, GREETING (HELLO and REGISTER sent at once, one round trip), REGISTERED; back to ALONE by any error, the
 * daemon's death, or a message that is none. A greeting that is not answered in time goes on in the background: later calls
 * look whether it was, and wait no more. So does a registered connection whose reply is overdue ("silent"): a daemon that hangs
 * costs one timeout, whoever runs into it, and is heard again when it speaks.
 *
 * Threads: requests are sent under the lock, in one system call that never blocks. Of the threads that wait for replies one
 * reads for all, in poll() without the lock, and hands out what came by its serial; when its own has come, the next one reads.
 * Who finds the connection dead while another thread is in poll() shuts it down, and the reader closes it: no descriptor
 * number is closed under a thread that uses it. Event loops get an epoll descriptor that stays the same for the same reason.
 *
 * Rejected: a thread of our own (a library starts none), a connection per request (a registration is a connection), blocking
 * sends (a daemon that reads nothing is as good as none).
 */
#include "attach.h"

#include <errno.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "alone.h"
#include "cleanup.h"
#include "socketpath.h"
#include "store.h"
#include "sys.h"

#define MS           1000000ull
#define GREETING_NS  (200 * MS)
#define REQUIRED_NS  (2000 * MS) /* the same for who cannot do without */
#define REPLY_NS     (1000 * MS)
#define TRY_NS       (1000 * MS) /* between attempts to connect */
#define HURRY_NS     (10 * MS)   /* the same while a daemon seems to start */
#define PATIENCE_NS  (1000 * MS)
#define SHORT_NS     (20 * MS)    /* other stores that are alone hold the lock too, for less */
#define STRANGER_NS  (10000 * MS) /* after one that spoke nonsense */
#define PACKET_MAX   (sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX)
#define READ_AT_ONCE 64 /* packets: one who sends without end must not keep a thread */

struct shms_request {
	struct shms_request *next;
	uint64_t serial;
	uint16_t answer;
	bool done;
	int error;
	struct shms_reply *reply;
};

void shms_attach_init(struct shms_attach *a)
{
	pthread_condattr_t attr;

	memset(a, 0, sizeof(*a));
	a->fd = a->epoll_fd = -1;
	a->off = true;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attr);
	pthread_condattr_destroy(&attr);
}

void shms_attach_deinit(struct shms_attach *a)
{
	a->fd = shms_close_fd(a->fd);
	a->epoll_fd = shms_close_fd(a->epoll_fd);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
}

void shms_attach_fork_prepare(struct shms_attach *a)
{
	pthread_mutex_lock(&a->lock);
}

void shms_attach_fork_parent(struct shms_attach *a)
{
	pthread_mutex_unlock(&a->lock);
}

void shms_attach_fork_child(struct shms_attach *a)
{
	shms_close_fd(a->fd);
	shms_close_fd(a->epoll_fd);
	pthread_mutex_unlock(&a->lock);
	/* The threads that waited are the parent's: a condition that counts them could not be destroyed. */
	shms_attach_init(a);
}

/* ---- the connection; the lock is held ---- */

static void forget_connection(struct shms_attach *a)
{
	a->fd = shms_close_fd(a->fd); /* leaves the epoll set by itself */
	a->ended = false;
}

/* Alone from here on; not tried again for pause_ns. */
static void end(struct shms_attach *a, uint64_t pause_ns)
{
	if (a->fd < 0 || a->ended)
		return;
	a->state = SHMS_ATTACH_ALONE;
	a->silent = false;
	atomic_store_explicit(&a->epoch, 0, memory_order_relaxed);
	if (pause_ns)
		a->next_try_ns = shms_now_mono_ns() + pause_ns;
	while (a->requests) {
		a->requests->error = -ENOTCONN;
		a->requests->done = true;
		a->requests = a->requests->next;
	}
	a->ended = true;
	if (a->reading)
		shutdown(a->fd, SHUT_RDWR);
	else
		forget_connection(a);
	pthread_cond_broadcast(&a->changed);
}

static int send_packet(struct shms_attach *a, uint16_t type, uint64_t serial, const void *body, const void *tail,
		       size_t tail_size)
{
	unsigned char packet[PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, serial, body, tail, tail_size);
	ssize_t sent;

	if (!n)
		return -EINVAL;
	do {
		sent = send(a->fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)n ? 0 : -ENOTCONN;
}

static void parse_uuid(const char *text, uint8_t ret[16])
{
	unsigned byte;

	for (size_t i = 0; i < 16; i++) {
		text += *text == '-';
		byte = 0;
		sscanf(text, "%2x", &byte);
		ret[i] = (uint8_t)byte;
		text += 2;
	}
}

/* Connects, and sends HELLO and REGISTER. The lock is held; nothing is waited for. */
static int greet(struct shmstore *s)
{
	struct wire_hello hello = {.version_min = WIRE_VERSION, .version_max = WIRE_VERSION};
	struct shms_attach *a = &s->attach;
	struct wire_register reg = {0};
	const char *below = s->path + strlen(s->p->path) + 1;
	char path[SHMS_SOCKET_PATH];
	int fd, r = shms_socket_path(NULL, path);

	if (r < 0)
		return r;
	fd = shms_socket_connect(path, 0); /* a full backlog is nobody who answers soon */
	a->there = fd != -ENOENT;
	if (fd < 0)
		return fd;
	parse_uuid(s->p->uuid, reg.uuid);
	a->fd = fd;
	a->welcome_epoch = 0;
	a->silent = false;
	a->state = SHMS_ATTACH_GREETING;
	a->hello_serial = ++a->last_serial;
	a->register_serial = ++a->last_serial;
	r = send_packet(a, WIRE_HELLO, a->hello_serial, &hello, NULL, 0);
	if (r == 0)
		r = send_packet(a, WIRE_REGISTER, a->register_serial, &reg, below, strlen(below));
	if (r == 0 && a->epoll_fd >= 0 &&
	    epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->fd, &(struct epoll_event){.events = EPOLLIN}) < 0)
		r = -errno;
	if (r < 0)
		end(a, 0);
	return r;
}

/* ---- what comes in; the lock is held ---- */

/* A reply of a request, or one that nobody waits for any more. */
static int take_reply(struct shms_attach *a, const struct wire_header *h, const unsigned char *body, size_t body_size)
{
	struct shms_request **at = &a->requests, *q;
	struct shms_reply *reply;

	while (*at && (*at)->serial != h->serial)
		at = &(*at)->next;
	q = *at;
	if (!q)
		return h->serial && h->serial <= a->last_serial ? 0 : -EBADMSG;
	if (h->type != q->answer && h->type != WIRE_REFUSED)
		return -EBADMSG;
	reply = q->reply;
	reply->type = h->type;
	memcpy(&reply->body, body, body_size);
	if (h->type == WIRE_REFUSED && reply->body.refused.error >= 0)
		return -EBADMSG;
	reply->tail_size = h->tail;
	memcpy(reply->tail, body + body_size, h->tail);
	reply->tail[h->tail] = '\0';
	*at = q->next;
	q->done = true;
	pthread_cond_broadcast(&a->changed);
	return 0;
}

static int take_welcome(struct shms_attach *a, const struct wire_header *h, const unsigned char *body)
{
	struct wire_welcome w;

	memcpy(&w, body, sizeof(w));
	if (h->serial != a->hello_serial || a->welcome_epoch || w.version != WIRE_VERSION || !w.epoch)
		return -EBADMSG;
	a->welcome_epoch = w.epoch;
	return 0;
}

static int take_registered(struct shms_attach *a, const struct wire_header *h)
{
	if (h->serial != a->register_serial || a->state != SHMS_ATTACH_GREETING || !a->welcome_epoch)
		return -EBADMSG;
	a->state = SHMS_ATTACH_REGISTERED;
	atomic_store_explicit(&a->epoch, a->welcome_epoch, memory_order_relaxed);
	pthread_cond_broadcast(&a->changed);
	return 0;
}

/* One packet: input, checked whole before anything of it is used. Not 0: the connection is to end. */
static int take_packet(struct shms_attach *a, const unsigned char *packet, size_t n)
{
	struct wire_header h;
	const char *reason;
	size_t body_size;

	if (n > PACKET_MAX || wire_check(packet, n, false, &reason) < 0)
		return -EBADMSG;
	memcpy(&h, packet, sizeof(h));
	body_size = n - sizeof(h) - h.tail;
	packet += sizeof(h);
	a->silent = a->given_up = false;
	switch (h.type) {
	case WIRE_WELCOME:
		return take_welcome(a, &h, packet);
	case WIRE_REGISTERED:
		return take_registered(a, &h);
	case WIRE_ASK:
		return 0; /* what is asked stands in the page */
	case WIRE_REFUSED:
		/* To HELLO or REGISTER: not a daemon of ours. */
		if (h.serial == a->register_serial || h.serial == a->hello_serial)
			return -ECONNREFUSED;
		return take_reply(a, &h, packet, body_size);
	case WIRE_GRANTED:
	case WIRE_BROKERED:
	case WIRE_DONE:
		return take_reply(a, &h, packet, body_size);
	case WIRE_ERROR: /* it ends, it is full, or we did wrong */
		return -ECONNREFUSED;
	default:
		return -EBADMSG; /* what we never ask for */
	}
}

/* Takes what has come, without waiting. */
static void read_all(struct shms_attach *a)
{
	unsigned char packet[PACKET_MAX + 1];
	int r = 0;
	ssize_t n;

	for (int i = 0; i < READ_AT_ONCE && a->fd >= 0 && !a->ended; i++) {
		/* MSG_TRUNC: the whole length of one that is longer than any that is meant for us. */
		n = recv(a->fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			end(a, 0);
		else
			r = take_packet(a, packet, (size_t)n);
		if (r < 0)
			end(a, r == -ECONNREFUSED ? TRY_NS : STRANGER_NS);
	}
}

/* ---- waiting ---- */

static struct timespec at_ns(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

/* Waits until something changes or until_ns: reads for all, or lets the one that reads do it. The lock is held, and given up. */
static void wait_change(struct shms_attach *a, uint64_t until_ns)
{
	struct timespec until = at_ns(until_ns), left;
	uint64_t now;

	if (a->reading) {
		pthread_cond_timedwait(&a->changed, &a->lock, &until);
		return;
	}
	now = shms_now_mono_ns();
	left = at_ns(until_ns > now ? until_ns - now : 0);
	a->reading = true;
	pthread_mutex_unlock(&a->lock);
	ppoll(&(struct pollfd){.fd = a->fd, .events = POLLIN}, 1, &left, NULL);
	pthread_mutex_lock(&a->lock);
	a->reading = false;
	if (a->ended)
		forget_connection(a);
	else
		read_all(a);
	/* Whoever still waits: one of them reads on. */
	pthread_cond_broadcast(&a->changed);
}

/* Connects and waits for the greeting's end, greeting_ns at most and only once. The lock is held. */
static void try_connect(struct shmstore *s, uint64_t greeting_ns)
{
	struct shms_attach *a = &s->attach;
	uint64_t now = shms_now_mono_ns();

	/* ended: another thread is still to close the last connection. */
	if (a->off || a->fd >= 0 || now < a->next_try_ns)
		return;
	a->next_try_ns = now + TRY_NS;
	if (greet(s) < 0)
		return;
	while (a->state == SHMS_ATTACH_GREETING && shms_now_mono_ns() < now + greeting_ns)
		wait_change(a, now + greeting_ns);
	if (a->state == SHMS_ATTACH_GREETING)
		a->silent = true;
}

static unsigned mode_of(unsigned mode)
{
	const char *word = mode == SHMSTORE_DAEMON_AUTO ? getenv("SHMSTORE_DAEMON") : NULL;

	if (word && strcmp(word, "off") == 0)
		return SHMSTORE_DAEMON_OFF;
	return word && strcmp(word, "required") == 0 ? SHMSTORE_DAEMON_REQUIRED : mode;
}

int shms_attach_open(struct shmstore *s, unsigned mode)
{
	struct shms_attach *a = &s->attach;
	bool registered, there;

	mode = mode_of(mode);
	if (mode == SHMSTORE_DAEMON_OFF)
		return 0;
	shms_credit_on(s);
	pthread_mutex_lock(&a->lock);
	a->off = false;
	try_connect(s, mode == SHMSTORE_DAEMON_REQUIRED ? REQUIRED_NS : GREETING_NS);
	registered = a->state == SHMS_ATTACH_REGISTERED;
	there = a->there;
	pthread_mutex_unlock(&a->lock);
	/* A daemon is dead, or dying: its limits are not. */
	if (!registered && there)
		shms_alone_inherit(s);
	return registered || mode == SHMSTORE_DAEMON_AUTO ? 0 : -ETIMEDOUT;
}

void shms_attach_bye(struct shmstore *s)
{
	struct shms_attach *a = &s->attach;
	struct wire_bye bye = {0};

	pthread_mutex_lock(&a->lock);
	/* Read in its order by a daemon that lives; the others need it not. */
	if (a->state == SHMS_ATTACH_REGISTERED)
		send_packet(a, WIRE_BYE, ++a->last_serial, &bye, NULL, 0);
	a->off = true;
	end(a, 0);
	pthread_mutex_unlock(&a->lock);
}

bool shms_attach_again(struct shmstore *s)
{
	struct shms_attach *a = &s->attach;
	uint64_t epoch;
	bool registered;

	pthread_mutex_lock(&a->lock);
	if (a->fd >= 0 && !a->reading)
		read_all(a);
	/* A daemon that began after ours wrote here: ours is dead, though the kernel may still be closing its sockets. */
	epoch = atomic_load_explicit(&s->page->credit.epoch, memory_order_relaxed);
	if (a->state == SHMS_ATTACH_REGISTERED && epoch > a->welcome_epoch)
		end(a, 0);
	try_connect(s, GREETING_NS);
	registered = a->state == SHMS_ATTACH_REGISTERED;
	/* One before it did, and ours may not write to our page: no reason to look each time. */
	if (registered && epoch && epoch < a->welcome_epoch)
		atomic_store_explicit(&a->epoch, epoch, memory_order_relaxed);
	pthread_mutex_unlock(&a->lock);
	return registered;
}

bool shms_attach_hurry(struct shmstore *s)
{
	struct shms_attach *a = &s->attach;
	uint64_t now = shms_now_mono_ns();
	bool speaks;

	pthread_mutex_lock(&a->lock);
	if (a->fd >= 0 && !a->reading)
		read_all(a);
	/* next_try_ns is TRY_NS after the last attempt, or more after a stranger's. */
	if (!a->off && a->fd < 0 && now + TRY_NS >= a->next_try_ns + HURRY_NS) {
		a->next_try_ns = now + TRY_NS;
		greet(s);
	}
	speaks = a->state == SHMS_ATTACH_REGISTERED && !a->silent;
	pthread_mutex_unlock(&a->lock);
	return speaks;
}

uint64_t shms_attach_patience(struct shmstore *s)
{
	uint64_t patience;

	pthread_mutex_lock(&s->attach.lock);
	patience = s->attach.given_up ? SHORT_NS : PATIENCE_NS;
	pthread_mutex_unlock(&s->attach.lock);
	return patience;
}

void shms_attach_give_up(struct shmstore *s)
{
	pthread_mutex_lock(&s->attach.lock);
	s->attach.given_up = true;
	pthread_mutex_unlock(&s->attach.lock);
}

/* ---- requests ---- */

static void withdraw(struct shms_attach *a, const struct shms_request *q)
{
	struct shms_request **at = &a->requests;

	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
}

/* q was sent: waits for its reply. */
static int await(struct shms_attach *a, struct shms_request *q, uint64_t timeout_ms)
{
	uint64_t until = shms_now_mono_ns() + REPLY_NS;
	struct wire_cancel cancel = {.serial = q->serial};

	until += timeout_ms < UINT64_MAX / MS / 2 ? timeout_ms * MS : UINT64_MAX / 2;
	while (!q->done && shms_now_mono_ns() < until)
		wait_change(a, until);
	if (q->done)
		return q->error;
	withdraw(a, q);
	a->silent = true;
	if (timeout_ms && !a->ended)
		send_packet(a, WIRE_CANCEL, ++a->last_serial, &cancel, NULL, 0);
	return -ENOTCONN;
}

int shms_attach_call(struct shmstore *s, const struct shms_call *call, struct shms_reply *ret)
{
	struct shms_attach *a = &s->attach;
	struct shms_request q = {.answer = call->answer, .reply = ret};
	int r = -ENOTCONN;

	pthread_mutex_lock(&a->lock);
	if (a->silent && a->fd >= 0 && !a->reading)
		read_all(a);
	if (a->state == SHMS_ATTACH_ALONE)
		try_connect(s, GREETING_NS);
	if (a->state == SHMS_ATTACH_REGISTERED && !a->silent) {
		q.serial = ++a->last_serial;
		q.next = a->requests;
		a->requests = &q;
		r = send_packet(a, call->type, q.serial, call->body, call->tail, call->tail_size);
		if (r == 0) {
			r = await(a, &q, call->timeout_ms);
		} else {
			withdraw(a, &q);
			if (r == -ENOTCONN && errno == EAGAIN)
				a->silent = true;
			else if (r == -ENOTCONN)
				end(a, 0);
		}
	}
	pthread_mutex_unlock(&a->lock);
	return r;
}

/* ---- event loops ---- */

int shmstore_daemon_fd(struct shmstore *s)
{
	struct shms_attach *a;
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
	a = &s->attach;
	pthread_mutex_lock(&a->lock);
	r = a->fd >= 0 && !a->ended ? 0 : -ENOENT;
	if (r == 0 && a->epoll_fd < 0) {
		_fd_ int fd = epoll_create1(EPOLL_CLOEXEC);

		if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, a->fd, &(struct epoll_event){.events = EPOLLIN}) < 0)
			r = shms_error(errno);
		else
			a->epoll_fd = shms_take_fd(&fd);
	}
	if (r == 0)
		r = a->epoll_fd;
	pthread_mutex_unlock(&a->lock);
	return r;
}

int shmstore_daemon_dispatch(struct shmstore *s)
{
	int r = shms_store_usable(s, true);

	return r < 0 ? r : shms_attach_again(s);
}
