/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbkernel.c: the partition's pool follows what the kernel says.
 *
 *   capacity    min(limit, size of the file system) - headroom - foreign files
 *   objects     used - foreign - materialized - ghosts - coming - evictable: a reservation of ours,
 *               never reclaimable
 *   coming      what dead stores have that are not reaped yet: the same, reclaimable: it comes
 *               without anybody's doing
 *   evictable   what the disk tier, or recycled files, can give back: the same, reclaimable
 *   ghosts      deleted and still mapped, by the last survey: one for each client
 *
 * Materialized bytes are counted by a client's reservations and by the kernel: the store's ledger
 * says what its writers have taken, at most its reservations. A ledger that lies about it spends
 * its own reservation twice, and meets the kernel's ENOSPC: the next look sees what is used.
 *
 * A look for one client's request reads that client's page alone, and all of them where the request
 * would not fit: only the others' ledgers tell what they wrote and what became of it. Foreign files
 * are known from surveys only; while somebody waits, and foreign files may be why, one is asked
 * for, but never so often that surveys take more than a tenth of the time.
 *
 * The kernel is asked at each tick, and for each request that is about memory which was written. A
 * RELEASE, or a RESERVE of a small part of the free bytes, is served by a look that is FRESH_NS
 * old: fstatfs() would be a tenth of the round trip.
 *
 * All of it is computed anew at each look; nothing is carried on but what the core was told. Rises
 * are told before falls, so that in between no used byte counts as free.
 */
#include <sys/param.h>
#include <sys/statvfs.h>

#include "account.h"
#include "arbhost.h"
#include "quota.h"
#include "tierkeeper.h"

#define PPM_MAX   1000000u            /* config.h: up to here a headroom is a part of the whole */
#define UNLIMITED (UINT64_C(1) << 56) /* neither the file system nor a limit says how much */

#define FRESH_NS   UINT64_C(1000000)
#define SMALL_PART 4u /* of what is free: so much can others write meanwhile, without asking */

#define SURVEY_REST      10u /* times its duration, until the next one that we ask for */
#define SURVEY_LEAST_NS  UINT64_C(20000000)
#define SURVEY_FAILED_NS UINT64_C(1000000000)

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void read_client(struct arbhost *h, struct arbguest *c)
{
	const char *at = (const char *)c->member->page + WIRE_LEDGER_OFF +
			 offsetof(struct shmstore_counters, reserved_bytes);
	/* Relaxed: a figure; the kernel's word, read after it, bounds what comes of it. */
	uint64_t reserved = atomic_load_explicit((const _Atomic uint64_t *)(const void *)at,
						 memory_order_relaxed);

	for (unsigned slot = 0; slot < WIRE_LEASES; slot++)
		arbpage_read(c, slot);
	h->kernel.materialized -= c->materialized;
	c->materialized =
		c->leaving ? 0
			   : MIN(reserved, c->group.bytes[0] - c->going[0] + c->leases[0].held) +
				     c->group.bytes[1] - c->going[1];
	h->kernel.materialized += c->materialized;
}

/* Sums the stores' ledgers: recycled files, and objects that the tier may take. */
static void read_ledgers(struct arbhost *h)
{
	struct arbkernel *k = &h->kernel;

	k->recyclable = k->linked = k->mapped = 0;
	for (struct member *m = h->account->members; m; m = m->next) {
		member_refresh(m);
		k->linked += m->last.linked_bytes;
		k->mapped += m->last.mapped_bytes;
		/* Only who is asked by its connection looks at it soon. */
		if (m->conn && m->credit)
			k->recyclable += m->last.pool_bytes;
	}
	k->demotable = MIN(less(k->linked, k->mapped), tierkeeper_room(h->account));
}

static uint64_t capacity(const struct arbhost *h, const struct statvfs *fs)
{
	uint64_t whole = (uint64_t)fs->f_blocks * fs->f_frsize, headroom = arb_config(h)->headroom;
	struct quota_limits l;

	if (!whole)
		whole = UNLIMITED;
	if (quota_limit_get(h->account->quota, WIRE_LIMIT_PARTITION, "", &l) == 0 && l.hard &&
	    l.hard != QUOTA_DEFAULT)
		whole = MIN(whole, l.hard);
	if (headroom <= PPM_MAX)
		headroom = (uint64_t)((__uint128_t)whole * headroom / PPM_MAX);
	return less(less(whole, headroom), h->kernel.drift);
}

