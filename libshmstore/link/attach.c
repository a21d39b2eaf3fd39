/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c: the connection to shmstored. Requests and replies are in request.c.
 *
 * States: ALONE, GREETING (HELLO and REGISTER sent at once, one round trip), REGISTERED; back to
 * ALONE by any error, the daemon's death, or a message that is none. A greeting that is not
 * answered in time goes on in the background: later calls look whether it was, and wait no more. So
 * does a registered connection whose reply is overdue ("silent"): a daemon that hangs costs one
 * timeout, whoever runs into it, and is heard again when it speaks.
 *
 * Threads: requests are sent under the lock, in one system call that never blocks. Of the threads
 * that wait for replies one reads for all, without the lock, and hands out what came by its
 * serial; when its own has come, the next one reads. It waits in recv() first, as most replies are
 * there at once: with the send that is two system calls, where poll() and a read that finds no
 * more would make it four. The next thread that waits or looks reads the rest. A thread that finds
 * the connection dead while another one reads shuts it down, and the reader closes it: no
 * descriptor number is closed under a thread that uses it. Event loops get an epoll descriptor
 * that stays the same for the same reason.
 *
 * Rejected: a thread of our own (a library starts none), a connection per request (a registration
 * is a connection), blocking sends (a daemon that reads nothing is as good as none).
 */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <utlist.h>

#include "cleanup.h"
#include "process.h"
#include "socketpath.h"
#include "sys.h"

#define MS           SHMS_MS
#define TRY_NS       (1000 * MS) /* between attempts to connect */
#define HURRY_NS     (10 * MS)   /* the same while a daemon seems to start */
#define PATIENCE_NS  (1000 * MS)
#define STARTING_NS  (10000 * MS)
#define SHORT_NS     (20 * MS)    /* other stores that are alone hold the lock too, for less */
#define STRANGER_NS  (10000 * MS) /* after one that spoke nonsense */
/* of a recv() that waits (SO_RCVTIMEO); shorter waits, and the rest of longer ones, are poll()'s */
#define RECV_NS      (500 * MS)
#define PACKET_MAX   (sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX)
#define TELL_MS      1000 /* for room to tell a daemon something that just registered us */
#define READ_AT_ONCE 64   /* packets: one who sends without end must not keep a thread */

static const struct timeval RECV_TIME = {.tv_usec = RECV_NS / 1000};

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

void shms_attach_fork_child(struct shms_attach *a)
{
	shms_close_fd(a->fd);
	shms_close_fd(a->epoll_fd);
	pthread_mutex_unlock(&a->lock);
	/* The threads that waited are the parent's: a condition that counts
	 * them could not be destroyed. */
	shms_attach_init(a);
}

/* ---- the connection; the lock is held ---- */

static void forget_connection(struct shms_attach *a)
{
	a->fd = shms_close_fd(a->fd); /* leaves the epoll set by itself */
	a->ended = false;
}

/* The daemon that served us is gone, so the next may be starting. */
static void expect_start(struct shms_attach *a)
{
	a->starting = true;
	a->given_up = false; /* that was another one */
}

void shms_attach_end(struct shms_attach *a, uint64_t pause_ns)
{
	struct shms_request *q;

	if (a->fd < 0 || a->ended)
		return;
	if (a->state == SHMS_ATTACH_REGISTERED)
		expect_start(a);
	a->state = SHMS_ATTACH_ALONE;
	a->silent = false;
	a->pinged_ns = a->ping_serial = 0;
	atomic_store_explicit(&a->epoch, 0, memory_order_relaxed);
	atomic_store_explicit(&a->generation, 0, memory_order_relaxed);
	if (pause_ns)
		a->next_try_ns = shms_now_mono_ns() + pause_ns;
	while (a->requests) {
		q = a->requests;
		a->requests = q->next;
		shms_request_end(a, q, -ENOTCONN);
	}
	a->ended = true;
	if (a->reading)
		shutdown(a->fd, SHUT_RDWR);
	else
		forget_connection(a);
	pthread_cond_broadcast(&a->changed);
}

int shms_attach_send(struct shms_attach *a, uint16_t type, uint64_t serial, const void *body,
		     const void *tail, size_t tail_size)
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

