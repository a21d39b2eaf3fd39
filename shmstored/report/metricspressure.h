/* SPDX-License-Identifier: Apache-2.0 */
/* metricspressure.h: metrics of the host's memory and its gate. Unknown values have no sample. */
#ifndef METRICSPRESSURE_H
#define METRICSPRESSURE_H

#include "metricswrite.h"

struct host;

/* Where memory is not watched nothing is written. */
void metricspressure_write(struct metric_out *o, const struct host *h);

#endif
