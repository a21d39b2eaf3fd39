/* SPDX-License-Identifier: Apache-2.0 */
/* door.c: what shmstore-actord has and shmstored has not, put together: other daemons, the profiles
 * that they exchange, and actors. */
#include "door.h"

#include <errno.h>

#include "actors.h"
#include "host.h"
#include "peers.h"

static int open_all(struct host *h)
{
	int r = peers_new(h, &h->peers);

	if (r == 0)
		r = profilepeers_new(h, &h->profilepeers);
	if (r < 0)
		return r;
	h->actors = actors_new(h);
	return h->actors ? 0 : -ENOMEM;
}

static void close_all(struct host *h)
{
	h->peers = peers_free(h->peers);
	h->profilepeers = profilepeers_free(h->profilepeers);
	h->actors = actors_free(h->actors);
}

const struct actord actord_whole = {.program = "shmstore-actord",
				    .has_peers = true,
				    .open = open_all,
				    .close = close_all,
				    .leaving = actors_leaving,
				    .evacuate = actors_evacuate,
				    .place_next = actors_place_next,
				    .stuck = actors_stuck,
				    .profiled = profilepeers_changed,
				    .request = actord_request,
				    .cancel = actors_cancel,
				    .report = actord_report,
				    .metrics = actord_metrics};
