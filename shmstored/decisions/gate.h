/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h: decides whether more work may begin on a host, and how much. A burst closes the gate at
 * once; a single quiet look does not open it again.
 *
 *   open -> closed   u >= high, where u is the larger of the last sample and of the window's
 *                    95th percentile
 *   closed -> open   u <= low in `hold` samples that follow each other
 *
 * After opening, ramp0 tasks may begin within an interval, and in each further one twice as many,
 * up to rampmax. Between low and high nothing changes. A sample that is unknown changes nothing,
 * but interrupts a row of low samples. Pure, no allocation. The caller sees to it that samples come
 * at equal intervals.
 */
#ifndef GATE_H
#define GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "amount.h"

/*
 * Computes thresholds from how fast memory can fill. Between two looks a host may gain
 * rate * interval bytes unseen; delta is their share of its memory. Killing begins one delta below
 * the top, and admission ends one delta below that: one for what was not seen, one for the time
 * that the reaction takes.
 */
#define DELTARULE_KILL_PPM 950000 /* never higher than this */
#define DELTARULE_GATE_PPM 50000  /* below the kill threshold, at least */
#define DELTARULE_MOST_PPM 250000 /* a larger delta leaves no room to work in */

struct deltarule {
	int64_t delta_ppm, gate_ppm, kill_ppm;
	int64_t max_interval_ms; /* that keeps delta within DELTARULE_MOST_PPM; INT64_MAX: any */
};

/*
 * total: the host's bytes. rate: the most bytes a second that are touched for the first time.
 * interval_ms: between two looks. Return: 0; -EINVAL: total or interval_ms is not positive, or rate
 * is negative; -ERANGE: delta is too large, and only max_interval_ms is set.
 */
int deltarule_compute(int64_t total, int64_t rate, int64_t interval_ms, struct deltarule *ret);

#define GATE_WINDOW_MAX 256u

struct gate_config {
	int64_t high, low;       /* bytes, 0 <= low < high */
	uint32_t window, hold;   /* samples: 1 to GATE_WINDOW_MAX; at least 1 */
	uint64_t ramp0, rampmax; /* 1 <= ramp0 <= rampmax */
};

struct gate {
	struct gate_config config;
	bool closed;
	/* a ring: the last n_samples, next is the oldest of a full one */
	int64_t samples[GATE_WINDOW_MAX];
	uint32_t n_samples, next;
	int64_t u;      /* of the last sample that was known */
	uint32_t n_low; /* while closed: samples at or below low, one after the other */
	uint64_t ramp;  /* while open */
	uint64_t n_flips, n_unknown;
};

/*
 * The defaults. high is in bytes; total: the host's bytes, of which a tenth lies between high and
 * low.
 */
struct gate_config gate_defaults(int64_t total, int64_t high);
/* Makes an open gate, with the full ramp. -EINVAL: the configuration is out of bounds. */
int gate_init(struct gate *g, const struct gate_config *config);
/* Gives a gate other thresholds; it keeps its samples. -EINVAL as above. */
int gate_set(struct gate *g, const struct gate_config *config);
void gate_sample(struct gate *g, struct amount used);
/*
 * How many tasks may begin within this interval. estimate: bytes that each may take; if that is
 * known and not 0, the quota is at most as many as fit below high.
 */
uint64_t gate_quota(const struct gate *g, struct amount estimate);

#endif
