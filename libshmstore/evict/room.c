/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.c: see room.h. The sweep of dead stores looks at every lock, so a partition that stays full
 * is swept four times a second at most, however many puts fail. Other puts may be first to take
 * what an eviction made room for, so it is tried again, but not for ever.
 */
#include "room.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "evict.h"
#include "gc.h"
#include "packgive.h"
#include "recycle.h"
#include "sys.h"
#include "tier.h"

#define SWEEP_EVERY_NS 250000000ull
#define TRIES_MAX      32
#define AGAIN_MAX      8
#define AGAIN_NS       2000000

/* True: dead stores were looked for just now. */
static bool sweep(struct shmstore_partition *p)
{
	uint64_t now = shms_now_mono_ns(),
		 last = atomic_load_explicit(&p->swept_ns, memory_order_relaxed);

	if (last && now - last < SWEEP_EVERY_NS)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&p->swept_ns, &last, now, memory_order_relaxed,
						     memory_order_relaxed))
		return false;
	shms_gc_sweep(p);
	return true;
}

/* After the tries-th refusal (0, 1, ...): gives memory back, or makes room by the disk tier.
 * True: another try is worth it. */
static bool make(const struct shms_room *m, int tries)
{
	struct shmstore *s = m->s;
	uint64_t freed;
	bool again;

	if (shms_recycle_trim(s))
		return true;
	freed = shms_pool_take(s->p, s->uid, s->readonly ? 0 : s->dir_inode, &again);
	shms_credit_gave(s, freed);
	if (freed || (again && tries < AGAIN_MAX &&
		      nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL) == 0))
		return true;
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

/* May it have a turn? The arbiter may have it wait for another thread,
 * which must not wait for it. */
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

/* Makes room in turn: others that need memory come after, and cannot take it meanwhile. */
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
		r = has_turns(m) && shms_tier_there(m->s->p) ? take_in_turn(m)
							     : make_and_take(m, r);
	while (shms_room_wanted(r) && !m->unbooked && !m->now &&
	       shms_hold_again(m->s, m->n_again)) {
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
	return m->unbooked ? 0
			   : shms_hold_take(m->s, m->bytes, m->now ? SHMS_HOLD_NOW : m->n_again,
					    &m->hold);
}

