/* SPDX-License-Identifier: Apache-2.0 */
/* metricspressure.h: the host's memory and its gate as metrics. What is unknown has no sample: it is not 0. */
#ifndef METRICSPRESSURE_H
#define METRICSPRESSURE_H

#include "metricswrite.h"

struct host;

/* Where memory is not watched nothing is written. */
void metricspressure_write(const struct metric_out *o, const struct host *h);

#endif
