/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_iceoryx2.c: iceoryx2's publish and subscribe. Memory for a sample is borrowed from the
 * publisher, filled and sent; the subscriber has it until it lets go. Both sides keep the
 * publisher's memory mapped, which is POSIX shared memory, so on /dev/shm. A sample has no key.
 */
#include <errno.h>
#include <stdlib.h>

#include "iceoryx2/side.h"
#include "measure.h"
#include "peer.h"

struct iceoryx2_state {
	char directory[128];
	struct iceoryx2_side *side;
};

static int prepare(struct peer_run *run)
{
	struct iceoryx2_state *s = calloc(1, sizeof(*s));

	if (!s || place_path(run->place, "iceoryx2", s->directory, sizeof(s->directory)) < 0)
		return peer_refuse(run, -ENOMEM, "out of memory");
	run->state = s;
	return 0;
}

static int open_consumer(struct peer_run *run)
{
	struct iceoryx2_state *s = run->state;

	s->side = iceoryx2_open(s->directory);
	return s->side && iceoryx2_subscribe(s->side) == 0 ? 0 : -EIO;
}

static int open_producer(struct peer_run *run)
{
	struct iceoryx2_state *s = run->state;

	s->side = iceoryx2_open(s->directory);
	if (!s->side || iceoryx2_publish(s->side, PEER_SIZE_MAX) < 0)
		return peer_refuse(run, -EIO, "%s: no publisher", s->directory);
	return 0;
}

static int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct iceoryx2_state *s = run->state;

	m->bytes[0] = 's';
	m->size = 1;
	return iceoryx2_put(s->side, data, size) == 0 && iceoryx2_send(s->side) == 0 ? 0 : -EIO;
}

static int put_only(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct iceoryx2_state *s = run->state;

	(void)m;
	return iceoryx2_put(s->side, data, size) == 0 ? 0 : -EIO;
}

static int take(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	struct iceoryx2_state *s = run->state;

	(void)message;
	(void)message_size;
	(void)fd;
	return iceoryx2_take(s->side, measure_touch) == 0 ? 0 : -EIO;
}

static int drop(struct peer_run *run)
{
	struct iceoryx2_state *s = run->state;

	iceoryx2_drop(s->side);
	return 0;
}

static void finish(struct peer_run *run)
{
	struct iceoryx2_state *s = run->state;

	if (s)
		iceoryx2_close(s->side);
	free(s);
	run->state = NULL;
}

const struct peer peer_iceoryx2 = {.prepare = prepare,
				   .consumer = open_consumer,
				   .producer = open_producer,
				   .put = put,
				   .put_only = put_only,
				   .take = take,
				   .drop = drop,
				   .finish = finish};
