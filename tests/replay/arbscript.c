/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbscript.c: the scenarios of a file, one after the other, each on an arbiter of its own.
 *
 *   scenario ID "title" [src=…] [only=shm|ref]   begins one; only=ref describes another program and
 *                                                is passed over
 *   VERB WORD… KEY=VALUE… [-> OUTCOME|OUTCOME]   a command; tests/scenarios/README.md has the verbs
 *   @shm …, @ref …                               counts for us; does not
 *   loop N … endloop
 *
 * A scenario is read whole before it is run: one with a line that cannot be understood is not
 * run and counts as failed. Its commands all run, whatever fails before: the first failing line
 * says most, the others may help.
 */
#include "arbscript.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbcommand.h"

#define LOOP_DEPTH 8

struct scenario {
	const char *id, *title;
	bool skipped; /* not for us */
	struct arbcommand *commands;
	size_t n_commands;
};

struct run {
	struct verdict *verdict;
	const struct scenario *scenario;
	struct arbworld world;
	unsigned n_failures;
};

static bool is_option(const char *word)
{
	size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789");

	return n && word[n] == '=' && (word[0] < '0' || word[0] > '9');
}

static bool may_have(const struct arbverb *verb, const char *option)
{
	size_t n = strcspn(option, "=");

	if (!verb->options || !strcmp(verb->options, "*"))
		return verb->options != NULL;
	for (const char *at = verb->options; *at; at += *at == ',') {
		size_t length = strcspn(at, ",");

		if (length == n && !memcmp(at, option, n))
			return true;
		at += length;
	}
	return false;
}

static const struct arbverb *find_verb(const char *name)
{
	static const struct arbverb *const tables[] = {arbdo_verbs, arbask_verbs, arbsee_verbs,
						       arbsend_verbs};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct arbverb *verb = tables[i]; verb->name; verb++)
			if (!strcmp(verb->name, name))
				return verb;
	return NULL;
}

static const char *check_expected(const char *alternatives)
{
	for (const char *at = alternatives;; at++) {
		size_t n = strcspn(at, "|");

		if (!arbcommand_is_word(at, n))
			return "what is expected is neither an outcome nor a state";
		at += n;
		if (!*at)
			return NULL;
	}
}

/* Words and options apart, in the line's own array: options are moved behind the words.
 * Returns what is wrong with it. */
static const char *read_words(struct arbcommand *c, char **words, size_t n)
{
	char **sorted = words;
	size_t n_options = 0;

	for (size_t i = 0; i < n; i++)
		if (!strcmp(words[i], "->")) {
			if (i + 2 != n)
				return "one word must follow \"->\"";
			c->expected = words[i + 1];
			n = i;
		}
	for (size_t i = 0; i < n; i++) {
		char *word = words[i];

		if (is_option(word)) {
			n_options++;
			continue;
		}
		memmove(sorted + 1, sorted, (size_t)(words + i - sorted) * sizeof(*words));
		*sorted++ = word;
	}
	c->args = words;
	c->n_args = (size_t)(sorted - words);
	c->options = sorted;
	c->n_options = n_options;
	return c->expected ? check_expected(c->expected) : NULL;
}

static const char *read_verb(struct arbcommand *c, const char *name)
{
	if (!strcmp(name, "loop"))
		return c->n_args == 1 && script_bytes(c->args[0], &c->n_times)
			       ? NULL
			       : "loop: a number must follow";
	if (!strcmp(name, "endloop"))
		return c->n_args ? "endloop: nothing may follow" : NULL;
	c->verb = find_verb(name);
	if (!c->verb)
		return "no such command";
	if (c->n_args < c->verb->min || c->n_args > c->verb->max)
		return c->n_args < c->verb->min ? "words are missing" : "too many words";
	for (size_t i = 0; i < c->n_options; i++)
		if (!may_have(c->verb, c->options[i]))
			return "an option that this command does not have";
	return NULL;
}

/* Returns what is wrong with it; *ret_ours: it counts for us. */
static const char *read_command(struct arbcommand *c, const struct script_line *l, bool *ret_ours)
{
	char **words = l->words;
	size_t n = l->n_words;
	const char *wrong;

	*c = (struct arbcommand){.line = l};
	*ret_ours = true;
	if (l->bad)
		return l->bad;
	if (words[0][0] == '@') {
		*ret_ours = !strcmp(words[0], "@shm");
		if (!*ret_ours && strcmp(words[0], "@ref") != 0)
			return "neither @shm nor @ref";
		if (!*ret_ours)
			return NULL;
		words++;
		n--;
	}
	if (n == 0)
		return "no command";
	wrong = read_words(c, words + 1, n - 1);
	return wrong ? wrong : read_verb(c, words[0]);
}

/* Each loop finds its end. Returns the line that is left over. */
static const struct arbcommand *match_loops(struct scenario *sc)
{
	size_t open[LOOP_DEPTH], depth = 0;

	for (size_t i = 0; i < sc->n_commands; i++) {
		struct arbcommand *c = &sc->commands[i];

		if (c->verb)
			continue;
		if (!strcmp(c->line->words[c->line->words[0][0] == '@'], "loop")) {
			if (depth == LOOP_DEPTH)
				return c;
			open[depth++] = i;
		} else {
			if (!depth)
				return c;
			sc->commands[open[--depth]].end = i;
		}
	}
	return depth ? &sc->commands[open[depth - 1]] : NULL;
}

