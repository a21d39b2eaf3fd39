/* SPDX-License-Identifier: Apache-2.0 */
/* mempsi.c: triggers of pressure-stall information. */
#include "mempsi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int mempsi_trigger(const char *mode, struct ratio stalled, struct ratio window_s, struct mempsi_trigger *ret)
{
	static const char *const modes[] = {"some", "full"};
	const char *known = NULL;
	int64_t seconds = (int64_t)(window_s.num / window_s.den);

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(mode, modes[i]))
			known = modes[i];
	if (!known || !stalled.num || ratio_compare(stalled, RATIO(1, 1)) > 0 || window_s.num % window_s.den != 0 ||
	    seconds < 2 || seconds > 10 || seconds % 2)
		return -EINVAL;
	*ret = (struct mempsi_trigger){
		.mode = known,
		.stall_us = ratio_floor(stalled, seconds * 1000000),
		.window_us = seconds * 1000000,
	};
	return 0;
}

int mempsi_write(const struct mempsi_trigger *t, char ret[static 64])
{
	return snprintf(ret, 64, "%s %lld %lld", t->mode, (long long)t->stall_us, (long long)t->window_us);
}
