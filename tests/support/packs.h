/* SPDX-License-Identifier: Apache-2.0 */
/* packs.h: packs of stores on a tmpfs of the test's own, and objects in them that can be told from
 * each other. Each test program has its own copies. */
#ifndef PACKS_H
#define PACKS_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pack.h"
#include "packsegs.h"
#include "scratch.h"

#define NOW UINT64_C(1000000)

static int root_fd = -1;

static inline struct shms_pack *open_pack(const char *name, bool kept)
{
	static char path[64];
	struct shms_pack_options options = {.path = path, .kept = kept};
	struct shms_pack *p = NULL;

	if (root_fd < 0)
		root_fd = open(scratch_dir("size=1g,mode=700"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf((char *)options.uuid, sizeof(options.uuid), "%s", name);
	snprintf(path, sizeof(path), "%s", name);
	mkdirat(root_fd, path, 0700);
	options.store_fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/segments", name);
	mkdirat(root_fd, path, 0700);
	options.root_fd = root_fd;
	options.dir_fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ENSURE(options.dir_fd >= 0 && options.store_fd >= 0);
	cr_assert_eq(shms_pack_open(&options, &p), 0);
	return p;
}

static inline void close_pack(struct shms_pack *p)
{
	int fd = p->options.dir_fd, store_fd = p->options.store_fd;

	shms_pack_close(p, NOW + 1000000);
	close(fd);
	close(store_fd);
}

static inline int put(struct shms_pack *p, const char *key, size_t size, uint64_t seed,
		      bool replace)
{
	char *buffer = malloc(size + 1);
	struct iovec iov = {buffer, size};
	struct shms_segobject what = {key, strlen(key), "header", 6, &iov, 1, 0, NULL};
	int r;

	pattern_fill(buffer, size, seed);
	r = shms_pack_put(p, &what, replace, NOW, &(struct shms_seggrow){.may = UINT64_MAX});
	free(buffer);
	return r;
}

static inline bool is(const struct shms_pack_view *v, size_t size, uint64_t seed)
{
	const uint8_t *bytes = v->segment->bytes + v->object.extent_off;

	return v->object.buffer_size == size && pattern_check(bytes, size, seed) == size &&
	       memcmp(bytes + v->object.metadata_off, "header", 6) == 0;
}

static inline bool has(struct shms_pack *p, const char *key, size_t size, uint64_t seed)
{
	struct shms_pack_view v;
	bool right;

	if (shms_pack_get(p, key, strlen(key), &v) < 0)
		return false;
	right = is(&v, size, seed);
	shms_pack_unget(p, &v, NOW);
	return right;
}

static inline int drop(struct shms_pack *p, const char *key)
{
	return shms_pack_delete(p, key, strlen(key), NOW, &(uint64_t){0});
}

static inline int hand_off(struct shms_pack *p, const char *key, char ret_path[SHMS_PACK_TICKET])
{
	struct shms_segpacked o;

	return shms_pack_handoff(p, key, strlen(key), NOW, 60000, ret_path, SHMS_PACK_TICKET, &o);
}

static inline int adopt_at(struct shms_pack *p, const char *path, const char *key, bool replace,
			   uint64_t now_ms)
{
	struct shms_packticket t;
	int r = shms_packticket_parse(path, strlen(path), &t);

	return r < 0 ? r
		     : shms_pack_adopt(p, &t, NULL, key, strlen(key), replace, now_ms, UINT64_MAX);
}

static inline int adopt(struct shms_pack *p, const char *path, const char *key, bool replace)
{
	return adopt_at(p, path, key, replace, NOW);
}

#endif