/* Divides the used bytes among their causes, the ones known otherwise first. */
static void share_out(struct arbhost *h)
{
	struct arbkernel *k = &h->kernel;
	uint64_t left = less(k->used, k->drift);

	left = less(left, k->materialized);
	left = less(left, k->ghosts);
	k->coming = MIN(reaper_coming(h->account), left);
	left -= k->coming;
	k->evictable =
		h->evict.rest_until_ns > arb_now(h) ? 0 : MIN(k->demotable + k->recyclable, left);
	k->objects = left - k->evictable;
}

static void tell_client(struct arbhost *h, struct arbguest *c, bool raise)
{
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++)
		arbpage_tell(c, slot, raise);
	if (c->core_ghosts)
		arbstep_set(h, arb_ours(c, ARB_GHOSTS), &c->core_ghosts, c->ghosts, raise);
}

static void tell(struct arbhost *h, struct arbguest *only, bool raise)
{
	struct arbkernel *k = &h->kernel;

	arbstep_set(h, ARB_OBJECTS, &k->core_objects, k->objects, raise);
	arbstep_set(h, ARB_COMING, &k->core_coming, k->coming, raise);
	arbstep_set(h, ARB_EVICTABLE, &k->core_evictable, k->evictable, raise);
	if (only)
		tell_client(h, only, raise);
	else
		for (struct arbguest *c = h->clients; c; c = c->hh.next)
			tell_client(h, c, raise);
}

void arbkernel_refresh(struct arbhost *h, struct arbguest *only)
{
	struct arbkernel *k = &h->kernel;
	struct arb_message resize = {.op = ARB_OP_POOL_RESIZE, .pool = WIRE_ARB_PARTITION};
	struct statvfs fs;

	/* The ledgers before the kernel: bytes written in between count twice, not never. */
	if (only) {
		read_client(h, only);
	} else {
		for (struct arbguest *c = h->clients; c; c = c->hh.next)
			read_client(h, c);
		read_ledgers(h);
	}
	if (fstatvfs(h->account->fd, &fs) < 0)
		return;
	k->looked_ns = arb_now(h);
	k->used = fs.f_blocks ? (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize
			      : k->linked + k->materialized;
	k->capacity = capacity(h, &fs);
	share_out(h);
	tell(h, only, true);
	if (k->capacity != k->core_capacity) {
		resize.bytes = k->capacity;
		if (arbstep_do(h, &resize) == ARB_OK)
			k->core_capacity = k->capacity;
	}
	tell(h, only, false);
}

void arbkernel_glance(struct arbhost *h, struct arbguest *c, uint64_t bytes)
{
	struct arbkernel *k = &h->kernel;
	bool fresh = k->looked_ns && arb_now(h) < k->looked_ns + FRESH_NS;

	if (!fresh || arb_n_parked(h->core) || bytes > UINT64_MAX / SMALL_PART ||
	    !arbkernel_fits(h, SMALL_PART * bytes)) {
		arbkernel_refresh(h, c);
		return;
	}
	read_client(h, c);
	share_out(h);
	tell(h, c, true);
	tell(h, c, false);
}

bool arbkernel_fits(const struct arbhost *h, uint64_t bytes)
{
	struct arb_pool_info i;

	return arb_pool(h->core, WIRE_ARB_PARTITION, &i) && !i.n_waiting && i.used <= i.capacity &&
	       bytes <= i.capacity - i.used;
}

/* ---- surveys --------------------------------------------------------------------------------- */

static void survey_done(struct account_wait *w, const struct survey *survey, UNUSED int error)
{
	struct arbhost *h = CONTAINER_OF(w, arbhost, survey);

	w->not_before_ns = arb_now(h) + SURVEY_REST * (survey ? survey->cost_ns + SURVEY_LEAST_NS
							      : SURVEY_FAILED_NS);
}

void arbkernel_survey_if_old(struct arbhost *h)
{
	h->survey.fn = survey_done;
	if (h->kernel.drift && arb_n_parked(h->core))
		account_survey_seldom(h->account, &h->survey);
}

/* A deleted file counts once, for the client that was first found to have it. */
static uint64_t ghosts_of(const struct survey *s, pid_t pid)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_holders; i++) {
		const struct survey_holder *h = &s->holders[i];

		if (h->kind == SHMSTORE_HOLD_GHOST && h->first && h->pid == pid)
			sum += h->bytes;
	}
	return sum;
}

