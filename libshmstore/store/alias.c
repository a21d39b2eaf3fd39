/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alias.c: the task that returns its input. If header and buffers of a put are exactly those of a
 * live view of this store, the object gets a second link instead of a second copy. A packed object
 * becomes a file for that, of the same generation: by one copy, however many keys it gets.
 *
 * A copy-on-write view may have been written to, and then its bytes are not the file's any more.
 * The kernel knows: a page that was written is anonymous, one that was not is the file's
 * (/proc/self/pagemap, bit 61). Where pagemap cannot be read the bytes are copied. Rejected:
 * comparing the bytes (reads everything twice, what a copy costs).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "packed.h"
#include "parts.h"
#include "publish.h"
#include "sys.h"
#include "view.h"

#define PAGEMAP_FILE    (1ull << 61)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_PRESENT (1ull << 63)

/* Did nobody write to this copy-on-write mapping? */
static SHMS_ASIDE bool unwritten(const struct shmstore_view *v)
{
	uint64_t entries[512], page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t at = (uint64_t)(uintptr_t)v->map / page,
		 end = ((uint64_t)(uintptr_t)v->map + v->map_size + page - 1) / page;
	_fd_ int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while (at < end) {
		size_t want = end - at < 512 ? end - at : 512;
		ssize_t n = shms_pread_all(fd, entries, want * 8, at * 8);

		if (n != (ssize_t)(want * 8))
			return false;
		for (size_t i = 0; i < want; i++) {
			if ((entries[i] & PAGEMAP_SWAPPED) ||
			    ((entries[i] & PAGEMAP_PRESENT) && !(entries[i] & PAGEMAP_FILE)))
				return false;
		}
		at += want;
	}
	return true;
}

static bool same(const struct shmstore *s, const struct shmstore_view *v, const void *header,
		 size_t header_size, const struct iovec *buffers, size_t n_buffers)
{
	if (v->s != s || v->n_buffers != n_buffers || v->metadata_size != header_size)
		return false;
	if (header_size && memcmp(v->metadata, header, header_size) != 0)
		return false;
	for (size_t i = 0; i < n_buffers; i++) {
		if (buffers[i].iov_len != v->table[i].size)
			return false;
		if (buffers[i].iov_len &&
		    buffers[i].iov_base != (char *)v->map + v->table[i].offset)
			return false;
	}
	return !v->cow || unwritten(v);
}

/* The file that the view's own key means now: is it still the view's, and what the put asks for? */
static SHMS_ASIDE bool find_source(struct shmstore *s, const struct shmstore_view *v,
				   const char *name, unsigned flags, struct shms_publish_from *from,
				   struct shms_layout *ret_layout)
{
	struct shms_header h;
	struct stat st;
	bool found;
	_fd_ int fd = shms_open_file(s->objects_fd, name, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) < 0 || shms_header_read(&h, fd, &st, NULL) < 0)
		return false;
	found = h.object.generation == v->generation &&
		(h.object.checksum || !(flags & SHMSTORE_CHECKSUM));
	*ret_layout = h.object.layout;
	shms_header_deinit(&h);
	from->name = name;
	from->inode = st.st_ino;
	from->bytes = shms_blocks(&st);
	return found;
}

/* The packed object that the view is of becomes a file, unless it is one by now. False: it cannot,
 * or has no checksum, and one is asked for. */
static SHMS_ASIDE bool make_file(struct shmstore *s, const struct shmstore_view *v,
				 const struct shms_keyname *source, unsigned flags)
{
	if (!shms_pack_is(v->packed.pack, v->key, v->key_size, &v->packed))
		return true;
	if ((flags & SHMSTORE_CHECKSUM) && !(v->packed.object.flags & SHMS_SEGPACKED_CHECKSUM))
		return false;
	return shms_put_as_file(s, source) == 0;
}

/* The second link. It takes no memory, and the store's sums count each inode once: no limit is
 * asked. 1; 0: no link; -EEXIST. */
static SHMS_ASIDE int link_again(struct shmstore *s, const struct shmstore_view *v,
				 const struct shms_keyname *k, unsigned flags)
{
	struct shms_publish_from from = {
		.dir_fd = s->objects_fd, .other_key = true, .shared = true, .alias = true};
	bool replace = (flags & SHMSTORE_REPLACE) != 0;
	struct shms_keyname source, own = *k;
	struct shms_layout l = {0};
	int r;

	if (shms_key_find(s->objects_fd, &own) < 0 ||
	    shms_keyname_init(&source, v->key, v->key_size) < 0)
		return 0;
	/* publish is content where the name means this inode already; a put is not. */
	if (!replace && (shms_packed_has(s, k) || shms_lookup(s->objects_fd, own.name) == 0))
		return -EEXIST;
	/* The view's own key is its name, if it still has one. publish checks once more that
	 * the name means this inode. */
	if ((v->is_packed && !make_file(s, v, &source, flags)) ||
	    shms_key_find(s->objects_fd, &source) != 1 ||
	    !find_source(s, v, source.name, flags, &from, &l))
		return 0;
	r = shms_publish_named(s, &from, k, &l, replace);
	/* deleted meanwhile, out of links or of memory: a copy will do, or says why not */
	if (r < 0)
		return r == -EEXIST ? r : 0;
	shms_count(&s->ledger->alias_n, 1);
	shms_count(&s->ledger->alias_bytes, from.bytes);
	return 1;
}

/* A view of the packed object at that address. NULL: there is none. */
static struct shmstore_view *view_packed(struct shmstore *s, const void *address)
{
	struct shms_pack *pack = shms_packed_pack(s);
	struct shms_pack_view packed;
	struct shmstore_view *v = NULL;

	if (!pack || shms_pack_at(pack, address, &packed) < 0)
		return NULL;
	(void)shms_view_packed(s, &packed, 0, shms_pack_view_key(&packed), packed.object.key_size,
			       &v);
	return v;
}

int shms_alias_try(struct shmstore *s, struct shms_keyname *k, const void *header,
		   size_t header_size, const struct iovec *buffers, size_t n_buffers,
		   unsigned flags)
{
	struct shmstore_view *v = NULL;
	uint64_t bytes = 0;
	size_t first = 0;
	int r = 0;

	while (first < n_buffers && !buffers[first].iov_len)
		first++;
	if (first == n_buffers)
		return 0;
	for (size_t i = first; i < n_buffers; i++)
		bytes += buffers[i].iov_len;
	v = shms_view_find(buffers[first].iov_base);
	/* A small one is copied sooner than found. */
	if (!v && bytes >= SHMS_FORMAT_BIG)
		v = view_packed(s, buffers[first].iov_base);
	if (!v)
		return 0;
	shms_keyname_name(k);
	if (same(s, v, header, header_size, buffers, n_buffers))
		r = link_again(s, v, k, flags);
	shmstore_view_unref(v);
	return r;
}
