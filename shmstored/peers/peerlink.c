/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerlink.c: one connection: connecting, the handshake, HELLO, messages in both directions.
 *
 * Everything waits in the loop. Two operations: one waits until the socket can be read (in
 * connecting and shaking hands: read or written), one until it takes more. Both are single shots,
 * started again, so that a peer that sends without end is served a bounded piece at a time.
 *
 * A failed send is noted, and ends the connection from the reading operation's function, never
 * from within peer_send().
 */
#include "peerlink.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

/* ---- a stream -------------------------------------------------------------------------------- */

/*
 * GnuTLS does all of the cryptography. Without certificates: a key exchange with the shared secret
 * (ECDHE-PSK) is all that is offered, so that neither side talks to one that has not got it, and
 * records of it cannot be read later by somebody who gets the secret then.
 */

#define IDENTITY "shmstored"
#define PRIORITY "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK"
#define RECORD   16384u /* bytes of one send: TLS's own bound */

/* ---- the secret: the file that is checked is the one that is read ---- */

static int read_open(int fd, struct peersecret *s, const char **ret_why)
{
	struct stat st;
	ssize_t n;

	*ret_why = "it cannot be read";
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_why = "it is no regular file of at most 4096 bytes";
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)PEERSECRET_MOST)
		return -EINVAL;
	*ret_why = "it must belong to the daemon's user or root, and nobody else may read or write "
		   "it (chmod 600)";
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 077))
		return -EPERM;
	n = read(fd, s->bytes, sizeof(s->bytes));
	*ret_why = "it cannot be read";
	if (n < 0)
		return -errno;
	s->n = (size_t)n;
	while (s->n && isspace(s->bytes[s->n - 1]))
		s->n--;
	*ret_why = "a secret has at least 32 bytes (openssl rand -hex 32)";
	return s->n < PEERSECRET_LEAST ? -EINVAL : 0;
}

int peersecret_read(const char *path, struct peersecret *ret, const char **ret_why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r;

	if (fd < 0) {
		*ret_why = "it cannot be opened";
		return -errno;
	}
	r = read_open(fd, ret, ret_why);
	close(fd);
	return r;
}

/* ---- the stream ---- */

static int find_key(gnutls_session_t tls, const char *identity, gnutls_datum_t *ret)
{
	const struct peerstream *s = gnutls_session_get_ptr(tls);

	if (strcmp(identity, IDENTITY) != 0)
		return -1;
	ret->data = gnutls_malloc(s->secret->n);
	if (!ret->data)
		return -1;
	memcpy(ret->data, s->secret->bytes, s->secret->n);
	ret->size = (unsigned)s->secret->n;
	return 0;
}

static int set_client(struct peerstream *s)
{
	gnutls_psk_client_credentials_t c;
	const gnutls_datum_t key = {
		.data = (unsigned char *)(void *)(size_t)(const void *)s->secret->bytes,
		.size = (unsigned)s->secret->n};

	if (gnutls_psk_allocate_client_credentials(&c) < 0)
		return -ENOMEM;
	s->credentials = c;
	if (gnutls_psk_set_client_credentials(c, IDENTITY, &key, GNUTLS_PSK_KEY_RAW) < 0)
		return -ENOMEM;
	return gnutls_credentials_set(s->tls, GNUTLS_CRD_PSK, c) < 0 ? -EIO : 0;
}

static int set_server(struct peerstream *s)
{
	gnutls_psk_server_credentials_t c;

	if (gnutls_psk_allocate_server_credentials(&c) < 0)
		return -ENOMEM;
	s->credentials = c;
	gnutls_psk_set_server_credentials_function(c, find_key);
	return gnutls_credentials_set(s->tls, GNUTLS_CRD_PSK, c) < 0 ? -EIO : 0;
}

/* Idempotent. */
static void peerstream_close(struct peerstream *s)
{
	if (s->tls)
		gnutls_deinit(s->tls);
	if (s->credentials && s->server)
		gnutls_psk_free_server_credentials(s->credentials);
	else if (s->credentials)
		gnutls_psk_free_client_credentials(s->credentials);
	if (s->fd >= 0)
		close(s->fd);
	*s = PEERSTREAM_NULL;
}

/*
 * Takes fd, which must not block, also on failure. secret: NULL: plain; else borrowed for the
 * stream's life. 0, -ENOMEM, -EIO (the library of TLS refuses).
 */
