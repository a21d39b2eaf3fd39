/* SPDX-License-Identifier: Apache-2.0 */
/* metricsactors.h: actors as metrics. */
#ifndef METRICSACTORS_H
#define METRICSACTORS_H

#include "metricswrite.h"

struct actors;

/* NULL, where there never was one: nothing is written. */
void metricsactors_write(struct metric_out *o, const struct actors *a);

#endif
