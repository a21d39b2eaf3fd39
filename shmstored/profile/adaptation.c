/* SPDX-License-Identifier: Apache-2.0 */
/* adaptation.c: a window is ADAPTATION_WINDOW admissions; what is preempted is remembered by the profile itself (profile_preempted()). */
#include "adaptation.h"

void adaptation_init(struct adaptation *a)
{
	*a = (struct adaptation){.now = PROFILE_PEAK};
}

void adaptation_note(struct adaptation *a, uint64_t used, uint64_t reserved)
{
	if (!reserved)
		return;
	a->looked = true;
	if ((unsigned __int128)used * 100 >= (unsigned __int128)reserved * ADAPTATION_USED)
		a->busy = true;
}

bool adaptation_admitted(struct adaptation *a)
{
	bool idle;

	if (++a->n_admitted < ADAPTATION_WINDOW)
		return false;
	idle = a->looked && !a->busy;
	a->n_admitted = 0;
	a->looked = a->busy = false;
	if (!idle || a->now == PROFILE_AVERAGE)
		return false;
	a->now = a->now + 1;
	return true;
}
