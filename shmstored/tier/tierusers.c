/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierusers.c: what a user has is what the survey found; what it may have is its limit;
 * whether it is at work is what its stores' ledgers showed in the last seconds. Stores have no
 * say of their own here: within a user's, the library chooses objects by their last use,
 * whichever store they are in.
 */
#include "tierusers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "loop.h"
#include "member.h"
#include "quota.h"
#include "tierplan.h"
#include "tierwork.h"

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

/* A daemon of one user: that user's objects are all that it may touch. */
static struct tierwork_step *own_step(uint64_t need, size_t *ret_n)
{
	struct tierwork_step *step = calloc(1, sizeof(*step));

	*ret_n = step ? 1 : 0;
	if (step)
		step->plan = (struct tierplan_step){.uid = geteuid(), .bytes = need};
	return step;
}

static struct tierwork_step *steps_of_all(const struct account *a, uint64_t low, uint64_t need,
					  size_t *ret_n)
{
	size_t n = a->survey ? a->survey->n_users : 0;
	struct tierplan_step *plan = calloc(2 * n + 1, sizeof(*plan));
	struct tierwork_step *steps = calloc(2 * n + 1, sizeof(*steps));
	struct users u = {.list = calloc(n + 1, sizeof(*u.list))};

	*ret_n = 0;
	if (n && plan && steps && u.list) {
		fill(a, &u);
		*ret_n = tierplan_steps(u.list, u.n, low, need, plan);
		for (size_t i = 0; i < *ret_n; i++)
			steps[i].plan = plan[i];
	}
	free(plan);
	free(u.list);
	if (*ret_n)
		return steps;
	free(steps);
	return NULL;
}

struct tierwork_step *tierusers_steps(const struct account *a, uint64_t low, uint64_t need,
				      size_t *ret_n)
{
	return geteuid() == 0 ? steps_of_all(a, low, need, ret_n) : own_step(need, ret_n);
}