int shms_room_charge(struct shms_room *m)
{
	int r;

	if (m->unbooked)
		return 0;
	r = shms_credit_take(m->s, m->bytes, m->credit | (m->wait ? SHMS_CREDIT_WAIT : 0),
			     &m->charge);
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

/* Names leases that only an operator can end sooner; "": there are none. */
static void leased_text(struct shmstore_partition *p, char *ret, size_t size)
{
	struct shms_deadleases l;
	struct tm at;
	time_t end;
	char clock[16];

	shms_deadleases_look(p, &l);
	*ret = '\0';
	if (!l.bytes)
		return;
	end = (time_t)((shms_now_real_ns() / 1000000 +
			(int64_t)(l.expiry_ms - shms_now_boot_ms())) /
		       1000);
	if (!localtime_r(&end, &at) || !strftime(clock, sizeof(clock), "%H:%M", &at))
		return;
	snprintf(ret, size,
		 "; %" PRIu64
		 " MiB are leased by dead stores until %s: shmstore-admin gc --leases ends that",
		 l.bytes >> 20, clock);
}

#define OTHERS 3
#define LOOKS  2048u /* at stores, for one sentence */

/* Other holders of memory, the largest first. Those whose size we may not see have 0 bytes. */
struct others {
	uint64_t most; /* that any may have: the file system's used bytes */
	unsigned n, n_looked;
	struct other {
		uid_t uid;
		uint64_t bytes;
		char name[41];
	} v[OTHERS];
};

static void note(struct others *o, uid_t uid, const char *name, uint64_t bytes)
{
	unsigned at = o->n < OTHERS ? o->n++ : OTHERS;

	for (; at && o->v[at - 1].bytes < bytes; at--) {
		if (at < OTHERS)
			o->v[at] = o->v[at - 1];
	}
	if (at == OTHERS)
		return;
	o->v[at] = (struct other){.uid = uid, .bytes = bytes};
	snprintf(o->v[at].name, sizeof(o->v[at].name), "%.40s", name);
}

/* By what its owner says: to count files takes too long for a put that fails. Of a
 * partition all of its stores. */
static uint64_t bytes_of(struct others *o, int at, const char *name, bool partition)
{
	_fd_ int fd =
		o->n_looked++ < LOOKS ? shms_open_beneath(at, name, O_RDONLY | O_DIRECTORY) : -1;
	struct shmstore_counters c = {0};
	struct shms_page page;

	if (fd < 0)
		return 0;
	if (!partition && shms_page_read(fd, &page) == 0)
		shms_page_counters(&page, &c);
	if (partition) {
		_names_ struct shms_names d = shms_names(fd, SHMS_DIR_STORES);

		while (shms_names_next(&d))
			c.linked_bytes += bytes_of(o, d.fd, d.name, false);
	}
	/* A false word is nobody's size. */
	return c.linked_bytes <= o->most && c.pool_bytes <= o->most ? c.linked_bytes + c.pool_bytes
								    : 0;
}

/* Adds the largest directories there, of stores or of partitions, that are not own. Is
 * one of them another user's? */
static bool add_others(int at, const char *path, ino_t own, bool partitions, uint64_t most,
		       char *ret, size_t size)
{
	struct others o = {.most = most};
	_names_ struct shms_names d = shms_names(at, path);
	bool strange = false;
	struct stat st;

	while (o.n_looked < LOOKS && shms_names_next(&d)) {
		if (d.name[0] == '.' || (partitions && strncmp(d.name, "shmstore-", 9) != 0) ||
		    fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
		    st.st_ino == own)
			continue;
		/* We cannot look into other users', but ended jobs may have left them. */
		uint64_t bytes = bytes_of(&o, d.fd, d.name, partitions);
		if (bytes || st.st_uid != geteuid())
			note(&o, st.st_uid, d.name, bytes);
	}
	for (unsigned i = 0; i < o.n; i++) {
		const char *says = i            ? ","
				   : partitions ? "; its mount also holds"
						: "; it also holds";
		size_t used = strlen(ret);

		strange = strange || o.v[i].uid != geteuid();
		used += (size_t)snprintf(ret + used, size - used, "%s user %u's %s", says,
					 (unsigned)o.v[i].uid, o.v[i].name);
		if (o.v[i].bytes && used < size)
			snprintf(ret + used, size - used, " (%" PRIu64 " bytes)", o.v[i].bytes);
	}
	return strange;
}

/* Takes a look at all stores, so that a thread makes it anew four times a second at most,
 * or if stores came or went. */
static const char *holders_text(const struct shmstore *s, uint64_t used)
{
	static _Thread_local char text[400], of[sizeof(s->p->uuid)];
	static _Thread_local uint64_t made_ns, of_ns;
	uint64_t now = shms_now_mono_ns(), came_ns;
	struct stat st = {0};
	bool strange;

	(void)fstatat(s->p->fd, SHMS_DIR_STORES, &st, AT_SYMLINK_NOFOLLOW);
	came_ns = (uint64_t)shms_stat_ns(&st.st_mtim);
	if (now - made_ns < SWEEP_EVERY_NS && strcmp(of, s->p->uuid) == 0 && of_ns == came_ns)
		return text;
	leased_text(s->p, text, sizeof(text));
	strange = add_others(s->p->fd, SHMS_DIR_STORES, s->dir_inode, false, used, text,
			     sizeof(text));
	if (strcmp(s->p->mount, s->p->path) != 0 && fstat(s->p->fd, &st) == 0)
		strange |= add_others(AT_FDCWD, s->p->mount, st.st_ino, true, used, text,
				      sizeof(text));
	if (strange)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 ": as root, shmstore-admin gc --all removes what dead processes left "
			 "there");
	memcpy(of, s->p->uuid, sizeof(of));
	made_ns = now;
	of_ns = came_ns;
	return text;
}

int shms_room_refused(struct shms_room *m, int error)
{
	const char *path = m->s->p->path;
	struct shms_ramroom_look ram;
	struct shms_space space;

	if (shms_room_wanted(error))
		shms_count(&m->s->ledger->enospc_n, 1);
	if (error != -ENOSPC || shms_detail_is(error) || shms_space(m->s->p->fd, &space) < 0)
		return error;
	if (space.inodes && !space.inodes_free)
		return shms_detail(error, NULL,
				   "the partition is full: all %" PRIu64 " inodes of %s are in use",
				   space.inodes, path);
	if (m->bytes > space.size && space.size)
		return shms_detail(error, NULL,
				   "the partition is full: %s has %" PRIu64
				   " bytes in all, and %" PRIu64 " were asked for",
				   path, space.size, m->bytes);
	if (space.available >= m->bytes && shms_ramroom_look(NULL, NULL, &ram) &&
	    ram.room < m->bytes)
		return shms_detail(error, ram.path,
				   "memory is short: by %s %" PRIu64
				   " bytes may be taken still (of %" PRIu64
				   ") before the kernel kills a process, and %" PRIu64
				   " were asked for; %" PRIu64 " of %s are free",
				   ram.path, ram.room, ram.limit, m->bytes, space.available, path);
	return shms_detail(error, NULL,
			   "the partition is full: %" PRIu64 " bytes of %s are free (of %" PRIu64
			   "), and %" PRIu64 " were asked for%s",
			   space.available, path, space.size, m->bytes,
			   holders_text(m->s, space.used));
}
