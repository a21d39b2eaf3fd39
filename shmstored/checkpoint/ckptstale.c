/* SPDX-License-Identifier: Apache-2.0 */
/* ckptstale.c: see ckptstale.h. */
#include "ckptstale.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
	[CKPT_NEVER] = "never",
	[CKPT_ALWAYS] = "always",
	[CKPT_TIMEOUT] = "timeout:",
	[CKPT_MAXAGE] = "maxage:",
};

static bool read_ms(const char *text, uint64_t *ret)
{
	uint64_t ms = 0;

	if (!*text)
		return false;
	for (; *text; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(ms, 10, &ms) ||
		    __builtin_add_overflow(ms, (uint64_t)(*text - '0'), &ms))
			return false;
	*ret = ms;
	return true;
}

bool ckpt_stale_read(const char *text, struct ckpt_stale *ret)
{
	for (enum ckpt_stale_policy p = CKPT_NEVER; p <= CKPT_MAXAGE; p++) {
		struct ckpt_stale s = {.policy = p};
		size_t n = strlen(names[p]);

		if (strncmp(text, names[p], n) != 0 || !(p < CKPT_TIMEOUT ? !text[n] : read_ms(text + n, &s.ms)))
			continue;
		*ret = s;
		return true;
	}
	return false;
}

void ckpt_stale_write(const struct ckpt_stale *s, char ret[CKPT_STALE_MAX])
{
	if (s->policy < CKPT_TIMEOUT)
		snprintf(ret, CKPT_STALE_MAX, "%s", names[s->policy]);
	else
		snprintf(ret, CKPT_STALE_MAX, "%s%" PRIu64, names[s->policy], s->ms);
}

static enum ckpt_use use(enum ckpt_use what, uint64_t delay_ms, uint64_t *ret_delay_ms)
{
	*ret_delay_ms = delay_ms;
	return what;
}

enum ckpt_use ckpt_stale_use(const struct ckpt_stale *s, uint64_t last_age_ms, uint64_t fresh_takes_ms,
			     uint64_t *ret_delay_ms)
{
	bool stale = last_age_ms != CKPT_NONE, fresh = fresh_takes_ms != CKPT_NONE;

	if (stale && s->policy == CKPT_ALWAYS)
		return use(CKPT_USE_STALE, 0, ret_delay_ms);
	if (stale && s->policy == CKPT_MAXAGE && last_age_ms < s->ms)
		return use(CKPT_USE_STALE, 0, ret_delay_ms);
	if (stale && s->policy == CKPT_TIMEOUT && (!fresh || fresh_takes_ms > s->ms))
		return use(CKPT_USE_STALE, s->ms, ret_delay_ms);
	if (fresh)
		return use(CKPT_USE_FRESH, fresh_takes_ms, ret_delay_ms);
	return use(CKPT_USE_NOTHING, 0, ret_delay_ms);
}
