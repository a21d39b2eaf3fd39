/* SPDX-License-Identifier: Apache-2.0 */
/*
 * presslimits.c: a configured threshold goes before the rule's. Each is kept below the one above
 * it, whatever units they have.
 */
#include "presslimits.h"

#include <errno.h>

#include "amount.h"
#include "config.h"

#define MS 1000000u

/* A watermark in bytes: configured in bytes, or in parts per million of total; 0: by the rule. */
static int64_t bytes_of(uint64_t said, int64_t by_rule_ppm, int64_t total)
{
	uint64_t ppm = said ? said : (uint64_t)by_rule_ppm;

	if (ppm <= 1000000)
		return ratio_floor(RATIO_PPM(ppm), total);
	return said < (uint64_t)total ? (int64_t)said : total;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int presslimits_compute(const struct config_pressure *c, int64_t total, struct presslimits *ret)
{
	struct presslimits l = {0};
	uint64_t ms = c->interval_ns / MS;
	int r = deltarule_compute(total, (int64_t)c->growth_rate, (int64_t)ms, &l.rule);

	if (r == 0) {
		l.kill = bytes_of(c->kill, l.rule.kill_ppm, total);
		l.gate = least(bytes_of(c->gate, l.rule.gate_ppm, total), l.kill);
		l.gate = l.gate > 0 ? l.gate : 1;
		l.low = c->low ? bytes_of(c->low, 0, total) : gate_defaults(total, l.gate).low;
		l.low = least(l.low, l.gate - 1);
	}
	if (r == 0 || r == -ERANGE)
		*ret = l;
	return r;
}

struct gate_config presslimits_gate(const struct config_pressure *c, const struct presslimits *l)
{
	return (struct gate_config){
		.high = l->gate,
		.low = l->low,
		.window = c->window,
		.hold = c->hold,
		.ramp0 = c->ramp,
		.rampmax = c->ramp_max,
	};
}
