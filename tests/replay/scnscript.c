/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scnscript.c: the cases of a file of SCN v1, one after the other, each with
 * its domain's state begun anew.
 *
 *   case ID dom=DOMAIN src=WHENCE …       begins one; what follows dom= is for people
 *   VERB WORD… KEY=VALUE…                 a directive of its domain
 *   expect WORD… KEY=VALUE…               each key must have this value now
 *   end
 *
 * The first difference ends a case, and so does a line that cannot be understood:
 * what follows would say nothing.
 */
#include "scnscript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scncase.h"

enum outcome {
	HOLDS,
	DIFFERS,
	WRONG
};

static void say_line(const struct scn *c, const char *found)
{
	if (c->verdict->verbose)
		printf("%s:%u: %s: %s%s%s\n", c->verdict->path, c->line->number, c->id,
		       c->line->text, *found ? ": " : "", found);
}

/* The outcome of a directive that has been carried out. */
static enum outcome judge(struct scn *c)
{
	const char *left = scncase_left_over(c);

	if (!*c->wrong && c->found_cut)
		scn_wrong(c, "what was found is too long to be said");
	if (!*c->wrong && left)
		scn_wrong(c, "\"%s\" means nothing here", left);
	if (*c->wrong) {
		verdict_error(c->verdict, c->line, "%s: %s", c->id, c->wrong);
		return WRONG;
	}
	if (*c->differs) {
		verdict_failure(c->verdict, c->line, c->id, c->expected, c->differs);
		return DIFFERS;
	}
	return HOLDS;
}

static enum outcome run_expect(struct scn *c, const struct scn_domain *domain, void *state)
{
	if (!c->n_options)
		scn_wrong(c, "nothing is expected: KEY=VALUE must follow");
	c->options_used = UINT64_MAX;
	for (size_t i = 0; i < c->n_options && !*c->wrong && !*c->differs; i++) {
		const char *sign = strchr(c->options[i], '=');
		char key[64];

		if (sign - c->options[i] >= (ptrdiff_t)sizeof(key)) {
			scn_wrong(c, "too long a key");
			break;
		}
		snprintf(key, sizeof(key), "%.*s", (int)(sign - c->options[i]), c->options[i]);
		scncase_clear_found(c);
		if (!domain->found(state, c, key, sign + 1))
			scn_wrong(c, "nothing is known of \"%s\"", key);
		else if (!*c->wrong && !scn_same(sign + 1, c->found))
			scn_differs(c, c->options[i], "%s=%s", key, c->found);
		else
			say_line(c, c->found);
	}
	return judge(c);
}

static enum outcome run_line(struct scn *c, const struct scn_domain *domain, void *state,
			     const struct script_line *l)
{
	enum outcome outcome;

	scncase_read(c, l);
	if (l->bad)
		scn_wrong(c, "%s", l->bad);
	else if (*c->wrong)
		return judge(c);
	else if (!strcmp(l->words[0], "expect"))
		return run_expect(c, domain, state);
	else if (!domain->verb(state, c, l->words[0]))
		scn_wrong(c, "the domain %s has no such verb", domain->name);
	outcome = judge(c);
	if (outcome == HOLDS)
		say_line(c, "");
	return outcome;
}

static bool run_lines(struct scn *c, const struct scn_domain *domain, const struct script *s,
		      size_t from, size_t to)
{
	enum outcome outcome = HOLDS;
	void *state = calloc(1, domain->size ? domain->size : 1);

	if (!state) {
		verdict_error(c->verdict, &s->lines[from], "%s: out of memory", c->id);
		return false;
	}
	if (domain->begin)
		domain->begin(state);
	for (size_t i = from; i < to && outcome == HOLDS; i++)
		outcome = run_line(c, domain, state, &s->lines[i]);
	if (domain->end)
		domain->end(state);
	free(state);
	return outcome == HOLDS;
}

static const char *option_of(const struct script_line *l, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 2; i < l->n_words; i++)
		if (!strncmp(l->words[i], key, n) && l->words[i][n] == '=')
			return l->words[i] + n + 1;
	return NULL;
}

/* The heading, and in [from + 1, to) its lines; closed: an "end" follows. */
static void run_case(struct verdict *v, const struct script *s, size_t from, size_t to, bool closed)
{
	const struct script_line *heading = &s->lines[from];
	const char *name = option_of(heading, "dom");
	const struct scn_domain *domain = name ? scn_domain(name) : NULL;
	struct scn *c;
	bool holds = false;

	if (heading->n_words < 2 || strchr(heading->words[1], '=')) {
		verdict_error(v, heading, "a case has an id");
		v->n_failed++;
		return;
	}
	if (!verdict_wants(v, heading->words[1]))
		return;
	if (v->list) {
		printf("%s\t%s\n", heading->words[1], name ? name : "");
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		verdict_error(v, heading, "out of memory");
	} else if (!closed) {
		verdict_error(v, heading, "a case without an end");
	} else if (!domain) {
		verdict_error(v, heading, name ? "no such domain" : "a case has a domain: dom=");
	} else {
		c->verdict = v;
		c->id = heading->words[1];
		holds = run_lines(c, domain, s, from + 1, to);
	}
	*(holds ? &v->n_passed : &v->n_failed) += 1;
	if (v->verbose || !holds)
		printf("%s: %s\n", heading->words[1], holds ? "ok" : "FAILED");
	free(c);
}

void scnscript_run(struct verdict *v, const struct script *s)
{
	size_t from = 0;
	bool within = false;

	for (size_t i = 0; i < s->n_lines; i++) {
		const struct script_line *l = &s->lines[i];
		const char *word = l->n_words ? l->words[0] : "";
		bool begins = !strcmp(word, "case"), ends = !strcmp(word, "end") && l->n_words == 1;

		if (within && (begins || ends))
			run_case(v, s, from, i, ends);
		else if (!within && !begins)
			verdict_error(v, l, "outside of a case");
		if (begins)
			from = i;
		within = begins || (within && !ends);
	}
	if (within)
		run_case(v, s, from, s->n_lines, false);
}
