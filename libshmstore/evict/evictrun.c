/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evictrun.c: one eviction, in passes that each try what the one before could not:
 *
 *   residents whose object nobody names
 *   what is neither mapped nor, where the disk is full, to be written, in the policy's order
 *   what was left for want of disk, while clean copies can be given up for it
 *   what is mapped; it frees nothing yet, so what is held that way counts towards the goal
 *
 * Whether something is mapped is found out when it is tried: to ask the kernel means to open it.
 * The candidates are looked for again where there were too many to be kept at once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "candidates.h"
#include "demote.h"
#include "detail.h"
#include "engine.h"
#include "evict.h"
#include "nameslock.h"
#include "sys.h"

#define PROGRESS_NS 50000000ull
#define SLOTS       16u
#define BYTES_MAX   (256ull << 20) /* under way at once, but for a single one that is larger */
/* bytes that may be taken unasked: sixteen times as many are there */
#define FEW         (4u << 20)
#define TIER_HEADER (1u << 16) /* bytes of a tier file's header, generously */

enum state {
	WAITING,
	OVER,    /* demoted, or failed for good */
	IN_USE,  /* was mapped or changing when it was tried */
	NO_DISK, /* would have to be written */
};

/* Clean copies that go for what must be written. */
struct giving_up {
	uint32_t user;
	uint32_t *copies, n, next;
};

struct slot {
	struct shms_demote d;
	uint32_t candidate;
	bool used;
	bool copied; /* the engine is done with it */
};

struct running {
	const struct shms_evict_run *run;
	struct shms_engine *engine;
	struct shmstore *handle; /* of the own store, where it is its owner's */
	struct shms_candidates c;
	struct slot slots[SLOTS];
	unsigned n_used; /* slots */
	uint64_t bytes;  /* of their memory */
	struct shms_victim *v;
	size_t n;
	uint8_t *state;              /* enum state, by candidate */
	uint64_t held;               /* bytes of residents in use */
	uint64_t told_ns;            /* the last progress */
	bool mapped;                 /* the pass at hand is that of the mapped ones */
	bool one;                    /* at a time: there is no memory for more buffers */
	struct giving_up *giving_up; /* the pass at hand is that of one user's full disk */
	int error;                   /* ends the run */
	char words[512], path[SHMSTORE_TICKET_PATH]; /* what was said of the disk */
};

/* ---- results --------------------------------------------------------------------------------- */

static void tell(struct running *k)
{
	const struct shmstore_evict *what = k->run->what;
	uint64_t now = shms_now_mono_ns();

	if (!what->progress || k->error || (k->told_ns && now - k->told_ns < PROGRESS_NS))
		return;
	k->told_ns = now;
	if (what->progress(k->run->report, what->arg))
		k->error = -ECANCELED;
}

/* Keeps the sentence about the disk for the eviction's caller. */
static void keep_words(struct running *k)
{
	snprintf(k->words, sizeof(k->words), "%s", shmstore_error_detail());
	snprintf(k->path, sizeof(k->path), "%s", shmstore_error_path());
}

static void disk_full(struct running *k, uint32_t user)
{
	k->run->users->v[user].full = true;
	keep_words(k);
}

static enum state failed(struct running *k, uint32_t user, int error)
{
	struct shmstore_evict_report *r = k->run->report;

	switch (error) {
	case -EAGAIN:
		return k->mapped ? OVER : IN_USE;
	case -ENOSPC:
		/* Without a path of the disk it is the partition that lacks a page, for the
		 * key's sidecar: others first. */
		if (!shmstore_error_path()[0])
			return k->mapped ? OVER : IN_USE;
		disk_full(k, user);
		return NO_DISK;
	case -ENOENT:
	case -ETIMEDOUT:
	case -ECANCELED:
		return OVER;
	case -EIO:
		/* One object's memory or the whole disk: nothing more is
		 * written there by this run. */
		k->run->users->v[user].broken = true;
		keep_words(k);
		break;
	case -EMFILE:
	case -ENOMEM:
		k->error = error;
		break;
	}
	r->error = error;
	return OVER;
}

static void settle(struct running *k, uint32_t candidate, const struct shms_demote *d)
{
	struct shmstore_evict_report *r = k->run->report;
	enum state state = OVER;

	/* Also of what was handed over meanwhile and keeps its copy for the next time. */
	r->original += d->written ? d->memory : 0;
	r->written += d->written;
	if (d->error) {
		state = failed(k, k->c.v[candidate].user, d->error);
	} else {
		r->n_objects++;
		r->n_clean += d->clean;
		*(d->freed ? &r->freed : &r->held) += d->memory;
	}
	r->n_skipped += d->error && state == OVER;
	k->state[candidate] = (uint8_t)state;
	tell(k);
}

