/* SPDX-License-Identifier: Apache-2.0 */
/* quotatest.h's world. */
#include "quotatest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

struct store a, b, c, d;
struct quota *q;
uint64_t used_now, now;
struct quota_told answers[16];
size_t n_answers;
struct quota_level levels[16];
size_t n_levels;

static uint64_t used(void *arg)
{
	(void)arg;
	return used_now;
}

static struct wire_credit *credit(void *arg, struct quota_store *s)
{
	(void)arg;
	return &((struct store *)quota_user(s))->page;
}

static void share(void *arg, struct quota_store *s, struct quota_share *ret)
{
	(void)arg;
	*ret = ((struct store *)quota_user(s))->share;
}

static void answer(void *arg, struct quota_store *s, uint64_t serial, int error,
		   const struct quota_answer *why)
{
	(void)arg;
	(void)s;
	cr_assert_lt(n_answers, 16);
	answers[n_answers].serial = serial;
	answers[n_answers].error = error;
	answers[n_answers++].answer = *why;
}

static void ask(void *arg, struct quota_store *s, uint64_t bytes)
{
	struct store *t = quota_user(s);

	(void)arg;
	t->asked = bytes;
	t->n_asked++;
}

static void level(void *arg, const struct quota_line *line)
{
	(void)arg;
	cr_assert_lt(n_levels, 16);
	levels[n_levels].kind = line->kind;
	levels[n_levels].level = line->level;
	snprintf(levels[n_levels++].id, sizeof(levels[0].id), "%s", line->id);
}

static void liar(void *arg, struct quota_store *s, const char *what)
{
	struct store *t = quota_user(s);

	(void)arg;
	t->lie = what;
	t->n_lies++;
}

const struct quota_ops qt_ops = {used, credit, share, answer, ask, level, liar, NULL};

void qt_start(void)
{
	static const struct quota_config config = {.epoch = 7,
						   .credit = CREDIT,
						   .idle_ns = 2 * SECOND,
						   .pledge_ns = SECOND,
						   .waits_max = 4};

	cr_assert_eq(quota_new(&config, &qt_ops, &q), 0);
	used_now = 0;
	now = 0;
}

void qt_stop(void)
{
	q = quota_free(q);
}

void qt_limit(enum wire_limit kind, const char *id, uint64_t hard, uint64_t soft)
{
	struct quota_limits l = {hard, soft, 0};

	cr_assert_eq(quota_limit(q, kind, id, &l, 0), 0);
}

void qt_add(struct store *s, uid_t uid, const char *label, const char *name)
{
	cr_assert_eq(quota_add(q, uid, label, name, s, 0, &s->q), 0);
}

int qt_request(struct store *s, uint64_t serial, uint64_t need, uint64_t ahead, uint64_t deadline)
{
	struct quota_want want = {serial, need, ahead, deadline != 0, deadline};
	struct quota_answer got;

	return quota_request(q, s->q, &want, now, &got);
}

bool qt_put(struct store *s, uint64_t n)
{
	if (!wire_credit_charge(&s->page, n))
		return false;
	used_now += n;
	wire_credit_settle(&s->page, n, n);
	return true;
}

static struct quota_line found;
static enum wire_limit wanted_kind;
static const char *wanted_id;

static int find(const struct quota_line *line, void *arg)
{
	(void)arg;
	if (line->kind == wanted_kind && strcmp(line->id, wanted_id) == 0)
		found = *line;
	return 0;
}

struct quota_line qt_line_of(enum wire_limit kind, const char *id)
{
	found = (struct quota_line){0};
	wanted_kind = kind;
	wanted_id = id;
	cr_assert_eq(quota_each(q, find, NULL), 0);
	return found;
}
