/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.h: fresh names of leases (leasetext.h). */
#ifndef LEASENAME_H
#define LEASENAME_H

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "leasetext.h"

/* A fresh name with that expiry, by shmstore_lease_clock_ms(). 0, -EIO (no random numbers). */
static inline int leasename_make(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	uint64_t nonce;

	if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	shms_lease_text(expiry_ms, nonce, ret_name);
	return 0;
}

#endif
