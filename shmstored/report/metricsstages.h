/* SPDX-License-Identifier: Apache-2.0 */
/* metricsstages.h: stage profiles as metrics, for each partition. */
#ifndef METRICSSTAGES_H
#define METRICSSTAGES_H

#include "metricswrite.h"

struct account;

/* Where stage profiles are off nothing is written. */
void metricsstages_write(const struct metric_out *o, const struct account *accounts);

#endif
