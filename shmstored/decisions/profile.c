/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.c: the table of keys, and what tasks add to it.
 *
 * A key is found by the 128-bit hash of its name, which is kept beside it and compared
 * too. Sums never overflow: before they would, n and sum are halved together, which
 * leaves the average. One thread.
 */
#include "profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <xxhash.h>

#include "profilekey.h"

struct profile *profile_new(uint32_t max_keys)
{
	struct profile *p = calloc(1, sizeof(*p));

	if (p)
		p->max_keys = max_keys ? max_keys : 1;
	return p;
}

static void key_free(struct profile *p, struct profile_key *k)
{
	HASH_DEL(p->keys, k);
	free(k->names);
	free(k);
}

void profile_reset(struct profile *p)
{
	while (p->keys)
		key_free(p, p->keys);
}

struct profile *profile_free(struct profile *p)
{
	if (!p)
		return NULL;
	profile_reset(p);
	free(p);
	return NULL;
}

uint32_t profile_n_keys(const struct profile *p)
{
	return HASH_COUNT(p->keys);
}

bool profile_name_fits(const struct profile_name *name)
{
	return strlen(name->lang) <= PROFILE_NAME && strlen(name->func) <= PROFILE_NAME &&
	       strlen(name->group) <= PROFILE_NAME;
}

/* Of the parts with the zeros between them, so that no two names are the
 * same bytes. Returns how many. */
static size_t join(const struct profile_name *name, char *joined)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1,
	       group = strlen(name->group) + 1;

	memcpy(joined, name->lang, lang);
	memcpy(joined + lang, name->func, func);
	memcpy(joined + lang + func, name->group, group);
	return lang + func + group;
}

char *profile_name_copy(const struct profile_name *name, struct profile_name *ret)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1;
	char *names = malloc(lang + func + strlen(name->group) + 1);

	if (!names)
		return NULL;
	join(name, names);
	*ret = (struct profile_name){names, names + lang, names + lang + func};
	return names;
}

static bool has_name(const struct profile_key *k, const struct profile_name *name)
{
	return strcmp(k->name.lang, name->lang) == 0 && strcmp(k->name.func, name->func) == 0 &&
	       strcmp(k->name.group, name->group) == 0;
}

/* The key with the hash of that name, which fits; it may be another's. */
static struct profile_key *find_hash(const struct profile *p, const struct profile_name *name,
				     uint8_t ret[16])
{
	char joined[3 * (PROFILE_NAME + 1)];
	XXH128_canonical_t canonical;
	struct profile_key *k;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(joined, join(name, joined)));
	memcpy(ret, canonical.digest, 16);
	HASH_FIND(hh, p->keys, ret, 16, k);
	return k;
}

struct profile_key *profile_find(const struct profile *p, const struct profile_name *name)
{
	uint8_t hash[16];
	struct profile_key *k = profile_name_fits(name) ? find_hash(p, name, hash) : NULL;

	return k && has_name(k, name) ? k : NULL;
}

struct profile_name profile_name_of(const struct profile_key *k)
{
	return k->name;
}

struct profile_key *profile_next(const struct profile *p, const struct profile_key *k)
{
	struct profile_key *next = NULL;

	for (struct profile_key *other = p->keys; other; other = other->hh.next)
		if ((!k || memcmp(other->hash, k->hash, 16) > 0) &&
		    (!next || memcmp(other->hash, next->hash, 16) < 0))
			next = other;
	return next;
}

/* The one that was fed longest ago goes; of several, the one with the least hash. */
static void make_room(struct profile *p)
{
	struct profile_key *oldest = p->keys;

	if (HASH_COUNT(p->keys) < p->max_keys)
		return;
	for (struct profile_key *k = p->keys; k; k = k->hh.next)
		if (k->fed < oldest->fed ||
		    (k->fed == oldest->fed && memcmp(k->hash, oldest->hash, 16) < 0))
			oldest = k;
	key_free(p, oldest);
}

struct profile_key *profilekey_get(struct profile *p, const struct profile_name *name)
{
	uint8_t hash[16];
	struct profile_key *k = find_hash(p, name, hash);

	if (k && has_name(k, name))
		return k;
	/* Two names with one hash: the newer one replaces the other. */
	if (k)
		key_free(p, k);
	make_room(p);
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	memcpy(k->hash, hash, 16);
	k->names = profile_name_copy(name, &k->name);
	if (k->names)
		HASH_ADD(hh, p->keys, hash, 16, k);
	if (!k->hh.tbl) {
		free(k->names);
		free(k);
		return NULL;
	}
	k->fed = ++p->n_fed;
	return k;
}

