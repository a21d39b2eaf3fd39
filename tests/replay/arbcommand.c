/* SPDX-License-Identifier: Apache-2.0 */
/* arbcommand.c: the vocabulary of arbiter scenarios. "OOM" and "FAIL" are the original's words for
 * ours; ours are understood too. */
#include "arbcommand.h"

#include <stdio.h>
#include <string.h>

static const struct word {
	const char *word;
	enum arb_outcome outcome;
} words[] = {
	{"ok", ARB_OK},
	{"RETRY", ARB_RETRY},
	{"SPLIT", ARB_SPLIT},
	{"OOM", ARB_NOMEM},
	{"NOMEM", ARB_NOMEM},
	{"TOOBIG", ARB_TOOBIG},
	{"FAIL", ARB_AGAIN},
	{"AGAIN", ARB_AGAIN},
	{"TIMEDOUT", ARB_TIMEDOUT},
	{"CANCELED", ARB_CANCELED},
	{"REMOVED", ARB_REMOVED},
	{"DOWN", ARB_DOWN},
	{"ERROR", ARB_ERROR},
	{"INVALID", ARB_INVALID},
	{"PENDING", ARB_PENDING},
};

#define N_WORDS (sizeof(words) / sizeof(words[0]))

const char *arbcommand_option(const struct arbcommand *c, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; i < c->n_options; i++)
		if (!strncmp(c->options[i], key, n) && c->options[i][n] == '=')
			return c->options[i] + n + 1;
	return NULL;
}

uint64_t arbcommand_bytes(const char *word, struct arbanswer *a)
{
	uint64_t n = 0;

	if (!script_bytes(word, &n))
		a->wrong = "not a number";
	return n;
}

int64_t arbcommand_option_integer(const struct arbcommand *c, const char *key, struct arbanswer *a)
{
	const char *word = arbcommand_option(c, key);
	int64_t n = 0;

	if (word && !script_integer(word, &n))
		a->wrong = "not a number";
	return n;
}

const char *arbcommand_outcome(enum arb_outcome o)
{
	for (size_t i = 0; i < N_WORDS; i++)
		if (words[i].outcome == o)
			return words[i].word;
	return "an outcome that is none";
}

static bool is(const char *word, size_t n, const char *other)
{
	return strlen(other) == n && !memcmp(word, other, n);
}

bool arbcommand_is_word(const char *word, size_t n)
{
	for (size_t i = 0; i < N_WORDS; i++)
		if (is(word, n, words[i].word))
			return true;
	for (int s = ARB_UNKNOWN; s <= ARB_REMOVE_THROW; s++)
		if (is(word, n, arb_state_name((enum arb_state)s)))
			return true;
	return false;
}

/* Words for the same: NOMEM and OOM, AGAIN and FAIL. */
static bool same(const char *word, size_t n, const char *found)
{
	const struct word *a = NULL, *b = NULL;

	if (is(word, n, found))
		return true;
	for (size_t i = 0; i < N_WORDS; i++) {
		if (is(word, n, words[i].word))
			a = &words[i];
		if (!strcmp(found, words[i].word))
			b = &words[i];
	}
	return a && b && a->outcome == b->outcome;
}

bool arbcommand_is_one_of(const char *found, const char *alternatives)
{
	for (const char *at = alternatives;; at++) {
		size_t n = strcspn(at, "|");

		if (same(at, n, found))
			return true;
		at += n;
		if (!*at)
			return false;
	}
}

uint64_t arbcommand_pool(const struct arbworld *w, const char *name, struct arbanswer *a)
{
	uint64_t id = arbworld_pool(w, name);

	if (!id)
		a->wrong = "no such pool";
	return id;
}

uint64_t arbcommand_task(struct arbworld *w, const char *name, struct arbanswer *a)
{
	uint64_t id = *name ? arbworld_task_new(w, name) : 0;

	if (!id)
		a->wrong = "a task has a name";
	return id;
}

struct arbworld_thread *arbcommand_thread(struct arbworld *w, const char *name, struct arbanswer *a)
{
	struct arbworld_thread *t = arbworld_thread_new(w, name);

	if (!t)
		a->wrong = "out of memory";
	return t;
}

struct arbworld_reservation *arbcommand_reservation(const struct arbworld *w, const char *name,
						    struct arbanswer *a)
{
	struct arbworld_reservation *r = arbworld_reservation(w, name);

	if (!r || !r->id)
		a->wrong = "a reservation that was not granted, or is freed";
	return a->wrong ? NULL : r;
}

void arbcommand_say(struct arbanswer *a, enum arb_outcome o)
{
	snprintf(a->found, sizeof(a->found), "%s", arbcommand_outcome(o));
}
