/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff.c: a leased link of its own for the receiver, and the triplet that says where it is.
 *
 * An inode whose last name is gone cannot be linked again, so the ticket names a link that exists: whatever becomes of the
 * donor's key or of the donor, the receiver finds it until the lease ends. Killed after the link: a lease that nobody knows of,
 * which gc ends in its time.
 */
#include "handoff.h"

#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aside.h"
#include "bootclock.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "lease.h"
#include "object.h"
#include "packgive.h"
#include "promote.h"
#include "publish.h"
#include "put.h"
#include "room.h"
#include "stub.h"
#include "stubs.h"
#include "sys.h"
#include "tierstore.h"

struct sizes {
	uint64_t header_size, buffer_size;
};

/* The sizes of the object that the lease holds, from its own header. */
static int read_sizes(struct shmstore *s, const char *lease, struct sizes *t)
{
	struct shms_header h;
	struct shms_stub stub;
	struct stat st;
	int r;
	_fd_ int fd = shms_open_object(s->dir_fd, lease);

	if (fd == -ELOOP) {
		r = shms_stub_read(s->dir_fd, lease, &stub, NULL);
		t->header_size = stub.header_size;
		t->buffer_size = stub.buffer_size;
		return r;
	}
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = shms_header_read(&h, fd, &st, NULL);
	if (r < 0)
		return r;
	t->header_size = h.object.layout.header_size;
	t->buffer_size = h.object.layout.buffer_size;
	shms_header_deinit(&h);
	return 0;
}

static int handoff(struct shmstore *s, struct shms_keyname *k, const char *lease, struct sizes *t)
{
	struct shms_recent_entry *known;
	int r;

	/* Sizes and link under one lock: they are of the same file. */
	shms_fairlock_share(&s->names);
	r = shms_key_find(s->objects_fd, k);
	r = r < 0 ? r : 0;
	known = shms_recent_find(&s->recent, k->name);
	if (known) {
		t->header_size = known->header_size;
		t->buffer_size = known->buffer_size;
	}
	/* Before the link: from then on the file may come back under another name (links.h). */
	if (r == 0 && (!known || !atomic_load_explicit(&known->handed, memory_order_relaxed)))
		r = shms_links_handed(s, k->name);
	if (r == 0 && linkat(s->objects_fd, k->name, s->dir_fd, lease, 0) < 0) {
		r = -errno;
		if (r == -EACCES || r == -EPERM || r == -ENOSYS)
			shms_detail(shms_error(r), NULL, "%s in %s cannot be linked: linkat: %s", k->name, s->path,
				    strerror(-r));
	}
	if (r == 0 && known)
		atomic_store_explicit(&known->handed, true, memory_order_relaxed);
	else if (r == -ENOENT)
		shms_links_drop(s, k->name);
	shms_fairlock_release(&s->names);
	if (r < 0 || known)
		return r;
	r = read_sizes(s, lease, t);
	if (r == -ENOENT)
		return shms_detail(-ESTALE, NULL, "the lease had ended before it was seen");
	if (r < 0)
		unlinkat(s->dir_fd, lease, 0);
	return r;
}

/* A demoted object comes back first, once for all who will get it. Where there is no room it is handed over as it is. */
static int promote(struct shmstore *s, const struct shms_keyname *k)
{
	struct shms_tier_use u;
	int r;

	if (s->clean_fd < 0 || !shms_stub_is(s->objects_fd, k->name))
		return 0;
	r = shms_tier_use(s, s->objects_fd, k->name, &u);
	if (r < 0)
		return r;
	r = shms_promote(&(struct shms_promote){.t = u.t, .s = s, .name = k->name, .no_wait = true});
	shms_tier_unuse(&u);
	return shms_room_wanted(r) ? 0 : r;
}

