/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c: see lease.h. */
#include "lease.h"

#include "sys.h"

size_t shms_lease_name(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	return shms_lease_text(expiry_ms, shms_nonce(), ret_name);
}