/* ---- demotions under way --------------------------------------------------------------------- */

/*
 * Several are under way on one engine, so that the disk never waits for names to be changed and
 * small objects are read, compressed and written side by side.
 *
 * A slot holds one: begun, then copied by the engine, then finished. The engine says that a copy is
 * done from within a call on it; names are not changed there but in the next step of ours, so that
 * nothing of the engine's is held while a store's names are locked, and names are changed for one
 * object at a time. A store whose names somebody holds and does not let go is waited for once: its
 * other objects are not tried.
 */

static void copied(struct shms_job *job)
{
	struct slot *slot = job->arg;

	slot->copied = true;
}

static void over(struct running *k, struct slot *slot)
{
	shms_demote_end(&slot->d);
	shms_candidates_names_end(&k->c, slot->candidate, &slot->d);
	slot->used = false;
	k->n_used--;
	k->bytes -= k->c.v[slot->candidate].bytes;
	settle(k, slot->candidate, &slot->d);
}

/* Where the index-th name of a slot's object is. */
static struct shms_candidate_store *store_of(const struct running *k, const struct slot *slot,
					     size_t index)
{
	const struct shms_candidate_name *n = k->c.v[slot->candidate].names;

	while (index--)
		n = n->next;
	return &k->c.stores[n->store];
}

static bool is_stuck(const struct running *k, const struct slot *slot)
{
	for (size_t i = 0; i < slot->d.n_names; i++) {
		if (store_of(k, slot, i)->stuck)
			return true;
	}
	return false;
}

static void finish(struct running *k, struct slot *slot)
{
	struct shms_demote *d = &slot->d;

	shms_detail_clear();
	if (k->error == -ECANCELED)
		d->error = -ECANCELED;
	else if (is_stuck(k, slot))
		d->error = -ETIMEDOUT;
	else if (shms_demote_finish(d) == -ETIMEDOUT)
		store_of(k, slot, d->first < 0 ? 0 : (size_t)d->first)->stuck = true;
	over(k, slot);
}

static void finish_copied(struct running *k)
{
	for (struct slot *slot = k->slots; slot < k->slots + SLOTS; slot++) {
		if (slot->used && slot->copied)
			finish(k, slot);
	}
}

/* Until one or more are over; at once where none is under way. */
static void await(struct running *k)
{
	shms_engine_wait(k->engine);
	finish_copied(k);
}

static void drain(struct running *k)
{
	if (!k->n_used)
		return;
	shms_engine_drain(k->engine);
	finish_copied(k);
}

/* A slot, and room for bytes more under way. */
static struct slot *free_slot(struct running *k, uint64_t bytes)
{
	if (k->one)
		drain(k);
	while (k->n_used == SLOTS || (k->n_used && k->bytes + bytes > BYTES_MAX))
		await(k);
	for (unsigned i = 0; i < SLOTS; i++) {
		if (!k->slots[i].used)
			return &k->slots[i];
	}
	abort();
}

/* Begins one; ends others meanwhile. */
static void put(struct running *k, uint32_t candidate)
{
	const struct shms_candidate *o = &k->c.v[candidate];
	struct slot *slot = free_slot(k, o->bytes);
	struct shms_demote *d = &slot->d;
	int r;

	*slot = (struct slot){.candidate = candidate, .used = true};
	*d = (struct shms_demote){.t = k->run->users->v[o->user].t,
				  .mapped = k->mapped,
				  .fd = -1,
				  .tier_fd = -1,
				  .job = {.done = copied, .arg = slot}};
	k->n_used++;
	k->bytes += o->bytes;
	shms_detail_clear();
	r = shms_candidates_names(&k->c, candidate, k->handle, d);
	if (r == 0 && is_stuck(k, slot))
		r = -ETIMEDOUT;
	if (r < 0)
		d->error = r;
	else
		r = shms_demote_begin(d);
	if (r == 0)
		shms_engine_store(k->engine, &d->job);
	else if (r > 0)
		finish(k, slot);
	else
		over(k, slot);
	finish_copied(k);
}

/* ---- clean copies ---------------------------------------------------------------------------- */

/*
 * Tier files of objects that are in memory as well are given up, least recently used first, where
 * the disk is wanted. A clean copy's stub is in clean/ of every store that has the object in
 * memory; with the last of these names its tier file goes (tier.h). Each name is taken away under
 * its store's names lock, one store at a time. A store that took the stub for the object meanwhile
 * keeps the file: the kernel counts.
 */