/* Connects, and sends HELLO and REGISTER. The lock is held; nothing is waited for. */
static int greet(struct shms_attach *a)
{
	struct wire_hello hello = {.version_min = WIRE_VERSION, .version_max = WIRE_VERSION};
	struct wire_register reg = {0};
	const char *below = a->place.store + strlen(a->place.partition) + 1;
	char path[SHMS_SOCKET_PATH];
	int fd, r = shms_socket_path(NULL, a->place.partition, path);

	if (r < 0)
		return r;
	fd = shms_socket_connect(path, 0); /* a full backlog is nobody who answers soon */
	a->there = fd != -ENOENT;
	/* A killed daemon leaves a socket that refuses, one that ends in order none: another may be
	 * starting. Where no socket ever was, none will come. */
	if (!a->starting && (fd == -ECONNREFUSED || (fd == -ENOENT && a->n_registered)))
		expect_start(a);
	if (fd < 0)
		return fd;
	shms_uuid_parse(a->place.uuid, reg.uuid);
	a->fd = fd;
	a->welcome_epoch = 0;
	a->silent = false;
	a->state = SHMS_ATTACH_GREETING;
	a->hello_serial = ++a->last_serial;
	a->register_serial = ++a->last_serial;
	/* Sends say that they do not block; recv() is to, for a time. */
	if (fcntl(fd, F_SETFL, 0) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &RECV_TIME, sizeof(RECV_TIME)) < 0)
		r = -errno;
	if (r == 0)
		r = shms_attach_send(a, WIRE_HELLO, a->hello_serial, &hello, NULL, 0);
	if (r == 0)
		r = shms_attach_send(a, WIRE_REGISTER, a->register_serial, &reg, below,
				     strlen(below));
	if (r == 0 && a->epoll_fd >= 0 &&
	    epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->fd, &(struct epoll_event){.events = EPOLLIN}) <
		    0)
		r = -errno;
	if (r < 0)
		shms_attach_end(a, 0);
	return r;
}

/* ---- what comes in; the lock is held ---- */

/* A reply of a request, or one that nobody waits for any more. */
static int take_reply(struct shms_attach *a, const struct wire_header *h, const unsigned char *body,
		      size_t body_size)
{
	struct shms_request *q;
	struct shms_reply *reply;

	LL_SEARCH_SCALAR(a->requests, q, serial, h->serial);
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
	LL_DELETE(a->requests, q);
	shms_request_end(a, q, 0);
	return 0;
}

static int take_welcome(struct shms_attach *a, const struct wire_header *h,
			const unsigned char *body)
{
	struct wire_welcome w;

	memcpy(&w, body, sizeof(w));
	if (h->serial != a->hello_serial || a->welcome_epoch || w.version != WIRE_VERSION ||
	    !w.epoch)
		return -EBADMSG;
	a->welcome_epoch = w.epoch;
	atomic_store_explicit(&a->features, w.features, memory_order_relaxed);
	return 0;
}

static int take_registered(struct shms_attach *a, const struct wire_header *h,
			   const unsigned char *body)
{
	struct wire_registered r;

	memcpy(&r, body, sizeof(r));
	if (h->serial != a->register_serial || a->state != SHMS_ATTACH_GREETING ||
	    !a->welcome_epoch)
		return -EBADMSG;
	a->state = SHMS_ATTACH_REGISTERED;
	a->id = r.id;
	atomic_store_explicit(&a->epoch, a->welcome_epoch, memory_order_relaxed);
	atomic_store_explicit(&a->generation, ++a->n_registered, memory_order_relaxed);
	pthread_cond_broadcast(&a->changed);
	a->told = 0;
	if (a->hooks.registered)
		a->hooks.registered(a, a->hooks.arg);
	return a->told < 0 ? -ECONNREFUSED : 0;
}

/* A daemon that just registered us reads: who has hundreds of tasks waits for it. */
int shms_attach_tell(struct shms_attach *a, uint16_t type, const void *body, const void *tail,
		     size_t tail_size)
{
	uint64_t serial = ++a->last_serial;

	if (a->told == 0)
		a->told = shms_attach_send(a, type, serial, body, tail, tail_size);
	if (a->told == -ENOTCONN && errno == EAGAIN &&
	    poll(&(struct pollfd){.fd = a->fd, .events = POLLOUT}, 1, TELL_MS) > 0)
		a->told = shms_attach_send(a, type, serial, body, tail, tail_size);
	return a->told;
}

static int take_preempt(const struct shms_attach *a, const unsigned char *body)
{
	struct wire_task_preempt m;

	memcpy(&m, body, sizeof(m));
	if (m.what < WIRE_PREEMPT_NOTICE || m.what > WIRE_PREEMPT_LOST)
		return -EBADMSG;
	if (a->hooks.preempted)
		a->hooks.preempted(&m, a->hooks.arg);
	return 0;
}

