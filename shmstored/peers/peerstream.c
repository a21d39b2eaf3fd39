/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerstream.c: see peerstream.h. GnuTLS does all of the cryptography. Without certificates: a key
 * exchange with the shared secret (ECDHE-PSK) is all that is offered, so that neither side talks to
 * one that has not got it, and what was recorded cannot be read later by who gets the secret then.
 */
#include "peerstream.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

int peerstream_open(struct peerstream *s, int fd, const struct peersecret *secret, bool server)
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

void peerstream_close(struct peerstream *s)
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

static bool again(ssize_t r)
{
	return r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
}

int peerstream_shake(struct peerstream *s, bool *ret_write)
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

ssize_t peerstream_receive(struct peerstream *s, void *data, size_t n)
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

bool peerstream_pending(const struct peerstream *s)
{
	return s->tls && gnutls_record_check_pending(s->tls) > 0;
}

ssize_t peerstream_send(struct peerstream *s, const void *data, size_t n)
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
