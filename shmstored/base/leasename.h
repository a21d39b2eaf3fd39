/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.h: the names of leases, "<expiry>-<nonce>" (docs/format.md): how long one is good says its name. */
#ifndef LEASENAME_H
#define LEASENAME_H

#include <stdbool.h>
#include <stdint.h>

#define LEASENAME_SIZE 48

/* A fresh name with that expiry, in ms of CLOCK_BOOTTIME. 0, -EIO (no random numbers). */
int leasename_make(uint64_t expiry_ms, char ret_name[LEASENAME_SIZE]);
/* false: not the name of a lease. */
bool leasename_parse(const char *name, uint64_t *ret_expiry_ms);
/* CLOCK_BOOTTIME of the host in ms, without the offset of a time namespace: the clock that leases end by. */
uint64_t leasename_now_ms(void);

#endif
