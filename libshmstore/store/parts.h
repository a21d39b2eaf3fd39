/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h: the functions that this room's files call of each other, and actor/ of them. */
#ifndef SHMS_PARTS_H
#define SHMS_PARTS_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct shms_handle;
struct shms_keyname;
struct shms_view_file;

/*
 * acquire.c: makes the located store (parent_fd, base, path), or takes over that of an owner who
 * died, and opens its directories: whose lock its page has, owns it. May be called again after an
 * error. 0; -EBUSY: a live process holds it; -EPERM: another user's, or no directory; -ENOSPC;
 * others of the file system.
 */
int shms_acquire(struct shmstore *s, const struct shmstore_options *o);
/* Opens the three directories in dir_fd; makes those that are missing where
 * create says so. 0 or -errno. */
int shms_acquire_dirs(struct shmstore *s, bool create);

/* peer.c: removes our address, if it is still ours. */
void shms_peer_withdraw(struct shmstore *s);

/*
 * daemon.c: the store meets the daemon, as mode (SHMSTORE_DAEMON_*) and $SHMSTORE_DAEMON say. 0, or
 * -ETIMEDOUT with SHMSTORE_DAEMON_REQUIRED where no daemon took the store in.
 */
int shms_daemon_open(struct shmstore *s, unsigned mode);

/*
 * atfork.c: a forked child gives up every store of its parent at once: the lock, so that the
 * parent's death is seen, and every descriptor that would keep the parent's memory alive. From here
 * on a fork in any thread finds the store, until shms_ours_del(); before anything of it is locked.
 */
void shms_atfork_add(struct shms_handle *h);
/* The descriptors that the handle owns. */
void shms_atfork_close_fds(struct shms_handle *h);

/* writer.c: private memory that writers keep for the next small object: it goes with the handle. */
void shms_writer_deinit(struct shmstore *s);

/*
 * alias.c: bytes that are an object already become a second name of it. flags: of the put.
 * SHMSTORE_CHECKSUM: only an object that has one will do. 1: done; 0: no alias, put it; -errno:
 * -EEXIST.
 */
int shms_alias_try(struct shmstore *s, struct shms_keyname *k, const void *header,
		   size_t header_size, const struct iovec *buffers, size_t n_buffers,
		   unsigned flags);
/* Makes a packed object a file under the same key, for operations that only files have. Returns 0
 * if the key names no packed object afterwards, or no object at all; an outcome of the arbiter
 * (> 0); -errno as a put does. */
int shms_put_as_file(struct shmstore *s, const struct shms_keyname *k);

/*
 * peek.c: packed objects of a store for handles that can only read: by its index and a place in
 * its segments (packread.c), or where that cannot be by a look at all slots; and for lists.
 */
/* Of a copy where the reader can have no place. 0, -ENOENT, -EPERM, -ENOMEM, … */
int shms_peek_get(struct shmstore *s, const struct shms_keyname *k, unsigned flags,
		  struct shmstore_view **ret);
/* 1; 0: the store had no such packed object at some moment of the call; -errno. */
int shms_peek_has(struct shmstore *s, const struct shms_keyname *k);

/*
 * A handle that only reads means a name. If the store that it found is gone, and another one has
 * the name, it goes on with that.
 *
 * After a look that found nothing, or before a list. *ret_renewed: the handle means another store
 * than before: look again. Views of the former one stay valid. 0; -ENOENT: the store is gone, and
 * nobody has its name; -EMFILE, ...
 */
int shms_renew(struct shmstore *s, bool *ret_renewed);

/* A demoted object comes back to memory, once for all stores that hold its stub; and the
 * tier that it is in. */

/* The tier of the user whose object or stub the name in objects/ means; shms_tier_done() is due. 0;
 * as shms_tier_open(), but of a stub -EBADMSG or -EIO where it has no tier. */
int shms_tier_use(struct shmstore *s, const char *name, struct shms_tier **ret);

struct shms_promote {
	/* whose name it is; its credit is charged where it is the owner's handle */
	struct shmstore *s;
	const char *name; /* in objects/ */
	bool no_evict;
	bool no_wait;               /* where the arbiter would have it wait: -ENOSPC */
	struct shms_engine *engine; /* NULL: one of the tier's */
};

/* 0: the name means an object in memory now (or did a moment ago); -ENOENT: no such name;
 * else as shmstore_promote(). */
int shms_promote(const struct shms_promote *p);
/*
 * A demoted object for a get. ret->fd -1: it is in memory now, open it. Else its bytes are there,
 * at ret->offset, size of them: in the tier file itself, where that is raw and there is no room, or
 * the store is not to be changed; or in a copy in private memory. 0, or as shmstore_get().
 */
int shms_promote_fetch(struct shmstore *s, const char *name, struct shms_view_file *ret,
		       uint64_t *ret_size);

#endif
