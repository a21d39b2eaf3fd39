/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.c: see leasename.h. */
#include "leasename.h"

#include <errno.h>
#include <sys/random.h>

int leasename_make(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	uint64_t nonce;

	if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	shms_lease_text(expiry_ms, nonce, ret_name);
	return 0;
}
