/* SPDX-License-Identifier: Apache-2.0 */
/* req_bye.c: BYE: the store closes in good order. Its kept or not yet removed objects stay. */
#include "dispatch.h"
#include "member.h"

DISPATCH_HANDLER(bye)
{
	const struct wire_done done = {0};
	struct member *m = conn_member(c);

	if (m)
		member_leaves(m);
	return conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
}
