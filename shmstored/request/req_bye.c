/* SPDX-License-Identifier: Apache-2.0 */
/* req_bye.c: BYE: the store closes in good order. Its kept or not yet removed objects stay. */
#include "dispatch.h"
#include "member.h"

int req_bye(struct conn *c, uint64_t serial, const struct wire_bye *body, const char *tail, size_t tail_size)
{
	const struct wire_done done = {0};
	struct member *m = conn_member(c);

	(void)body;
	(void)tail;
	(void)tail_size;
	if (m)
		member_leaves(m);
	return conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
}
