/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.c: how much is to be freed, for whom, in what order, and what is said of it. The rest is
 * evictrun.c's.
 *
 * One eviction at a time works for each user: what another one is demoting need not be looked at,
 * and an object's names change in one place. The lock is the kernel's (flock): a killed eviction
 * leaves it free. A put that finds it taken waits for room rather than for the lock, and not for
 * long: the other one may run at idle priority on a host whose processors are busy, or be stopped.
 * Then the put moves what has one name, for which the lock is not needed (demote.h).
 */
#include "evict.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "demote.h"
#include "detail.h"
#include "nameslock.h"
#include "packed.h"
#include "packgive.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "walk.h"

#define WAIT_MS 100u /* that a put waits for somebody else's eviction */
#define TICK_NS 50000000ull

/* ---- what goes first ------------------------------------------------------------------------- */

/*
 * Model: costs are in bytes moved to or from the disk. An object that is not clean is written once
 * and perhaps read once; a write counts four reads, for somebody waits for it, it wears the disk,
 * and it happens for certain. Compressed objects move fewer bytes but take the processor's time.
 * Each object and each of its names cost a little however small it is, so that of two equally old
 * ones the larger goes, and a page goes after everything else. Age enters as a factor: of what is
 * equally dear the least recently used goes, and what was used a moment ago goes last, clean or
 * not: a copy that is free to drop is not free to read again.
 *
 * Rejected: clean ones always before all others (throws out what was promoted a moment ago and is
 * about to be used); frequency counters (memory that all stores would have to share and write on
 * each get; the inode's ctime is there anyway).
 */

/* bytes that could be moved in the time that an object's opening, header and names take */
#define COST_OBJECT (128u << 10)
#define COST_NAME   (32u << 10)
#define COST_WRITE  4u             /* reads */
#define AGE_SHIFT   16             /* ages in 65 us, so that the product fits */
#define AGE_MAX     (1ull << 36)   /* 52 days */
#define IDLE_NS     30000000000ull /* a store that does nothing for so long idles */
#define OVER_MAX    4ull
#define BATCH_MIN   (4ull << 20)
#define BATCH_MAX   (256ull << 20)
#define BATCH_PART  64u /* of the partition */

uint32_t shms_victim_weight(const struct shms_victim_store *s)
{
	uint64_t weight = SHMS_VICTIM_ONE;

	if (s->share && s->uss > s->share) {
		/* In pages, so that the product fits. */
		weight = (s->uss >> 12) * SHMS_VICTIM_ONE / ((s->share >> 12) + 1);
		if (weight > OVER_MAX * SHMS_VICTIM_ONE)
			weight = OVER_MAX * SHMS_VICTIM_ONE;
		if (weight < SHMS_VICTIM_ONE)
			weight = SHMS_VICTIM_ONE;
	}
	return (uint32_t)(s->idle_ns >= IDLE_NS ? 2 * weight : weight);
}

/* age 36 bits, efficiency 13, weight 11: the product fits. */
static uint64_t score(const struct shms_victim *v)
{
	uint64_t age = v->age_ns >> AGE_SHIFT, pages = v->bytes >> 12;
	uint64_t stored = (pages * v->ratio / SHMS_VICTIM_ONE) << 12;
	uint64_t cost = COST_OBJECT + (uint64_t)COST_NAME * v->n_names + stored;

	if (!v->clean)
		cost += COST_WRITE * stored;
	/* A processor decompresses about twice as fast as a disk reads,
	 * and compresses half as fast. */
	if (v->ratio < SHMS_VICTIM_ONE)
		cost += v->clean ? v->bytes / 2 : v->bytes / 2 + v->bytes;
	if (age > AGE_MAX)
		age = AGE_MAX;
	return (age + 1) * ((pages << 24) / cost) * v->weight;
}

/* No two have one id. */
static int by_turn(const void *x, const void *y)
{
	const struct shms_victim *a = x, *b = y;

	if (a->mapped != b->mapped)
		return a->mapped ? 1 : -1;
	if (a->near != b->near)
		return a->near ? -1 : 1;
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	if (a->age_ns != b->age_ns)
		return a->age_ns > b->age_ns ? -1 : 1;
	return a->id < b->id ? -1 : 1;
}

void shms_victims_sort(struct shms_victim *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i].score = score(&v[i]);
	if (n)
		qsort(v, n, sizeof(*v), by_turn);
}

/* Percent without an overflow, and without losing more than a hundred bytes. */
static uint64_t percent(uint64_t size, unsigned n)
{
	return size / 100 * n;
}

