/* SPDX-License-Identifier: Apache-2.0 */
/* peer_shmstore.c: ourselves, as we come, with recycling off, and with packed objects; the
 * consumer has a store of its own. */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "peer.h"

#define KEY      "k"
#define PACK_MAX (16u << 20)

struct shmstore_state {
	char path[128];
	const char *name;
	uint64_t recycle_max, pack_max;
	struct shmstore_partition *partition;
	struct shmstore *store;
};

static int prepare_named(struct peer_run *run, const char *name, uint64_t recycle_max,
			 uint64_t pack_max)
{
	struct shmstore_state *s = calloc(1, sizeof(*s));

	if (!s || place_path(run->place, "partition", s->path, sizeof(s->path)) < 0)
		return peer_refuse(run, -ENOMEM, "out of memory");
	s->name = name;
	s->recycle_max = recycle_max;
	s->pack_max = pack_max;
	run->state = s;
	return 0;
}

static int prepare(struct peer_run *run)
{
	return prepare_named(run, "recycling", SHMSTORE_RECYCLE_DEFAULT, 0);
}

static int prepare_fresh(struct peer_run *run)
{
	return prepare_named(run, "fresh", 0, 0);
}

static int prepare_packed(struct peer_run *run)
{
	return prepare_named(run, "packed", SHMSTORE_RECYCLE_DEFAULT, PACK_MAX);
}

static int open_store(struct peer_run *run, const char *who)
{
	struct shmstore_state *s = run->state;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	char name[64];
	int r = shmstore_partition_open(s->path, SHMSTORE_CREATE, &s->partition);

	options.recycle_max = s->recycle_max;
	options.pack_max = s->pack_max;
	snprintf(name, sizeof(name), "%s-%s-%d", s->name, who, (int)getpid());
	if (r == 0)
		r = shmstore_open(s->partition, name, &options, &s->store);
	return r < 0 ? peer_refuse(run, r, "%s: %s", s->path, shmstore_strerror(r)) : 0;
}

static int open_producer(struct peer_run *run)
{
	return open_store(run, "producer");
}

static int open_consumer(struct peer_run *run)
{
	return open_store(run, "consumer");
}

static int put_only(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct shmstore_state *s = run->state;
	struct iovec buffer = {(void *)(uintptr_t)data, size};

	(void)m;
	return shmstore_put(s->store, KEY, 1, NULL, 0, &buffer, 1, 0);
}

static int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct shmstore_state *s = run->state;
	struct shmstore_ticket *ticket = (struct shmstore_ticket *)(void *)m->bytes;
	int r = put_only(run, data, size, m);

	if (r == 0)
		r = shmstore_handoff(s->store, KEY, 1, 60000, ticket);
	if (r == 0)
		m->size = offsetof(struct shmstore_ticket, path) + strlen(ticket->path) + 1;
	return r;
}

static int take(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	struct shmstore_state *s = run->state;
	struct shmstore_ticket ticket;
	struct shmstore_view *v;
	const void *bytes;
	uint64_t size;
	int r;

	(void)fd;
	if (message_size > sizeof(ticket))
		return -EINVAL;
	memcpy(&ticket, message, message_size);
	r = shmstore_adopt(s->store, KEY, 1, &ticket, 0);
	if (r == 0)
		r = shmstore_get(s->store, KEY, 1, 0, &v);
	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, &size);
	measure_touch(bytes, size);
	shmstore_view_unref(v);
	return shmstore_delete(s->store, KEY, 1);
}

static int drop(struct peer_run *run)
{
	struct shmstore_state *s = run->state;

	return shmstore_delete(s->store, KEY, 1);
}

static int put_at(struct peer_run *run, unsigned i, const void *data, size_t size)
{
	struct shmstore_state *s = run->state;
	struct iovec buffer = {(void *)(uintptr_t)data, size};
	char key[PEER_KEY];

	return shmstore_put(s->store, key, peer_key(i, key), NULL, 0, &buffer, 1, 0);
}

static int get_at(struct peer_run *run, unsigned i)
{
	struct shmstore_state *s = run->state;
	struct shmstore_view *v;
	const void *bytes;
	char key[PEER_KEY];
	uint64_t size;
	int r = shmstore_get(s->store, key, peer_key(i, key), 0, &v);

	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, &size);
	measure_touch(bytes, size);
	shmstore_view_unref(v);
	return 0;
}

struct handed {
	uint32_t i;
	struct shmstore_ticket ticket; /* its path's end is left out */
};

static int hand_at(struct peer_run *run, unsigned i, struct peer_message *m)
{
	struct shmstore_state *s = run->state;
	struct handed *h = (struct handed *)(void *)m->bytes;
	char key[PEER_KEY];
	int r = shmstore_handoff(s->store, key, peer_key(i, key), 600000, &h->ticket);

	h->i = i;
	m->size = offsetof(struct handed, ticket.path) + strlen(h->ticket.path) + 1;
	return r;
}

static int keep(struct peer_run *run, const void *message, size_t message_size)
{
	struct shmstore_state *s = run->state;
	char key[PEER_KEY];
	struct handed h;
	int r;

	if (message_size > sizeof(h))
		return -EINVAL;
	memcpy(&h, message, message_size);
	r = shmstore_adopt(s->store, key, peer_key(h.i, key), &h.ticket, 0);
	return r < 0 ? r : get_at(run, h.i);
}

static int delete_at(struct peer_run *run, unsigned i)
{
	struct shmstore_state *s = run->state;
	char key[PEER_KEY];

	return shmstore_delete(s->store, key, peer_key(i, key));
}

static void finish(struct peer_run *run)
{
	struct shmstore_state *s = run->state;

	if (!s)
		return;
	shmstore_close(s->store);
	shmstore_partition_unref(s->partition);
	free(s);
	run->state = NULL;
}

#define PEER(prepare_it)                                                                        \
	{                                                                                       \
		.prepare = prepare_it, .consumer = open_consumer, .producer = open_producer,    \
		.put = put, .put_only = put_only, .take = take, .drop = drop, .finish = finish, \
		.put_at = put_at, .get_at = get_at, .delete_at = delete_at, .hand_at = hand_at, \
		.keep = keep                                                                    \
	}

const struct peer peer_shmstore = PEER(prepare);
const struct peer peer_shmstore_fresh = PEER(prepare_fresh);
const struct peer peer_shmstore_packed = PEER(prepare_packed);
