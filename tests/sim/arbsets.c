/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbsets.c: the table. D: the test's defaults; C: what its nightly run uses, as generated; Cf: the
 * same with sizes that vary by 5 %, not to 5 %; H: high memory against the pool; T: tasks nearly as
 * large as the pool. Each with 4 and 8 runners.
 */
#include "arbsets.h"

#define TASKS(mib) .n_tasks = 12, .task_max_mib = (mib), .slots_max = 50, .work_max_ms = 100
#define ALIKE      .use_template = true, .skewed = true

/* clang-format off */
const struct arbset arbsets[] = {
	/* name, digest, rules, pool, runners; the reference: splits,
	 * retries, makespan, time lost */
	{"D x4",  UINT64_C(0x8512b7c341871af2), {TASKS(300)}, 1024, 4, 0, 271, 106.5, 6.2},
	{"D x8",  UINT64_C(0x8512b7c341871af2), {TASKS(300)}, 1024, 8, 0, 1230, 121.7, 47.9},
	{"C x4",  UINT64_C(0xfd1fc13d6f71fbd4), {TASKS(2048), ALIKE}, 3072, 4, 45, 29, 75.7, 6.7},
	{"C x8",  UINT64_C(0xfd1fc13d6f71fbd4), {TASKS(2048), ALIKE}, 3072, 8, 0, 0, 0, 0},
	{"Cf x4", UINT64_C(0xd9c078d121167622), {TASKS(2048), ALIKE, .vary_by = true},
	 3072, 4, 485, 4441, 299.7, 82.6},
	{"Cf x8", UINT64_C(0xd9c078d121167622), {TASKS(2048), ALIKE, .vary_by = true},
	 3072, 8, 0, 0, 0, 0},
	{"H x4",  UINT64_C(0xcae3d5da3ff2c5f7), {TASKS(2048)}, 3072, 4, 0, 3651, 297.0, 101.9},
	{"H x8",  UINT64_C(0xcae3d5da3ff2c5f7), {TASKS(2048)}, 3072, 8, 0, 5054, 303.1, 186.9},
	{"T x4",  UINT64_C(0x878ad83415b108cc), {TASKS(900)}, 1024, 4, 0, 3690, 312.1, 89.5},
	{"T x8",  UINT64_C(0x878ad83415b108cc), {TASKS(900)}, 1024, 8, 0, 0, 0, 0},
};
/* clang-format on */
const size_t n_arbsets = sizeof(arbsets) / sizeof(arbsets[0]);
