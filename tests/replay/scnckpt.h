/* SPDX-License-Identifier: Apache-2.0 */
/* scnckpt.h: the state of a case of the domain "ckpt", which scnckpt.c and scnactor.c share. */
#ifndef REPLAY_SCNCKPT_H
#define REPLAY_SCNCKPT_H

#include "actor.h"
#include "ckptplan.h"
#include "scn.h"
#include "scnnames.h"

#define SCN_ACTORS 32u

/* An actor that was declared; its move is played when it is preempted. */
struct scn_actor {
	struct actor_config config;
	uint32_t n_tasks;
	bool refused; /* strict=1, and what it is cannot have its level */
	char dest[CKPT_NAME + 1], fail[32];
};

struct ckpt_state {
	size_t n_peers;
	struct ckpt_peer peers[CKPT_PEERS];
	bool down[CKPT_PEERS];
	int64_t fails[CKPT_PEERS]; /* so many more attempts fail; INT64_MAX: all */
	struct ckpt_cast cast;
	struct ckptbook book;
	char fixed[1024];
	bool pending, versions_named;
	uint64_t version, bytes, now_ms;
	/* what was found */
	int64_t k;
	char sent[1024], missed[1024];
	uint32_t n_sent, n_missed;
	uint64_t n_attempts;
	bool failed;
	bool recovered, panics, staled;
	const struct ckpt_copy *copy;
	enum ckpt_use use;
	uint64_t delay_ms;
	struct scn_names actor_names;
	struct scn_actor actors[SCN_ACTORS + 1];
	char events[1024];
};

/* "actor" and "preempt". false: neither. */
bool scn_actor_verb(struct ckpt_state *s, struct scn *c, const char *verb);
void scn_actor_end(struct ckpt_state *s);

#endif
