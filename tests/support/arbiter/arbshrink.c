/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbshrink.c: a broken rule, with few lines.
 *
 * Halves, quarters, … single lines are left out for as long as the same rule is broken: the same
 * sentence but for its numbers. Lines are said with the ids and times that they had, so what is
 * left out changes nothing of the others but their outcomes.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arbplay.h"

/* Says lines[i] where !skip[i]. The place of the line that broke a rule; n: none did. */
static size_t replay(struct arbplay_line *lines, size_t n, const bool *skip, struct arbmodel *m)
{
	size_t i;

	arbmodel_deinit(m);
	if (arbmodel_init(m) < 0)
		return n;
	for (i = 0; i < n; i++) {
		struct arb_message msg = lines[i].msg;

		if (skip && skip[i])
			continue;
		msg.list = msg.list ? lines[i].list : NULL;
		msg.amounts = msg.amounts ? lines[i].amounts : NULL;
		m->now_ns = lines[i].now_ns;
		if (!arbmodel_step(m, &msg, &lines[i].outcome))
			break;
	}
	return i;
}

/* But for numbers. */
static bool same(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (isdigit((unsigned char)*a))
			a++;
		while (isdigit((unsigned char)*b))
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

static void drop(struct arbplay *p, const bool *skip)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		if (!skip[i])
			p->lines[n++] = p->lines[i];
	p->n = n;
}

/* One pass with pieces of this size. Is anything gone? */
static bool shrink_by(struct arbplay *p, size_t size, bool *skip, struct arbmodel *m,
		      const char *wrong)
{
	bool any = false;

	for (size_t at = 0; at + size <= p->n;) {
		size_t end;

		memset(skip, 0, p->n * sizeof(*skip));
		memset(skip + at, true, size * sizeof(*skip));
		end = replay(p->lines, p->n, skip, m);
		if (end == p->n || !same(m->wrong, wrong)) {
			at += size;
			continue;
		}
		any = true;
		p->n = end + 1;
		drop(p, skip);
	}
	return any;
}

void arbplay_shrink(struct arbplay *p)
{
	struct arbmodel *m = calloc(1, sizeof(*m));
	bool *skip = calloc(p->n + 1, sizeof(*skip));
	char wrong[sizeof(m->wrong)];

	snprintf(wrong, sizeof(wrong), "%s", p->f.m.wrong);
	if (m && skip && p->n && replay(p->lines, p->n, NULL, m) < p->n && same(m->wrong, wrong)) {
		for (size_t size = p->n / 2; size > 0; size = size > 1 ? size / 2 : 0)
			shrink_by(p, size, skip, m, wrong);
		while (shrink_by(p, 1, skip, m, wrong))
			;
		replay(p->lines, p->n, NULL, &p->f.m); /* the outcomes and the log, once more */
	}
	if (m)
		arbmodel_deinit(m);
	free(m);
	free(skip);
}

/* ---- as a scenario --------------------------------------------------------------------------- */

static void print_number(FILE *to, const char *key, uint64_t n)
{
	if (n)
		fprintf(to, " %s=%" PRIu64, key, n);
}

static void print_list(FILE *to, const char *key, const uint64_t *list, uint32_t n)
{
	if (!list || !n)
		return;
	fprintf(to, " %s=", key);
	for (uint32_t i = 0; i < n && i < ARB_LIST_MAX; i++)
		fprintf(to, "%s%" PRIu64, i ? "," : "", list[i]);
}

static void print_line(FILE *to, const struct arbplay_line *line, uint64_t before_ns)
{
	const struct arb_message *m = &line->msg;

	fprintf(to, "send %s", arb_op_name(m->op));
	print_number(to, "context", m->context);
	print_number(to, "task", m->task);
	print_number(to, "other", m->other);
	print_number(to, "pool", m->pool);
	print_number(to, "reservation", m->reservation);
	print_number(to, "bytes", m->bytes);
	print_number(to, "extra", m->extra);
	if (m->value)
		fprintf(to, " value=%" PRId64, m->value);
	if (m->kind)
		fprintf(to, " kind=%d", m->kind);
	print_number(to, "flags", m->flags);
	print_number(to, "deadline", m->deadline_ns);
	print_list(to, "list", m->list ? line->list : NULL, m->n_list);
	print_list(to, "amounts", m->amounts ? line->amounts : NULL, m->n_list);
	if ((!m->list && m->n_list) || m->n_list > ARB_LIST_MAX)
		print_number(to, "n_list", m->n_list);
	if (line->now_ns != before_ns)
		print_number(to, "at", line->now_ns);
	fprintf(to, " -> %s\n", line->outcome == ARB_OK ? "ok" : arb_outcome_name(line->outcome));
}

static bool print_transition(void *arg, const struct arb_transition *t)
{
	fprintf((FILE *)arg,
		"#   %" PRIu64 " %s by %" PRIu64 ": %" PRIu64 " of %" PRIu64 " %s -> %s %s %" PRIu64
		" %s\n",
		t->time_ns, arb_op_name(t->op), t->by, t->context, t->task, arb_state_name(t->from),
		arb_state_name(t->to), arb_outcome_name(t->outcome), t->bytes,
		t->note ? t->note : "");
	return true;
}

void arbplay_print(const struct arbplay *p, uint64_t seed, FILE *to)
{
	uint64_t before_ns = 0;

	fprintf(to, "scenario fuzz-%" PRIu64 " \"%" PRIu64 " of the fuzz\"\n", seed, seed);
	for (size_t i = 0; i < p->n; before_ns = p->lines[i++].now_ns)
		print_line(to, &p->lines[i], before_ns);
	fprintf(to, "# here: %s\n# the log of the last message:\n", p->f.m.wrong);
	arb_log(p->f.m.core, p->f.m.step_number, print_transition, to);
}
