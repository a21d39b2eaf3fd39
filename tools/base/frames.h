/* SPDX-License-Identifier: Apache-2.0 */
/* frames.h: a display of one frame an interval, until its iterations are over, the user quits, or
 * nobody reads it. */
#ifndef FRAMES_H
#define FRAMES_H

#include "options.h"
#include "screen.h"

struct frames {
	/* gets what the next frame shows; any value but 0 ends the display */
	int (*take)(void *arg);
	bool (*show)(void *arg); /* shows it; false: it is not counted as an iteration */
	void *arg;
	/* the column of n_sorts that it is sorted by; a key takes the next one */
	size_t *sort, n_sorts;
	uint64_t iterations; /* 0 = without end */
	double interval;     /* seconds */
	struct screen screen;
};

/* Rows of a command's options, whose structure has frames. */
#define FRAMES_OPTIONS(interval_text)                                                          \
	{"iterations",                                                                         \
	 'n',                                                                                  \
	 "N",                                                                                  \
	 "end after N intervals (default: never)",                                             \
	 OPTIONS_NUMBER,                                                                       \
	 offsetof(OF, frames.iterations),                                                      \
	 1},                                                                                   \
	{                                                                                      \
		"interval", 'd', "SECONDS", "between two frames (default: " interval_text ")", \
			OPTIONS_SECONDS, offsetof(OF, frames.interval)                         \
	}
/* live: on a terminal frames overwrite each other. 0, what take() ended it with, or -errno where
 * signals cannot be had. */
int frames_run(struct frames *f, bool live);

#endif
