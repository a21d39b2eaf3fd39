/* SPDX-License-Identifier: Apache-2.0 */
/* tiername.c: see tiername.h. A name that is not exactly as we write it is somebody else's file. */
#include "tiername.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void shms_tier_file_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64, id);
}

void shms_tier_anchor_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64 ".stub", id);
}

void shms_tier_resident_name(uint64_t id, char ret_name[SHMS_TIER_NAME])
{
	snprintf(ret_name, SHMS_TIER_NAME, "%016" PRIx64 ".object", id);
}

int shms_tier_parse_name(const char *name, const char *suffix, uint64_t *ret_id)
{
	char digits[17] = {0}, *end;

	if (strlen(name) < 16 || strspn(name, "0123456789abcdef") < 16)
		return -EBADMSG;
	if (suffix ? name[16] != '.' || strcmp(name + 17, suffix) != 0 : name[16] != '\0')
		return -EBADMSG;
	memcpy(digits, name, 16);
	*ret_id = strtoull(digits, &end, 16);
	return *end == '\0' ? 0 : -EBADMSG;
}

bool shms_tier_uid(const char *name, uid_t *ret)
{
	unsigned long n;

	if (name[0] < '0' || name[0] > '9' || strlen(name) > 10 ||
	    name[strspn(name, "0123456789")] != '\0' || (name[0] == '0' && name[1] != '\0'))
		return false;
	n = strtoul(name, NULL, 10);
	if (n >= UINT32_MAX)
		return false;
	*ret = (uid_t)n;
	return true;
}

bool shms_tier_account_name(const char *name, uid_t *ret)
{
	size_t digits = strspn(name, "0123456789");
	char uid[16] = {0};

	if (digits >= sizeof(uid) || strcmp(name + digits, SHMS_TIER_ACCOUNT) != 0)
		return false;
	memcpy(uid, name, digits);
	return shms_tier_uid(uid, ret);
}
