/* SPDX-License-Identifier: Apache-2.0 */
/* metricsself.h: process_*: what the daemon itself takes. */
#ifndef METRICSSELF_H
#define METRICSSELF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* open: as OpenMetrics, else Prometheus's older text. started_ns: CLOCK_REALTIME. */
void metricsself_write(FILE *out, bool open, int64_t started_ns);

#endif
