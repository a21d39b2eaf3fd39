/* SPDX-License-Identifier: Apache-2.0 */
/*
 * presslimits.h: computes the thresholds of a host's memory from the configuration and from its
 * size. Pure.
 */
#ifndef PRESSLIMITS_H
#define PRESSLIMITS_H

#include <stdint.h>

#include "gate.h"

struct config_pressure;

struct presslimits {
	struct deltarule rule;
	int64_t kill, gate, low; /* bytes: low < gate <= kill */
};

/*
 * total: the host's bytes, more than 0. -ERANGE: memory may grow within an interval by more than a
 * quarter of it; only ret->rule.max_interval_ms is set.
 */
int presslimits_compute(const struct config_pressure *c, int64_t total, struct presslimits *ret);
struct gate_config presslimits_gate(const struct config_pressure *c, const struct presslimits *l);

#endif
