/* SPDX-License-Identifier: Apache-2.0 */
/* wireprofile.h: messages of profiles (wire.h): PROFILE, PROFILE_ADMIN, PROFILED. */
#ifndef SHMS_WIREPROFILE_H
#define SHMS_WIREPROFILE_H

#include <stdint.h>

/*
 * Usage of a user's tasks so far (shmstored/decisions/profile.h). The client numbers the tasks of a
 * connection from 1. A kind's name is the tail "LANG\nFUNC\nGROUP". Answered by PROFILED, by
 * REFUSED, and not at all with WIRE_PROFILE_QUIET.
 *
 *   BEGIN      tail: the kind's name. From here on the daemon looks at the process's private memory
 *   SAMPLE     private_bytes: what the task itself has now, beside what the daemon sees
 *   END        how; private_bytes: the most that it had; shared_bytes: that it created;
 *              cpu_ms. Each where flags say so
 *   ESTIMATE   tail: the kind's name; private_bytes, shared_bytes, cpu_ms:
 *              what it declares (0: nothing)
 */
enum wire_profile_op {
	WIRE_PROFILE_BEGIN = 1,
	WIRE_PROFILE_SAMPLE,
	WIRE_PROFILE_END,
	WIRE_PROFILE_ESTIMATE,
	WIRE_PROFILE_OP_END,
};
enum wire_profile_how {
	WIRE_PROFILE_DONE = 0,
	WIRE_PROFILE_KILLED,    /* for want of memory: the next of its kind is estimated higher */
	WIRE_PROFILE_PREEMPTED, /* what it used until then says nothing */
	WIRE_PROFILE_DROPPED,   /* nor here: it failed */
	WIRE_PROFILE_HOW_END,
};
#define WIRE_PROFILE_HAS_PRIVATE (1u << 0)
#define WIRE_PROFILE_HAS_SHARED  (1u << 1)
#define WIRE_PROFILE_HAS_CPU     (1u << 2)
#define WIRE_PROFILE_QUIET       (1u << 8) /* SAMPLE, END: nothing is answered where all is well */

struct wire_profile {
	uint16_t op;  /* enum wire_profile_op */
	uint16_t how; /* END: enum wire_profile_how */
	uint32_t flags;
	uint32_t task;
	uint32_t reserved;
	uint64_t private_bytes, shared_bytes, cpu_ms;
};

/*
 * For tools. Each user has a profile of their own; another's than one's own, and ALL, are
 * for root and the daemon's user.
 *
 *   SHOW    answered by DATA: a JSON document. ALL: everybody's
 *   TEXT    answered by DATA: the profile as the text that LOAD takes
 *   LOAD    tail: a part of such a text, which begins at offset and has total bytes. The
 *           parts come in their order, the first at 0; the last one replaces the profile,
 *           as a prior. Answered by DONE
 *   RESET   nothing is known any more. Answered by DONE
 */
enum wire_profile_admin_op {
	WIRE_PROFILE_ADMIN_SHOW = 1,
	WIRE_PROFILE_ADMIN_TEXT,
	WIRE_PROFILE_ADMIN_LOAD,
	WIRE_PROFILE_ADMIN_RESET,
	WIRE_PROFILE_ADMIN_OP_END,
};
#define WIRE_PROFILE_MINE     UINT32_MAX
#define WIRE_PROFILE_ALL      (UINT32_MAX - 1)
#define WIRE_PROFILE_TEXT_MAX (UINT64_C(16) << 20)

struct wire_profile_admin {
	uint32_t op;  /* enum wire_profile_admin_op */
	uint32_t uid; /* whose; WIRE_PROFILE_MINE, WIRE_PROFILE_ALL */
	uint64_t offset, total;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

/* BEGIN, ESTIMATE: what the next task of this kind will use, and of how many tasks
 * that is known. Else zeros. */
struct wire_profiled {
	uint64_t private_bytes, shared_bytes, cpu_ms;
	uint64_t n;
};

#endif
