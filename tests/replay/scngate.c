/* SPDX-License-Identifier: Apache-2.0 */
/* scngate.c: the domain "gate": thresholds by the growth of memory, and the gate's hysteresis. */
#include <errno.h>
#include <string.h>
#include <sys/param.h>

#include "gate.h"
#include "scn.h"

struct state {
	int delta_error; /* of the last "delta" */
	bool ruled, gated;
	struct deltarule rule;
	struct gate gate;
	struct amount estimate; /* of who is at the gate's head */
};

static void begin(void *state)
{
	((struct state *)state)->estimate = AMOUNT_UNKNOWN;
}

static void do_delta(struct state *s, struct scn *c)
{
	struct amount total = scn_amount(c, "total", AMOUNT_UNKNOWN);
	struct amount rate = scn_amount(c, "bw|rate", AMOUNT_UNKNOWN);
	int64_t interval = scn_number(c, "interval", 100);

	s->ruled = true;
	s->rule = (struct deltarule){0};
	s->delta_error = total.known && rate.known
				 ? deltarule_compute(total.bytes, rate.bytes, interval, &s->rule)
				 : -EINVAL;
}

/* Bytes, or with a point a share of the whole. */
static int64_t threshold(struct scn *c, const char *key, int64_t total, int64_t otherwise)
{
	const char *text = scn_option(c, key);

	if (text && strchr(text, '.'))
		return ratio_floor(scn_ratio(c, key, RATIO_PPM(0)), total);
	return scn_number(c, key, otherwise);
}

static void do_gate(struct state *s, struct scn *c)
{
	int64_t total = scn_number(c, "total", 0);
	int64_t high = threshold(c, "high", total, ratio_floor(RATIO_PPM(900000), total));
	struct gate_config config = {.high = high,
				     .low = MAX(high - total / 10, 0),
				     .window = 10,
				     .hold = 3,
				     .ramp0 = 1,
				     .rampmax = 64};
	int64_t window = scn_number(c, "window", config.window),
		hold = scn_number(c, "hold", config.hold);

	config.low = threshold(c, "low", total, config.low);
	config.ramp0 = (uint64_t)scn_number(c, "ramp0", (int64_t)config.ramp0);
	config.rampmax = (uint64_t)scn_number(c, "rampmax", (int64_t)config.rampmax);
	config.window = window > 0 && window <= UINT32_MAX ? (uint32_t)window : 0;
	config.hold = hold > 0 && hold <= UINT32_MAX ? (uint32_t)hold : 0;
	s->estimate = scn_amount(c, "est|estimate", AMOUNT_UNKNOWN);
	s->gate = (struct gate){0};
	s->gated = gate_set(&s->gate, &config) == 0;
	if (!s->gated)
		scn_wrong(c, "no gate can be made of this");
}

static void do_samples(struct state *s, struct scn *c)
{
	char text[32];
	struct amount used;

	if (!s->gated)
		scn_wrong(c, "there is no gate");
	s->estimate = scn_amount(c, "est|estimate", s->estimate);
	for (size_t i = 0; i < scn_n_words(c) || i == 0; i++)
		for (const char *at = scn_need_word(c, i); *at && !scn_is_wrong(c);)
			if (!scn_element(&at, ',', text, sizeof(text)) ||
			    !scn_read_amount(text, &used))
				scn_wrong(c, "not a list of sizes");
			else
				gate_sample(&s->gate, used);
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	if (!strcmp(verb, "delta"))
		do_delta(state, c);
	else if (!strcmp(verb, "gate"))
		do_gate(state, c);
	else if (!strcmp(verb, "samples"))
		do_samples(state, c);
	else
		return false;
	return true;
}

static bool found_rule(struct state *s, struct scn *c, const char *key)
{
	const struct {
		const char *key;
		int64_t value;
	} values[] = {
		{"delta", s->rule.delta_ppm},
		{"delta_ppm", s->rule.delta_ppm},
		{"gate_ppm", s->rule.gate_ppm},
		{"kill_ppm", s->rule.kill_ppm},
	};

	if (!strcmp(key, "max_interval")) {
		scn_found_amount(c,
				 s->delta_error == -EINVAL || s->rule.max_interval_ms == INT64_MAX
					 ? AMOUNT_UNKNOWN
					 : amount_of(s->rule.max_interval_ms));
		return true;
	}
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (!strcmp(key, values[i].key)) {
			if (s->delta_error)
				scn_found(c, "error");
			else
				scn_found_amount(c, amount_of(values[i].value));
			return true;
		}
	return false;
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	struct state *s = state;

	(void)expected;
	if (s->ruled && found_rule(s, c, key))
		return true;
	if (!s->gated)
		return false;
	if (!strcmp(key, "gate"))
		scn_found(c, "%s", s->gate.closed ? "closed" : "open");
	else if (!strcmp(key, "quota"))
		scn_found(c, "%llu", (unsigned long long)gate_quota(&s->gate, s->estimate));
	else if (!strcmp(key, "flips"))
		scn_found(c, "%llu", (unsigned long long)s->gate.n_flips);
	else
		return false;
	return true;
}

const struct scn_domain scn_gate_domain = {"gate", sizeof(struct state), begin, verb, found, NULL};
