/* SPDX-License-Identifier: Apache-2.0 */
/* gcplan.h: what a gc told, and that a dry run tells exactly what a run does. */
#ifndef SHMSTORE_TEST_GCPLAN_H
#define SHMSTORE_TEST_GCPLAN_H

#include "scratch.h"

#define GCPLAN_MAX 64

struct gcplan_action {
	enum shmstore_gc_what what;
	char path[2 * SCRATCH_PATH], evidence[600];
	uint64_t bytes, tier_bytes, n_objects;
	int error;
};

struct gcplan {
	struct gcplan_action list[GCPLAN_MAX];
	size_t n;
	struct shmstore_gc_report report;
};

void gcplan_run(struct gcplan *plan, unsigned flags);
/* A dry run, which must change nothing, then a run, which must do what the dry run told, no more
 * and no less, to the byte. Nothing of what goes is held by anybody. disk: the directory of the
 * disk tier, whose files must become less by what was told; NULL: there is none. */
void gcplan_gc_disk(struct gcplan *plan, const char *disk);
static inline void gcplan_gc(struct gcplan *plan)
{
	gcplan_gc_disk(plan, NULL);
}
size_t gcplan_count(const struct gcplan *plan, enum shmstore_gc_what what);
/* The action of that path; the test ends where there is none. */
const struct gcplan_action *gcplan_find(const struct gcplan *plan, const char *path);

#endif
