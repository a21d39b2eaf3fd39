/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierask.h: stores with packed objects are told that room is needed: only their own processes can give these up
 * (docs/segments.md "Packed objects and the disk tier").
 */
#ifndef TIERASK_H
#define TIERASK_H

#include <stdint.h>

struct account;

/*
 * need: bytes that are to go, of used (not 0). Each registered store is asked for its packed objects' share, by its page and by a message, which
 * wakes an event loop. The eviction's own asking (libshmstore/evict/packask.h) finds it done, and waits for what is given.
 */
void tierask(struct account *a, uint64_t need, uint64_t used);

#endif