uint64_t shms_victim_goal(uint64_t size, uint64_t used, unsigned high, unsigned low)
{
	uint64_t floor = percent(size, low);

	return used > percent(size, high) && used > floor ? used - floor : 0;
}

uint64_t shms_victim_batch(uint64_t size)
{
	uint64_t batch = size / BATCH_PART;

	if (batch < BATCH_MIN)
		return BATCH_MIN;
	return batch > BATCH_MAX ? BATCH_MAX : batch;
}

/* Of goal, the part of those who have bytes of what is used. */
static uint64_t part_of(uint64_t goal, uint64_t bytes, uint64_t used)
{
	if (bytes >= used)
		return used ? goal : 0;
	return (uint64_t)((__uint128_t)goal * bytes / used);
}

/* ---- the parts of the tier that an eviction works on ----------------------------------------- */

/* In the order of uids, so that two that wait for each other's cannot be. A user whose part cannot
 * be opened (no directory may be made, say) is left out where others are left. */

static int add_user(const struct shms_walk_store *s, void *arg)
{
	struct shms_evict_users *u = arg;
	struct shms_evict_user *v;

	for (size_t i = 0; i < u->n; i++) {
		if (u->v[i].uid == s->st.st_uid)
			return 0;
	}
	v = reallocarray(u->v, u->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v[u->n++] = (struct shms_evict_user){.uid = s->st.st_uid, .lock_fd = -1};
	u->v = v;
	return 0;
}

static int by_uid(const void *a, const void *b)
{
	const struct shms_evict_user *x = a, *y = b;

	return (x->uid > y->uid) - (x->uid < y->uid);
}

int shms_evict_users_open(struct shmstore_partition *p, uid_t uid, struct shms_evict_users *ret)
{
	struct shms_evict_users all = {0};
	int error = 0, r;

	r = uid == SHMSTORE_EVICT_ALL ? shms_walk_stores(p, add_user, &all)
				      : add_user(&(struct shms_walk_store){.st.st_uid = uid}, &all);
	if (r == 0 && all.n)
		qsort(all.v, all.n, sizeof(*all.v), by_uid);
	/* Those that can be opened move to the front. */
	*ret = (struct shms_evict_users){.v = all.v};
	for (size_t i = 0; r == 0 && i < all.n; i++) {
		struct shms_evict_user one = all.v[i];
		int failed = shms_tier_of(p, one.uid, &one.t);

		if (failed == 0)
			ret->v[ret->n++] = one;
		else
			error = failed;
		if (failed == -ENOMEM || failed == -EMFILE)
			r = failed;
	}
	if (r == 0 && !ret->n)
		r = error;
	if (r < 0)
		shms_evict_users_close(ret);
	return r;
}

static void close_one(struct shms_evict_user *one)
{
	shms_residents_deinit(&one->residents);
	one->lock_fd = shms_tier_unlock(one->t, one->lock_fd);
	shms_tier_done(one->t);
}

void shms_evict_users_close(struct shms_evict_users *u)
{
	for (size_t i = 0; i < u->n; i++)
		close_one(&u->v[i]);
	free(u->v);
	*u = (struct shms_evict_users){0};
}

/* Locks each; who is locked by another eviction is left out of it, unless it is waited for. tick:
 * as of shms_tier_lock(). 0, -errno. */
static int lock_users(struct shms_evict_users *u, bool wait, int (*tick)(void *arg), void *arg)
{
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < u->n; i++) {
		struct shms_evict_user one = u->v[i];
		int error =
			r < 0 ? r
			      : shms_tier_lock(one.t, wait ? UINT_MAX : 0, tick, arg, &one.lock_fd);

		if (error < 0)
			close_one(&one);
		else
			u->v[n++] = one;
		r = r < 0 || error == -EBUSY ? r : error;
	}
	u->n = n;
	return r;
}

int shms_evict_users_look(struct shms_evict_users *u)
{
	int r = 0;

	for (size_t i = 0; i < u->n && r == 0; i++)
		r = shms_residents_list(u->v[i].t, &u->v[i].residents);
	return r;
}

/* ---- for whoever asks ------------------------------------------------------------------------ */

struct asking {
	const struct shmstore_evict *what;
	struct shmstore_evict_report report;
	uint64_t told_ns; /* progress, while it waits */
};

