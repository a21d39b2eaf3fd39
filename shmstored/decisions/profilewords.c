/* SPDX-License-Identifier: Apache-2.0 */
/* profilewords.c: the words are in configurations: never changed. */
#include "profilewords.h"

#include <string.h>

#include "amount.h"

#define MILLION 1000000u

static const char *const names[] = {
	[PROFILE_NONE] = "none",      [PROFILE_PEAK] = "peak",   [PROFILE_P95] = "p95",
	[PROFILE_HISTOGRAM] = "hist", [PROFILE_AVERAGE] = "avg",
};

/* "0.05": a fraction from 0 to 1 in millionths. Digits behind the sixth round up what is not zero,
 * so that it is never taken for less. */
static bool read_ppm(const char *text, uint32_t *ret)
{
	struct ratio r;

	if (!ratio_parse(text, &r) || ratio_compare(r, RATIO(1, 1)) > 0)
		return false;
	*ret = (uint32_t)ratio_ceil(r, MILLION);
	return true;
}

bool profile_choice_read(const char *text, struct profile_choice *ret)
{
	static const struct {
		const char *word;
		enum profile_strategy strategy;
		bool adaptive;
	} words[] = {
		{"none", PROFILE_NONE, false},
		{"conservative", PROFILE_PEAK, false},
		{"conservative=peak", PROFILE_PEAK, false},
		{"conservative=p95", PROFILE_P95, false},
		{"conservative:peak", PROFILE_PEAK, false},
		{"conservative:p95", PROFILE_P95, false},
		{"aggressive", PROFILE_AVERAGE, false},
		{"histogram", PROFILE_HISTOGRAM, false},
		{"adaptive", PROFILE_PEAK, true},
	};
	struct profile_choice choice = {.strategy = PROFILE_HISTOGRAM, .eps_ppm = PROFILE_EPS_PPM};

	if (!strncmp(text, "histogram:", 10)) {
		if (!read_ppm(text + 10, &choice.eps_ppm))
			return false;
		*ret = choice;
		return true;
	}
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(text, words[i].word)) {
			choice.strategy = words[i].strategy;
			choice.adaptive = words[i].adaptive;
			*ret = choice;
			return true;
		}
	return false;
}

const char *profile_strategy_name(enum profile_strategy s)
{
	return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "?";
}
