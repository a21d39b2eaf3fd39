/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerbulk.c: files on a connection, cut into chunks that other messages pass. One after the other:
 * the next one begins when the one before was answered. A chunk is made only while little waits to
 * be sent, so a slow connection costs no memory. The receiver writes each chunk where its service
 * says, and never more than was announced.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "peerlink.h"

#define CHUNK   (PEERS_BODY - sizeof(struct peerlink_chunk))
#define WAITING (256u << 10) /* bytes of other messages and of chunks, beyond which none is made */

/* ---- sending --------------------------------------------------------------------------------- */

int peer_send_bulk(struct peer *p, uint16_t type, const void *meta, size_t n_meta, int fd,
		   uint64_t size, peer_sent *sent, void *arg)
{
	struct peerlink_out *o;

	if (n_meta > PEERS_META || p->closing)
		return -EINVAL;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	*o = (struct peerlink_out){.id = ++p->last_id,
				   .size = size,
				   .type = type,
				   .n_meta = n_meta,
				   .sent = sent,
				   .arg = arg,
				   .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
	if (o->fd < 0) {
		free(o);
		return -EMFILE;
	}
	memcpy(o->meta, meta, n_meta);
	DL_APPEND(p->bulks, o);
	peerbulk_pump(p);
	return 0;
}

void peerbulk_pump(struct peer *l)
{
	static char data[CHUNK]; /* the loop's thread only */
	struct peerlink_out *o = l->bulks;

	if (!o)
		return;
	if (!o->told) {
		struct peerlink_bulk b = {.id = o->id,
					  .size = o->size,
					  .type = o->type,
					  .n_meta = (uint32_t)o->n_meta};

		o->told = true;
		o->begun_ms = loop_clock_ms();
		peer_send(l, PEERS_BULK, (struct iovec[]){{&b, sizeof(b)}, {o->meta, o->n_meta}},
			  2);
	}
	while (o->at < o->size && !l->broken && l->out_used - l->out_at < WAITING) {
		struct peerlink_chunk c = {.id = o->id};
		size_t want = o->size - o->at < CHUNK ? (size_t)(o->size - o->at) : CHUNK;
		ssize_t n = pread(o->fd, data, want, (off_t)o->at);

		n = n < 0 ? 0 : n; /* the file was cut, or cannot be read: no bytes say that */
		peer_send(l, PEERS_CHUNK, (struct iovec[]){{&c, sizeof(c)}, {data, (size_t)n}}, 2);
		o->at = n ? o->at + (uint64_t)n : o->size;
		o->begun_ms = loop_clock_ms();
	}
}

static void finish(struct peer *l, struct peerlink_out *o, int result)
{
	DL_DELETE(l->bulks, o);
	close(o->fd);
	o->sent(o->arg, result);
	free(o);
}

static bool take_answer(struct peer *l, const char *body, size_t n)
{
	struct peerlink_answer a;

	if (n != sizeof(a))
		return false;
	memcpy(&a, body, sizeof(a));
	if (!l->bulks || l->bulks->id != a.id || !l->bulks->told || a.result > 0)
		return false;
	finish(l, l->bulks, a.result);
	peerbulk_pump(l);
	return true;
}

/* ---- taking ---------------------------------------------------------------------------------- */

void peer_answer(struct peer *p, uint64_t id, int result)
{
	struct peerlink_answer a = {.id = id, .result = result};

	peer_send(p, PEERS_ANSWER, &(struct iovec){&a, sizeof(a)}, 1);
}

static void stop_arriving(struct peer *l)
{
	if (l->arriving.fd >= 0)
		close(l->arriving.fd);
	l->arriving.fd = -1;
	l->arriving.is = false;
}

/* All bytes are there. */
static void complete(struct peer *l)
{
	struct peers_bulk b = l->arriving.bulk;
	int fd = l->arriving.fd;

	l->arriving.fd = -1;
	l->arriving.is = false;
	if (fd >= 0)
		l->arriving.service->arrived(l->arriving.service, l, &b, fd);
}

static bool take_bulk(struct peer *l, const char *body, size_t n)
{
	struct peerlink_bulk b;
	int r = -EPROTONOSUPPORT;

	if (n < sizeof(b))
		return false;
	memcpy(&b, body, sizeof(b));
	if (l->arriving.is || b.n_meta > PEERS_META || n != sizeof(b) + b.n_meta ||
	    b.type > UINT16_MAX)
		return false;
	l->arriving.is = true;
	l->arriving.at = 0;
	l->arriving.bulk = (struct peers_bulk){
		.type = (uint16_t)b.type, .id = b.id, .size = b.size, .n_meta = b.n_meta};
	memcpy(l->arriving.bulk.meta, body + sizeof(b), b.n_meta);
	l->arriving.service = peers_service_of(l->of, (uint16_t)b.type);
	if (l->arriving.service && l->arriving.service->begin)
		r = l->arriving.service->begin(l->arriving.service, l, &l->arriving.bulk,
					       &l->arriving.fd);
	if (r < 0) {
		l->arriving.fd = -1;
		/* chunks of it that are on their way are of no bulk that arrives */
		l->arriving.is = false;
		peer_answer(l, b.id, r);
	} else if (b.size == 0) {
		complete(l);
	}
	return true;
}

static bool take_chunk(struct peer *l, const char *body, size_t n)
{
	struct peerlink_chunk c;
	uint64_t size = n - sizeof(c);
	int error = n == sizeof(c) ? EIO : 0;

	if (n < sizeof(c))
		return false;
	memcpy(&c, body, sizeof(c));
	if (!l->arriving.is || c.id != l->arriving.bulk.id)
		return c.id != 0; /* of one that was refused */
	if (size > l->arriving.bulk.size - l->arriving.at)
		return false;
	for (uint64_t at = 0; at < size && !error;) {
		ssize_t w = pwrite(l->arriving.fd, body + sizeof(c) + at, size - at,
				   (off_t)(l->arriving.at + at));

		if (w < 0)
			error = errno == EINTR ? 0 : errno;
		else
			at += (uint64_t)w;
	}
	l->arriving.at += size;
	if (error) {
		stop_arriving(l);
		peer_answer(l, c.id, -error);
	} else if (l->arriving.at == l->arriving.bulk.size) {
		complete(l);
	}
	return true;
}

bool peerbulk_message(struct peer *l, uint16_t type, const char *body, size_t n)
{
	switch (type) {
	case PEERS_BULK:
		return take_bulk(l, body, n);
	case PEERS_CHUNK:
		return take_chunk(l, body, n);
	case PEERS_ANSWER:
		return take_answer(l, body, n);
	default:
		return false;
	}
}

void peerbulk_end(struct peer *l)
{
	stop_arriving(l);
	while (l->bulks)
		finish(l, l->bulks, -EPIPE);
}
