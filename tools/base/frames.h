/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.h: a display of one frame an interval, until its iterations are over, the user quits, or
 * nobody reads it. On a terminal it fills the screen, and gives it back as it was.
 */
#ifndef FRAMES_H
#define FRAMES_H

#include <termios.h>
#include <time.h>

#include "options.h"

struct frames {
	/* gets what the next frame shows; any value but 0 ends the display */
	int (*take)(void *arg);
	bool (*show)(void *arg); /* shows it; false: it is not counted as an iteration */
	void *arg;
	/* the column of n_sorts that it is sorted by; a key takes the next one */
	size_t *sort, n_sorts;
	uint64_t iterations; /* 0 = without end */
	double interval;     /* seconds */
	/* what show() may look at */
	bool live;     /* standard output is a terminal: frames overwrite each other */
	bool keyboard; /* standard input is one too */
	unsigned columns, rows;
	/* its own */
	int signals; /* signalfd */
	struct termios before;
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
/* wanted: on a terminal frames overwrite each other. 0, what take() ended it with, or -errno where
 * signals cannot be had. */
int frames_run(struct frames *f, bool wanted);
/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t frames_now(void);
/* "12:03:04": a time since the epoch, as the host's clock shows it. Static. */
const char *frames_clock(time_t when);

#endif
