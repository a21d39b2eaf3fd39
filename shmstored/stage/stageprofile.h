/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stageprofile.h: how a worker's memory is divided for one stage of a job: private (what the process alone has), shared (its share of a
 * partition), and slots (how many tasks at once). Pure: counts in, amounts out; no clock, no I/O. docs/governor.md says what it is for.
 *
 * Every evaluation begins with the base, never with the last result. Rules:
 *   whole     nothing of the stage can be shared: private * private_ratio, shared / whole_shared_div
 *   partial   a large part cannot: private * private_ratio, shared * shared_ratio
 * Mode HOST: private + shared stay within the cap, and the share of the bytes that cannot be shared counts beside the operators.
 * Mode FIRST: as Gluten does it: whole or else partial, for stages whose root is an exchange, and nothing bounds the sum.
 *
 * Amounts are MiB, and say so in their names: a number without its unit is what went wrong elsewhere.
 */
#ifndef STAGEPROFILE_H
#define STAGEPROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "ratio.h"

#define STAGE_MIB_MAX   (INT64_C(1) << 40)
#define STAGE_SLOTS_MAX (INT64_C(1) << 20)
#define STAGE_NODES_MAX (INT64_C(1) << 40)

enum stage_mode {
	STAGE_HOST,
	STAGE_FIRST
};
enum stage_root {
	STAGE_EXCHANGE,
	STAGE_FINAL
};
/* Whether rules whole and partial are found out, or said. */
enum stage_fallback {
	STAGE_FALLBACK_FOUND,
	STAGE_FALLBACK_NONE,
	STAGE_FALLBACK_PARTIAL,
	STAGE_FALLBACK_WHOLE
};

enum stage_rule {
	STAGE_RULE_WHOLE = 1,
	STAGE_RULE_PARTIAL = 2
};

struct stage_config {
	enum stage_mode mode;
	bool enabled, shared_enabled;
	struct ratio private_ratio, shared_ratio, fallen_threshold;
	int64_t whole_shared_div;
	int64_t cap_mib; /* 0: what the base has together */
	int64_t wait_ms; /* for memory that others hold, at a stage's begin */
};

extern const struct stage_config stage_defaults;

struct stage_amounts {
	int64_t private_mib, shared_mib, slots; /* slots: at least 1 */
};

struct stage_ask {
	int64_t n_native, n_convert,
		n_other; /* operators: on shared memory, copies between it and private memory, all others */
	bool has_nonshare;
	struct ratio nonshare; /* of the bytes, what cannot be shared: instead of the counts, or beside them */
	enum stage_root root;
	enum stage_fallback fallback;
	int64_t want_slots; /* 0: those of the base */
};

struct stage_reply {
	struct stage_amounts amounts;
	unsigned rules; /* enum stage_rule, 0: the base */
	bool clamped;   /* private is less than the rules say */
};

/* Is this configuration possible? */
bool stage_config_fits(const struct stage_config *c);
bool stage_amounts_fit(const struct stage_amounts *a);
bool stage_ask_fits(const struct stage_ask *ask);
bool stage_amounts_equal(const struct stage_amounts *a, const struct stage_amounts *b);

/* All three fit. */
struct stage_reply stage_evaluate(const struct stage_config *config, const struct stage_amounts *base,
				  const struct stage_ask *ask);

enum stage_conflict {
	STAGE_CONFLICT_ERROR,
	STAGE_CONFLICT_MAX,
	STAGE_CONFLICT_HOST
};

/*
 * Two profiles that are asked for in one stage. ERROR: they must be equal. MAX: the larger of each. HOST: the larger of each within
 * cap_mib (0: the larger of their sums), and the fewer slots. false: they differ, which is an error.
 */
bool stage_merge(const struct stage_amounts *a, const struct stage_amounts *b, enum stage_conflict conflict,
		 int64_t cap_mib, struct stage_amounts *ret);

#endif
