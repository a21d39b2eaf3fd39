/* SPDX-License-Identifier: Apache-2.0 */
/* ckptstale.h: may a copy that is older than its actor be used when the actor is preempted? Pure. */
#ifndef CKPTSTALE_H
#define CKPTSTALE_H

#include <stdbool.h>
#include <stdint.h>

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

#define CKPT_NONE      UINT64_MAX
#define CKPT_STALE_MAX 32u /* bytes of a policy as text, with its NUL */

enum ckpt_use {
	CKPT_USE_FRESH,
	CKPT_USE_STALE,
	CKPT_USE_NOTHING
};

/* "never", "always", "timeout:MS", "maxage:MS". false: none of these. */
bool ckpt_stale_read(const char *text, struct ckpt_stale *ret);
/* As ckpt_stale_read() takes it. */
void ckpt_stale_write(const struct ckpt_stale *s, char ret[CKPT_STALE_MAX]);
/*
 * What a preemption takes, and how long it waits for it. last_age_ms: of the newest copy;
 * fresh_takes_ms: until there is a fresh one; CKPT_NONE: there is none, or will be none. NOTHING:
 * neither can be had.
 */
enum ckpt_use ckpt_stale_use(const struct ckpt_stale *s, uint64_t last_age_ms, uint64_t fresh_takes_ms,
			     uint64_t *ret_delay_ms);

#endif
