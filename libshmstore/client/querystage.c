/* SPDX-License-Identifier: Apache-2.0 */
/* querystage.c: stages, as tools end them. */
#include <errno.h>
#include <shmstore/stage.h>

#include "detail.h"
#include "query.h"
#include "wire.h"

int shmstore_client_stage_end(struct shmstore_client *c, uint64_t session)
{
	const struct wire_stage_end body = {.session = session};

	if (!c)
		return shms_detail_null("c");
	if (!session)
		return shms_detail(-EINVAL, NULL, "0 is no store's number; the stages' document has them");
	return shms_client_order(c, WIRE_STAGE_END, &body, NULL, 0);
}
