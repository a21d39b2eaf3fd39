/* SPDX-License-Identifier: Apache-2.0 */
/* req_actor.c: ACTOR_PLACE, ACTOR_BORN, ACTOR_NEXT, ACTOR_DONE, ACTOR_CALL, ACTOR_MOVE, for the
 * program's actors (actord.h). */
#include "actord.h"
#include "dispatch.h"
#include "host.h"

#define TO_ACTORD(NAME, name)                                                                   \
	DISPATCH_HANDLER(name)                                                                  \
	{                                                                                       \
		return c->host->actord->request(c, WIRE_##NAME, serial, body, tail, tail_size); \
	}

TO_ACTORD(ACTOR_PLACE, actor_place)
TO_ACTORD(ACTOR_BORN, actor_born)
TO_ACTORD(ACTOR_NEXT, actor_next)
TO_ACTORD(ACTOR_DONE, actor_done)
TO_ACTORD(ACTOR_CALL, actor_call)
TO_ACTORD(ACTOR_MOVE, actor_move)
