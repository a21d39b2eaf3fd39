/* SPDX-License-Identifier: Apache-2.0 */
/* lease.h: a fresh name of a leased link (leasetext.h). */
#ifndef SHMS_LEASE_H
#define SHMS_LEASE_H

#include "leasetext.h"
#include "sys.h"

/* Returns the name's length. */
static inline size_t shms_lease_name(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	return shms_lease_text(expiry_ms, shms_nonce(), ret_name);
}

#endif