/* A reservation of its own, held by its oldest task: a roll back of that is what may unmap them. */
static void book_ghosts(struct arbguest *c)
{
	struct arb_message own = {.op = ARB_OP_OWN, .reservation = arb_ours(c, ARB_GHOSTS)};

	if (!c->core_ghosts) {
		if (!c->ghosts || arbstep_make(c->host, WIRE_ARB_PARTITION, own.reservation,
					       c->ghosts, false) != ARB_OK)
			return;
		c->core_ghosts = c->ghosts;
	}
	if (c->group.n[ARB_TASKS]) {
		own.task = c->group.items[ARB_TASKS]->id;
		arbstep_do(c->host, &own);
	}
}

void arbkernel_surveyed(struct arbhost *h, const struct survey *s)
{
	h->kernel.drift = s->usage.foreign;
	h->kernel.ghosts = 0;
	for (struct arbguest *c = h->clients; c; c = c->hh.next) {
		c->ghosts = ghosts_of(s, c->member->pid);
		h->kernel.ghosts += c->ghosts;
		book_ghosts(c);
	}
	arbkernel_refresh(h, NULL);
	for (struct arbguest *c = h->clients; c; c = c->hh.next)
		if (c->core_ghosts && !c->ghosts &&
		    arbstep_about(h, ARB_OP_RELEASE, 0, arb_ours(c, ARB_GHOSTS)) == ARB_OK)
			c->core_ghosts = 0;
}

/*
 * Room out of what is evictable: the disk tier demotes, and stores are asked for their
 * recycled files, both at once.
 *
 * One at a time: more that is wanted meanwhile is begun when it is over. It has succeeded when the
 * kernel counts so many bytes less, however that came about. An eviction that gave nothing is not
 * repeated for REST_NS: until then nothing counts as evictable, and its waiters are beyond help.
 */
/* that stores have for their recycled files: a busy one gives them with its next call */
#define ASKED_NS UINT64_C(1000000000)
#define REST_NS  UINT64_C(2000000000)

/* The core's job is over, well or not: the kernel's count was booked before. */
static void end(struct arbhost *h)
{
	bool helped = h->kernel.used <= h->evict.goal;

	h->evict.running = false;
	if (h->evict.asked_until_ns)
		accountquota_ask_recycled(h->account, 0);
	h->evict.asked_until_ns = 0;
	if (!helped) {
		h->evict.rest_until_ns = arb_now(h) + REST_NS;
		arbkernel_refresh(h, NULL);
	}
	arbstep_about(h, ARB_OP_SPILLED, ARB_ALL, ARB_EVICTABLE);
	if (helped) /* what is left of it may be had as well */
		arbstep_about(h, ARB_OP_UNPIN, 0, ARB_EVICTABLE);
}

static void begin(struct arbhost *h)
{
	struct arbkernel *k = &h->kernel;
	uint64_t bytes = h->evict.wanted;

	h->evict.wanted = 0;
	h->evict.running = true;
	h->evict.goal = k->used > bytes ? k->used - bytes : 0;
	if (k->recyclable) {
		accountquota_ask_recycled(h->account, bytes);
		h->evict.asked_until_ns = arb_now(h) + ASKED_NS;
	}
	/* Recycled files come on top: they may take a moment, or never come. */
	h->evict.demoting = k->demotable && tierkeeper_make_room(h->account, bytes);
}

void arbevict_look(struct arbhost *h)
{
	if (h->evict.running) {
		bool waits = h->evict.demoting || arb_now(h) < h->evict.asked_until_ns;

		if (!waits || h->kernel.used <= h->evict.goal)
			end(h);
	}
	if (!h->evict.running && h->evict.wanted)
		begin(h);
}
