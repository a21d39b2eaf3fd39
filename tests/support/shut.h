/* SPDX-License-Identifier: Apache-2.0 */
/* shut.h: own segments in which a store puts nothing, as another process takes their memory. */
#ifndef SHUT_H
#define SHUT_H

#include "handle.h"
#include "packsegs.h"

static inline unsigned n_shut(const struct shmstore *s)
{
	const struct shms_pack *p = shms_packed_pack(s);
	unsigned n = 0;

	for (uint32_t i = 0; i < p->n_segments; i++)
		n += p->segments[i].own && p->segments[i].own->use.shut;
	return n;
}

#endif
