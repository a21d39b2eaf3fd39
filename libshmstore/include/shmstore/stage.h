/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h: how a worker's memory is divided for one stage of a job: private bytes (what
 * the process alone has), shared bytes (what its store may hold of the partition), and
 * slots (how many tasks at once).
 *
 * With shmstored, and stage { enabled = yes } in its configuration. Where that is off, every answer
 * is the base, profile 0. docs/governor.md has the rules.
 *
 *   struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
 *   struct shmstore_stage_profile p;
 *   ask.name = "shuffle-3";
 *   ask.n_other = 4;                                       // nothing of it can be shared
 *   if (shmstore_stage_query(s, &ask, &p) == 0 &&
 *       shmstore_stage_begin(s, "shuffle-3", p.profile, SHMSTORE_STAGE_WAIT, &p) == 0) {
 *           // p.degraded: with less than asked for, as others hold the rest
 *           run(p.private_bytes, p.slots);
 *           // p: what the worker has outside of stages
 *           shmstore_stage_end(s, &p);
 *   }
 *
 * The worker is the store. In a stage it can hold no more than its shared bytes, beside what an
 * operator allows it; the private bytes are the program's to keep, and what admission looks at. The
 * end of the stage, of the store, of the process and of the daemon each bring back what was before.
 *
 * For every function that takes a store:
 *
 *   Return   0, or -errno:
 *              -EINVAL    s is NULL or closed; a stage's name is empty, has a line break, or more
 *                         than SHMSTORE_STAGE_NAME bytes
 *              -EPERM     the store was opened to be read only, or by the parent before a fork
 *              -ENOTSUP   no daemon: go on without
 *              -ENOMEM    out of memory, here or there
 *   Threads  many threads may call at once; a store is in one stage at a time
 *   Fork     a child's copy of the store is not usable: -EPERM. The parent's stage goes on
 *   Never    starts a thread; each call is a round trip. Since 0.1, all of it
 */
#ifndef SHMSTORE_STAGE_H
#define SHMSTORE_STAGE_H

#include "daemon.h"
#include "shmstore.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHMSTORE_STAGE_NAME 240u /* bytes of a stage's name */

/* ---- stages ---------------------------------------------------------------------------------- */

enum shmstore_stage_root {
	SHMSTORE_STAGE_EXCHANGE = 0,
	SHMSTORE_STAGE_FINAL = 1,
};
enum shmstore_stage_fallback {
	SHMSTORE_STAGE_FALLBACK_FOUND = 0, /* by the counts and the share below */
	SHMSTORE_STAGE_FALLBACK_NONE = 1,
	SHMSTORE_STAGE_FALLBACK_PARTIAL = 2,
	SHMSTORE_STAGE_FALLBACK_WHOLE = 3,
};
#define SHMSTORE_STAGE_UNKNOWN UINT32_MAX

struct shmstore_stage_ask {
	size_t size;           /* sizeof: by SHMSTORE_STAGE_ASK_INIT */
	const char *name;      /* for people: what the daemon shows */
	uint32_t base_profile; /* 0: every query starts from the base */
	/* of the stage's bytes, what cannot be shared (objects, pickles), in millionths: instead of
	 * the counts, or beside them */
	uint32_t nonshare_ppm;
	uint64_t n_native;   /* operators whose buffers are in the store */
	uint64_t n_convert;  /* copies between the store and private memory */
	uint64_t n_other;    /* all other operators */
	unsigned root;       /* enum shmstore_stage_root */
	unsigned fallback;   /* enum shmstore_stage_fallback */
	uint32_t want_slots; /* at most so many tasks at once; 0: as the base has them */
};
#define SHMSTORE_STAGE_ASK_INIT                                                                    \
	{                                                                                          \
		sizeof(struct shmstore_stage_ask), NULL, 0, SHMSTORE_STAGE_UNKNOWN, 0, 0, 0, 0, 0, \
			0                                                                          \
	}

/* Bits of shmstore_stage_profile.rules. */
#define SHMSTORE_STAGE_WHOLE   (1u << 0) /* nothing of the stage can be shared */
#define SHMSTORE_STAGE_PARTIAL (1u << 1) /* a large part cannot */

struct shmstore_stage_profile {
	/* its number, which never means something else while the daemon lives; 0: the base */
	uint32_t profile;
	unsigned rules; /* of a query: SHMSTORE_STAGE_*; 0: none applies */
	bool clamped;   /* the rules say more private memory than the cap allows */
	bool degraded;  /* of begin and end: less than the profile, as others hold the rest */
	uint32_t slots;
	uint64_t private_bytes, shared_bytes;
	uint64_t private_per_slot, shared_per_slot;
	uint64_t expires_ms; /* after that a query may say something else; the number stays good */
};

/*
 * Asks for the profile that a stage should have. Changes nothing.
 * Return: as above; -EINVAL also: ask->size, a count, base_profile is not 0; -ENOSPC: all 4096
 * profiles that the daemon remembers are in use
 */
SHMSTORE_API int shmstore_stage_query_sized(struct shmstore *s,
					    const struct shmstore_stage_ask *ask,
					    struct shmstore_stage_profile *ret SHMSTORE_RET_SIZE);
#define shmstore_stage_query(...) SHMSTORE_FILLS(stage_query, stage_profile, __VA_ARGS__)

#define SHMSTORE_STAGE_WAIT UINT64_MAX /* as long as the daemon is configured to let a stage wait */
/*
 * The store's stage begins. Where others hold what the profile says, it waits, and then runs with
 * what is there: ret->degraded.
 *   profile   of a query; 0 is the base
 *   other     a second profile that was asked for in this stage; else profile again. Two that
 *             differ become one as stage.conflict says
 *   wait_ms   at most so long, and at most as configured; 0: not at all
 * Return: as above; -ENOENT: the daemon knows no profile of this number, or not any more: ask
 * again; -EBUSY: the store is in a stage; -EEXIST: the profiles differ, and stage.conflict is
 * error; -ENOSPC: as shmstore_stage_query(); -ECANCELED: somebody ended it while it waited;
 * -ENOTSUP also: the daemon ended meanwhile
 */
SHMSTORE_API int shmstore_stage_begin_sized(struct shmstore *s, const char *name, uint32_t profile,
					    uint32_t other, uint64_t wait_ms,
					    struct shmstore_stage_profile *ret SHMSTORE_RET_SIZE);
#define shmstore_stage_begin(...) SHMSTORE_FILLS(stage_begin, stage_profile, __VA_ARGS__)

/*
 * The store's stage ends.
 *   ret   what the store has from now on: the base
 * Return: as above; -ENOENT: it is in no stage, as the daemon was started anew, or somebody ended
 * it
 */
SHMSTORE_API int shmstore_stage_end_sized(struct shmstore *s,
					  struct shmstore_stage_profile *ret SHMSTORE_RET_SIZE);
#define shmstore_stage_end(...) SHMSTORE_FILLS(stage_end, stage_profile, __VA_ARGS__)

/* ---- for tools ------------------------------------------------------------------------------- */

/*
 * Ends the stage of another store. Nothing is learned of it.
 *   session   its number in the document SHMSTORE_QUERY_STAGES
 * Return: as daemon.h says of all that take a client; -EPERM: another user's, and the caller is
 * neither root nor the daemon's user; -ENOENT: no stage runs there
 */
SHMSTORE_API int shmstore_client_stage_end(struct shmstore_client *c, uint64_t session);

#ifdef __cplusplus
}
#endif

#endif
