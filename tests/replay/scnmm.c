/* SPDX-License-Identifier: Apache-2.0 */
/* scnmm.c: the domain "mm": what a host and its cgroups use, and from where on it is too much. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memrules.h"
#include "memtext.h"
#include "scn.h"

#define MEMLIMIT_BUFFER_MOST   (INT64_C(3) << 30)
#define MEMLIMIT_DELAY_MOST_MS 60000

enum key {
	ABOVE,
	BUF,
	DELAY,
	RESERVED,
	THRESHOLD,
	TOTAL,
	USED,
	VALID,
	N_KEYS
};

static const char *const key_names[N_KEYS] = {"above",     "buf",   "delay", "reserved",
					      "threshold", "total", "used",  "valid"};

struct state {
	bool set[N_KEYS], error; /* error: of the threshold */
	struct amount values[N_KEYS];
	/* "poll" goes on with these, unless it says others */
	struct ratio fraction;
	struct amount min_free, isolated;
	struct memlimit_use use;
};

static void begin(void *state)
{
	struct state *s = state;

	s->fraction = RATIO(95, 100);
	s->min_free = s->isolated = AMOUNT_UNKNOWN;
}

static void set(struct state *s, enum key key, struct amount value)
{
	s->set[key] = true;
	s->values[key] = value;
}

static void set_use(struct state *s, struct memlimit_use use)
{
	set(s, USED, use.used);
	set(s, TOTAL, use.total);
}

/* A fraction below 0: what no struct ratio can be, and what is outside of 0 to 1 like
 * others that the modules refuse. */
static bool is_negative(struct scn *c, const char *keys)
{
	const char *text = scn_text(c, keys, "");
	struct ratio r;

	return *text == '-' && ratio_parse(text + 1, &r);
}

static void set_threshold(struct state *s, struct scn *c, struct amount total)
{
	struct amount threshold = AMOUNT_UNKNOWN;
	bool negative = is_negative(c, "frac");

	if (!negative)
		s->fraction = scn_ratio(c, "frac", s->fraction);
	s->min_free = scn_amount(c, "minfree", s->min_free);
	s->isolated = scn_amount(c, "iso", s->isolated);
	s->error = negative ||
		   memlimit_threshold(total, s->fraction, s->min_free, s->isolated, &threshold) < 0;
	set(s, THRESHOLD, threshold);
}

/* A line of its own: what it does not say has its default, not what an earlier line said. */
static void do_threshold(struct state *s, struct scn *c)
{
	begin(s);
	set_threshold(s, c, scn_amount(c, "total", AMOUNT_UNKNOWN));
}

static void do_above(struct state *s, struct scn *c)
{
	struct memlimit_use use = {.used = scn_amount(c, "used", AMOUNT_UNKNOWN),
				   .total = scn_amount(c, "total", AMOUNT_UNKNOWN)};

	set(s, ABOVE,
	    amount_of(memlimit_above(use, scn_amount(c, "thr|threshold", AMOUNT_UNKNOWN))));
}

/* A size, where "max" is no limit. */
static struct amount limit(struct scn *c, const char *keys)
{
	if (!strcmp(scn_text(c, keys, "max"), "max"))
		return AMOUNT_UNKNOWN;
	return scn_amount(c, keys, AMOUNT_UNKNOWN);
}

static void do_cgstat(struct state *s, struct scn *c)
{
	struct memcgroup_files f = {
		.current = scn_amount(c, "cur", AMOUNT_UNKNOWN),
		.inactive_file = scn_amount(c, "inactive", AMOUNT_UNKNOWN),
		.active_file = scn_amount(c, "active", AMOUNT_UNKNOWN),
		.limit = limit(c, "limit"),
	};

	set_use(s, memcgroup_use(&f, scn_number(c, "v", 2) == 1 ? 1 : 2, false));
}

static void do_cgswap(struct state *s, struct scn *c)
{
	struct memcgroup_files f = {
		.current = scn_amount(c, "cur", AMOUNT_UNKNOWN),
		.inactive_file = scn_amount(c, "inactive", amount_of(0)),
		.active_file = scn_amount(c, "active", amount_of(0)),
		.limit = limit(c, "limit"),
		.swap_limit = limit(c, "swapmax|memswmax|memsw_max|memswlimit|memsw_limit"),
		.swap_current = scn_amount(c, "swapcur|memswcur|memsw_cur|memswusage|memsw_usage",
					   AMOUNT_UNKNOWN),
	};
	int64_t version = scn_number(c, "v", 2);

	if (version != 1 && version != 2)
		scn_wrong(c, "cgroups have the versions 1 and 2");
	set_use(s, memcgroup_use(&f, version == 1 ? 1 : 2, scn_flag(c, "count_swap", false)));
}

