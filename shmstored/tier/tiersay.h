/* SPDX-License-Identifier: Apache-2.0 */
/* tiersay.h: what became of a piece of work on the disk tier, as events. Users' names
 * and keys are not in them. */
#ifndef TIERSAY_H
#define TIERSAY_H

#include <stdint.h>

struct account;
struct tierwork;

/* An eviction demoted something. */
void tiersay_demoted(struct account *a, const struct tierwork *w);
/* An eviction ended for want of disk; tried again after retry_ns. */
void tiersay_disk_full(struct account *a, const struct tierwork *w, uint64_t retry_ns);
/* A tier file, or the disk below it, is damaged. path: NULL or "": not known, or no
 * memory for it. error: -errno. */
void tiersay_damage(struct account *a, const char *path, const char *what, int error);

/*
 * Stores with packed objects are told that room is needed: only their own processes can give these
 * up (docs/segments.md "Packed objects and the disk tier").
 *
 * need: bytes that are to go, of used (not 0). Each registered store is asked for its packed
 * objects' share, by its page and by a message, which wakes an event loop. The eviction's own
 * asking (libshmstore/evict/packgive.h) finds it done, and waits for what is given.
 */
void tierask(struct account *a, uint64_t need, uint64_t used);

#endif