/* One packet: input, checked whole before anything of it is used. Not 0:
 * the connection is to end. */
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
	a->silent = a->needed = a->given_up = a->starting = false;
	a->pinged_ns = 0;
	a->heard_ns = shms_now_mono_ns();
	switch (h.type) {
	case WIRE_WELCOME:
		return take_welcome(a, &h, packet);
	case WIRE_REGISTERED:
		return take_registered(a, &h, packet);
	case WIRE_ASK:
		return 0; /* what is asked stands in the page */
	case WIRE_PONG:
		if (!a->ping_serial || h.serial != a->ping_serial)
			return -EBADMSG;
		a->ping_serial = 0;
		return 0;
	case WIRE_TASK_PREEMPT:
		return take_preempt(a, packet);
	case WIRE_REFUSED:
		/* To HELLO or REGISTER: not a daemon of ours. */
		if (h.serial == a->register_serial || h.serial == a->hello_serial)
			return -ECONNREFUSED;
		return take_reply(a, &h, packet, body_size);
	case WIRE_GRANTED:
	case WIRE_BROKERED:
	case WIRE_DONE:
	case WIRE_ARBED:
	case WIRE_PROFILED:
	case WIRE_STAGED:
	case WIRE_TASK_ADMITTED:
	case WIRE_ACTOR_ORDER:
	case WIRE_ACTOR_ANSWER:
		return take_reply(a, &h, packet, body_size);
	case WIRE_ERROR: /* it ends, it is full, or we did wrong */
		return -ECONNREFUSED;
	default:
		return -EBADMSG; /* what we never ask for */
	}
}

/* Handles the result of a recv(). False: nothing came. */
static bool take_received(struct shms_attach *a, const unsigned char *packet, ssize_t n, int error)
{
	int r = 0;

	if (n < 0 && (error == EAGAIN || error == EINTR))
		return error == EINTR;
	if (n <= 0)
		shms_attach_end(a, 0);
	else
		r = take_packet(a, packet, (size_t)n);
	if (r < 0)
		shms_attach_end(a, r == -ECONNREFUSED ? TRY_NS : STRANGER_NS);
	return true;
}

