/* SPDX-License-Identifier: Apache-2.0 */
/* side.h: what src/lib.rs has for C. An int: 0, or -1. */
#ifndef BENCH_ICEORYX2_SIDE_H
#define BENCH_ICEORYX2_SIDE_H

#include <stddef.h>
#include <stdint.h>

struct iceoryx2_side; /* a process's own */

/* The files by which the two sides find each other lie in directory. NULL: it did not work. */
struct iceoryx2_side *iceoryx2_open(const char *directory);
int iceoryx2_subscribe(struct iceoryx2_side *side);
int iceoryx2_publish(struct iceoryx2_side *side, size_t size_max);
/* Copies an object into the publisher's memory; then it is sent, or dropped. */
int iceoryx2_put(struct iceoryx2_side *side, const void *data, size_t size);
int iceoryx2_send(struct iceoryx2_side *side);
void iceoryx2_drop(struct iceoryx2_side *side);
/* Gives look what was sent last, and lets it go. */
int iceoryx2_take(struct iceoryx2_side *side, uint64_t (*look)(const void *bytes, size_t size));
/* Removes as well what the other side left, which is gone. NULL is fine. */
void iceoryx2_close(struct iceoryx2_side *side);

#endif
