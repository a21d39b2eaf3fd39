/* SPDX-License-Identifier: Apache-2.0 */
/* packvictim.h: which objects of own segments may leave their slots. */
#ifndef SHMS_PACKVICTIM_H
#define SHMS_PACKVICTIM_H

#include "packsegs.h"

/*
 * Has this store alone the object of that slot, by one key, without views and leases, and not pinned? now:
 * segnow_of_ms(). The pack's lock is held. Another process may get a view of it at any moment.
 */
bool shms_packvictim_may_go(const struct shms_pack *p, struct shms_packplace place, uint32_t now);

#endif
