/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leasetext.h: the file name of a leased link in handoff/: "<expiry>-<nonce>", expiry in ms
 * of CLOCK_BOOTTIME as decimal digits, nonce 16 hex digits. Pure. The library and the daemon
 * both make and read such names.
 */
#ifndef SHMS_LEASETEXT_H
#define SHMS_LEASETEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_LEASE_NAME_SIZE 48

/* Returns the name's length. */
size_t shms_lease_text(uint64_t expiry_ms, uint64_t nonce, char ret_name[SHMS_LEASE_NAME_SIZE]);
/* false: no name of a lease. */
bool shms_lease_parse(const char *name, uint64_t *ret_expiry_ms);

#endif
