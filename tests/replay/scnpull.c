/* SPDX-License-Identifier: Apache-2.0 */
/* scnpull.c: the domain "pull": bundles of objects that shall be fetched, and the arguments that tasks pin. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pull.h"
#include "pullargs.h"
#include "scn.h"
#include "scnnames.h"

#define OBJECTS 256u

struct state {
	struct pull *pull;
	struct pullargs *args;
	struct scn_names bundles, tasks, objects;
	int pinned;
};

static struct pull *pull_of(struct state *s, struct scn *c)
{
	struct pull_config config = {.mode = PULL_FIRST};

	if (s->pull)
		return s->pull;
	s->pull = pull_new(&config, NULL, NULL);
	if (!s->pull)
		scn_wrong(c, "out of memory");
	return s->pull;
}

/* "a:2,b:?" */
static size_t read_objects(struct state *s, struct scn *c, const char *list, struct pull_object objects[OBJECTS])
{
	char text[SCN_NAME_MAX + 32];
	size_t n = 0;

	for (const char *at = list; *at && !scn_is_wrong(c); n++) {
		struct amount bytes = AMOUNT_UNKNOWN;
		char *colon;

		if (n == OBJECTS || !scn_element(&at, ',', text, sizeof(text))) {
			scn_wrong(c, "too many objects, or too long a name");
			break;
		}
		colon = strrchr(text, ':');
		if (colon)
			*colon = 0;
		if (colon && strcmp(colon + 1, "?") != 0 && !scn_read_amount(colon + 1, &bytes))
			scn_wrong(c, "not a size: %s", colon + 1);
		objects[n].id = scn_names_number(&s->objects, text);
		objects[n].bytes = bytes.known ? (uint64_t)bytes.bytes : PULL_UNKNOWN;
	}
	return n;
}

static void do_pull(struct state *s, struct scn *c)
{
	static const struct {
		const char *name;
		enum pull_rank rank;
	} ranks[] = {{"get", PULL_GET}, {"wait", PULL_WAIT}, {"args", PULL_ARGS}, {"task_args", PULL_ARGS}};
	struct pull_object objects[OBJECTS];
	uint64_t id = scn_names_number(&s->bundles, scn_need_word(c, 0));
	const char *prio = scn_text(c, "prio", "args");
	size_t n = read_objects(s, c, scn_text(c, "objs", ""), objects), i = 0;

	while (i < sizeof(ranks) / sizeof(ranks[0]) && strcmp(ranks[i].name, prio) != 0)
		i++;
	if (i == sizeof(ranks) / sizeof(ranks[0]))
		scn_wrong(c, "no such priority: %s", prio);
	else if (!id || (!scn_is_wrong(c) && pull_add(pull_of(s, c), id, ranks[i].rank, objects, n)))
		scn_wrong(c, "it cannot be added");
}

static int64_t word_number(struct scn *c, size_t i)
{
	struct amount a = AMOUNT_UNKNOWN;

	if (!scn_read_amount(scn_need_word(c, i), &a) || !a.known || a.bytes < 0)
		scn_wrong(c, "a number is missing");
	return a.bytes;
}

static void do_mode(struct state *s, struct scn *c)
{
	struct pull_config config = {.mode = PULL_FIRST};
	const char *mode = scn_need_word(c, 0);

	if (strcmp(mode, "first") != 0 && strcmp(mode, "host") != 0)
		scn_wrong(c, "no such mode: %s", mode);
	if (!strcmp(mode, "host"))
		config.mode = PULL_HOST;
	config.reserve = (uint64_t)scn_number(c, "reserve", 0);
	pull_free(s->pull);
	s->pull = pull_new(&config, NULL, NULL);
	if (!s->pull)
		scn_wrong(c, "out of memory");
}

static void do_size(struct state *s, struct scn *c)
{
	uint64_t object = scn_names_find(&s->objects, scn_need_word(c, 0));
	int64_t bytes = word_number(c, 1);
	int err = pull_size(pull_of(s, c), object, (uint64_t)bytes);

	if (err && err != -EALREADY)
		scn_wrong(c, "no bundle wants it");
}

