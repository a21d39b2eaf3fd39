/* SPDX-License-Identifier: Apache-2.0 */
/* leasename.c: see leasename.h. The daemon's own reading of the format: it sees of the library what programs see. */
#include "leasename.h"

#include <errno.h>
#include <inttypes.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define NONCE_DIGITS  16u
#define EXPIRY_DIGITS 19u /* at most: fits 64 bits */

int leasename_make(uint64_t expiry_ms, char ret_name[LEASENAME_SIZE])
{
	uint64_t nonce;

	if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	snprintf(ret_name, LEASENAME_SIZE, "%" PRIu64 "-%016" PRIx64, expiry_ms, nonce);
	return 0;
}

bool leasename_parse(const char *name, uint64_t *ret_expiry_ms)
{
	size_t digits = strspn(name, "0123456789");
	uint64_t expiry = 0;

	if (digits == 0 || digits > EXPIRY_DIGITS || name[digits] != '-')
		return false;
	if (strspn(name + digits + 1, "0123456789abcdef") != NONCE_DIGITS || name[digits + 1 + NONCE_DIGITS] != '\0')
		return false;
	for (size_t i = 0; i < digits; i++)
		expiry = expiry * 10 + (uint64_t)(name[i] - '0');
	*ret_expiry_ms = expiry;
	return true;
}

uint64_t leasename_now_ms(void)
{
	return shmstore_lease_clock_ms();
}
