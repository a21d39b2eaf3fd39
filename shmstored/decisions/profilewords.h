/* SPDX-License-Identifier: Apache-2.0 */
/* profilewords.h: the words of the configuration for what a profile is used for, and the steps that
 * requests are shown in. Pure. */
#ifndef PROFILEWORDS_H
#define PROFILEWORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "profile.h"

#define PROFILE_EPS_PPM 10000u /* histogram: one in a hundred times it may be too much */

struct profile_choice {
	enum profile_strategy strategy;
	uint32_t eps_ppm; /* HISTOGRAM */
	bool adaptive;    /* strategy is where it begins: admission.h */
};

/*
 * "none", "conservative", "conservative=peak", "conservative=p95", "aggressive", "histogram",
 * "histogram:EPS" (0.05), "adaptive". false: none of these.
 */
bool profile_choice_read(const char *text, struct profile_choice *ret);
/* "none", "peak", "p95", "hist", "avg" */
const char *profile_strategy_name(enum profile_strategy s);

#endif
