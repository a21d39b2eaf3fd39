/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packedmem.c: the memory of a store's segments: see packed.h.
 *
 * Each put, adoption or delete asks whether somebody waits for memory: then what is freed goes back
 * page by page. Every 64th looks at the pool. So the ledger's pool is that of some calls ago; the
 * limit of the store itself (credit.c) asks the pack.
 *
 * By age: of the pool that was there all the time for ten seconds nobody had any use; if it is a
 * quarter of all, everything that is free goes, and what is needed comes back by 64 KiB.
 */
#include "handle.h"
#include "packed.h"
#include "sys.h"

#define LOOK_MS 5u
#define AGE_MS  10000u
#define LEAST   SHMS_PACKEDMEM_LEAST

/* A store's part of a quarter of the partition; a sixteenth at most, however few they are. */
static uint64_t bound(const struct shmstore *s, uint64_t size)
{
	uint64_t n = shms_partition_n_stores(s->p);
	uint64_t part = size ? size / 4 / (n > 4 ? n : 4) : SHMS_RECYCLE_MAX;

	return part > SHMS_RECYCLE_MAX ? SHMS_RECYCLE_MAX : part > LEAST ? part : LEAST;
}

/* Is less than an eighth of the partition's bytes free? Sets the pool's bound as well. */
static bool scarce(struct shmstore *s, uint64_t now_ms)
{
	struct shms_packedmem *m = &shms_handle(s)->packed.mem;
	struct shms_space space;

	if (now_ms - m->looked_ms < LOOK_MS || shms_space(s->p->fd, &space) < 0)
		return m->scarce;
	m->looked_ms = now_ms;
	m->scarce = space.available < space.size / 8;
	m->max = bound(s, space.size);
	return m->scarce;
}

void shms_packedmem_gave(struct shmstore *s, struct shms_pack *pack)
{
	uint64_t bytes = shms_pack_gave(pack);

	if (bytes)
		shms_credit_gave(s, bytes);
}

/* The ledger's pool is the sum of what files and segments have: both add what theirs changed by. */
static void tell(struct shmstore *s, uint64_t pool)
{
	uint64_t before = atomic_exchange_explicit(&shms_handle(s)->packed.mem.pool, pool,
						   memory_order_relaxed);

	if (pool != before)
		atomic_fetch_add_explicit(&s->ledger->pool_bytes, pool - before,
					  memory_order_relaxed);
}

static uint64_t trim(struct shmstore *s, struct shms_pack *pack)
{
	uint64_t freed = shms_pack_trim(pack, shms_now_boot_ms()), memory, trimmed;

	shms_packedmem_gave(s, pack);
	tell(s, shms_pack_pool(pack, &memory, &trimmed));
	return freed;
}

/* The pool's bound, and its age. */
static void look(struct shmstore *s, struct shms_pack *pack, uint64_t now_ms)
{
	struct shms_packedmem *m = &shms_handle(s)->packed.mem;
	uint64_t memory, trimmed, pool = shms_pack_pool(pack, &memory, &trimmed);
	bool old;

	m->n_calls = 0;
	m->freed = 0;
	tell(s, pool);
	m->least = pool < m->least ? pool : m->least;
	old = now_ms - m->began_ms >= AGE_MS;
	/* A trim would leave again what the last one left. */
	if ((pool > m->max && pool > trimmed + trimmed / 4 + LEAST) ||
	    (old && m->least != UINT64_MAX && m->least > trimmed + LEAST && m->least > memory / 4))
		trim(s, pack);
	if (old) {
		m->began_ms = now_ms;
		m->least = UINT64_MAX;
	}
}

void shms_packedmem_tend(struct shmstore *s, struct shms_pack *pack, uint64_t now_ms)
{
	struct shms_packedmem *m = &shms_handle(s)->packed.mem;
	bool tight = shms_credit_pressed(s) || shms_memory_wanted(s) || m->scarce;

	if (m->n_calls >= SHMS_PACKEDMEM_CALLS || m->freed > m->max) {
		tight = scarce(s, now_ms) || tight;
		look(s, pack, now_ms);
	}
	if (tight != m->tight) {
		m->tight = tight;
		shms_pack_tight(pack, tight);
		if (tight)
			trim(s, pack);
	}
	if (tight || shms_credit_counted(s))
		shms_packedmem_gave(s, pack);
}

uint64_t shms_packedmem_trim(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);

	return pack ? trim(s, pack) : 0;
}

bool shms_packedmem_any(struct shmstore *s)
{
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t memory, trimmed;

	return pack && shms_pack_pool(pack, &memory, &trimmed) > trimmed;
}
