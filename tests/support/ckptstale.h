/* SPDX-License-Identifier: Apache-2.0 */
/* ckptstale.h: what scenarios ask about a copy that is older than its actor, and the daemon does not. */
#ifndef CKPTSTALE_H
#define CKPTSTALE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum ckpt_stale_policy {
	CKPT_NEVER,
	CKPT_ALWAYS,
	CKPT_TIMEOUT,
	CKPT_MAXAGE
};

struct ckpt_stale {
	enum ckpt_stale_policy policy;
	uint64_t ms; /* TIMEOUT: so long a fresh one is waited for. MAXAGE: a stale one that is younger will do */
};

#define CKPT_NONE UINT64_MAX

enum ckpt_use {
	CKPT_USE_FRESH,
	CKPT_USE_STALE,
	CKPT_USE_NOTHING
};

static inline bool read_ms(const char *text, uint64_t *ret)
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

/* "never", "always", "timeout:MS", "maxage:MS". false: none of these. */
static inline bool ckpt_stale_read(const char *text, struct ckpt_stale *ret)
{
	struct ckpt_stale s = {.ms = 0};

	if (!strcmp(text, "never")) {
		s.policy = CKPT_NEVER;
	} else if (!strcmp(text, "always")) {
		s.policy = CKPT_ALWAYS;
	} else if (!strncmp(text, "timeout:", 8) && read_ms(text + 8, &s.ms)) {
		s.policy = CKPT_TIMEOUT;
	} else if (!strncmp(text, "maxage:", 7) && read_ms(text + 7, &s.ms)) {
		s.policy = CKPT_MAXAGE;
	} else {
		return false;
	}
	*ret = s;
	return true;
}

static inline enum ckpt_use use(enum ckpt_use what, uint64_t delay_ms, uint64_t *ret_delay_ms)
{
	*ret_delay_ms = delay_ms;
	return what;
}

/*
 * What a preemption takes, and how long it waits for it. last_age_ms: of the newest copy; fresh_takes_ms: until there is a fresh one; CKPT_NONE:
 * there is none, or will be none. NOTHING: neither can be had.
 */
static inline enum ckpt_use ckpt_stale_use(const struct ckpt_stale *s, uint64_t last_age_ms, uint64_t fresh_takes_ms,
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

#endif
