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
