/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packread.h: another store's packed objects for a process of the same user that only reads them
 * (docs/segments.md "Readers").
 *
 * A reader finds keys by the store's own index, and takes a place in each segment where it finds an
 * object: a holder that has views, and never a name. It is a struct shms_pack without names, so
 * that views, forks and the end of both are those of any store.
 * Threads: any. Views go to shms_pack_unget(), and the reader to shms_pack_close().
 */
#ifndef SHMS_PACKREAD_H
#define SHMS_PACKREAD_H

#include "pack.h"

/*
 * options: of the store that is read: uuid, root_fd, path. No directory is kept open. former: NULL,
 * or the reader before this one, which is closed with it. 0, -ENOMEM.
 */
int shms_packread_open(const struct shms_pack_options *options, struct shms_pack *former,
		       struct shms_pack **ret);
/*
 * The store is gone, or this process is a child that has another reader: no more is found by this
 * one, but its views stay. Gives back what has none.
 */
void shms_packread_end(struct shms_pack *p);
bool shms_packread_ended(const struct shms_pack *p);
/*
 * ret: NULL: for an answer alone. 0: *ret is to be given back; -ENOENT: at some moment of the call
 * the store had no packed object of that key; -ENOTSUP: it has no index that this process may map,
 * or the object's segment has no place for it: shms_packlook() tells; -ESTALE: after _end(), or in
 * a child; -ETIMEDOUT: the store changed without an end; -ENOMEM, -EMFILE, -EBADMSG.
 */
int shms_packread_get(struct shms_pack *p, const void *key, size_t key_size,
		      struct shms_pack_view *ret);
/* Takes an object's view, which is given back when it returns; the segment's inode; how many names
 * in stores and leases the object has. */
typedef int shms_packread_fn(const struct shms_pack_view *v, uint64_t inode, uint64_t n_links,
			     void *arg);
/*
 * Calls fn for each key that the store has, once, until fn returns another value than 0, which is
 * returned. Keys that come or go meanwhile may be there or not. *io_from, at first 0: of keys with
 * a lower hash (its lower 32 bits) all are told. 0, or as _get().
 */
int shms_packread_each(struct shms_pack *p, uint64_t *io_from, shms_packread_fn *fn, void *arg);

#endif