static const char *read_heading(struct scenario *sc, const struct script_line *l)
{
	if (l->bad)
		return l->bad;
	if (l->n_words < 2)
		return "a scenario has an id";
	sc->id = l->words[1];
	sc->title = l->n_words > 2 && !is_option(l->words[2]) ? l->words[2] : "";
	for (size_t i = *sc->title ? 3 : 2; i < l->n_words; i++) {
		if (!strcmp(l->words[i], "only=ref"))
			sc->skipped = true;
		else if (strcmp(l->words[i], "only=shm") != 0 &&
			 strncmp(l->words[i], "src=", 4) != 0)
			return "behind the title only src= and only=shm or only=ref may stand";
	}
	return NULL;
}

static void check_expectation(struct run *r, const struct arbcommand *c, struct arbanswer *a)
{
	const char *expected = c->expected ? c->expected : c->verb->by_default;
	bool holds = a->holds;

	if (!*a->expected) {
		holds = !expected || arbcommand_is_one_of(a->found, expected);
		snprintf(a->expected, sizeof(a->expected), "%s", expected ? expected : "anything");
	}
	if (!holds) {
		verdict_failure(r->verdict, c->line, r->scenario->id, a->expected, a->found);
		r->n_failures++;
	} else if (r->verdict->verbose) {
		printf("%s:%u: %s: %s: %s\n", r->verdict->path, c->line->number, r->scenario->id,
		       c->line->text, a->found);
	}
	if (r->verdict->verbose && r->world.why)
		printf("%s:%u: %s: the arbiter says: %s\n", r->verdict->path, c->line->number,
		       r->scenario->id, r->world.why);
	r->world.why = NULL;
}

static void run_command(struct run *r, const struct arbcommand *c)
{
	struct arbanswer a = {.holds = true};

	c->verb->fn(&r->world, c, &a);
	if (a.wrong) {
		verdict_error(r->verdict, c->line, "%s: %s", r->scenario->id, a.wrong);
		r->n_failures++;
		return;
	}
	check_expectation(r, c, &a);
	if (r->world.fault) {
		verdict_failure(r->verdict, c->line, r->scenario->id,
				"an arbiter that keeps its contract", r->world.fault);
		r->n_failures++;
	}
}

/* Commands [from, to). A fault of the arbiter ends the scenario: what follows says nothing. */
static void run_commands(struct run *r, size_t from, size_t to) // NOLINT(misc-no-recursion)
{
	for (size_t i = from; i < to && !r->world.fault; i++) {
		const struct arbcommand *c = &r->scenario->commands[i];

		if (c->verb) {
			run_command(r, c);
			continue;
		}
		for (uint64_t n = 0; n < c->n_times && !r->world.fault; n++)
			run_commands(r, i + 1, c->end);
		i = c->end;
	}
}

static void run_scenario(struct verdict *v, const struct scenario *sc)
{
	struct run r = {.verdict = v, .scenario = sc};

	if (arbworld_init(&r.world) < 0) {
		verdict_error(v, NULL, "%s: out of memory", sc->id);
		v->n_failed++;
		return;
	}
	run_commands(&r, 0, sc->n_commands);
	arbworld_deinit(&r.world);
	if (r.n_failures)
		v->n_failed++;
	else
		v->n_passed++;
	if (v->verbose || r.n_failures)
		printf("%s: %s - %s\n", sc->id, r.n_failures ? "FAILED" : "ok", sc->title);
}

/* Lines [from, to): heading and commands. false: something in it cannot be
 * understood, and was said. */
static bool read_scenario(struct verdict *v, const struct script *s, size_t from, size_t to,
			  struct scenario *sc)
{
	const char *wrong = read_heading(sc, &s->lines[from]);
	const struct arbcommand *loose;
	unsigned n_errors = v->n_errors;

	if (wrong)
		verdict_error(v, &s->lines[from], "%s", wrong);
	for (size_t i = from + 1; i < to && !sc->skipped; i++) {
		bool ours;

		wrong = read_command(&sc->commands[sc->n_commands], &s->lines[i], &ours);
		if (wrong)
			verdict_error(v, &s->lines[i], "%s", wrong);
		sc->n_commands += ours;
	}
	if (v->n_errors > n_errors)
		return false;
	loose = match_loops(sc);
	if (loose)
		verdict_error(v, loose->line,
			      "loop and endloop do not match, or are more than %u deep",
			      LOOP_DEPTH);
	return !loose;
}

static void handle_scenario(struct verdict *v, const struct script *s, size_t from, size_t to)
{
	struct scenario sc = {.id = ""};

	if (s->lines[from].n_words > 1 && !verdict_wants(v, s->lines[from].words[1]))
		return;
	sc.commands = calloc(to - from, sizeof(*sc.commands));
	if (!sc.commands) {
		verdict_error(v, &s->lines[from], "out of memory");
		return;
	}
	if (!read_scenario(v, s, from, to, &sc))
		v->n_failed++;
	else if (v->list)
		printf("%s\t%s%s\n", sc.id, sc.title, sc.skipped ? " (not ours)" : "");
	else if (sc.skipped)
		v->n_skipped++;
	else
		run_scenario(v, &sc);
	free(sc.commands);
}

void arbscript_run(struct verdict *v, const struct script *s)
{
	size_t from = 0;

	for (size_t i = 1; i <= s->n_lines; i++) {
		const struct script_line *l = &s->lines[i];

		if (i < s->n_lines && (!l->n_words || strcmp(l->words[0], "scenario") != 0))
			continue;
		handle_scenario(v, s, from, i);
		from = i;
	}
}
