/* SPDX-License-Identifier: Apache-2.0 */
/* quota_tell.c: calls the callbacks for what was noted meanwhile. */
#include "quota_core.h"

const char *quota_kind_name(enum wire_limit kind)
{
	static const char *const names[] = {"none", "partition", "user", "label", "store"};

	return names[kind];
}

static bool tell_wait(struct quota *q)
{
	struct quota_wait *w = q->done;
	struct quota_answer a;
	uint64_t serial;

	if (!w)
		return false;
	a = w->answer;
	serial = w->want.serial;
	quota_queue_forget(q, w);
	q->ops.answer(q->ops.arg, w->store, serial, w->error, &a);
	return true;
}

static bool tell_level(struct quota *q)
{
	if (!q->tell_levels)
		return false;
	for (struct quota_group *g = q->groups; g; g = g->hh.next) {
		struct quota_line line;

		if (g->level == g->level_told)
			continue;
		g->level_told = g->level;
		quota_group_line(q, g, &line);
		q->ops.level(q->ops.arg, &line);
		return true; /* the callback may have changed the list */
	}
	q->tell_levels = false;
	return false;
}

static bool tell_store(struct quota *q)
{
	if (!q->tell_stores)
		return false;
	QUOTA_EACH(s, q->partition) {
		if (s->liar && !s->liar_told) {
			s->liar_told = true;
			q->ops.liar(q->ops.arg, s, s->lie);
			return true;
		}
		if (s->ask) {
			s->ask = false;
			q->ops.ask(q->ops.arg, s, s->asked);
			return true;
		}
	}
	q->tell_stores = false;
	return false;
}

void quota_tell(struct quota *q)
{
	if (q->telling)
		return;
	q->telling = true;
	while (tell_wait(q) || tell_level(q) || tell_store(q))
		continue;
	q->telling = false;
}
