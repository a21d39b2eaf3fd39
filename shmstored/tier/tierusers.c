/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierusers.c: what a user has is what the survey found; what it may have is its limit;
 * whether it is at work is what its stores' ledgers showed in the last seconds. Stores have no
 * say of their own here: within a user's, the library chooses objects by their last use,
 * whichever store they are in.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "loop.h"
#include "member.h"
#include "quota.h"
#include "tierkeeper.h"
#include "tierplan.h"

#define IDLE_NS UINT64_C(10000000000) /* a user whose stores did nothing for so long is idle */

struct users {
	struct tierplan_user *list;
	size_t n;
};

static struct tierplan_user *find(const struct users *u, uid_t uid)
{
	for (size_t i = 0; i < u->n; i++) {
		if (u->list[i].uid == uid)
			return &u->list[i];
	}
	return NULL;
}

static int add_share(const struct quota_line *line, void *arg)
{
	struct tierplan_user *u;

	if (line->kind != WIRE_LIMIT_USER || strcmp(line->id, "*") == 0)
		return 0;
	u = find(arg, (uid_t)strtoul(line->id, NULL, 10));
	if (u)
		u->share = line->soft ? line->soft : line->hard;
	return 0;
}

static void fill(const struct account *a, struct users *u)
{
	uint64_t now_ns = loop_clock();

	for (; u->n < a->survey->n_users; u->n++) {
		const struct survey_user *from = &a->survey->users[u->n];

		u->list[u->n] = (struct tierplan_user){
			.uid = from->uid, .bytes = from->books.linked, .idle = true};
	}
	for (const struct member *m = a->members; m; m = m->next) {
		struct tierplan_user *owner = find(u, m->uid);

		if (owner && now_ns - m->active_ns < IDLE_NS)
			owner->idle = false;
	}
	quota_each(a->quota, add_share, u);
}

static struct tierplan_step *steps_of_all(const struct account *a, uint64_t low, uint64_t need,
					  size_t *ret_n)
{
	size_t n = a->survey ? a->survey->n_users : 0;
	struct tierplan_step *steps = calloc(2 * n + 1, sizeof(*steps));
	struct users u = {.list = calloc(n + 1, sizeof(*u.list))};

	*ret_n = 0;
	if (n && steps && u.list) {
		fill(a, &u);
		*ret_n = tierplan_steps(u.list, u.n, low, need, steps);
	}
	free(u.list);
	if (*ret_n)
		return steps;
	free(steps);
	return NULL;
}

struct tierplan_step *tierusers_steps(const struct account *a, uint64_t low, uint64_t need,
				      size_t *ret_n)
{
	struct tierplan_step *step;

	if (geteuid() == 0)
		return steps_of_all(a, low, need, ret_n);
	/* A daemon of one user: that user's objects are all that it may touch. */
	step = calloc(1, sizeof(*step));
	if (step)
		*step = (struct tierplan_step){.uid = geteuid(), .bytes = need};
	*ret_n = step != NULL;
	return step;
}
