/* SPDX-License-Identifier: Apache-2.0 */
/* ckptbook.c: a short list; its order means nothing. */
#include "ckptbook.h"

#include <string.h>

static struct ckpt_copy *find(struct ckptbook *b, const char *peer)
{
	for (size_t i = 0; i < b->n; i++)
		if (!strcmp(b->copies[i].peer, peer))
			return &b->copies[i];
	return NULL;
}

bool ckptbook_add(struct ckptbook *b, const char *peer, uint64_t version, uint64_t bytes)
{
	struct ckpt_copy *c = find(b, peer);

	if (strlen(peer) > CKPT_NAME || (!c && b->n == CKPT_PEERS))
		return false;
	if (c && c->version > version)
		return true;
	if (!c) {
		c = &b->copies[b->n++];
		*c = (struct ckpt_copy){.version = version};
		memcpy(c->peer, peer, strlen(peer));
	}
	c->version = version;
	c->bytes = bytes;
	return true;
}

static const struct ckpt_peer *peer_of(const struct ckpt_copy *c, const struct ckpt_peer *peers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(peers[i].name, c->peer))
			return &peers[i];
	return NULL;
}

enum ckpt_recovery ckptbook_recover(const struct ckptbook *b, const struct ckpt_peer *peers, size_t n, bool panic,
				    const struct ckpt_copy **ret_copy)
{
	const struct ckpt_copy *best = NULL;
	uint64_t best_free = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct ckpt_copy *c = &b->copies[i];
		const struct ckpt_peer *p = peer_of(c, peers, n);
		bool better;

		if (!p || p->down)
			continue;
		if (!best || c->version != best->version)
			better = !best || c->version > best->version;
		else if (p->free != best_free)
			better = p->free > best_free;
		else
			better = strcmp(c->peer, best->peer) < 0;
		if (better) {
			best = c;
			best_free = p->free;
		}
	}
	if (!best)
		return panic ? CKPT_MISSING : CKPT_FROM_NOTHING;
	*ret_copy = best;
	return CKPT_FROM_COPY;
}

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
