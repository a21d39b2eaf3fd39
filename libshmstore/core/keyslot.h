/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyslot.h: under which of its two names a long key is in objects/. XXH3-128, which names it, is fast and no cryptographic hash: who may choose
 * keys can make two of one hash. The first of them has the usual name, any other its second one (name.h). A key is under one of the two at most.
 */
#ifndef SHMS_KEYSLOT_H
#define SHMS_KEYSLOT_H

#include "publish.h"

/* Sets k->name to the name that the key is under; where it is under none, to the one that it is to
 * get. Names that are no hashes stay, unasked: of those the answer is 1. The answer holds as long
 * as the names lock is held; without it, until it is used, at best. 1: it is there; 0: it is not;
 * -errno. A name whose key is damaged beyond recognition counts as this key's. */
int shms_key_find(int objects_fd, struct shms_keyname *k);

#endif
