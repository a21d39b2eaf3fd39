/* SPDX-License-Identifier: Apache-2.0 */
/* bootclock.h: the clock that all processes of the host share, in whatever container:
 * CLOCK_BOOTTIME of the host. Times that others read (leases, the stamps of the disk tier's
 * accounts) are in it. */
#ifndef SHMS_BOOTCLOCK_H
#define SHMS_BOOTCLOCK_H

#include <stdint.h>

/* Since the host was started. */
uint64_t shms_now_boot_ms(void);
uint64_t shms_now_boot_ns(void);
/*
 * A time of that clock, at most SHMS_BOOT_LATE_MS of the host's awake time ago: for what may be
 * seen late and not early. A fifth of the price.
 */
#define SHMS_BOOT_LATE_MS 10u
uint64_t shms_lately_boot_ms(void);
/* A time of that clock as CLOCK_BOOTTIME of this process tells it: the same outside of a time
 * namespace. UINT64_MAX stays. */
uint64_t shms_boot_ms_here(uint64_t host_ms);

#endif
