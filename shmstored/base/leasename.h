/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.h: fresh names of leases (leasetext.h). */
#ifndef LEASENAME_H
#define LEASENAME_H

#include <stdint.h>

#include "leasetext.h"

/* A fresh name with that expiry, by shmstore_lease_clock_ms(). 0, -EIO (no random numbers). */
int leasename_make(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE]);

#endif
