/* SPDX-License-Identifier: Apache-2.0 */
/* crowdops.h: does one thread get its turn among many that use the same store? */
#ifndef BENCH_CROWDOPS_H
#define BENCH_CROWDOPS_H

#include "place.h"
#include "report.h"

/* 32 threads that hand off one object, and a 33rd that puts; 32 that put, and a
 * 33rd that gets. All CPUs. */
void crowdops_run(struct report *r, const struct report_options *options,
		  const struct place *place);

#endif