/* Steps of private and shared memory begin at 1 KiB, those of times at 1 ms. */
static unsigned shift_of(enum profile_resource r)
{
	return r == PROFILE_CPU ? 2 : 10;
}

static unsigned bucket_of(enum profile_resource r, uint64_t value)
{
	unsigned power, i;

	if (value >> shift_of(r) == 0)
		return 0;
	power = 63u - (unsigned)__builtin_clzll(value);
	i = (power - shift_of(r)) * 4 + (unsigned)(value >> (power - 2) & 3);
	return i < PROFILE_BUCKETS ? i : PROFILE_BUCKETS - 1;
}

uint64_t profile_bucket_from(enum profile_resource r, unsigned i)
{
	return i ? (UINT64_C(4) + i % 4) << (shift_of(r) + i / 4 - 2) : 0;
}

static void profilekey_add(struct profilevalues *v, enum profile_resource r, uint64_t value)
{
	uint32_t *bucket = &v->buckets[bucket_of(r, value)];

	if (v->sum > UINT64_MAX - value)
		profilekey_halve(&v->n, &v->sum);
	v->n++;
	v->sum += value;
	*bucket += *bucket < UINT32_MAX;
	profilering_add(&v->ring, value);
	v->session_peak = MAX(v->session_peak, value);
	v->n_session++;
	if (v->n_session == PROFILE_RING) {
		v->n_session = 0;
		if (v->prior_peak > v->session_peak)
			v->prior_peak -= (v->prior_peak - v->session_peak + 1) / 2;
	}
}

static void add_phases(struct profilephases *ph, const struct profile_task *t)
{
	if (!t->n_phases || t->n_phases > PROFILE_PHASES)
		return;
	if (ph->n != t->n_phases)
		*ph = (struct profilephases){.n = t->n_phases};
	if (ph->n_tasks == PROFILE_RING) {
		memcpy(ph->before, ph->now, sizeof(ph->before));
		memset(ph->now, 0, sizeof(ph->now));
		ph->n_tasks = 0;
	}
	ph->n_tasks++;
	for (unsigned i = 0; i < ph->n; i++)
		ph->now[i] = MAX(ph->now[i], MIN(t->phases[i], PROFILE_MOST));
}

/* The kind called name, made where there is none, as the one that was heard of
 * last. 0, -EINVAL, -ENOMEM. */
static int touch(struct profile *p, const struct profile_name *name, struct profile_key **ret)
{
	struct profile_key *k;

	if (!profile_name_fits(name))
		return -EINVAL;
	k = profilekey_get(p, name);
	if (!k)
		return -ENOMEM;
	k->fed = ++p->n_fed;
	*ret = k;
	return 0;
}

int profile_feed(struct profile *p, const struct profile_name *name,
		 const struct profile_task *task)
{
	struct profile_key *k;
	int r = touch(p, name, &k);

	if (r < 0)
		return r;
	for (int i = 0; i < PROFILE_RESOURCES; i++)
		if (task->has[i])
			profilekey_add(&k->of[i], (enum profile_resource)i,
				       task->used[i] < PROFILE_MOST ? task->used[i] : PROFILE_MOST);
	if (task->life_ms)
		profilering_add(&k->lives,
				task->life_ms < PROFILE_MOST ? task->life_ms : PROFILE_MOST);
	add_phases(&k->phases, task);
	profilegrowth_add(&k->growth, task);
	if (k->killed_left && !--k->killed_left)
		k->killed_had = 0;
	k->preempted_left -= k->preempted_left != 0;
	return 0;
}

int profile_killed(struct profile *p, const struct profile_name *name, uint64_t had)
{
	struct profile_key *k;
	int r;

	if (!had)
		return profile_name_fits(name) ? 0 : -EINVAL;
	r = touch(p, name, &k);
	if (r < 0)
		return r;
	k->killed_had = MAX(k->killed_had, MIN(had, PROFILE_MOST));
	k->killed_left = k->preempted_left = PROFILE_RING;
	return 0;
}

int profile_preempted(struct profile *p, const struct profile_name *name)
{
	struct profile_key *k;
	int r = touch(p, name, &k);

	if (r < 0)
		return r;
	k->preempted_left = PROFILE_RING;
	return 0;
}