static int goal(struct shmstore_partition *p, const struct shmstore_evict *what, uint64_t *ret)
{
	struct shms_tier_config config;
	struct shms_space room = {0};
	uint64_t most = what->bytes;
	int r = shms_tier_config_read(p, &config);

	if (r == -ENOENT)
		return shms_detail(r, NULL,
				   "%s has no disk tier; shmstore-admin tier --set gives it one",
				   p->path);
	if (r == 0)
		r = shms_space(p->fd, &room);
	if (r < 0)
		return r;
	if (what->to && room.used > what->to && room.used - what->to > most)
		most = room.used - what->to;
	if (what->watermarks) {
		uint64_t over = shms_victim_goal(room.size, room.used, config.high, config.low);

		if (over > most)
			most = over;
	}
	*ret = most;
	return 0;
}

static int tick(void *arg)
{
	struct asking *a = arg;
	uint64_t now = shms_now_mono_ns();

	if (!a->what->progress || now - a->told_ns < TICK_NS)
		return 0;
	a->told_ns = now;
	return a->what->progress(&a->report, a->what->arg);
}

/* Files are demoted here; live stores are asked for as much of their packed objects as these have
 * of the memory in use, and demote them meanwhile. Files make up for what they do not give, and the
 * other way round. *ret_given: bytes of theirs. */
static int demote_all(struct shms_evict_run *run, uid_t uid, uint64_t *ret_given)
{
	uint64_t packed = shms_packask_bytes(run->p, uid, 0), goal = run->goal, part;
	struct shmstore_evict_report *report = run->report;
	struct shms_packask ask;
	struct shms_space room = {0};
	int r = shms_space(run->p->fd, &room);

	if (r < 0)
		return r;
	part = part_of(goal, packed, room.used);
	shms_packask_begin(run->p, uid, 0, part, &ask);
	run->goal = goal - part;
	r = shms_evict_run(run);
	*ret_given = shms_packask_end(&ask, part);
	if (r < 0 || !packed || report->freed + *ret_given >= goal)
		return r;
	run->goal = goal > *ret_given ? goal - *ret_given : 0;
	r = shms_evict_run(run);
	if (r < 0 || report->freed >= run->goal)
		return r;
	part = run->goal - report->freed;
	shms_packask_begin(run->p, uid, 0, part, &ask);
	*ret_given += shms_packask_end(&ask, part);
	return r;
}

static int run(struct shmstore_partition *p, struct asking *a, struct shms_evict_users *users,
	       uid_t uid)
{
	struct shms_evict_run run = {
		.p = p, .users = users, .what = a->what, .mapped = true, .report = &a->report};
	int r = lock_users(users, a->what->wait, tick, a);
	uint64_t wanted, given = 0;

	/* Somebody else may have done it meanwhile. */
	if (r == 0)
		r = goal(p, a->what, &run.goal);
	wanted = run.goal;
	if (r < 0 || !users->n || !wanted)
		return r;
	r = shms_evict_users_look(users);
	if (r == 0)
		r = demote_all(&run, uid, &given);
	if (r < 0)
		return r;
	if (a->report.freed + given >= wanted)
		return 1;
	/* The disk had its say. */
	if (a->report.disk_full || a->report.error == -EIO)
		return -ENOSPC;
	return shms_detail(-ENOSPC, p->path,
			   "%s: %" PRIu64 " of %" PRIu64 " bytes are free now, and %" PRIu64
			   " when their last view is gone; %s",
			   p->path, a->report.freed + given, wanted, a->report.held,
			   a->report.error
				   ? shmstore_strerror(a->report.error)
				   : "what is left is pinned, leased, in use, packed by processes "
				     "that make no calls, or of stores that take no part");
}

static int evict(struct shmstore_partition *p, struct asking *a)
{
	struct shms_evict_users users;
	uid_t uid = geteuid() == 0 ? a->what->uid : geteuid();
	uint64_t wanted = 0;
	int r = goal(p, a->what, &wanted);

	if (r < 0 || !wanted)
		return r;
	r = shms_evict_users_open(p, uid, &users);
	if (r < 0)
		return r;
	r = run(p, a, &users, uid);
	shms_evict_users_close(&users);
	return r;
}

int shmstore_partition_evict(struct shmstore_partition *p, const struct shmstore_evict *what,
			     struct shmstore_evict_report *ret)
{
	struct asking a = {.what = what, .report.size = sizeof(a.report)};
	uint64_t begin = shms_now_mono_ns();
	int r;

	if (!p || !what || what->size < sizeof(*what))
		return !p || !what ? shms_detail_null(!p ? "p" : "what")
				   : shms_detail(-EINVAL, NULL,
						 "what.size is %zu: begin with SHMSTORE_EVICT_INIT",
						 what->size);
	r = evict(p, &a);
	a.report.duration_ns = shms_now_mono_ns() - begin;
	if (ret)
		*ret = a.report;
	return r < 0 ? shms_error(r) : r;
}

