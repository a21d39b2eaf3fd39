/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.c: see room.h. The sweep of dead stores looks at every lock, so a partition that stays full is swept four times a second at most,
 * however many puts fail. Other puts may be first to take what an eviction made room for, so it is tried again, but not for ever.
 */
#include "room.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#include "detail.h"
#include "evict.h"
#include "gc.h"
#include "handle.h"
#include "packask.h"
#include "pool.h"
#include "sys.h"

#define SWEEP_EVERY_NS 250000000ull
#define TRIES_MAX      32

/* True: dead stores were looked for just now. */
static bool sweep(struct shmstore_partition *p)
{
	uint64_t now = shms_now_mono_ns(), last = atomic_load_explicit(&p->swept_ns, memory_order_relaxed);

	if (last && now - last < SWEEP_EVERY_NS)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&p->swept_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	shms_gc_sweep(p);
	return true;
}

/* After the tries-th refusal (0, 1, ...): gives memory back, or makes room by the disk tier. True: another try is worth it. */
static bool make(const struct shms_room *m, int tries)
{
	struct shmstore *s = m->s;
	uint64_t freed;

	if (shms_recycle_trim(s, true))
		return true;
	freed = shms_pool_take(s->p, s->uid, 0);
	if (freed) {
		shms_credit_gave(s, freed);
		return true;
	}
	if (tries <= 1 && sweep(s->p))
		return true;
	return !(m->flags & SHMSTORE_NO_EVICT) && tries < TRIES_MAX &&
	       (shms_evict_for(s, m->bytes) || shms_packask_for(s, m->bytes));
}

int shms_room_take(struct shms_room *m)
{
	int r = m->take(m->arg);

	for (int tries = 0; shms_room_wanted(r) && make(m, tries); tries++)
		r = m->take(m->arg);
	while (shms_room_wanted(r) && !m->unbooked && !m->now && shms_hold_again(m->s, m->n_again)) {
		m->n_again++;
		r = m->take(m->arg);
	}
	if (shms_room_wanted(r) && (m->flags & SHMSTORE_WAIT)) {
		m->wait = true;
		r = m->take(m->arg);
	}
	return r;
}

int shms_room_reserve(struct shms_room *m)
{
	m->hold.bytes = 0;
	m->charge = (struct shms_charge){0};
	return m->unbooked ? 0 : shms_hold_take(m->s, m->bytes, m->now ? SHMS_HOLD_NOW : m->n_again, &m->hold);
}

int shms_room_charge(struct shms_room *m)
{
	int r;

	if (m->unbooked)
		return 0;
	r = shms_credit_take(m->s, m->bytes, m->credit | (m->wait ? SHMS_CREDIT_WAIT : 0), &m->charge);
	if (r < 0)
		m->charge = (struct shms_charge){0};
	return r;
}

int shms_room_book(struct shms_room *m)
{
	int r = shms_room_reserve(m);

	if (r != 0)
		return r;
	r = shms_room_charge(m);
	if (r < 0)
		shms_room_settle(m, false);
	return r;
}

void shms_room_settle(struct shms_room *m, bool taken)
{
	shms_credit_end(m->s, &m->charge, taken);
	shms_hold_end(m->s, &m->hold, taken);
}

void shms_room_settle_part(struct shms_room *m, uint64_t taken)
{
	shms_credit_end_part(m->s, &m->charge, taken);
	shms_hold_end(m->s, &m->hold, taken != 0);
}

int shms_room_refused(struct shms_room *m, int error)
{
	const char *path = m->s->p->path;
	uint64_t size, available;
	struct statvfs fs;

	if (shms_room_wanted(error))
		shms_count(&m->s->ledger->enospc_n, 1);
	if (error != -ENOSPC || shms_detail_is(error) || fstatvfs(m->s->p->fd, &fs) < 0)
		return error;
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_files && !fs.f_ffree)
		return shms_detail(error, NULL, "the partition is full: all %" PRIu64 " inodes of %s are in use",
				   (uint64_t)fs.f_files, path);
	if (m->bytes > size && size)
		return shms_detail(error, NULL,
				   "the partition is full: %s has %" PRIu64 " bytes in all, and %" PRIu64
				   " were asked for",
				   path, size, m->bytes);
	return shms_detail(error, NULL,
			   "the partition is full: %" PRIu64 " bytes of %s are free (of %" PRIu64 "), and %" PRIu64
			   " were asked for",
			   available, path, size, m->bytes);
}
