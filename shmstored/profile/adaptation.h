/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adaptation.h: which strategy estimates follow where nobody has pinned one: it begins with the peak, becomes bolder as long as much of what
 * is reserved is not used, and is careful again with kinds of tasks that had to be preempted. Pure.
 */
#ifndef ADAPTATION_H
#define ADAPTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "profile.h"

#define ADAPTATION_WINDOW 64u /* admissions */
#define ADAPTATION_USED   60u /* percent: less than this of what is reserved is used: a step down */

struct adaptation {
	enum profile_strategy now;
	bool looked, busy; /* in this window: there was a sample; one at which enough was used */
	uint32_t n_admitted;
};

/* It begins with the peak. */
void adaptation_init(struct adaptation *a);
/* A sample of all running tasks together. Nothing reserved: it says nothing. */
void adaptation_note(struct adaptation *a, uint64_t used, uint64_t reserved);
/* One more was admitted. true: from now on it is the next strategy: peak, p95, histogram, average. */
bool adaptation_admitted(struct adaptation *a);

#endif
