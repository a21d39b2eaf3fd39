/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c: names of leased links. The expiry stands in the name, so that anybody can end a lease without asking its donor. It
 * is in CLOCK_BOOTTIME: setting the clock must not end leases, and a tmpfs does not outlive its boot.
 */
#include "lease.h"

#include <stdio.h>
#include <string.h>

#include "sys.h"

void shms_lease_name(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	snprintf(ret_name, SHMS_LEASE_NAME_SIZE, "%llu-%016llx", (unsigned long long)expiry_ms,
		 (unsigned long long)shms_nonce());
}

bool shms_lease_parse(const char *name, uint64_t *ret_expiry_ms)
{
	size_t digits = strspn(name, "0123456789");
	uint64_t expiry = 0;

	if (digits == 0 || digits > 19 || name[digits] != '-')
		return false;
	if (strspn(name + digits + 1, "0123456789abcdef") != 16 || name[digits + 17] != '\0')
		return false;
	for (size_t i = 0; i < digits; i++)
		expiry = expiry * 10 + (uint64_t)(name[i] - '0');
	*ret_expiry_ms = expiry;
	return true;
}
