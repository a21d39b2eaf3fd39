/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.h: fresh names of leases (leasetext.h), and the clock that they end by. */
#ifndef LEASENAME_H
#define LEASENAME_H

#include <stdint.h>

#include "leasetext.h"

/* A fresh name with that expiry, in ms of CLOCK_BOOTTIME. 0, -EIO (no random numbers). */
int leasename_make(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE]);
/* CLOCK_BOOTTIME of the host in ms, without the offset of a time namespace: the
 * clock that leases end by. */
uint64_t leasename_now_ms(void);

#endif
