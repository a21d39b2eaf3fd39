/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_segment.c: our packed objects (docs/segments.md) without a store around them: put, handoff,
 * a ticket's path, adopt, get, delete by key, as a store calls them. A store adds its ledger and
 * a look at what else has the key: that is the difference to peer_shmstore_packed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure.h"
#include "pack.h"
#include "peer.h"
#include "sys.h"

#define KEY      "k"
#define LEASE_MS 60000u

struct segment_state {
	char path[128];
	bool huge;
	struct shms_pack *pack;
};

static int prepare(struct peer_run *run)
{
	struct segment_state *s = calloc(1, sizeof(*s));

	if (!s || place_path(run->place, "segments", s->path, sizeof(s->path)) < 0)
		return peer_refuse(run, -ENOMEM, "out of memory");
	if (mkdir(s->path, 0700) < 0 && errno != EEXIST)
		return peer_refuse(run, -errno, "%s: %s", s->path, strerror(errno));
	s->huge = strcmp(run->place->huge, "never") != 0;
	run->state = s;
	return 0;
}

static int open_pack(struct peer_run *run, const char *who)
{
	struct segment_state *s = run->state;
	struct shms_pack_options options = {.huge = s->huge};
	char below[64];
	int r;

	snprintf((char *)options.uuid, sizeof(options.uuid), "%s", who);
	snprintf(below, sizeof(below), "%s/segments", who);
	options.path = below;
	options.root_fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (options.root_fd < 0 || mkdirat(options.root_fd, who, 0700) < 0 ||
	    mkdirat(options.root_fd, below, 0700) < 0)
		return peer_refuse(run, -errno, "%s/%s: %s", s->path, below, strerror(errno));
	options.dir_fd = openat(options.root_fd, below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (options.dir_fd < 0)
		return peer_refuse(run, -errno, "%s/%s: %s", s->path, below, strerror(errno));
	r = shms_pack_open(&options, &s->pack);
	return r < 0 ? peer_refuse(run, r, "segments in %s/%s: %s", s->path, below, strerror(-r))
		     : 0;
}

static int open_producer(struct peer_run *run)
{
	return open_pack(run, "producer");
}

static int open_consumer(struct peer_run *run)
{
	return open_pack(run, "consumer");
}

static int put_only(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct segment_state *s = run->state;
	struct iovec buffer = {(void *)(uintptr_t)data, size};
	struct shms_segobject what = {
		.key = KEY, .key_size = 1, .buffers = &buffer, .n_buffers = 1};

	(void)m;
	return shms_pack_put(s->pack, &what, false, shms_now_boot_ms(),
			     &(struct shms_seggrow){.may = UINT64_MAX});
}

static int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct segment_state *s = run->state;
	struct shms_segpacked object;
	int r = put_only(run, data, size, m);

	if (r == 0)
		r = shms_pack_handoff(s->pack, KEY, 1, shms_now_boot_ms(), LEASE_MS, m->bytes,
				      sizeof(m->bytes), &object);
	if (r == 0)
		m->size = strlen(m->bytes) + 1;
	return r;
}

static int take(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	struct segment_state *s = run->state;
	struct shms_packticket ticket;
	struct shms_pack_view v;
	int r;

	(void)fd;
	if (!message_size || ((const char *)message)[message_size - 1])
		return -EINVAL;
	r = shms_packticket_parse(message, message_size - 1, &ticket);
	if (r == 0)
		r = shms_pack_adopt(s->pack, &ticket, NULL, KEY, 1, false, shms_now_boot_ms(), 0);
	if (r == 0)
		r = shms_pack_get(s->pack, KEY, 1, &v);
	if (r < 0)
		return r;
	measure_touch(v.segment->bytes + v.object.extent_off, v.object.buffer_size);
	shms_pack_unget(s->pack, &v, 0);
	return shms_pack_delete(s->pack, KEY, 1, shms_now_boot_ms(), &(uint64_t){0});
}

static int drop(struct peer_run *run)
{
	struct segment_state *s = run->state;

	return shms_pack_delete(s->pack, KEY, 1, shms_now_boot_ms(), &(uint64_t){0});
}

static void finish(struct peer_run *run)
{
	struct segment_state *s = run->state;

	if (!s)
		return;
	shms_pack_close(s->pack, shms_now_boot_ms());
	free(s);
}

const struct peer peer_segment = {.prepare = prepare,
				  .consumer = open_consumer,
				  .producer = open_producer,
				  .put = put,
				  .put_only = put_only,
				  .take = take,
				  .drop = drop,
				  .finish = finish,
				  .size_max = 16u << 20};
