/* SPDX-License-Identifier: Apache-2.0 */
/* bare.c: plain system calls, nothing else. Stateless but for three directory descriptors. */
#include "bare.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measure.h"

static int open_dir(const struct place *p, const char *name)
{
	char path[128];
	int fd;

	if (place_path(p, name, path, sizeof(path)) < 0)
		return -ENAMETOOLONG;
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int bare_open(struct bare *b, const struct place *p)
{
	b->objects = open_dir(p, "bare-objects");
	b->handoff = open_dir(p, "bare-handoff");
	b->other = open_dir(p, "bare-other");
	if (b->objects >= 0 && b->handoff >= 0 && b->other >= 0)
		return 0;
	bare_close(b);
	return -EIO;
}

void bare_close(struct bare *b)
{
	int *fds[] = {&b->objects, &b->handoff, &b->other};

	for (size_t i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

int bare_put(const struct bare *b, const char *name, const void *data, size_t size)
{
	int fd = openat(b->objects, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);
	const char *p = data;
	size_t done = 0;
	int r = 0;

	if (fd < 0)
		return -errno;
	while (done < size && r == 0) {
		ssize_t n = write(fd, p + done, size - done);

		if (n < 0)
			r = -errno;
		else
			done += (size_t)n;
	}
	if (r == 0 && linkat(fd, "", b->objects, name, AT_EMPTY_PATH) < 0)
		r = -errno;
	close(fd);
	return r;
}

int bare_put_mapped(const struct bare *b, const char *name, const void *data, size_t size)
{
	int fd = openat(b->objects, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	void *map;

	if (fd < 0)
		return -errno;
	map = ftruncate(fd, (off_t)size) < 0
		      ? MAP_FAILED
		      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		int r = -errno;

		close(fd);
		return r;
	}
	memcpy(map, data, size);
	munmap(map, size);
	close(fd);
	return 0;
}

static int map_file(int dir, const char *name, size_t size, void **ret)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	void *map;

	if (fd < 0)
		return -errno;
	map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -ENOMEM;
	*ret = map;
	return 0;
}

int bare_get(const struct bare *b, const char *name, size_t size)
{
	void *map = NULL;
	int r = map_file(b->objects, name, size, &map);

	return r < 0 ? r : munmap(map, size);
}

int bare_read(int dir, const char *name, size_t size)
{
	void *map = NULL;
	int r = map_file(dir, name, size, &map);

	if (r < 0)
		return r;
	measure_touch(map, size);
	return munmap(map, size);
}

int bare_hand_over(const struct bare *b, const char *name)
{
	if (linkat(b->objects, name, b->handoff, name, 0) < 0 ||
	    linkat(b->handoff, name, b->other, name, 0) < 0 || unlinkat(b->handoff, name, 0) < 0)
		return -errno;
	return 0;
}

int bare_hand_over_by_path(const char *object, const char *lease, const char *other)
{
	if (link(object, lease) < 0 || link(lease, other) < 0 || unlink(lease) < 0)
		return -errno;
	return 0;
}

int bare_delete(int dir, const char *name)
{
	return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}
