/* SPDX-License-Identifier: Apache-2.0 */
/* gcpeer.h: what gc does with peers/. For gc's own modules. */
#ifndef SHMS_GCPEER_H
#define SHMS_GCPEER_H

struct shms_gc;

/* 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_peers(struct shms_gc *g);
/* The one of a store that is dead: only where it still leads to below. 0, fn's value, -ENOMEM. */
int shms_gc_peer_of(struct shms_gc *g, const char *address, const char *below);

#endif
