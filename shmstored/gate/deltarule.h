/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deltarule.h: computes thresholds from how fast memory can fill. Between two looks a host may gain
 * rate * interval bytes unseen; delta is their share of its memory. Killing begins one delta below
 * the top, and admission ends one delta below that: one for what was not seen, one for the time
 * that the reaction takes. Pure.
 */
#ifndef DELTARULE_H
#define DELTARULE_H

#include <stdint.h>

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

#endif
