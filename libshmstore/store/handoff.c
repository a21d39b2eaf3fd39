/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff.c: a leased link of its own for the receiver, and the triplet that says where it is.
 *
 * An inode whose last name is gone cannot be linked again, so the ticket names a link that exists:
 * whatever becomes of the donor's key or of the donor, the receiver finds it until the lease ends.
 * Killed after the link: a lease that nobody knows of, which gc ends in its time.
 *
 * Two handoffs take the daemon's hands. To another user: it moves a lease from our handoff/ into
 * the receiver's inbox if the operator's rules allow it, and makes it readable there; the file's
 * other bytes are cleared before (scrub.c). A refusal leaves no lease behind; a reply that is
 * late leaves the lease with the receiver or nowhere. Of another user's file: the kernel lets only
 * its owner link it (fs.protected_hardlinks), so the daemon makes a lease in our inbox for a second
 * store of ours. Inodes tell whether the daemon found the same file: another thread may replace the
 * object. Only its owner hands it on.
 */
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "cleanup.h"
#include "detail.h"
#include "filemode.h"
#include "nameslock.h"
#include "object.h"
#include "packed.h"
#include "packgive.h"
#include "parts.h"
#include "publish.h"
#include "room.h"
#include "sys.h"
#include "tierformat.h"
#include "wire.h"

struct sizes {
	uint64_t header_size, buffer_size;
};

static int header_sizes(int fd, const struct stat *st, struct sizes *t)
{
	struct shms_header h;
	int r = shms_header_read(&h, fd, st, NULL);

	if (r < 0)
		return r;
	*t = (struct sizes){h.object.layout.header_size, h.object.layout.buffer_size};
	shms_header_deinit(&h);
	return 0;
}

