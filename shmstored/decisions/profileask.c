/* SPDX-License-Identifier: Apache-2.0 */
/* profileask.c: what a key says of the next task, by which strategy. */
#include <string.h>
#include <sys/param.h>

#include "amount.h"
#include "profilekey.h"

/* ---- rings ----------------------------------------------------------------------------------- */

/*
 * The last values are asked for their ranks more often than they change, so that they are kept
 * sorted.
 */

/* The first of the sorted values that is not below value. */
static uint32_t place_of(const struct profilering *ring, uint64_t value)
{
	uint32_t low = 0, high = ring->n;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (ring->sorted[middle] < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void leave(struct profilering *ring)
{
	uint32_t i = place_of(ring, ring->values[ring->from]);

	ring->n--;
	ring->from = (ring->from + 1) % PROFILE_RING;
	memmove(&ring->sorted[i], &ring->sorted[i + 1], (ring->n - i) * sizeof(ring->sorted[0]));
}

void profilering_add(struct profilering *ring, uint64_t value)
{
	uint32_t i;

	if (ring->n == PROFILE_RING)
		leave(ring);
	i = place_of(ring, value);
	memmove(&ring->sorted[i + 1], &ring->sorted[i], (ring->n - i) * sizeof(ring->sorted[0]));
	ring->sorted[i] = value;
	ring->values[(ring->from + ring->n) % PROFILE_RING] = value;
	ring->n++;
}

uint64_t profilering_at(const struct profilering *ring, uint32_t i)
{
	return ring->values[(ring->from + i) % PROFILE_RING];
}

/* Keeps the newest n. */
static void profilering_keep(struct profilering *ring, uint32_t n)
{
	while (ring->n > n)
		leave(ring);
}

/* The smallest value that num/den of all are not above. 0: there are none. */
static uint64_t profilering_rank(const struct profilering *ring, uint32_t num, uint32_t den)
{
	uint32_t rank = (ring->n * num + den - 1) / den;

	return ring->n ? ring->sorted[rank ? rank - 1 : 0] : 0;
}

void profilering_interleave(struct profilering *a, const struct profilering *b)
{
	struct profilering both = {0};
	uint32_t most = a->n > b->n ? a->n : b->n;

	/* Aligned at the newest: the longer one's oldest come first. */
	for (uint32_t back = most; back > 0; back--) {
		if (back <= a->n)
			profilering_add(&both, profilering_at(a, a->n - back));
		if (back <= b->n)
			profilering_add(&both, profilering_at(b, b->n - back));
	}
	*a = both;
}

/*
 * By how much tasks of one kind grow from an age on.
 *
 * A task's peak says what it may need before anything is known of it. Once it runs, what it has
 * says more: where all tasks of its kind had a quarter of their peak or more at this age, it will
 * have no more than four times as much. Ages are of the clock and not parts of a life, as it is not
 * known how long a task that runs will live.
 */
#define UNKNOWN UINT32_MAX

static uint32_t quotient(uint64_t peak, uint64_t had)
{
	unsigned __int128 q;

	if (!had)
		return UNKNOWN;
	q = ((unsigned __int128)peak * PROFILEGROWTH_ONE + had - 1) / had;
	return q < UNKNOWN ? (uint32_t)q : UNKNOWN;
}

void profilegrowth_add(struct profilegrowth *g, const struct profile_task *t)
{
	if (!t->n_ages || t->n_ages > PROFILE_AGES || !t->has[PROFILE_PRIVATE])
		return;
	if (g->n_tasks == PROFILE_RING) {
		memcpy(g->before, g->now, sizeof(g->before));
		memset(g->now, 0, sizeof(g->now));
		g->n_tasks = 0;
	}
	g->n_tasks++;
	for (unsigned i = 0; i < t->n_ages; i++) {
		g->now[i] = MAX(g->now[i], quotient(t->used[PROFILE_PRIVATE], t->by_age[i]));
		g->n[i] += g->n[i] < PROFILE_GREW;
	}
}

void profilegrowth_merge(struct profilegrowth *a, const struct profilegrowth *b)
{
	for (unsigned i = 0; i < PROFILE_AGES; i++) {
		a->now[i] = MAX(a->now[i], MAX(b->now[i], b->before[i]));
		a->n[i] = a->n[i] + b->n[i] < PROFILE_GREW ? a->n[i] + b->n[i] : PROFILE_GREW;
	}
}

/* UINT64_MAX: not known. */
static uint64_t profilegrowth_most(const struct profilegrowth *g, uint64_t age_ms, uint64_t had)
{
	unsigned __int128 most;
	uint32_t q = UNKNOWN;

	/* Older tasks have grown more: the oldest age that enough of them reached says it best. */
	for (unsigned i = 0;
	     i < PROFILE_AGES && PROFILE_AGE(i) <= age_ms && g->n[i] >= PROFILE_GREW; i++)
		q = MAX(g->now[i], g->before[i]);
	if (q == UNKNOWN || !had)
		return UINT64_MAX;
	most = ((unsigned __int128)had * q + PROFILEGROWTH_ONE - 1) / PROFILEGROWTH_ONE;
	return most < PROFILE_MOST ? (uint64_t)most : PROFILE_MOST;
}

/* ---- estimates ------------------------------------------------------------------------------- */

uint64_t profilevalues_peak(const struct profilevalues *v)
{
	return v->prior_peak > v->session_peak ? v->prior_peak : v->session_peak;
}

struct profile_stat profile_stat(const struct profile_key *k, enum profile_resource r)
{
	const struct profilevalues *v;

	if (!k || !k->of[r].n)
		return (struct profile_stat){0};
	v = &k->of[r];
	return (struct profile_stat){.n = v->n,
				     .peak = profilevalues_peak(v),
				     .average = v->sum / v->n,
				     .p95 = profilering_rank(&v->ring, 95, 100)};
}

/* num/den of bytes, rounded up; bytes <= PROFILE_MOST. */
static uint64_t more(uint64_t bytes, uint64_t num, uint64_t den)
{
	return (bytes * num + den - 1) / den;
}

static uint64_t usual(const struct profilevalues *v, enum profile_strategy strategy)
{
	if (strategy == PROFILE_AVERAGE)
		return v->sum / v->n;
	return strategy == PROFILE_PEAK ? profilevalues_peak(v)
					: profilering_rank(&v->ring, 95, 100);
}

uint64_t profile_estimate(const struct profile_key *k, enum profile_resource r,
			  enum profile_strategy strategy, uint64_t declared, uint64_t fallback)
{
	uint64_t estimate = declared ? declared : fallback;

	if (!k || strategy == PROFILE_NONE)
		return estimate;
	if (k->of[r].n >= PROFILE_WARM)
		estimate = usual(&k->of[r], strategy);
	else if (k->of[r].n)
		estimate = MAX(declared, more(profilevalues_peak(&k->of[r]), 5, 4));
	return r == PROFILE_PRIVATE ? MAX(estimate, more(k->killed_had, 3, 2)) : estimate;
}

unsigned profile_phases(const struct profile_key *k, uint64_t *ret_life_ms,
			uint64_t ret_peaks[PROFILE_PHASES])
{
	if (!k)
		return 0;
	*ret_life_ms = profilering_rank(&k->lives, 1, 2);
	for (unsigned i = 0; i < k->phases.n; i++)
		ret_peaks[i] = MAX(k->phases.now[i], k->phases.before[i]);
	return k->phases.n;
}

uint64_t profile_remaining(const struct profile_key *k, uint64_t age_ms)
{
	uint64_t life_ms, peaks[PROFILE_PHASES], most = 0, peak = 0;
	unsigned n, i;

	if (!k)
		return 0;
	n = profile_phases(k, &life_ms, peaks);
	for (i = 0; i < n; i++)
		peak = MAX(peak, peaks[i]);
	peak = MAX(peak, profilevalues_peak(&k->of[PROFILE_PRIVATE]));
	if (!n || !life_ms || age_ms > life_ms)
		return peak;
	/* life_ms <= PROFILE_MOST: no overflow. The end of life belongs to the last phase. */
	i = (unsigned)(age_ms * n / life_ms);
	for (i = i < n ? i : n - 1; i < n; i++)
		most = MAX(most, peaks[i]);
	return most;
}

uint64_t profile_at_most(const struct profile_key *k, uint64_t age_ms, uint64_t had)
{
	return k && !k->killed_had ? profilegrowth_most(&k->growth, age_ms, had) : UINT64_MAX;
}

uint64_t profile_bound(const struct profile_key *k, uint64_t age_ms, uint64_t had)
{
	uint64_t by_growth = profile_at_most(k, age_ms, had);

	if (profile_is_new(k, PROFILE_PRIVATE))
		return UINT64_MAX;
	return k && k->phases.n && k->lives.n && !k->killed_had
		       ? MIN(profile_remaining(k, age_ms), by_growth)
		       : by_growth;
}

bool profile_is_new(const struct profile_key *k, enum profile_resource r)
{
	return k && k->of[r].n < PROFILE_WARM && !k->of[r].prior_peak;
}

bool profile_was_preempted(const struct profile_key *k)
{
	return k && k->preempted_left;
}

size_t profile_values(const struct profile_key *k, enum profile_resource r,
		      uint64_t ret[PROFILE_RING])
{
	if (!k || k->of[r].n < PROFILE_WARM || (r == PROFILE_PRIVATE && k->killed_had))
		return 0;
	for (uint32_t i = 0; i < k->of[r].ring.n; i++)
		ret[i] = profilering_at(&k->of[r].ring, i);
	return k->of[r].ring.n;
}

const uint32_t *profile_histogram(const struct profile_key *k, enum profile_resource r)
{
	return k->of[r].buckets;
}

void profilekey_halve(uint64_t *n, uint64_t *sum)
{
	uint64_t half = *n > 1 ? *n / 2 : *n;

	if (*n)
		*sum = (uint64_t)((unsigned __int128)*sum * half / *n);
	*n = half;
}

void profilekey_to_prior(struct profile_key *k)
{
	for (int r = 0; r < PROFILE_RESOURCES; r++) {
		struct profilevalues *v = &k->of[r];

		profilekey_halve(&v->n, &v->sum);
		profilering_keep(&v->ring, v->ring.n > 1 ? v->ring.n / 2 : v->ring.n);
		v->prior_peak = profilevalues_peak(v);
		v->session_peak = 0;
		v->n_session = 0;
		for (unsigned i = 0; i < PROFILE_BUCKETS; i++)
			v->buckets[i] = (v->buckets[i] + 1) / 2;
	}
	profilering_keep(&k->lives, k->lives.n > 1 ? k->lives.n / 2 : k->lives.n);
	for (unsigned i = 0; i < k->phases.n; i++) {
		k->phases.before[i] = MAX(k->phases.now[i], k->phases.before[i]);
		k->phases.now[i] = 0;
	}
	k->phases.n_tasks = 0;
}

/* ---- the words of strategies: they are in configurations, and never changed ------------------ */

#define MILLION 1000000u

static const char *const names[] = {
	[PROFILE_NONE] = "none",      [PROFILE_PEAK] = "peak",   [PROFILE_P95] = "p95",
	[PROFILE_HISTOGRAM] = "hist", [PROFILE_AVERAGE] = "avg",
};

/* "0.05": a fraction from 0 to 1 in millionths. Digits behind the sixth round up what is not zero,
 * so that it is never taken for less. */
static bool read_ppm(const char *text, uint32_t *ret)
{
	struct ratio r;

	if (!ratio_parse(text, &r) || ratio_compare(r, RATIO(1, 1)) > 0)
		return false;
	*ret = (uint32_t)ratio_ceil(r, MILLION);
	return true;
}

bool profile_choice_read(const char *text, struct profile_choice *ret)
{
	static const struct {
		const char *word;
		enum profile_strategy strategy;
		bool adaptive;
	} words[] = {
		{"none", PROFILE_NONE, false},
		{"conservative", PROFILE_PEAK, false},
		{"conservative=peak", PROFILE_PEAK, false},
		{"conservative=p95", PROFILE_P95, false},
		{"conservative:peak", PROFILE_PEAK, false},
		{"conservative:p95", PROFILE_P95, false},
		{"aggressive", PROFILE_AVERAGE, false},
		{"histogram", PROFILE_HISTOGRAM, false},
		{"adaptive", PROFILE_PEAK, true},
	};
	struct profile_choice choice = {.strategy = PROFILE_HISTOGRAM, .eps_ppm = PROFILE_EPS_PPM};

	if (!strncmp(text, "histogram:", 10)) {
		if (!read_ppm(text + 10, &choice.eps_ppm))
			return false;
		*ret = choice;
		return true;
	}
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(text, words[i].word)) {
			choice.strategy = words[i].strategy;
			choice.adaptive = words[i].adaptive;
			*ret = choice;
			return true;
		}
	return false;
}

const char *profile_strategy_name(enum profile_strategy s)
{
	return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "?";
}
