/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h: whether more work may begin on a host, and how much of it, so that a burst closes the gate at once and a single quiet look
 * does not open it again.
 *
 *   open -> closed   u >= high, where u is the larger of the last sample and of the window's 95th percentile
 *   closed -> open   u <= low in `hold` samples that follow each other
 *
 * After opening, ramp0 may begin within an interval, and in each further one twice as many, up to rampmax. Between low and high
 * nothing changes. A sample that is unknown changes nothing either, but what follows it does not follow what was before it. Pure, no
 * allocation; samples come at equal intervals, which the caller keeps.
 */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "amount.h"

#define GATE_WINDOW_MAX 256u

struct gate_config {
	int64_t high, low;       /* bytes, 0 <= low < high */
	uint32_t window, hold;   /* samples: 1 to GATE_WINDOW_MAX; at least 1 */
	uint64_t ramp0, rampmax; /* 1 <= ramp0 <= rampmax */
};

struct gate {
	struct gate_config config;
	bool closed;
	int64_t samples[GATE_WINDOW_MAX]; /* a ring: the last n_samples, next is the oldest of a full one */
	uint32_t n_samples, next;
	int64_t u;      /* of the last sample that was known */
	uint32_t n_low; /* while closed: samples at or below low, one after the other */
	uint64_t ramp;  /* while open */
	uint64_t n_flips, n_unknown;
};

/* What applies where nothing is said. high in bytes; total: the host's, of which a tenth lies between high and low. */
struct gate_config gate_defaults(int64_t total, int64_t high);
/* Open, and fully so. -EINVAL: the configuration is outside of its bounds. */
int gate_init(struct gate *g, const struct gate_config *config);
/* Other thresholds for a gate that works; what it has seen stays. -EINVAL as above. */
int gate_set(struct gate *g, const struct gate_config *config);
void gate_sample(struct gate *g, struct amount used);
/*
 * How many may begin within this interval. estimate: bytes that each may take; where that is known and not 0, there are never more than fit
 * below high.
 */
uint64_t gate_quota(const struct gate *g, struct amount estimate);

#endif
