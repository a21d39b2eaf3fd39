/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: takes an object from one store of this user to another, in any partition of the host.
 * The text that is sent has the donor's partition, and the ticket of a lease there. If the
 * partition is another one, a store is opened there for the time of the copy, and takes the lease.
 * If its process is killed meanwhile, the store is dead, and gc removes it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acting.h"
#include "detail.h"
#include "parts.h"
#include "publish.h"

int shms_state_send(struct shmstore *s, const char *key, uint64_t lease_ms, char *ret_text,
		    size_t size, uint64_t *ret_bytes)
{
	size_t n = strlen(s->p->path);
	struct shmstore_ticket ticket;
	char text[SHMSTORE_TICKET_TEXT];
	struct shms_keyname k;
	int r = shms_keyname_init(&k, key, strlen(key));

	/* The daemon, which copies it to others, reads files alone. */
	if (r == 0)
		r = shms_put_as_file(s, &k);
	if (r == 0)
		r = shmstore_handoff(s, key, strlen(key), lease_ms, &ticket);
	if (r == 0)
		r = shmstore_ticket_format(&ticket, text, sizeof(text));
	if (r < 0)
		return r;
	if (n + 1 + strlen(text) >= size)
		return shms_detail(-EFBIG, s->p->path,
				   "the path of partition %s is too long for an actor to be moved",
				   s->p->path);
	*ret_bytes = ticket.header_size + ticket.buffer_size;
	return snprintf(ret_text, size, "%s\n%s", s->p->path, text);
}

/* Puts a copy of what a view shows into s. */
static int copy_view(struct shmstore *s, const char *key, const struct shmstore_view *v)
{
	size_t n = shmstore_view_n_buffers(v), n_header;
	struct iovec *buffers = calloc(n ? n : 1, sizeof(*buffers));
	const void *header = shmstore_view_header(v, &n_header);
	uint64_t bytes;
	int r;

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		buffers[i].iov_base = shmstore_view_buffer(v, i, &bytes);
		buffers[i].iov_len = bytes;
	}
	r = shmstore_put(s, key, strlen(key), header, n_header, buffers, n, SHMSTORE_REPLACE);
	free(buffers);
	return r;
}

static int copy_through(struct shmstore *s, struct shmstore *there, const char *key,
			const struct shmstore_ticket *ticket)
{
	struct shmstore_view *v;
	int r = shmstore_adopt(there, key, strlen(key), ticket, 0);

	if (r == 0)
		r = shmstore_get(there, key, strlen(key), 0, &v);
	if (r < 0)
		return r;
	r = copy_view(s, key, v);
	shmstore_view_unref(v);
	return r;
}

static int copy(struct shmstore *s, const char *key, const char *partition,
		const struct shmstore_ticket *ticket)
{
	static _Atomic unsigned n_copies;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *there;
	char name[64];
	int r = shmstore_partition_open(partition, 0, &p);

	if (r < 0)
		return r;
	options.daemon = SHMSTORE_DAEMON_OFF;
	options.label = "an actor's state on its way";
	snprintf(name, sizeof(name), "actor-%d-%u", (int)getpid(), atomic_fetch_add(&n_copies, 1u));
	r = shmstore_open(p, name, &options, &there);
	if (r == 0) {
		r = copy_through(s, there, key, ticket);
		shmstore_close(there);
	}
	shmstore_partition_unref(p);
	return r;
}

int shms_state_fetch(struct shmstore *s, const char *key, const char *text)
{
	const char *end = strchr(text, '\n');
	char partition[SHMSTORE_TICKET_PATH];
	struct shmstore_ticket ticket;
	int r;

	if (!end || (size_t)(end - text) >= sizeof(partition))
		return -EBADMSG;
	memcpy(partition, text, (size_t)(end - text));
	partition[end - text] = '\0';
	r = shmstore_ticket_parse(end + 1, &ticket);
	if (r < 0)
		return r;
	if (strcmp(partition, s->p->path) == 0)
		return shmstore_adopt(s, key, strlen(key), &ticket, SHMSTORE_REPLACE);
	return copy(s, key, partition, &ticket);
}
