/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h: worker threads that take tasks in order and hand them back as they are done. The
 * caller is one thread at a time. */
#ifndef SHMS_CREW_H
#define SHMS_CREW_H

#include <stdbool.h>

struct shms_tier_tools;
struct shms_crew;

/* Part of what is to be done; the crew's from give to take. */
struct shms_crew_task {
	void (*run)(struct shms_crew_task *task, struct shms_tier_tools *tools);
	struct shms_crew_task *prev, *next;
};

/* background: at idle priority. Fewer threads than asked for are fine, none is
 * -ENOMEM. 0, -ENOMEM, -EMFILE. */
int shms_crew_new(unsigned n_threads, bool background, struct shms_crew **ret);
/* Waits for its threads, which finish what they are at. NULL is fine. inherited: in a child of
 * fork(), which has no threads. */
void shms_crew_free(struct shms_crew *c, bool inherited);
void shms_crew_give(struct shms_crew *c, struct shms_crew_task *task);
/* Returns a task that is done, or NULL. */
struct shms_crew_task *shms_crew_take(struct shms_crew *c);
/* To poll() for POLLIN: then there may be one to take. */
int shms_crew_fd(const struct shms_crew *c);

#endif
