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

/* Of pack.c, for packput.c, packshare.c, packalias.c and packvictim.c. The pack's lock is held. */
bool shms_pack_find(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace *ret);
/* Hashes the key and finds it; neither, if it is the last one (packsegs.h). */
bool shms_pack_seek(struct shms_pack *p, const void *key, size_t key_size,
		    struct shms_packhashed *ret_key, struct shms_packplace *ret);
/* The same, and the place of the object that the key means, where the
 * key's own place is an alias. */
bool shms_pack_find_object(struct shms_pack *p, const void *key, size_t key_size,
			   struct shms_packplace *ret);
/* The store has got that slot by name, or gives it up. _lose() returns its bytes. */
void shms_pack_gain(struct shms_pack *p, struct shms_packplace place);
uint64_t shms_pack_lose(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms);
/* Before _name(), which cannot fail. 0, -ENOMEM. */
int shms_pack_reserve(struct shms_pack *p);
/* Others find the index, if it is a file; or that there is none. Does nothing while names are read.
 * _share() makes it a file first. */
void shms_pack_publish(struct shms_pack *p);
void shms_pack_share(struct shms_pack *p);
/* The key means that slot, or no more; then what nobody else of the store
 * needs goes. Returns its bytes. */
void shms_pack_name(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace place);
uint64_t shms_pack_unname(struct shms_pack *p, const struct shms_packhashed *key,
			  struct shms_packplace place, uint64_t now_ms);
/* The key, which meant old where that is not NULL, means that slot. Killed before the old one goes,
 * the key has two: the index says which of them readers have found. */
void shms_pack_rename(struct shms_pack *p, const struct shms_packhashed *key,
		      const struct shms_packplace *old, struct shms_packplace place,
		      uint64_t now_ms);
/*
 * Around a call in which a key may get another slot: whoever looks at all slots, without the index,
 * may miss it in both, and looks again. The lock is held.
 */
void shms_pack_changing(struct shms_pack *p);
void shms_pack_changed(struct shms_pack *p);
/* Of packput.c. Puts the object into any segment of the store's. p->grow says what
 * it may take. 0; -ENOSPC, … */
int shms_pack_place(struct shms_pack *p, const struct shms_segobject *what, uint64_t now_ms,
		    struct shms_packplace *ret);
/* Describes the object, and counts a view of it. 0, -EBADMSG, -ENOMEM. */
int shms_pack_view(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret);

#endif
