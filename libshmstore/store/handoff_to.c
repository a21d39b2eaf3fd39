/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff_to.c: handoffs that take the daemon's hands: to another user, and of a file that is another user's.
 *
 * To another user: the daemon moves a lease from our handoff/ into the receiver's inbox if the
 * operator's rules allow it, and makes it readable there; the file's other bytes are cleared before
 * (scrub.c). A refusal leaves no lease behind; a reply that is late leaves the lease with the
 * receiver or nowhere.
 * Of another user's file: the kernel lets only its owner link it (fs.protected_hardlinks), so the
 * daemon makes a lease in our inbox for a second store of ours. Inodes tell whether the daemon
 * found the same file: another thread may replace the object. Only its owner hands it on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "handoff.h"
#include "lease.h"
#include "nameslock.h"
#include "object.h"
#include "publish.h"
#include "scrub.h"
#include "stubs.h"
#include "sys.h"

/* The daemon's lease as a path of ours: its partition may be mounted elsewhere than ours, so that only the name is taken. */
static int inbox_path(const struct shmstore *s, uid_t uid, const char *reply, char ret_path[SHMSTORE_TICKET_PATH])
{
	const char *lease = strrchr(reply, '/');
	uint64_t expiry;
	int n;

	if (!lease || !shms_lease_parse(lease + 1, &expiry))
		return -EBADMSG;
	n = snprintf(ret_path, SHMSTORE_TICKET_PATH, "%s/" SHMS_DIR_INBOX "/%u/" SHMS_DIR_HANDOFF "%s", s->p->path,
		     (unsigned)uid, lease);
	return n < SHMSTORE_TICKET_PATH ? 0 : -EINVAL;
}

static int no_daemon(void)
{
	return shms_detail(-EPERM, NULL,
			   "no shmstored is connected, and only it moves an object between users; start it as root");
}

/* Asks for path to be moved (lease_ms: linked) into uid's inbox; io_path becomes the lease's there. */
static int broker(struct shmstore *s, uid_t uid, uint32_t lease_ms, char io_path[SHMSTORE_TICKET_PATH])
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
	int r = shms_attach_call(&s->attach, &call, &reply);

	/* Gone, or there and silent? */
	if (r < 0)
		return shms_attach_again(&s->attach)
			       ? shms_detail(-ETIMEDOUT, NULL, "shmstored is there and does not answer")
			       : no_daemon();
	if (reply.type == WIRE_REFUSED)
		return shms_detail(reply.body.refused.error < 0 ? reply.body.refused.error : -EPERM, NULL,
				   "shmstored refuses: %s", reply.tail);
	return inbox_path(s, uid, reply.tail, io_path);
}

int shmstore_handoff_to(struct shmstore *s, const void *key, size_t key_size, uid_t receiver, uint64_t lease_ms,
			struct shmstore_ticket *ret)
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
			    : shms_detail(-EINVAL, NULL, "a lease for another user is for 1 to %u ms, not %llu",
					  WIRE_BROKER_LEASE, (unsigned long long)lease_ms);
	r = shms_keyname_init(&k, key, key_size);
	if (r < 0)
		return r;
	if (!shms_attach_needed(&s->attach))
		return no_daemon();
	r = shms_handoff_lease(s, &k, lease_ms, false, &t);
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

/* The file under the key, and its sizes. */
static int find_received(struct shmstore *s, const struct shms_keyname *k, struct stat *ret_st,
			 struct shmstore_ticket *ret)
{
	struct shms_header h;
	int r;

	_fd_ int fd = shms_names_open(s, k->name);
	if (fd < 0)
		return fd;
	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (ret_st->st_uid == s->uid)
		return shms_detail(-EPERM, NULL, "%s in %s cannot be linked: linkat: %s", k->name, s->path,
				   strerror(EPERM));
	r = shms_header_read(&h, fd, ret_st, NULL);
	if (r < 0)
		return r;
	ret->header_size = h.object.layout.header_size;
	ret->buffer_size = h.object.layout.buffer_size;
	shms_header_deinit(&h);
	return 0;
}

int shms_handoff_received(struct shmstore *s, const struct shms_keyname *k, uint64_t lease_ms,
			  struct shmstore_ticket *ret)
{
	struct stat mine, leased;
	int n, r;

	r = find_received(s, k, &mine, ret);
	if (r < 0)
		return r;
	if (lease_ms > WIRE_BROKER_LEASE)
		return shms_detail(-EINVAL, NULL, "a lease of another user's object is for %u ms at most",
				   WIRE_BROKER_LEASE);
	if (!shms_attach_needed(&s->attach))
		return no_daemon();
	n = snprintf(ret->path, sizeof(ret->path), "%s/" SHMS_DIR_OBJECTS "/%s", s->path, k->name);
	if (n >= (int)sizeof(ret->path))
		return shms_detail(-EINVAL, NULL, "the store's path is too long for a ticket");
	r = broker(s, s->uid, (uint32_t)lease_ms, ret->path);
	if (r < 0)
		return r;
	if (fstatat(AT_FDCWD, ret->path, &leased, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? shms_detail(-ESTALE, NULL, "the lease of %u ms had ended before it was seen",
						     (unsigned)lease_ms)
				       : -errno;
	if (leased.st_ino != mine.st_ino || leased.st_dev != mine.st_dev) {
		unlinkat(AT_FDCWD, ret->path, 0);
		return -ENOENT;
	}
	return 0;
}
