/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostpage.h: the size of this host's pages: 4 KiB, or 16 or 64 on some Arm machines. The kernel
 * gives memory, takes it back and maps by whole ones. Formats have pages of 4 KiB on every host
 * (SHMS_FORMAT_PAGE, SHMS_SEGMENT_PAGE).
 */
#ifndef SHMS_HOSTPAGE_H
#define SHMS_HOSTPAGE_H

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* of Linux 5.14: all pages at once, not a fault each */
#define MADV_POPULATE_WRITE 23
#endif

static inline uint64_t shms_host_page(void)
{
	static _Atomic uint64_t page; /* sysconf() takes 27 instructions, and a put asks 14 times */

	if (!page)
		page = (uint64_t)sysconf(_SC_PAGESIZE);
	return page;
}

/* Memory that size bytes take. */
static inline uint64_t shms_whole_pages(uint64_t size)
{
	uint64_t page = shms_host_page();

	return (size + page - 1) & ~(page - 1);
}

#endif