/* The sizes of the object that the lease holds, from its own header. */
static int read_sizes(struct shmstore *s, const char *lease, struct sizes *t)
{
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
	return header_sizes(fd, &st, t);
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
	if (r == 0) {
		r = shms_link_name(s->objects_fd, k->name, s->dir_fd, lease);
		if (r == -EACCES || r == -EPERM || r == -ENOSYS)
			shms_detail(shms_error(r), NULL, "%s in %s cannot be linked: linkat: %s",
				    k->name, s->path, strerror(-r));
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

/* A demoted object comes back first, once for all who will get it. Where there is no room
 * it is handed over as it is. */
static int promote(struct shmstore *s, const struct shms_keyname *k)
{
	int r;

	if (s->clean_fd < 0 || !shms_stub_is(s->objects_fd, k->name))
		return 0;
	r = shms_promote(&(struct shms_promote){.s = s, .name = k->name, .no_wait = true});
	return shms_room_wanted(r) ? 0 : r;
}

/*
 * A lease in s's own handoff/ and its ticket. As shmstore_handoff(); -EPERM: the file is another
 * user's, and cannot be linked. as_is: a demoted object is not promoted first.
 */
static int handoff_lease(struct shmstore *s, struct shms_keyname *k, uint64_t lease_ms, bool as_is,
			 struct shmstore_ticket *ret)
{
	char lease[sizeof(SHMS_DIR_HANDOFF) + SHMS_LEASE_NAME_SIZE] = SHMS_DIR_HANDOFF "/";
	size_t length = strlen(s->path);
	size_t n = shms_lease_text(shms_now_boot_ms() + lease_ms, shms_nonce(),
				   lease + sizeof(SHMS_DIR_HANDOFF));
	struct sizes t;
	int r;

	if (length + 1 + sizeof(SHMS_DIR_HANDOFF) + n >= sizeof(ret->path))
		return shms_detail(-EINVAL, NULL,
				   "the store's path is too long for a ticket: %zu bytes", length);
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

/* ---- by the daemon's hands ------------------------------------------------------------------- */

/* The daemon's lease as a path of ours: its partition may be mounted elsewhere than ours, so
 * that only the name is taken. */
static int inbox_path(const struct shmstore *s, uid_t uid, const char *reply,
		      char ret_path[SHMSTORE_TICKET_PATH])
{
	const char *lease = strrchr(reply, '/');
	uint64_t expiry;
	int n;

	if (!lease || !shms_lease_parse(lease + 1, &expiry))
		return -EBADMSG;
	n = snprintf(ret_path, SHMSTORE_TICKET_PATH,
		     "%s/" SHMS_DIR_INBOX "/%u/" SHMS_DIR_HANDOFF "%s", s->p->path, (unsigned)uid,
		     lease);
	return n < SHMSTORE_TICKET_PATH ? 0 : -EINVAL;
}

static int no_daemon(void)
{
	return shms_detail(-EPERM, NULL,
			   "no shmstored is connected, and only it moves an object between users; "
			   "start it as root");
}

/* Asks for path to be moved (lease_ms: linked) into uid's inbox; io_path
 * becomes the lease's there. */
static int broker(struct shmstore *s, uid_t uid, uint32_t lease_ms,
		  char io_path[SHMSTORE_TICKET_PATH])
{
	struct wire_broker body = {.to_uid = uid, .lease_ms = lease_ms};
	struct shms_call call = {
		.type = WIRE_BROKER,
		.answer = WIRE_BROKERED,
		.body = &body,
		.tail = io_path,
		.tail_size = strlen(io_path),
	};
	struct shms_reply reply;
	int r = shms_attach_call(shms_attach_of(s), &call, &reply);

	/* Gone, or there and silent? */
	if (r < 0)
		return shms_attach_again(shms_attach_of(s))
			       ? shms_detail(-ETIMEDOUT, NULL,
					     "shmstored is there and does not answer")
			       : no_daemon();
	if (reply.type == WIRE_REFUSED)
		return shms_detail(reply.body.refused.error < 0 ? reply.body.refused.error : -EPERM,
				   NULL, "shmstored refuses: %s", reply.tail);
	return inbox_path(s, uid, reply.tail, io_path);
}

/* The file under the key, and its sizes. */
static int find_received(struct shmstore *s, const struct shms_keyname *k, struct stat *ret_st,
			 struct sizes *ret)
{
	_fd_ int fd = shms_names_open(s, k->name);
	if (fd < 0)
		return fd;
	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (ret_st->st_uid == s->uid)
		return shms_detail(-EPERM, NULL, "%s in %s cannot be linked: linkat: %s", k->name,
				   s->path, strerror(EPERM));
	return header_sizes(fd, ret_st, ret);
}

/* Of a file that another user handed to ours: the daemon makes the lease, in our
 * own inbox. -EPERM: alone. */
static SHMS_ASIDE int lease_received(struct shmstore *s, const struct shms_keyname *k,
				     uint64_t lease_ms, struct shmstore_ticket *ret)
{
	struct stat mine, leased;
	struct shmstore_ticket t;
	struct sizes sizes = {0};
	int n, r;

	r = find_received(s, k, &mine, &sizes);
	if (r < 0)
		return r;
	t.header_size = sizes.header_size;
	t.buffer_size = sizes.buffer_size;
	if (lease_ms > WIRE_BROKER_LEASE)
		return shms_detail(-EINVAL, NULL,
				   "a lease of another user's object is for %u ms at most",
				   WIRE_BROKER_LEASE);
	if (!shms_attach_needed(shms_attach_of(s)))
		return no_daemon();
	n = snprintf(t.path, sizeof(t.path), "%s/" SHMS_DIR_OBJECTS "/%s", s->path, k->name);
	if (n >= (int)sizeof(t.path))
		return shms_detail(-EINVAL, NULL, "the store's path is too long for a ticket");
	r = broker(s, s->uid, (uint32_t)lease_ms, t.path);
	if (r < 0)
		return r;
	if (fstatat(AT_FDCWD, t.path, &leased, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? shms_detail(-ESTALE, NULL,
					     "the lease of %u ms had ended before it was seen",
					     (unsigned)lease_ms)
			       : -errno;
	if (leased.st_ino != mine.st_ino || leased.st_dev != mine.st_dev) {
		unlinkat(AT_FDCWD, t.path, 0);
		return -ENOENT;
	}
	*ret = t;
	return 0;
}

/* ---- the calls ------------------------------------------------------------------------------- */

int shmstore_handoff(struct shmstore *s, const void *key, size_t key_size, uint64_t lease_ms,
		     struct shmstore_ticket *ret)
{
	return shmstore_handoff_flags(s, key, key_size, lease_ms, 0, ret);
}

/* 1: the packed object is leased where it is; 0: its file is to be. */
static int handoff_packed(struct shmstore *s, const struct shms_keyname *k, uint64_t lease_ms,
			  struct shmstore_ticket *ret)
{
	struct shms_pack *pack = shms_packed_pack(s);
	size_t n = strlen(s->p->path);
	struct shms_segpacked o;
	uint64_t now_ms;

	if (!pack || n + 1 >= sizeof(ret->path))
		return 0;
	/* A lease ends too late by what the time may be late, and never too early. */
	now_ms = lease_ms < 1000 ? shms_now_boot_ms() : shms_lately_boot_ms() + SHMS_BOOT_LATE_MS;
	if (shms_pack_handoff(pack, k->key, k->key_size, now_ms, lease_ms, ret->path + n + 1,
			      sizeof(ret->path) - n - 1, &o) != 0)
		return 0;
	memcpy(ret->path, s->p->path, n);
	ret->path[n] = '/';
	ret->header_size = shms_pack_header_size(&o);
	ret->buffer_size = o.buffer_size;
	return 1;
}

int shmstore_handoff_flags(struct shmstore *s, const void *key, size_t key_size, uint64_t lease_ms,
			   unsigned flags, struct shmstore_ticket *ret)
{
	struct shms_keyname k;
	int r;

	if (!ret || lease_ms == 0 || lease_ms > SHMSTORE_LEASE_MAX || (flags & ~SHMSTORE_AS_IS))
		return !ret ? shms_detail_null("ret")
		       : flags & ~SHMSTORE_AS_IS
			       ? shms_detail_flags(flags, SHMSTORE_AS_IS)
			       : shms_detail(-EINVAL, NULL, "a lease is for 1 to %llu ms, not %llu",
					     SHMSTORE_LEASE_MAX, (unsigned long long)lease_ms);
	r = shms_keyname_key(&k, key, key_size);
	if (r < 0)
		return r;
	shms_packgive(s);
	r = handoff_packed(s, &k, lease_ms, ret);
	if (r == 0) {
		shms_keyname_name(&k);
		r = handoff_lease(s, &k, lease_ms, (flags & SHMSTORE_AS_IS) != 0, ret);
	}
	if (r == -EPERM)
		r = lease_received(s, &k, lease_ms, ret);
	if (r < 0)
		return shms_error(r);
	shms_count(&s->ledger->handoff_n, 1);
	shms_count(&s->ledger->handoff_bytes, ret->header_size + ret->buffer_size);
	return 0;
}

int shmstore_handoff_to(struct shmstore *s, const void *key, size_t key_size, uid_t receiver,
			uint64_t lease_ms, struct shmstore_ticket *ret)
{
	struct shmstore_ticket t;
	struct shms_keyname k;
	char lease[sizeof(SHMS_DIR_HANDOFF) + SHMS_LEASE_NAME_SIZE];
	_fd_ int scrubbed = -1;
	int r;

	if (receiver == s->uid)
		return shmstore_handoff(s, key, key_size, lease_ms, ret);
	if (!ret || lease_ms == 0 || lease_ms > WIRE_BROKER_LEASE)
		return !ret ? shms_detail_null("ret")
			    : shms_detail(-EINVAL, NULL,
					  "a lease for another user is for 1 to %u ms, not %llu",
					  WIRE_BROKER_LEASE, (unsigned long long)lease_ms);
	r = shms_keyname_init(&k, key, key_size);
	if (r < 0)
		return r;
	if (!shms_attach_needed(shms_attach_of(s)))
		return no_daemon();
	r = handoff_lease(s, &k, lease_ms, false, &t);
	if (r < 0)
		return shms_error(r);
	snprintf(lease, sizeof(lease), SHMS_DIR_HANDOFF "%s", strrchr(t.path, '/'));
	/* There was no room to promote it, and it lies where the receiver may not read. */
	if (shms_stub_is(s->dir_fd, lease)) {
		shms_stub_drop(s, s->dir_fd, lease);
		return -ENOSPC;
	}
	r = shms_scrub(s, s->dir_fd, lease, &scrubbed);
	if (r == 0)
		r = broker(s, receiver, 0, t.path);
	if (r < 0) {
		/* Taken meanwhile by the daemon after all: then it is not there any more. */
		unlinkat(s->dir_fd, lease, 0);
		return shms_error(r);
	}
	shms_count(&s->ledger->handoff_n, 1);
	shms_count(&s->ledger->handoff_bytes, t.header_size + t.buffer_size);
	*ret = t;
	return 0;
}
