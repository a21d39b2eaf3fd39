/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packfork.h: packed objects and fork(). A child inherits views, and the parent must know as long as it may use them: each segment with live views has
 * a byte that children lock together. To be called by who forks, or by handlers of pthread_atfork().
 */
#ifndef SHMS_PACKFORK_H
#define SHMS_PACKFORK_H

#include "packsegs.h"

/* Before: takes the lock, and has children keep a lock. In the parent: gives both back. In the child: nothing but views is left. */
void shms_pack_fork_prepare(struct shms_pack *p);
void shms_pack_fork_parent(struct shms_pack *p);

/* pack.c, for packshare.c. The lock is held. */
bool shms_pack_find(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace *ret);
void shms_pack_unname(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace place,
		      uint64_t now_ms);

#endif
