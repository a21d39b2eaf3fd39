/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.c: see room.h. The sweep of dead stores looks at every lock, so a partition that stays full is swept four times a second at most,
 * however many puts fail. Other puts may be first to take what an eviction made room for, so it is tried again, but not for ever.
 */
#include "room.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "bootclock.h"
#include "cleanup.h"
#include "deadleases.h"
#include "detail.h"
#include "evict.h"
#include "gc.h"
#include "handle.h"
#include "packask.h"
#include "pool.h"
#include "sys.h"
#include "tier.h"

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
	if (!(m->flags & SHMSTORE_NO_EVICT) && tries < TRIES_MAX &&
	    (shms_evict_for(s, m->bytes) || shms_packask_for(s, m->bytes)))
		return true;
	/* Last, since somebody may still come with the ticket. */
	freed = shms_deadleases_end_former(s);
	shms_credit_gave(s, freed);
	return freed > 0;
}

/* May it have a turn? The arbiter may have it wait for another thread, which must not wait for it. */
static bool has_turns(const struct shms_room *m)
{
	return !(m->flags & SHMSTORE_NO_EVICT) && !m->now && !shms_hooked(m->s);
}

bool shms_room_others(const struct shms_room *m)
{
	struct shmstore_partition *p = m->s->p;

	return !m->turn && shms_turns_taken(&p->making) && has_turns(m) &&
	       atomic_load_explicit(&p->short_of, memory_order_relaxed);
}

/* With the turn: until it has its memory, or nothing helps. r: the last try's. */
static int make_and_take(struct shms_room *m, int r)
{
	for (int tries = 0; shms_room_wanted(r) && make(m, tries); tries++)
		r = m->take(m->arg);
	return r;
}

/* What it makes room for others are not to take meanwhile: they come after it, if they need memory. */
static int take_in_turn(struct shms_room *m)
{
	struct shmstore_partition *p = m->s->p;
	int r;

	m->turn = shms_turns_take(&p->making, UINT64_MAX, NULL, NULL);
	shms_evict_after(p);
	r = m->take(m->arg);
	if (r == -ENOSPC)
		atomic_store_explicit(&p->short_of, true, memory_order_relaxed);
	r = make_and_take(m, r);
	if (!shms_turns_waited(&p->making))
		atomic_store_explicit(&p->short_of, false, memory_order_relaxed);
	m->turn = false;
	shms_turns_end(&p->making);
	return r;
}

int shms_room_take(struct shms_room *m)
{
	int r = m->take(m->arg);

	if (shms_room_wanted(r))
		r = has_turns(m) && shms_tier_there(m->s->p) ? take_in_turn(m) : make_and_take(m, r);
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
	if (shms_room_others(m) || !shms_ramroom_take(&m->s->p->ram, m->bytes))
		return -ENOSPC;
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

/* What only an operator can end sooner; "" where there is none. */
static const char *leased_text(struct shmstore_partition *p, char *ret, size_t size)
{
	struct shms_deadleases l;
	struct tm at;
	time_t end;
	char clock[16];

	shms_deadleases_look(p, &l);
	*ret = '\0';
	if (!l.bytes)
		return ret;
	end = (time_t)((shms_now_real_ns() / 1000000 + (int64_t)(l.expiry_ms - shms_now_boot_ms())) / 1000);
	if (!localtime_r(&end, &at) || !strftime(clock, sizeof(clock), "%H:%M", &at))
		return ret;
	snprintf(ret, size,
		 "; %" PRIu64 " MiB are leased by dead stores until %s: shmstore-admin gc --leases ends that",
		 l.bytes >> 20, clock);
	return ret;
}

#define OTHERS 3

/* Adds who else has a directory there whose name begins with prefix. What is in it we may not see, but a job that ended may have left it. */
static bool add_others(int at, const char *path, const char *prefix, const char *says, char *ret, size_t size)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	size_t used = strlen(ret);
	struct stat st;
	int n = 0, error;

	if (shms_list_dir(at, path, &dir) < 0)
		return false;
	while (n < OTHERS && (e = shms_readdir(dir, &error))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || e->d_name[0] == '.' ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
		    st.st_uid == geteuid())
			continue;
		used += (size_t)snprintf(ret + used, size - used, "%s user %u's %.40s", n++ ? "," : says,
					 (unsigned)st.st_uid, e->d_name);
	}
	return n > 0;
}

/* Whose stores are in this partition, and whose partitions lie beside it on the same mount; "" where there are none. */
static const char *others_text(const struct shmstore_partition *p, char *ret, size_t size)
{
	bool any;

	*ret = '\0';
	any = add_others(p->fd, SHMS_DIR_STORES, "", "; it also holds", ret, size);
	if (strcmp(p->mount, p->path) != 0)
		any |= add_others(AT_FDCWD, p->mount, "shmstore-", "; its mount also holds", ret, size);
	if (any)
		snprintf(ret + strlen(ret), size - strlen(ret),
			 ": as root, shmstore-admin gc --all removes what dead processes left there");
	return ret;
}

int shms_room_refused(struct shms_room *m, int error)
{
	const char *path = m->s->p->path;
	uint64_t size, available;
	struct shms_ramroom_look ram;
	struct statvfs fs;
	char leased[160], others[640];

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
	if (available >= m->bytes && shms_ramroom_look(NULL, NULL, &ram) && ram.room < m->bytes)
		return shms_detail(error, ram.path,
				   "memory is short: by %s %" PRIu64 " bytes may be taken still (of %" PRIu64
				   ") before the kernel kills a process, and %" PRIu64 " were asked for; %" PRIu64
				   " of %s are free",
				   ram.path, ram.room, ram.limit, m->bytes, available, path);
	return shms_detail(error, NULL,
			   "the partition is full: %" PRIu64 " bytes of %s are free (of %" PRIu64 "), and %" PRIu64
			   " were asked for%s%s",
			   available, path, size, m->bytes, leased_text(m->s->p, leased, sizeof(leased)),
			   others_text(m->s->p, others, sizeof(others)));
}
