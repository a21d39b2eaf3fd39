/* SPDX-License-Identifier: Apache-2.0 */
/* peer_python.h: multiprocessing.shared_memory between two Python processes (peer_python.py),
 * which take their own times. */
#ifndef BENCH_PEER_PYTHON_H
#define BENCH_PEER_PYTHON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct peer_python {
	pid_t pid;
	FILE *to, *from;
	char reason[160];
};

/* 0 or -errno with a reason. */
int peer_python_start(struct peer_python *p);
/* One cycle, or one put and drop without the consumer ("put"): ns of all, ns of the put. */
int peer_python_run(struct peer_python *p, const char *what, size_t size, uint64_t *ret_all_ns,
		    uint64_t *ret_put_ns);
void peer_python_stop(struct peer_python *p);

#endif