static int by_use(const void *a, const void *b, void *arg)
{
	const struct shms_candidates *c = arg;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	int64_t x = c->v[i].used_ns, y = c->v[j].used_ns;

	return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

/* The candidates of one user that have clean copies, least recently used first. 0, -ENOMEM. */
static int list_copies(struct running *k, struct giving_up *g)
{
	g->copies = calloc(k->c.n + 1, sizeof(*g->copies));
	if (!g->copies)
		return -ENOMEM;
	for (uint32_t i = 0; i < k->c.n; i++) {
		if (k->c.v[i].user == g->user && k->c.v[i].n_clean)
			g->copies[g->n++] = i;
	}
	/* The order is a plain one: no cost tells one copy on the disk from another. */
	qsort_r(g->copies, g->n, sizeof(*g->copies), by_use, &k->c);
	return 0;
}

static void drop_name(struct running *k, struct shms_tier *t, const struct shms_candidate_name *n)
{
	struct shmstore *own = k->c.stores[n->store].own ? k->handle : NULL;
	const struct shms_candidate_store *s;

	if (shms_candidates_open(&k->c, n->store, &s) < 0)
		return;
	if (shms_names_lock_of(own, s->objects_fd) == 0) {
		shms_tier_release(t, s->clean_fd, n->name);
		shms_names_unlock_of(own, s->objects_fd);
	}
	shms_candidates_close(&k->c, n->store);
}

/* Do stores need the tier file of the object besides those that have a clean copy of it? Also where
 * that cannot be told. */
static bool is_needed(struct running *k, const struct shms_candidate *o)
{
	const struct shms_candidate_store *s;
	struct shms_stub stub;
	int r = -ENOENT;

	for (const struct shms_candidate_name *n = o->names; n && r < 0; n = n->next) {
		r = shms_candidates_open(&k->c, n->store, &s);
		if (r < 0)
			continue;
		r = shms_stub_read(s->clean_fd, n->name, &stub, NULL);
		shms_candidates_close(&k->c, n->store);
	}
	/* The anchor is one more name. */
	return r < 0 || stub.n_names > o->n_clean + 1u;
}

/* Gives up the copy of one, unless somebody holds a store's names. */
static void drop_copy(struct running *k, uint32_t candidate)
{
	const struct shms_candidate *o = &k->c.v[candidate];
	const struct shms_candidate_name *n = is_needed(k, o) ? NULL : o->names;

	for (; n; n = n->next)
		drop_name(k, k->run->users->v[o->user].t, n);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void drop_residents(struct running *k)
{
	struct shmstore_evict_report *report = k->run->report;
	bool held;

	for (size_t u = 0; u < k->run->users->n; u++) {
		const struct shms_evict_user *user = &k->run->users->v[u];

		for (size_t i = 0; i < user->residents.n && report->freed < k->run->goal; i++) {
			const struct shms_resident *r = &user->residents.v[i];
			size_t n = shms_residents_count(&user->residents, r->inode);

			if (r->n_links > n)
				continue;
			report->freed += shms_residents_drop(user->t, r, n, &held);
			k->held += held ? r->bytes / n : 0;
		}
	}
}

/* Is that enough, once what is under way is done? Mapped ones count as if they were free: more of
 * them would not help sooner. */
static bool enough(const struct running *k)
{
	const struct shmstore_evict_report *r = k->run->report;

	return r->freed + k->bytes + (k->mapped ? k->held + r->held : 0) >= k->run->goal;
}

/* Puts the victims in some state that this run may touch in front, in their order. Returns how many
 * they are. */
static size_t gather(struct running *k, enum state state)
{
	size_t n = 0;

	for (size_t i = 0; i < k->n; i++) {
		struct shms_victim v = k->v[i];

		if (k->state[v.id] != state || (k->run->one_name && k->c.v[v.id].n_links > 1))
			continue;
		v.mapped = k->mapped;
		k->v[i] = k->v[n];
		k->v[n++] = v;
	}
	shms_victims_sort(k->v, n);
	return n;
}

/* Gives up one clean copy after the other until there is room on the disk for
 * bytes. False: no more of them. */
static bool make_disk_room(struct running *k, uint64_t bytes)
{
	struct giving_up *g = k->giving_up;
	struct shms_evict_user *u = &k->run->users->v[g->user];

	/* Each demotion claims its own: this only asks whether it could. */
	while (shms_tier_claim(u->t, bytes) < 0) {
		uint32_t i;

		/* Demotions under way claim the room that they would need uncompressed. */
		if (k->n_used) {
			drain(k);
			continue;
		}
		if (g->next == g->n) {
			disk_full(k, g->user);
			return false;
		}
		i = g->copies[g->next++];
		/* The tier file of an object demoted just now is no copy any more. */
		if (k->state[i] != OVER || k->c.v[i].pinned)
			drop_copy(k, i);
	}
	shms_tier_settle(u->t, bytes, 0);
	return true;
}

/* May it be demoted, as far as the disk goes? */
static bool disk_allows(struct running *k, const struct shms_victim *v)
{
	uint32_t user = k->c.v[v->id].user;
	const struct shms_evict_user *u = &k->run->users->v[user];

	if (v->clean)
		return true;
	if (u->full || u->broken)
		return false;
	return !k->giving_up || (user == k->giving_up->user &&
				 make_disk_room(k, shms_tierroom_need(v->bytes + TIER_HEADER)));
}

static void pass(struct running *k, enum state state)
{
	size_t n = gather(k, state), next = 0;

	while (!k->error) {
		bool done = enough(k);
		const struct shms_victim *v = !done && next < n ? &k->v[next++] : NULL;

		if (!v && !k->n_used)
			break;
		if (done)
			await(k);
		else if (!v)
			drain(k);
		else if (!disk_allows(k, v))
			k->state[v->id] = NO_DISK;
		else
			put(k, (uint32_t)v->id);
	}
	drain(k);
}

static void user_without_disk(struct running *k, uint32_t user)
{
	struct giving_up g = {.user = user};

	k->error = list_copies(k, &g);
	if (k->error)
		return;
	k->run->users->v[user].full = false;
	k->giving_up = &g;
	pass(k, NO_DISK);
	k->giving_up = NULL;
	free(g.copies);
}

static void pass_without_disk(struct running *k)
{
	for (uint32_t u = 0; u < k->run->users->n && !k->error && !enough(k); u++) {
		if (k->run->users->v[u].full && !k->run->users->v[u].broken)
			user_without_disk(k, u);
	}
}

/* ---- the run --------------------------------------------------------------------------------- */

static void forget(struct running *k)
{
	shms_candidates_deinit(&k->c);
	free(k->v);
	free(k->state);
	k->v = NULL;
	k->state = NULL;
	k->n = 0;
}

static int look(struct running *k)
{
	const struct shms_evict_run *run = k->run;
	struct shms_space space;
	uint64_t own = run->s && !run->s->readonly ? run->s->dir_inode : 0;
	int r = shms_candidates_find(run->p, run->users->v, run->users->n, own, 0, &k->c);

	if (r == 0)
		r = shms_error(shms_space(run->p->fd, &space));
	if (r < 0)
		return r;
	k->state = calloc(k->c.n + 1, sizeof(*k->state));
	r = k->state ? shms_weigh(&k->c, space.size, shms_now_real_ns(), &k->v, &k->n) : -ENOMEM;
	return r;
}

static bool worth_it(const struct running *k)
{
	uint64_t all = k->run->report->freed;

	for (size_t i = 0; i < k->n; i++)
		all += k->v[i].bytes;
	return all >= k->run->need;
}

static int passes(struct running *k)
{
	const struct shms_evict_run *run = k->run;
	uint64_t before;

	do {
		before = run->report->freed;
		forget(k);
		k->error = look(k);
		if (k->error || !worth_it(k))
			return k->error;
		pass(k, WAITING);
	} while (!k->error && !enough(k) && k->c.cut && run->report->freed > before);
	pass_without_disk(k);
	if (run->mapped && !k->error && !enough(k)) {
		k->mapped = true;
		pass(k, IN_USE);
	}
	return k->error;
}

static int get_engine(struct running *k)
{
	const struct shmstore_evict *what = k->run->what;

	if (!what->n_threads) {
		k->engine = shms_tier_engine(k->run->users->v[0].t);
		return k->engine ? 0 : -ENOMEM;
	}
	return shms_engine_new(&(struct shms_engine_options){.n_threads = what->n_threads,
							     .background = what->background},
			       &k->engine);
}

int shms_evict_run(const struct shms_evict_run *run)
{
	struct running k = {.run = run, .handle = run->s && !run->s->readonly ? run->s : NULL};
	int r = get_engine(&k);

	if (r < 0)
		return r;
	k.one = shms_ramroom_free(&run->p->ram) < FEW;
	drop_residents(&k);
	tell(&k);
	r = k.error;
	if (r == 0 && run->report->freed < run->goal)
		r = passes(&k);
	for (size_t i = 0; k.state && i < k.c.n; i++)
		run->report->n_skipped += k.state[i] == IN_USE;
	forget(&k);
	if (!run->what->n_threads)
		shms_tier_engine_back(run->users->v[0].t, k.engine);
	else
		shms_engine_free(k.engine);
	for (size_t i = 0; i < run->users->n && run->report->freed < run->goal; i++)
		run->report->disk_full = run->report->disk_full || run->users->v[i].full;
	/* The cause of its end becomes the caller's sentence where it freed too little. */
	if (*k.words)
		shms_detail(r < 0 ? r : -ENOSPC, k.path, "%s", k.words);
	return r;
}
