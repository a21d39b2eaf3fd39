/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete.c: takes a key's name away. The rest is the kernel's: the memory goes with the last link
 * and the last mapping. A file worth keeping is renamed into recycle/ instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arbhook.h"
#include "credit.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "packgive.h"
#include "publish.h"
#include "recycle.h"
#include "sys.h"

static int drop_packed(struct shmstore *s, const struct shms_keyname *k)
{
	uint64_t bytes;
	int r = shms_packed_delete(s, k, &bytes);

	if (r == 0) {
		shms_count(&s->ledger->delete_n, 1);
		shms_count(&s->ledger->delete_bytes, bytes);
	}
	return r;
}

static int drop_name(struct shmstore *s, const struct shms_keyname *k)
{
	const struct shms_recent_entry *known = shms_recent_find(&s->recent, k->name);
	uint64_t size = known ? shms_whole_pages(known->header_size + known->buffer_size)
			      : UINT64_MAX,
		 bytes = size;
	enum shms_links_of links = shms_links_of(s, k->name);
	uint64_t freed = 0;
	struct stat st;
	int r = shms_recycle_delete(s, k->name, links, &bytes);

	if (r < 0)
		return r;
	if (r == 0 && s->clean_fd >= 0 && shms_stub_is(s->objects_fd, k->name)) {
		bytes = 0;
		r = shms_stub_drop(s, s->objects_fd, k->name);
		if (r < 0)
			return r;
	} else if (r == 0) {
		/* Only now, when the pool holds no slot of it any more
		 * that could punch out slack. */
		if (bytes == UINT64_MAX && known &&
		    atomic_load_explicit(&known->whole, memory_order_relaxed))
			bytes = size;
		if (bytes == UINT64_MAX)
			bytes = fstatat(s->objects_fd, k->name, &st, AT_SYMLINK_NOFOLLOW) == 0
					? shms_blocks(&st)
					: 0;
		freed = shms_credit_freed_by(s, s->objects_fd, k->name);
		if (unlinkat(s->objects_fd, k->name, 0) < 0)
			return -errno;
		shms_credit_gave(s, freed);
	}
	shms_clean_drop(s, k->name);
	/* After the object: killed in between, a sidecar is left, which the next
	 * object of this name takes away. */
	if (k->kind == SHMS_NAME_HASHED)
		shms_sidecar_drop(s->objects_fd, k->name);
	shms_recent_drop(&s->recent, k->name);
	if (links != SHMS_LINKS_PRIVATE)
		shms_links_drop(s, k->name);
	shms_linked_sub(s, links == SHMS_LINKS_OTHERS ? 0 : bytes);
	shms_count(&s->ledger->delete_n, 1);
	shms_count(&s->ledger->delete_bytes, bytes);
	return 0;
}

int shmstore_delete(struct shmstore *s, const void *key, size_t key_size)
{
	struct shms_keyname k;
	int r = shms_keyname_key(&k, key, key_size);

	if (r < 0)
		return r;
	shms_credit_tend(s);
	shms_tier_notice(s);
	shms_packgive(s);
	r = shms_names_lock(s);
	if (r < 0)
		return r;
	r = drop_packed(s, &k);
	if (r == -ENOENT) {
		shms_keyname_name(&k);
		r = shms_key_find(s->objects_fd, &k);
		r = r == 1 ? drop_name(s, &k) : r == 0 ? -ENOENT : r;
	}
	shms_names_unlock(s);
	if (r == 0)
		shms_hold_freed(s);
	return shms_error(r);
}
