/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckptbook.h: where copies of one actor's state are, and of which versions; from which it recovers; which may go; and whether a stale one will
 * do where memory is wanted at once. Pure.
 */
#ifndef CKPTBOOK_H
#define CKPTBOOK_H

#include "ckptplan.h"

/* At most one copy for each peer: the newest one replaces the older. */
struct ckpt_copy {
	char peer[CKPT_NAME + 1];
	uint64_t version, bytes;
};

struct ckptbook {
	size_t n;
	struct ckpt_copy copies[CKPT_PEERS];
};

/* A copy has arrived; one that is older than what the peer has is no news. false: no room for another peer. */
bool ckptbook_add(struct ckptbook *b, const char *peer, uint64_t version, uint64_t bytes);

enum ckpt_recovery {
	CKPT_FROM_COPY,
	CKPT_FROM_NOTHING,
	CKPT_MISSING
};

/*
 * The highest version whose peer is up; of several the peer with the most free, then the first by name. None: FROM_NOTHING, or MISSING where
 * panic says that this is an error. ret_copy is set for FROM_COPY only.
 */
enum ckpt_recovery ckptbook_recover(const struct ckptbook *b, const struct ckpt_peer *peers, size_t n, bool panic,
				    const struct ckpt_copy **ret_copy);

#endif
