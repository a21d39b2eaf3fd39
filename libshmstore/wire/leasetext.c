/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leasetext.c: names of leased links. The expiry stands in the name, so that anybody can end a
 * lease without asking its donor. It is in CLOCK_BOOTTIME: setting the clock must not end leases,
 * and a tmpfs does not outlive its boot.
 */
#include "leasetext.h"

#include <string.h>

#include "hexdigits.h"

#define NONCE_DIGITS  16u
#define EXPIRY_DIGITS 19u /* at most: fits 64 bits */

size_t shms_lease_text(uint64_t expiry_ms, uint64_t nonce, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	/* By hand: printf would cost a tenth of the handoff. */
	char digits[20];
	size_t n = 0, length = 0;

	do {
		digits[n++] = (char)('0' + expiry_ms % 10);
		expiry_ms /= 10;
	} while (expiry_ms);
	while (n)
		ret_name[length++] = digits[--n];
	ret_name[length++] = '-';
	shms_hexdigits_write(nonce, ret_name + length);
	ret_name[length + NONCE_DIGITS] = '\0';
	return length + NONCE_DIGITS;
}

bool shms_lease_parse(const char *name, uint64_t *ret_expiry_ms)
{
	size_t digits = strspn(name, "0123456789");
	uint64_t expiry = 0;

	if (digits == 0 || digits > EXPIRY_DIGITS || name[digits] != '-')
		return false;
	if (strspn(name + digits + 1, "0123456789abcdef") != NONCE_DIGITS ||
	    name[digits + 1 + NONCE_DIGITS] != '\0')
		return false;
	for (size_t i = 0; i < digits; i++)
		expiry = expiry * 10 + (uint64_t)(name[i] - '0');
	*ret_expiry_ms = expiry;
	return true;
}
