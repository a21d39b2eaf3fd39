/* SPDX-License-Identifier: Apache-2.0 */
/* arbid.c: the arbiter's ids as people write them. The upper half is the client, the
 * lower its own number. Pure. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "arb.h"

const char *arb_id_text(uint64_t id, char ret_text[ARB_ID_SIZE])
{
	if (id >> 32)
		snprintf(ret_text, ARB_ID_SIZE, "%" PRIu64 ":%" PRIu64, id >> 32, id & UINT32_MAX);
	else
		snprintf(ret_text, ARB_ID_SIZE, "%" PRIu64, id);
	return ret_text;
}

/* Digits only, up to most; *io_text is put behind them. */
static bool number(const char **io_text, uint64_t most, uint64_t *ret)
{
	char *end;

	if (**io_text < '0' || **io_text > '9')
		return false;
	errno = 0;
	unsigned long long value = strtoull(*io_text, &end, 10);
	if (errno || value > most)
		return false;
	*io_text = end;
	*ret = value;
	return true;
}

bool arb_id_parse(const char *text, uint64_t *ret_id)
{
	uint64_t client, own;

	if (!number(&text, UINT64_MAX, &client))
		return false;
	if (!*text && client) {
		*ret_id = client; /* as JSON has it */
		return true;
	}
	if (*text++ != ':' || client > UINT32_MAX || !number(&text, UINT32_MAX, &own) || *text ||
	    !own)
		return false;
	*ret_id = client << 32 | own;
	return true;
}