int shms_handoff_lease(struct shmstore *s, struct shms_keyname *k, uint64_t lease_ms, bool as_is,
		       struct shmstore_ticket *ret)
{
	char lease[sizeof(SHMS_DIR_HANDOFF) + SHMS_LEASE_NAME_SIZE] = SHMS_DIR_HANDOFF "/";
	size_t length = strlen(s->path);
	size_t n = shms_lease_name(shms_now_boot_ms() + lease_ms, lease + sizeof(SHMS_DIR_HANDOFF));
	struct sizes t;
	int r;

	if (length + 1 + sizeof(SHMS_DIR_HANDOFF) + n >= sizeof(ret->path))
		return shms_detail(-EINVAL, NULL, "the store's path is too long for a ticket: %zu bytes", length);
	/* Its tickets name a file. */
	r = shms_put_as_file(s, k);
	if (r != 0)
		return r;
	r = shms_key_find(s->objects_fd, k);
	r = r < 0 || as_is ? r : promote(s, k);
	if (r >= 0)
		r = handoff(s, k, lease, &t);
	if (r < 0)
		return r;
	ret->header_size = t.header_size;
	ret->buffer_size = t.buffer_size;
	snprintf(ret->path, sizeof(ret->path), "%s/%s", s->path, lease);
	return 0;
}

int shmstore_handoff(struct shmstore *s, const void *key, size_t key_size, uint64_t lease_ms,
		     struct shmstore_ticket *ret)
{
	return shmstore_handoff_flags(s, key, key_size, lease_ms, 0, ret);
}

/* 1: the packed object is leased where it is; 0: its file is to be. */
static int handoff_packed(struct shmstore *s, const struct shms_keyname *k, uint64_t lease_ms,
			  struct shmstore_ticket *ret)
{
	size_t n = strlen(s->p->path);
	struct shms_segpacked o;

	if (n + 1 >= sizeof(ret->path) ||
	    shms_packed_handoff(s, k, lease_ms, ret->path + n + 1, sizeof(ret->path) - n - 1, &o) != 1)
		return 0;
	memcpy(ret->path, s->p->path, n);
	ret->path[n] = '/';
	ret->header_size = shms_pack_header_size(&o);
	ret->buffer_size = o.buffer_size;
	return 1;
}

/* Not ours to link: another user's, that was handed to us. */
static SHMS_ASIDE int handoff_received(struct shmstore *s, const struct shms_keyname *k, uint64_t lease_ms,
				       struct shmstore_ticket *ret)
{
	struct shmstore_ticket received;
	int r = shms_handoff_received(s, k, lease_ms, &received);

	if (r == 0)
		*ret = received;
	return r;
}

int shmstore_handoff_flags(struct shmstore *s, const void *key, size_t key_size, uint64_t lease_ms, unsigned flags,
			   struct shmstore_ticket *ret)
{
	struct shms_keyname k;
	int r;

	if (!ret || lease_ms == 0 || lease_ms > SHMSTORE_LEASE_MAX || (flags & ~SHMSTORE_AS_IS))
		return !ret                      ? shms_detail_null("ret")
		       : flags & ~SHMSTORE_AS_IS ? shms_detail_flags(flags, SHMSTORE_AS_IS)
						 : shms_detail(-EINVAL, NULL, "a lease is for 1 to %llu ms, not %llu",
							       SHMSTORE_LEASE_MAX, (unsigned long long)lease_ms);
	r = shms_keyname_key(&k, key, key_size);
	if (r < 0)
		return r;
	shms_packgive(s);
	r = handoff_packed(s, &k, lease_ms, ret);
	if (r == 0) {
		shms_keyname_name(&k);
		r = shms_handoff_lease(s, &k, lease_ms, (flags & SHMSTORE_AS_IS) != 0, ret);
	}
	if (r == -EPERM)
		r = handoff_received(s, &k, lease_ms, ret);
	if (r < 0)
		return shms_error(r);
	shms_count(&s->ledger->handoff_n, 1);
	shms_count(&s->ledger->handoff_bytes, ret->header_size + ret->buffer_size);
	return 0;
}
