/* SPDX-License-Identifier: Apache-2.0 */
/* actord.c: a daemon without actors and without other daemons. */
#include "actord.h"

#include <errno.h>

#include "conn.h"
#include "host.h"
#include "policy.h"
#include "wire.h"

static void leaving(UNUSED const struct host *h, UNUSED pid_t pid, UNUSED struct actord_want want,
		    struct actord_leaving *ret)
{
	*ret = (struct actord_leaving){.level = POLICYLEVEL_ALWAYS};
}

static struct conn *place_next(UNUSED const struct host *h, UNUSED const struct conn *after)
{
	return NULL;
}

static int request(struct conn *c, UNUSED uint16_t type, uint64_t serial, UNUSED const void *body,
		   UNUSED const char *tail, UNUSED size_t tail_size)
{
	return conn_refuse(c, serial, -ENOTSUP,
			   "this daemon is shmstored, which keeps no actors: shmstore-actord does, "
			   "with the same configuration and in place of shmstored; see "
			   "shmstore-actord(8)");
}

const struct actord actord_none = {
	.program = "shmstored", .leaving = leaving, .place_next = place_next, .request = request};