static void do_pin(struct state *s, struct scn *c)
{
	struct pull_object objects[OBJECTS];
	uint64_t task = scn_names_number(&s->tasks, scn_need_word(c, 0));
	size_t n = read_objects(s, c, scn_text(c, "objs", ""), objects);

	if (!s->args)
		s->args = pullargs_new(PULL_MOST);
	if (!s->args || !task)
		scn_wrong(c, "out of memory");
	if (scn_is_wrong(c))
		return;
	s->pinned = pullargs_pin(s->args, task, objects, n, NULL);
	if (s->pinned < 0)
		scn_wrong(c, "it cannot be pinned");
}

static void do_argcap(struct state *s, struct scn *c)
{
	uint64_t limit = (uint64_t)word_number(c, 0);

	if (s->args)
		pullargs_set_limit(s->args, limit);
	else
		s->args = pullargs_new(limit);
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	struct state *s = state;

	if (!strcmp(verb, "avail")) {
		pull_available(pull_of(s, c), (uint64_t)word_number(c, 0));
	} else if (!strcmp(verb, "pull")) {
		do_pull(s, c);
	} else if (!strcmp(verb, "mode")) {
		do_mode(s, c);
	} else if (!strcmp(verb, "size")) {
		do_size(s, c);
	} else if (!strcmp(verb, "cancel")) {
		if (pull_cancel(pull_of(s, c), scn_names_find(&s->bundles, scn_need_word(c, 0))))
			scn_wrong(c, "no such bundle");
	} else if (!strcmp(verb, "argcap")) {
		do_argcap(s, c);
	} else if (!strcmp(verb, "pin")) {
		do_pin(s, c);
	} else if (!strcmp(verb, "unpin")) {
		if (!s->args || pullargs_unpin(s->args, scn_names_find(&s->tasks, scn_need_word(c, 0))))
			scn_wrong(c, "it pins nothing");
	} else {
		return false;
	}
	return true;
}

static const struct scn_names *sorted_names;

static int compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return scn_compare_names(scn_names_name(sorted_names, x), scn_names_name(sorted_names, y));
}

static bool as_expected(struct state *s, const char *expected)
{
	char text[SCN_NAME_MAX + 1];
	uint32_t n = 0;

	for (const char *at = expected; *at; n++)
		if (!scn_element(&at, ',', text, sizeof(text)) ||
		    !pull_is_active(s->pull, scn_names_find(&s->bundles, text)))
			return false;
	return n == pull_n_active(s->pull);
}

/* A set: as it was expected, or in the order of the names. */
static void found_active(struct state *s, struct scn *c, const char *expected)
{
	uint64_t *active;
	size_t n = 0;

	if (s->bundles.n && pull_n_active(s->pull) && as_expected(s, expected)) {
		scn_found(c, "%s", expected);
		return;
	}
	active = calloc(s->bundles.n + 1, sizeof(*active));
	for (uint64_t id = 1; active && id <= s->bundles.n; id++)
		if (pull_is_active(s->pull, id))
			active[n++] = id;
	sorted_names = &s->bundles;
	if (n)
		qsort(active, n, sizeof(*active), compare);
	for (size_t i = 0; i < n; i++)
		scn_found_element(c, "%s", scn_names_name(&s->bundles, active[i]));
	if (!n && *expected)
		scn_found(c, strcmp(expected, "-") != 0 ? "none" : "-");
	free(active);
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	struct state *s = state;

	if (!strcmp(key, "active") && pull_of(s, c))
		found_active(s, c, expected);
	else if (!strcmp(key, "pin"))
		scn_found(c, "%d", s->pinned);
	else
		return false;
	return true;
}

static void end(void *state)
{
	struct state *s = state;

	pull_free(s->pull);
	pullargs_free(s->args);
	scn_names_deinit(&s->bundles);
	scn_names_deinit(&s->tasks);
	scn_names_deinit(&s->objects);
}

const struct scn_domain scn_pull_domain = {"pull", sizeof(struct state), NULL, verb, found, end};
