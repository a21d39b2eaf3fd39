/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_posix.c: what one does without a store: nothing (the floor of the exchange), a POSIX shared
 * memory object per transfer, a sealed memfd sent along with the message.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"
#include "peer.h"

struct posix_state {
	char name[64]; /* of the shared memory object */
	int fd;        /* of the memfd */
};

static void tell_size(struct peer_message *m, size_t size)
{
	memcpy(m->bytes, &size, sizeof(size));
	m->size = sizeof(size);
}

static int told_size(const void *message, size_t message_size, size_t *ret)
{
	if (message_size != sizeof(*ret))
		return -EINVAL;
	memcpy(ret, message, sizeof(*ret));
	return 0;
}

static int read_mapped(int fd, size_t size)
{
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	measure_touch(map, size);
	return munmap(map, size) < 0 ? -errno : 0;
}

static int prepare(struct peer_run *run)
{
	struct posix_state *s = calloc(1, sizeof(*s));

	if (!s)
		return peer_refuse(run, -ENOMEM, "out of memory");
	if (run->place)
		place_shm_name(run->place, s->name);
	s->fd = -1;
	run->state = s;
	return 0;
}

static void finish(struct peer_run *run)
{
	free(run->state);
}

/* ---- notify only ----------------------------------------------------------------------------- */

static int put_nothing(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	(void)run;
	(void)data;
	tell_size(m, size);
	return 0;
}

static int take_nothing(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	size_t size;

	(void)run;
	(void)fd;
	return told_size(message, message_size, &size);
}

static int drop_nothing(struct peer_run *run)
{
	(void)run;
	return 0;
}

const struct peer peer_notify = {.put = put_nothing, .take = take_nothing, .drop = drop_nothing};

/* ---- shm_open -------------------------------------------------------------------------------- */

static int put_shm(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct posix_state *s = run->state;
	int fd = shm_open(s->name, O_CREAT | O_EXCL | O_RDWR, 0600);
	void *map;

	if (fd < 0)
		return -errno;
	map = ftruncate(fd, (off_t)size) < 0
		      ? MAP_FAILED
		      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -ENOMEM;
	memcpy(map, data, size);
	munmap(map, size);
	tell_size(m, size);
	return 0;
}

static int take_shm(struct peer_run *run, const void *message, size_t message_size, int passed)
{
	struct posix_state *s = run->state;
	size_t size;
	int fd, r = told_size(message, message_size, &size);

	(void)passed;
	if (r < 0)
		return r;
	fd = shm_open(s->name, O_RDONLY, 0);
	if (fd < 0)
		return -errno;
	r = read_mapped(fd, size);
	close(fd);
	return r;
}

static int drop_shm(struct peer_run *run)
{
	struct posix_state *s = run->state;

	return shm_unlink(s->name) < 0 ? -errno : 0;
}

const struct peer peer_shm_open = {
	.prepare = prepare, .put = put_shm, .take = take_shm, .drop = drop_shm, .finish = finish};

/* ---- memfd ----------------------------------------------------------------------------------- */

static int put_memfd(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	struct posix_state *s = run->state;
	const char *p = data;
	size_t done = 0;

	s->fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->fd < 0)
		return -errno;
	while (done < size) {
		ssize_t n = write(s->fd, p + done, size - done);

		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	tell_size(m, size);
	m->fd = s->fd;
	return 0;
}

static int take_memfd(struct peer_run *run, const void *message, size_t message_size, int fd)
{
	size_t size;
	int r = told_size(message, message_size, &size);

	(void)run;
	if (r < 0)
		return r;
	return fd < 0 ? -EBADF : read_mapped(fd, size);
}

static int drop_memfd(struct peer_run *run)
{
	struct posix_state *s = run->state;
	int r = close(s->fd) < 0 ? -errno : 0;

	s->fd = -1;
	return r;
}

const struct peer peer_memfd = {.prepare = prepare,
				.put = put_memfd,
				.take = take_memfd,
				.drop = drop_memfd,
				.finish = finish};
