/* SPDX-License-Identifier: Apache-2.0 */
/* arbrate.h: how many messages the arbiter's core takes per second, from many contexts at once,
 * as the pool gets tighter. */
#ifndef BENCH_ARBRATE_H
#define BENCH_ARBRATE_H

#include <stdint.h>

struct arbrate_options {
	uint32_t n_contexts; /* each with a task of its own */
	uint64_t pool_bytes;
	uint64_t n_warm, n_messages;
	uint64_t seed;
};

struct arbrate_result {
	uint64_t ns;         /* that n_messages took, making them included */
	uint64_t n_messages; /* those of the last whole round of a context included */
	uint64_t n_withheld, n_replies, n_retries, n_splits;
	double parked; /* contexts, on average */
};

/* Bytes that all contexts together hold on average if nobody ever waits. */
uint64_t arbrate_demand(uint32_t n_contexts);
/* 0 or -errno; -EPROTO: the core answered what it must not. */
int arbrate_run(const struct arbrate_options *o, struct arbrate_result *ret);

#endif
