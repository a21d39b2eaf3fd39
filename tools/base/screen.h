/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h: a full-screen display that gives the terminal back as it was, and the waiting between
 * its frames. */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>
#include <time.h>

struct screen {
	bool live;     /* standard output is a terminal: frames overwrite each other */
	bool keyboard; /* standard input is one too */
	int signals;   /* signalfd; -1 = none */
	struct termios before;
	unsigned columns, rows;
};

/* The event that ended the wait; any other value is a key. */
enum screen_event {
	SCREEN_TICK = 0x100, /* the time is up */
	SCREEN_AGAIN,        /* the size changed, or we were stopped: draw now */
	SCREEN_QUIT,         /* interrupted */
	SCREEN_ENDED,        /* another signal: screen_end() passes it on */
};

/* Takes the terminal where there is one and it is wanted. -errno where signals cannot be had. */
int screen_begin(struct screen *s, bool wanted);
/* Gives it back. */
void screen_end(struct screen *s);
/* Begins a frame: the cursor is at the top of an empty screen. Nothing where it is not live. */
void screen_frame(struct screen *s);
/* Waits until deadline (ns of CLOCK_MONOTONIC), a key or a signal. Returns an enum screen_event or
 * a key. */
int screen_wait(struct screen *s, int64_t deadline_ns);
int64_t screen_now(void);
/* "12:03:04": a time since the epoch, as the host's clock shows it. Static. */
const char *screen_clock(time_t when);

#endif