/* ---- for a put ------------------------------------------------------------------------------- */

/* The room that a put lacks. */
struct lack {
	const struct shmstore_partition *p;
	uint64_t bytes; /* of the put */
	/* it is a limit that is used up: how much is missing below it is not known here */
	bool limit;
	uint64_t need; /* bytes that must go for the put; 0: not known */
	uint64_t goal; /* that are to go, so that the next puts need not wait */
};

static int is_there(void *arg)
{
	const struct lack *k = arg;
	struct shms_space room = {0};

	return shms_space(k->p->fd, &room) == 0 && room.size - room.used >= k->bytes;
}

/* While another eviction works for this user. 1: it made room; 0: it is over, and the lock is ours;
 * -EBUSY: neither. After one wait in vain, the next calls do not wait. */
static int wait_for_other(struct shms_evict_user *u, struct lack *k)
{
	bool stuck = atomic_load_explicit(&u->t->stuck, memory_order_relaxed);
	/* A limit's room is not the partition's: only its own put can tell. */
	int r = shms_tier_lock(u->t, stuck ? 0 : WAIT_MS, k->limit ? NULL : is_there, k,
			       &u->lock_fd);

	return r == -ECANCELED ? 1 : r;
}

static bool evict_files(struct shmstore *s, struct shms_evict_users *users, struct lack *k)
{
	static const struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	struct shms_evict_run run = {.p = s->p,
				     .users = users,
				     .s = s,
				     .what = &what,
				     .report = &report,
				     .need = k->need,
				     .goal = k->goal};
	int r = wait_for_other(&users->v[0], k);

	if (r != 0 && r != -EBUSY)
		return r > 0;
	run.one_name = r == -EBUSY;
	if (r == 0)
		shms_tier_for_put(users->v[0].lock_fd);
	r = shms_evict_users_look(users);
	if (r == 0)
		r = shms_evict_run(&run);
	shms_count(&s->ledger->evicted_n, report.n_objects);
	shms_count(&s->ledger->evicted_bytes, report.freed);
	return report.freed > 0;
}

/* True: some went. */
static bool evict_packed(struct shmstore *s, struct shms_tier *t, uint64_t bytes, struct lack *io)
{
	struct shms_packdemoted done = {0};

	if (bytes && !s->readonly)
		done = shms_packdemote(s, t, bytes, UINT64_MAX);
	shms_count(&s->ledger->evicted_n, done.n);
	shms_count(&s->ledger->evicted_bytes, done.bytes);
	io->need -= done.bytes < io->need ? done.bytes : io->need;
	io->goal -= done.bytes < io->goal ? done.bytes : io->goal;
	return done.n > 0;
}

/* Files and packed objects give way side by side, each kind by its own order, since they have no
 * time of last use in common: each by its share of the memory, so that neither stays for ever. Each
 * kind makes up for the other. */
static bool evict_both(struct shmstore *s, struct shms_evict_users *users,
		       const struct shms_space *room, uint64_t bytes)
{
	struct shms_tier *t = users->v[0].t;
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t packed = pack ? shms_pack_sum(pack).bytes : 0, left = room->size - room->used;
	struct lack k = {.p = s->p, .bytes = bytes, .limit = left >= bytes};
	bool made;

	k.need = k.limit ? 0 : bytes - left;
	k.goal = (k.limit ? bytes : k.need) + shms_victim_batch(room->size);
	made = evict_packed(s, t, part_of(k.goal, packed, room->used), &k);
	if (k.goal)
		made |= evict_files(s, users, &k);
	return made || evict_packed(s, t, k.goal, &k);
}

void shms_evict_after(struct shmstore_partition *p)
{
	struct shms_tier *t;

	if (shms_tier_own(p, &t) == 0)
		shms_tier_after_put(t, WAIT_MS);
}

bool shms_evict_for(struct shmstore *s, uint64_t bytes)
{
	struct shms_evict_users users;
	struct shms_space room = {0};
	bool made;

	if (!shms_tier_there(s->p) || shms_space(s->p->fd, &room) < 0)
		return false;
	/* A stub is an inode too; and what cannot fit need not try. */
	if ((room.inodes && !room.inodes_free) || !room.size || bytes > room.size ||
	    s->uid != geteuid())
		return false;
	/* Else our own objects would be the only ones that stay. */
	if (!s->readonly && shms_tier_join(s) < 0)
		return false;
	if (shms_evict_users_open(s->p, s->uid, &users) < 0)
		return false;
	made = evict_both(s, &users, &room, bytes);
	shms_evict_users_close(&users);
	return made;
}
