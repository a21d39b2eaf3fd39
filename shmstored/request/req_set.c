/* SPDX-License-Identifier: Apache-2.0 */
/* req_set.c: SET: a limit at run time, by an administrator. accountquota_set() knows the keys. */
#include <errno.h>

#include "accountquota.h"
#include "dispatch.h"

#define REASON_MAX 1024

DISPATCH_HANDLER(set)
{
	struct wire_done done = {0};
	char reason[REASON_MAX] = "";
	int r;

	if (body->reserved)
		return conn_fault(c, CONN_E_PROTOCOL, "SET: reserved is not 0");
	if (!conn_is_admin(c))
		return conn_refuse(c, serial, -EPERM, WIRE_LIMIT_NONE, 0, 0,
				   "limits are set by root and the daemon's own user; you are user %u",
				   (unsigned)conn_peer(c)->uid);
	r = accountquota_set(conn_host(c), tail, reason, sizeof(reason));
	if (r < 0)
		return conn_refuse(c, serial, r, WIRE_LIMIT_NONE, 0, 0, "%s", reason);
	return conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
}
