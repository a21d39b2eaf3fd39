/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packfork.h: packed objects and fork(). A child inherits views, and the parent must know how long
 * the child may use them: each segment with live views has a byte that the children lock together.
 * The process that forks calls these functions, itself or by handlers of pthread_atfork().
 */
#ifndef SHMS_PACKFORK_H
#define SHMS_PACKFORK_H

#include "packsegs.h"

/*
 * prepare, before the fork, takes the pack's lock, and takes the byte's lock for the children.
 * parent gives both back. In the child only views are left.
 */
void shms_pack_fork_prepare(struct shms_pack *p);
void shms_pack_fork_parent(struct shms_pack *p);

/* Of pack.c, for packshare.c and packvictim.c. The pack's lock is held. */
bool shms_pack_find(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace *ret);
/* The store has got the name of that object, or gives it up. */
void shms_pack_name(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace place);
/* Returns the object's bytes. */
uint64_t shms_pack_unname(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace place,
			  uint64_t now_ms);
/* 0, -EBADMSG. */
int shms_pack_describe(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret);

#endif
