/* SPDX-License-Identifier: Apache-2.0 */
/* wirestage.h: messages of stages (wire.h): STAGE_QUERY, _BEGIN, _END; STAGED. */
#ifndef SHMS_WIRESTAGE_H
#define SHMS_WIRESTAGE_H

#include <stdint.h>

/*
 * Memory of a worker for a stage of a job (shmstored/decisions/stagebook.h). QUERY and BEGIN come
 * from the worker: a connection that has registered a store. A stage's name has 1 to
 * WIRE_STAGE_NAME bytes and no line break.
 *
 *   STAGE_QUERY    tail: the stage's name. Answered by STAGED
 *   STAGE_BEGIN    tail: the stage's name. Answered by STAGED: late, where others hold what it
 *                  shall have, but not later than timeout_ms and what is configured
 *   STAGE_END      session: 0, or a worker's id (REGISTERED.id): of the same user, or
 *                  for root and the daemon's user. Answered by STAGED: what the worker
 *                  has now; with a session by DONE
 */
#define WIRE_STAGE_NAME 240u

#define WIRE_STAGE_HAS_NONSHARE (1u << 0)

struct wire_stage_query {
	uint32_t base;           /* a profile: 0. A query starts from the base always */
	uint32_t flags;          /* WIRE_STAGE_HAS_NONSHARE */
	uint16_t root, fallback; /* enum shmstore_stage_root, shmstore_stage_fallback (stage.h) */
	uint32_t nonshare_ppm;   /* of the bytes, what cannot be shared */
	uint64_t n_native, n_convert,
		/* operators on shared memory, copies between it and private memory, all others */
		n_other;
	uint32_t want_slots; /* 0: those of the base */
	uint32_t reserved;
};

struct wire_stage_begin {
	/* other: a second one that was asked for in this stage; else the same again */
	uint32_t profile, other;
	uint64_t timeout_ms; /* UINT64_MAX: as configured */
};

struct wire_stage_end {
	uint64_t session;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

#define WIRE_STAGED_CLAMPED  (1u << 0) /* private_bytes are less than the rules say */
#define WIRE_STAGED_DEGRADED (1u << 1) /* less than the profile: others hold the rest */

enum wire_stage_rule {
	WIRE_STAGE_WHOLE = 1,
	WIRE_STAGE_PARTIAL = 2,
};

struct wire_staged {
	uint32_t profile; /* 0: the base */
	uint32_t flags;   /* WIRE_STAGED_* */
	uint32_t rules;   /* of a query: enum wire_stage_rule */
	uint32_t slots;
	uint64_t private_bytes, shared_bytes, private_per_slot, shared_per_slot;
	uint64_t expires_ms; /* after that a query may say something else */
};

#endif