static void do_clamp(struct state *s, struct scn *c)
{
	set_use(s, memlimit_clamp(
			   (struct memlimit_use){.used = scn_amount(c, "used", AMOUNT_UNKNOWN),
						 .total = scn_amount(c, "total", AMOUNT_UNKNOWN)}));
}

static struct memlimit_use combined(struct scn *c)
{
	struct memlimit_use host = {.used = scn_amount(c, "sys_used", AMOUNT_UNKNOWN),
				    .total = scn_amount(c, "sys_total", AMOUNT_UNKNOWN)};
	struct memlimit_use cgroup = {.used = scn_amount(c, "cg_used", AMOUNT_UNKNOWN),
				      .total = limit(c, "cg_total")};

	return memlimit_combine(host, cgroup);
}

static void do_combine(struct state *s, struct scn *c)
{
	set_use(s, combined(c));
}

static void do_meminfo(struct state *s, struct scn *c)
{
	struct memhost_fields f = {
		.total = scn_amount(c, "total", AMOUNT_UNKNOWN),
		.available = scn_amount(c, "avail", AMOUNT_UNKNOWN),
		.free = scn_amount(c, "free", AMOUNT_UNKNOWN),
		.cached = scn_amount(c, "cached", AMOUNT_UNKNOWN),
		.buffers = scn_amount(c, "buffers", AMOUNT_UNKNOWN),
		.shmem = scn_amount(c, "shmem", amount_of(0)),
		.swap_total = scn_amount(c, "swaptotal|swap_total", AMOUNT_UNKNOWN),
		.swap_free = scn_amount(c, "swapfree|swap_free", AMOUNT_UNKNOWN),
	};

	set_use(s, memhost_use(&f, scn_flag(c, "count_swap", false)));
}

static void do_slice(struct state *s, struct scn *c)
{
	set(s, USED,
	    memcgroup_slice(scn_amount(c, "user_anon", AMOUNT_UNKNOWN),
			    scn_amount(c, "user_shmem", AMOUNT_UNKNOWN),
			    scn_amount(c, "sys_shmem", AMOUNT_UNKNOWN)));
	set(s, TOTAL, scn_amount(c, "total", AMOUNT_UNKNOWN));
}

/* One look of the monitor: what it reads is new, how it judges stays as an earlier line said. */
static void do_poll(struct state *s, struct scn *c)
{
	if (scn_named(c, "sys_total|cg_total"))
		s->use = combined(c);
	s->use.used = scn_amount(c, "used", s->use.used);
	s->use.total = scn_amount(c, "total|limit", s->use.total);
	set_use(s, memlimit_clamp(s->use));
	set_threshold(s, c, s->use.total);
	if (scn_named(c, "thr|threshold"))
		set(s, THRESHOLD, scn_amount(c, "thr|threshold", AMOUNT_UNKNOWN));
	set(s, ABOVE,
	    amount_of(!s->error && memlimit_above(memlimit_clamp(s->use), s->values[THRESHOLD])));
}

static void do_killbuf(struct state *s, struct scn *c)
{
	set(s, BUF,
	    memlimit_buffer(scn_amount(c, "total", AMOUNT_UNKNOWN),
			    scn_ratio(c, "frac", RATIO(5, 100)),
			    scn_number(c, "max", MEMLIMIT_BUFFER_MOST)));
}

static void do_reserved(struct state *s, struct scn *c)
{
	set(s, RESERVED, memlimit_reserve(scn_amount(c, "total", AMOUNT_UNKNOWN)));
}

static void do_backoff(struct state *s, struct scn *c)
{
	set(s, DELAY,
	    amount_of(memlimit_delay_ms(scn_number(c, "attempt", 1), scn_number(c, "base", 1000),
					scn_number(c, "cap|max", MEMLIMIT_DELAY_MOST_MS))));
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	static const struct {
		const char *name;
		void (*fn)(struct state *s, struct scn *c);
	} verbs[] = {
		{"threshold", do_threshold}, {"above", do_above},       {"cgstat", do_cgstat},
		{"clamp", do_clamp},         {"combine", do_combine},   {"meminfo", do_meminfo},
		{"cgswap", do_cgswap},       {"slice", do_slice},       {"poll", do_poll},
		{"killbuf", do_killbuf},     {"reserved", do_reserved}, {"backoff", do_backoff},
	};

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(verb, verbs[i].name)) {
			verbs[i].fn(state, c);
			return true;
		}
	return false;
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	const struct state *s = state;
	enum key k = 0;

	(void)expected;
	while (k < N_KEYS && strcmp(key, key_names[k]) != 0)
		k++;
	if (k == N_KEYS || !s->set[k])
		return false;
	if (k == THRESHOLD && s->error)
		scn_found(c, "error");
	else
		scn_found_amount(c, s->values[k]);
	return true;
}

const struct scn_domain scn_mm_domain = {"mm", sizeof(struct state), begin, verb, found, NULL};