static void merge_values(struct profilevalues *a, const struct profilevalues *b)
{
	uint64_t n = b->n, sum = b->sum, peak = profilevalues_peak(b);

	while (a->sum > UINT64_MAX - sum || a->n > UINT64_MAX - n) {
		profilekey_halve(&a->n, &a->sum);
		profilekey_halve(&n, &sum);
	}
	a->sum += sum;
	a->n += n;
	a->session_peak = MAX(a->session_peak, peak);
	profilering_interleave(&a->ring, &b->ring);
	for (unsigned i = 0; i < PROFILE_BUCKETS; i++)
		a->buckets[i] = b->buckets[i] > UINT32_MAX - a->buckets[i]
					? UINT32_MAX
					: a->buckets[i] + b->buckets[i];
}

static void merge_phases(struct profilephases *a, const struct profilephases *b)
{
	if (!b->n)
		return;
	if (a->n != b->n)
		*a = (struct profilephases){.n = b->n};
	for (unsigned i = 0; i < b->n; i++)
		a->now[i] = MAX(a->now[i], MAX(b->now[i], b->before[i]));
	a->n_tasks += a->n_tasks < PROFILE_RING;
}

int profile_merge(struct profile *into, const struct profile *from)
{
	for (struct profile_key *b = from->keys; b; b = b->hh.next) {
		struct profile_name name = profile_name_of(b);
		struct profile_key *a = profilekey_get(into, &name);

		if (!a)
			return -ENOMEM;
		a->fed = ++into->n_fed;
		for (int r = 0; r < PROFILE_RESOURCES; r++)
			merge_values(&a->of[r], &b->of[r]);
		profilering_interleave(&a->lives, &b->lives);
		merge_phases(&a->phases, &b->phases);
		profilegrowth_merge(&a->growth, &b->growth);
		a->killed_had = MAX(a->killed_had, b->killed_had);
		a->killed_left = MAX(a->killed_left, b->killed_left);
		a->preempted_left = MAX(a->preempted_left, b->preempted_left);
	}
	return 0;
}

/* ---- a task that runs ------------------------------------------------------------------------ */

void profiletrack_init(struct profiletrack *t)
{
	*t = (struct profiletrack){.part_ms = 1};
}

/* Each two parts become one. */
static void fold(struct profiletrack *t)
{
	for (unsigned i = 0; i < PROFILETRACK_PARTS / 2; i++)
		t->parts[i] = MAX(t->parts[(size_t)i * 2], t->parts[(size_t)i * 2 + 1]);
	memset(t->parts + PROFILETRACK_PARTS / 2, 0, sizeof(t->parts) / 2);
	t->part_ms *= 2;
	t->at /= 2;
}

void profiletrack_note(struct profiletrack *t, uint64_t age_ms, uint64_t bytes)
{
	while (age_ms / t->part_ms >= PROFILETRACK_PARTS)
		fold(t);
	for (unsigned part = (unsigned)(age_ms / t->part_ms); t->at < part; t->at++)
		t->parts[t->at + 1] = t->now;
	while (t->n_ages < PROFILE_AGES && PROFILE_AGE(t->n_ages) <= age_ms)
		t->by_age[t->n_ages++] = t->peak;
	t->now = bytes;
	t->parts[t->at] = MAX(t->parts[t->at], bytes);
	t->peak = MAX(t->peak, bytes);
	t->n_samples += t->n_samples < UINT32_MAX;
}

/* The peak from one age up to another, which it has not reached. */
static uint64_t peak_between(const struct profiletrack *t, uint64_t from_ms, uint64_t to_ms)
{
	uint64_t peak = 0;

	for (unsigned i = 0; i < PROFILETRACK_PARTS; i++) {
		uint64_t begin = i * t->part_ms;

		if (begin < to_ms && begin + t->part_ms > from_ms)
			peak = MAX(peak, i > t->at ? t->now : t->parts[i]);
	}
	return peak;
}

void profiletrack_end(const struct profiletrack *t, uint64_t life_ms, struct profile_task *ret)
{
	struct profiletrack whole = *t;

	ret->life_ms = life_ms ? life_ms : 1;
	ret->n_phases = ret->n_ages = 0;
	if (t->n_samples > 1) {
		memcpy(ret->by_age, t->by_age, sizeof(ret->by_age));
		ret->n_ages = t->n_ages;
	}
	if (t->n_samples < PROFILE_PHASES || life_ms < PROFILE_PHASES || life_ms > PROFILE_MOST)
		return;
	while (life_ms / whole.part_ms >= PROFILETRACK_PARTS)
		fold(&whole);
	for (unsigned i = 0; i < PROFILE_PHASES; i++)
		ret->phases[i] = peak_between(&whole, life_ms * i / PROFILE_PHASES,
					      life_ms * (i + 1) / PROFILE_PHASES);
	ret->n_phases = PROFILE_PHASES;
}