static int peerstream_open(struct peerstream *s, int fd, const struct peersecret *secret,
			   bool server)
{
	int r;

	*s = (struct peerstream){.fd = fd, .server = server, .secret = secret};
	if (!secret)
		return 0;
	r = gnutls_init(&s->tls, (server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NONBLOCK |
					 GNUTLS_NO_SIGNAL) < 0
		    ? -ENOMEM
		    : 0;
	if (r == 0 && gnutls_priority_set_direct(s->tls, PRIORITY, NULL) < 0)
		r = -EIO;
	if (r == 0)
		r = server ? set_server(s) : set_client(s);
	if (r < 0) {
		peerstream_close(s);
		return r;
	}
	gnutls_session_set_ptr(s->tls, s);
	gnutls_transport_set_int(s->tls, fd);
	return 0;
}

static bool again(ssize_t r)
{
	return r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
}

/* 0: done; -EAGAIN: go on when the socket can be read, or (*ret_write) written; -EPERM: the other
 * end is not who it should be. */
static int peerstream_shake(struct peerstream *s, bool *ret_write)
{
	int r;

	*ret_write = false;
	if (!s->tls)
		return 0;
	/* An error that is not fatal is one here: what a stranger sends can
	 * bring the same one for ever. */
	r = gnutls_handshake(s->tls);
	if (again(r))
		*ret_write = gnutls_record_get_direction(s->tls) == 1;
	return r == 0 ? 0 : again(r) ? -EAGAIN : -EPERM;
}

/* Bytes; 0: the end; -EAGAIN; -EIO. */
static ssize_t peerstream_receive(struct peerstream *s, void *data, size_t n)
{
	ssize_t r;

	if (!s->tls) {
		r = recv(s->fd, data, n, MSG_DONTWAIT);
		return r >= 0 ? r : errno == EAGAIN || errno == EINTR ? -EAGAIN : -EIO;
	}
	r = gnutls_record_recv(s->tls, data, n);
	/* An end without TLS's own is what a kill looks like: an end as well.
	 * Messages say their own length. */
	if (r == GNUTLS_E_PREMATURE_TERMINATION)
		return 0;
	return r >= 0 ? r : again(r) ? -EAGAIN : -EIO;
}

/* Bytes, maybe fewer; -EAGAIN: call again with the same data; -EIO. */
static ssize_t peerstream_send(struct peerstream *s, const void *data, size_t n)
{
	ssize_t r;

	if (!s->tls) {
		r = send(s->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		return r >= 0 ? r : errno == EAGAIN || errno == EINTR ? -EAGAIN : -EIO;
	}
	s->retry = s->retry ? s->retry : n < RECORD ? n : RECORD;
	r = gnutls_record_send(s->tls, data, s->retry);
	if (again(r))
		return -EAGAIN;
	s->retry = 0;
	return r >= 0 ? r : -EIO;
}

/* ---- a link ---------------------------------------------------------------------------------- */

#define IN_SIZE   (PEERLINK_MOST + 16384u)
#define PIECE     (1u << 20) /* bytes that are read in one go */
#define SAY_MS    1000u      /* silence of our own ends after so long */
#define OUT_LEAST 8192u

static void on_in(struct loop_op *op, int result, unsigned flags);
static void on_out(struct loop_op *op, int result, unsigned flags);

/* ---- its life -------------------------------------------------------------------------------- */

static void free_if_idle(struct peer *l)
{
	if (!l->closing || l->handling || l->in_op.busy || l->out_op.busy)
		return;
	peerstream_close(&l->stream);
	free(l->in);
	free(l->out);
	free(l);
}

struct peer *peerlink_new(struct peers *p, int fd, const struct peersecret *secret, uint32_t uid,
			  bool connecting, struct peers_address *to)
{
	struct peer *l = calloc(1, sizeof(*l));

	if (!l || !(l->in = malloc(IN_SIZE))) {
		free(l);
		close(fd);
		return NULL;
	}
	l->of = p;
	l->to = to;
	l->secret = secret;
	l->uid = uid;
	l->connecting = connecting;
	l->in_op.fn = on_in;
	l->out_op.fn = on_out;
	l->arriving.fd = -1;
	l->began_ms = l->heard_ms = l->said_ms = loop_clock_ms();
	if (peerstream_open(&l->stream, fd, secret, !to) < 0 ||
	    loop_poll(peers_loop(p), &l->in_op, fd, connecting ? POLLOUT : POLLIN | POLLOUT, true) <
		    0) {
		peerstream_close(&l->stream);
		free(l->in);
		free(l);
		return NULL;
	}
	return l;
}

void peerlink_drop(struct peer *l, const char *why)
{
	if (l->closing)
		return;
	l->closing = true;
	if (why)
		log_say(LOG_NOTICE,
			LOG_FIELDS(.object = *l->name ? l->name
					     : l->to  ? l->to->text
						      : "a peer"),
			"the connection to another daemon ends: %s", why);
	peerbulk_end(l);
	peers_left(l);
	loop_cancel(peers_loop(l->of), &l->in_op);
	loop_cancel(peers_loop(l->of), &l->out_op);
	free_if_idle(l);
}

/* ---- out ------------------------------------------------------------------------------------- */

/* Sends what the socket takes. */
static void push(struct peer *l)
{
	while (l->out_at < l->out_used && !l->broken) {
		ssize_t n =
			peerstream_send(&l->stream, l->out + l->out_at, l->out_used - l->out_at);

		if (n == -EAGAIN) {
			if (!l->out_op.busy && loop_poll(peers_loop(l->of), &l->out_op,
							 l->stream.fd, POLLOUT, true) < 0)
				l->broken = true;
			break;
		}
		if (n < 0)
			l->broken = true;
		else
			l->out_at += (size_t)n;
	}
	if (l->out_at == l->out_used)
		l->out_at = l->out_used = 0;
	if (l->broken)
		loop_cancel(peers_loop(l->of), &l->in_op); /* on_in() ends it */
}

static bool make_room(struct peer *l, size_t n)
{
	size_t size = l->out_size ? l->out_size : OUT_LEAST;
	char *out;

	if (l->out_at && l->out_size - l->out_used < n) {
		memmove(l->out, l->out + l->out_at, l->out_used - l->out_at);
		l->out_used -= l->out_at;
		l->out_at = 0;
	}
	while (size - l->out_used < n)
		size *= 2;
	if (size == l->out_size)
		return true;
	out = realloc(l->out, size);
	if (!out)
		return false;
	l->out = out;
	l->out_size = size;
	return true;
}

void peer_send(struct peer *l, uint16_t type, const struct iovec *parts, int n)
{
	struct peerlink_header h = {.size = sizeof(h), .type = type};

	for (int i = 0; i < n; i++)
		h.size += (uint32_t)parts[i].iov_len;
	if (l->closing || l->broken)
		return;
	if (h.size > PEERLINK_MOST || l->out_used - l->out_at + h.size > PEERS_WAITING ||
	    !make_room(l, h.size)) {
		l->broken = true;
		push(l);
		return;
	}
	memcpy(l->out + l->out_used, &h, sizeof(h));
	l->out_used += sizeof(h);
	for (int i = 0; i < n; i++) {
		if (parts[i].iov_len)
			memcpy(l->out + l->out_used, parts[i].iov_base, parts[i].iov_len);
		l->out_used += parts[i].iov_len;
	}
	l->said_ms = loop_clock_ms();
	push(l);
}

static void on_out(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	struct peer *l = CONTAINER_OF(op, peer, out_op);

	if (!l->closing) {
		push(l);
		peerbulk_pump(l);
	}
	free_if_idle(l);
}

/* ---- in -------------------------------------------------------------------------------------- */

static bool hello(struct peer *l, const char *body, size_t n)
{
	struct peerlink_hello h;

	if (l->up || n != sizeof(h))
		return false;
	memcpy(&h, body, sizeof(h));
	if (h.magic != PEERLINK_MAGIC || h.version != PEERLINK_VERSION ||
	    memchr(h.name, '\0', sizeof(h.name)) == NULL)
		return false;
	return peers_greeted(l, &h);
}

static bool message(struct peer *l, uint16_t type, const char *body, size_t n)
{
	struct peers_service *s;

	if (type == PEERS_HELLO)
		return hello(l, body, n);
	if (!l->up)
		return false;
	if (type == PEERS_PING)
		return n == 0;
	if (type >= PEERS_BULK && type <= PEERS_ANSWER)
		return peerbulk_message(l, type, body, n);
	s = peers_service_of(l->of, type);
	return s && s->message && s->message(s, l, type, body, n);
}

/* Handles all messages that are whole. NULL, or why the connection has to end. */
static const char *parse(struct peer *l)
{
	struct peerlink_header h;
	size_t at = 0;
	bool right = true;

	while (right && !l->closing && l->in_used - at >= sizeof(h)) {
		memcpy(&h, l->in + at, sizeof(h));
		if (h.size < sizeof(h) || h.size > PEERLINK_MOST || h.reserved)
			return "it does not speak this protocol";
		if (l->in_used - at < h.size)
			break;
		right = message(l, h.type, l->in + at + sizeof(h), h.size - sizeof(h));
		at += h.size;
	}
	memmove(l->in, l->in + at, l->in_used - at);
	l->in_used -= at;
	return right ? NULL : "it sent what is no message, or is not welcome";
}

/* Reads a piece. NULL, or why the connection has to end. */
static const char *take(struct peer *l)
{
	const char *why = NULL;
	size_t taken = 0;

	while (!why && !l->closing) {
		ssize_t n =
			peerstream_receive(&l->stream, l->in + l->in_used, IN_SIZE - l->in_used);

		if (n == -EAGAIN)
			break;
		if (n <= 0)
			return n == 0 ? "it has ended" : "its bytes cannot be read";
		l->heard_ms = loop_clock_ms();
		l->in_used += (size_t)n;
		taken += (size_t)n;
		why = parse(l);
		/* Bytes that were taken off the socket wake nobody: they are received now. */
		if (taken >= PIECE &&
		    !(l->stream.tls && gnutls_record_check_pending(l->stream.tls) > 0))
			break;
	}
	return why;
}

/* NULL, or why the connection has to end ("": for no reason that is worth a line). */
static const char *go_on(struct peer *l, short *ret_events)
{
	socklen_t size = sizeof(int);
	bool write = false;
	int error = 0, r;

	*ret_events = POLLIN;
	if (l->broken)
		return "it does not take what it is sent";
	if (l->connecting) {
		if (getsockopt(l->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
			return "";
		l->connecting = false;
	}
	if (!l->shaken) {
		struct peerlink_hello h = {.magic = PEERLINK_MAGIC,
					   .version = PEERLINK_VERSION,
					   .uid = (uint32_t)geteuid()};

		r = peerstream_shake(&l->stream, &write);
		*ret_events = write ? POLLOUT : POLLIN;
		if (r < 0)
			return r == -EAGAIN ? NULL : "it has not the same secret (secret-file)";
		l->shaken = true;
		strncpy(h.name, peers_own_name(l->of), sizeof(h.name) - 1);
		peer_send(l, PEERS_HELLO, &(struct iovec){&h, sizeof(h)}, 1);
		*ret_events = POLLIN;
	}
	return take(l);
}

bool peerlink_has_spoken(const struct peer *l)
{
	char byte;

	return l->spoke || recv(l->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void on_in(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct peer *l = CONTAINER_OF(op, peer, in_op);
	short events = POLLIN;
	const char *why;

	if (!l->closing) {
		l->handling++;
		l->spoke = l->up || peerlink_has_spoken(l);
		why = result < 0 && !l->broken ? "" : go_on(l, &events);
		if (!why && !l->closing &&
		    loop_poll(peers_loop(l->of), &l->in_op, l->stream.fd, events, true) < 0)
			why = "";
		if (why)
			peerlink_drop(l, *why ? why : NULL);
		l->handling--;
	}
	free_if_idle(l);
}

void peerlink_tick(struct peer *l, uint64_t now_ms, uint64_t timeout_ms)
{
	if (l->closing)
		return;
	if (now_ms > l->heard_ms + timeout_ms || (!l->up && now_ms > l->began_ms + timeout_ms))
		peerlink_drop(l, "it is silent");
	else if (l->bulks && l->bulks->told && now_ms > l->bulks->begun_ms + PEERS_BULK_MS)
		peerlink_drop(l, "it does not answer what it was sent");
	else if (l->up &&
		 now_ms >= l->said_ms + (timeout_ms / 4 < SAY_MS ? timeout_ms / 4 : SAY_MS))
		peer_send(l, PEERS_PING, NULL, 0);
}

const char *peer_name(const struct peer *p)
{
	return p->name;
}

bool peer_speaks_for(const struct peer *p, uint32_t uid)
{
	uint32_t own = (uint32_t)geteuid();

	return (p->uid == 0 || p->uid == uid) && (own == 0 || own == uid);
}