void shms_attach_read(struct shms_attach *a)
{
	unsigned char packet[PACKET_MAX + 1];
	ssize_t n;

	/* The thread that reads hands out all that comes. */
	for (int i = 0; i < READ_AT_ONCE && a->fd >= 0 && !a->ended && !a->reading; i++) {
		/* MSG_TRUNC: the whole length of one that is longer than
		 * any that is meant for us. */
		n = recv(a->fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
		if (!take_received(a, packet, n, errno))
			return;
	}
}

/* ---- waiting ---- */

/* Takes what recv() gives, within RECV_NS. */
static void wait_in_recv(struct shms_attach *a)
{
	unsigned char packet[PACKET_MAX + 1];
	ssize_t n;
	int error;

	pthread_mutex_unlock(&a->lock);
	n = recv(a->fd, packet, sizeof(packet), MSG_TRUNC);
	error = errno;
	pthread_mutex_lock(&a->lock);
	a->reading = false;
	if (a->ended)
		forget_connection(a);
	else if (!take_received(a, packet, n, error))
		a->polls = true;
	else if (a->requests)
		/* others wait: of many replies each would else be another turn for all of them */
		shms_attach_read(a);
}

static void wait_in_poll(struct shms_attach *a, short events, uint64_t for_ns)
{
	struct timespec left = shms_timespec(for_ns);

	pthread_mutex_unlock(&a->lock);
	ppoll(&(struct pollfd){.fd = a->fd, .events = events}, 1, &left, NULL);
	pthread_mutex_lock(&a->lock);
	a->reading = false;
	if (a->ended)
		forget_connection(a);
	else
		shms_attach_read(a);
}

/* Reads for all, or lets the one that reads do it. */
void shms_attach_wait(struct shms_attach *a, short events, uint64_t until_ns)
{
	struct timespec until = shms_timespec(until_ns);
	uint64_t now, left;

	if (a->reading) {
		pthread_cond_timedwait(&a->changed, &a->lock, &until);
		return;
	}
	now = shms_now_mono_ns();
	left = shms_minus(until_ns, now);
	a->reading = true;
	if (events == POLLIN && left >= RECV_NS && !a->polls)
		wait_in_recv(a);
	else
		wait_in_poll(a, events, left);
	/* One of the threads that still wait reads on. */
	pthread_cond_broadcast(&a->changed);
}

/* Waits for a greeting only once. */
void shms_attach_connect(struct shms_attach *a, uint64_t greeting_ns)
{
	uint64_t now = shms_now_mono_ns();

	/* ended: another thread is still to close the last connection. */
	if (a->off || a->fd >= 0 || now < a->next_try_ns)
		return;
	a->next_try_ns = now + TRY_NS;
	a->error = greet(a);
	if (a->error < 0)
		return;
	while (a->state == SHMS_ATTACH_GREETING && shms_now_mono_ns() < now + greeting_ns)
		shms_attach_wait(a, POLLIN, now + greeting_ns);
	if (a->state == SHMS_ATTACH_GREETING)
		a->silent = true;
}

int shms_attach_open(struct shms_attach *a, bool required)
{
	SHMS_HELD(&a->lock);
	a->off = false;
	shms_attach_connect(a, required ? SHMS_REQUIRED_NS : SHMS_GREETING_NS);
	return a->state == SHMS_ATTACH_REGISTERED ? 0 : a->there ? -ETIMEDOUT : -ENOENT;
}

void shms_attach_bye(struct shms_attach *a)
{
	struct wire_bye bye = {0};

	SHMS_HELD(&a->lock);
	/* Read in its order by a daemon that lives; the others need it not. */
	if (a->state == SHMS_ATTACH_REGISTERED)
		shms_attach_send(a, WIRE_BYE, ++a->last_serial, &bye, NULL, 0);
	a->off = true;
	shms_attach_end(a, 0);
}

bool shms_attach_again(struct shms_attach *a)
{
	uint64_t epoch;
	bool registered;

	SHMS_HELD(&a->lock);
	shms_attach_read(a);
	/* A daemon that began after ours wrote here: ours is dead, though the kernel may
	 * still be closing its sockets. */
	epoch = atomic_load_explicit(&a->place.credit->epoch, memory_order_relaxed);
	if (a->state == SHMS_ATTACH_REGISTERED && epoch > a->welcome_epoch)
		shms_attach_end(a, 0);
	shms_attach_connect(a, SHMS_GREETING_NS);
	registered = a->state == SHMS_ATTACH_REGISTERED;
	/* One before it did, and ours may not write to our page: no reason to look each time. */
	if (registered && epoch && epoch < a->welcome_epoch)
		atomic_store_explicit(&a->epoch, epoch, memory_order_relaxed);
	return registered;
}

bool shms_attach_hurry(struct shms_attach *a)
{
	uint64_t now = shms_now_mono_ns();

	SHMS_HELD(&a->lock);
	shms_attach_read(a);
	/* next_try_ns is TRY_NS after the last attempt, or more after a stranger's. */
	if (!a->off && a->fd < 0 && now + TRY_NS >= a->next_try_ns + HURRY_NS) {
		a->next_try_ns = now + TRY_NS;
		greet(a);
	}
	return a->state == SHMS_ATTACH_REGISTERED && !a->silent;
}

/* Does it not answer because it was killed? On a busy host it may be seconds until
 * its socket and its lock go. */
static bool peer_dying(const struct shms_attach *a)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return a->fd >= 0 && a->silent &&
	       getsockopt(a->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0 &&
	       shms_dying(peer.pid);
}

uint64_t shms_attach_patience(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	if (!a->starting && peer_dying(a))
		expect_start(a);
	return a->given_up ? SHORT_NS : a->starting ? STARTING_NS : PATIENCE_NS;
}

bool shms_attach_expected(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	return a->n_registered && a->starting && !a->given_up && !a->off;
}

void shms_attach_give_up(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	a->given_up = true;
}

/* ---- event loops ---- */

/* Makes event loops' descriptor, with the connection if any. Locked. Returns it, or -errno. */
static int make_epoll(struct shms_attach *a)
{
	_fd_ int fd = a->epoll_fd < 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;

	if (a->epoll_fd >= 0)
		return a->epoll_fd;
	if (fd < 0 ||
	    (a->fd >= 0 && !a->ended &&
	     epoll_ctl(fd, EPOLL_CTL_ADD, a->fd, &(struct epoll_event){.events = EPOLLIN}) < 0))
		return shms_error(errno);
	a->epoll_fd = shms_take_fd(&fd);
	return a->epoll_fd;
}

int shms_request_fd(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	return make_epoll(a);
}

int shms_attach_fd(struct shms_attach *a)
{
	SHMS_HELD(&a->lock);
	return a->fd >= 0 && !a->ended ? make_epoll(a) : -ENOENT;
}
