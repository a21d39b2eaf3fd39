/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c: transient.c, one thread in a call and one that forks: while the fork is under
 * way nobody is within a call. */
#include "litmus.h"

#include WEAK_SOURCE

const int litmus_threads = 2;
const int litmus_killed = -1;
const unsigned litmus_late = WEAK_LATE;
const bool litmus_ends = false;

static bool within, forking;

void litmus_begin(void)
{
	within = forking = false;
}

/* Others may go on. */
static void go_on(void)
{
	weak_load(&within, 0, memory_order_relaxed);
}

void litmus_thread(int which)
{
	struct me *m = &me;

	m->id = (uint16_t)(which + 1);
	if (which == 0) {
		enter(m);
		within = true;
		weak_ensure(!forking, "a thread begins a call while another one forks");
		go_on();
		within = false;
		leave(m);
	} else {
		fork_prepare();
		forking = true;
		go_on();
		weak_ensure(!within, "a thread is within a call while another one forks");
		forking = false;
		fork_parent();
	}
}
