/* SPDX-License-Identifier: Apache-2.0 */
/* metricsself.h: process_*: what the daemon itself takes. */
#ifndef METRICSSELF_H
#define METRICSSELF_H

#include <stdint.h>

#include "metricswrite.h"

/* started_ns: CLOCK_REALTIME. */
void metricsself_write(const struct metric_out *o, int64_t started_ns);

#endif
