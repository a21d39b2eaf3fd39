/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c.h: the checksum of iSCSI and ext4 (Castagnoli's polynomial). It tells damage from content; it keeps nobody from forging. Pure. */
#ifndef CRC32C_H
#define CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t n);

#endif
