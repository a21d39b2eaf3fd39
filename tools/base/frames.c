/* SPDX-License-Identifier: Apache-2.0 */
/* frames.c: see frames.h. */
#include "frames.h"

#include <stdio.h>

/* Waits for the next frame. False: the user, or the reader of our output, has enough. */
static bool wait_next(struct frames *f, int64_t deadline)
{
	while (!ferror(stdout)) {
		int event = screen_wait(&f->screen, deadline);
		if (event == SCREEN_TICK)
			return true;
		if (event == SCREEN_QUIT || event == SCREEN_ENDED || event == 'q' || event == 'Q' ||
		    event == 27)
			return false;
		if (event == 's')
			*f->sort = (*f->sort + 1) % f->n_sorts;
		if (event == 's' || event == SCREEN_AGAIN)
			f->show(f->arg);
	}
	return false;
}

int frames_run(struct frames *f, bool live)
{
	int64_t interval = (int64_t)(f->interval * 1e9), deadline = screen_now();
	uint64_t shown = 0;
	int r = screen_begin(&f->screen, live);

	if (r < 0)
		return r;
	while ((r = f->take(f->arg)) == 0) {
		shown += f->show(f->arg);
		if (f->iterations && shown == f->iterations)
			break;
		deadline += interval;
		if (deadline < screen_now()) /* the frame took longer than an interval */
			deadline = screen_now() + interval;
		if (!wait_next(f, deadline))
			break;
	}
	screen_end(&f->screen);
	return r;
}
