/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scn.c: a directive's words and options, as domains ask for them; and the text of what they found.
 *
 * Each word that was asked for is marked: what remains unmarked is a mistake in the file, or
 * something that the domain does not do, and neither may pass for done.
 */
#include "scn.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "scncase.h"

void scncase_read(struct scn *c, const struct script_line *l)
{
	c->line = l;
	c->n_words = c->n_options = 0;
	c->words_used = c->options_used = 0;
	c->wrong[0] = c->expected[0] = c->differs[0] = 0;
	scncase_clear_found(c);
	for (size_t i = 1; i < l->n_words; i++) {
		const char *word = l->words[i], *sign = strchr(word, '=');

		if (c->n_words == SCN_WORDS_MAX || c->n_options == SCN_WORDS_MAX) {
			scn_wrong(c, "more than %u words", SCN_WORDS_MAX);
			return;
		}
		if (sign && sign != word)
			c->options[c->n_options++] = word;
		else
			c->words[c->n_words++] = word;
	}
}

const char *scncase_left_over(const struct scn *c)
{
	for (size_t i = 0; i < c->n_words; i++)
		if (!(c->words_used & UINT64_C(1) << i))
			return c->words[i];
	for (size_t i = 0; i < c->n_options; i++)
		if (!(c->options_used & UINT64_C(1) << i))
			return c->options[i];
	return NULL;
}

void scncase_clear_found(struct scn *c)
{
	c->found[0] = 0;
	c->n_found = 0;
	c->found_cut = false;
}

const char *scn_word(struct scn *c, size_t i)
{
	if (i >= c->n_words)
		return NULL;
	c->words_used |= UINT64_C(1) << i;
	return c->words[i];
}

size_t scn_n_words(const struct scn *c)
{
	return c->n_words;
}

const char *scn_need_word(struct scn *c, size_t i)
{
	const char *word = scn_word(c, i);

	if (!word)
		scn_wrong(c, "words are missing");
	return word ? word : "";
}

static bool is_key(const char *keys, const char *option)
{
	size_t n = (size_t)(strchr(option, '=') - option);

	for (const char *at = keys; *at; at += *at == '|') {
		size_t length = strcspn(at, "|");

		if (length == n && !memcmp(at, option, n))
			return true;
		at += length;
	}
	return false;
}

static size_t find(const struct scn *c, const char *keys)
{
	size_t i = 0;

	while (i < c->n_options && !is_key(keys, c->options[i]))
		i++;
	return i;
}

bool scn_named(const struct scn *c, const char *keys)
{
	return find(c, keys) < c->n_options;
}

const char *scn_option(struct scn *c, const char *keys)
{
	size_t i = find(c, keys);

	if (i == c->n_options)
		return NULL;
	c->options_used |= UINT64_C(1) << i;
	return strchr(c->options[i], '=') + 1;
}

const char *scn_text(struct scn *c, const char *keys, const char *otherwise)
{
	const char *value = scn_option(c, keys);

	return value ? value : otherwise;
}

struct amount scn_amount(struct scn *c, const char *keys, struct amount otherwise)
{
	const char *value = scn_option(c, keys);

	if (value && !scn_read_amount(value, &otherwise))
		scn_wrong(c, "%s: neither a size nor \"null\": %s", keys, value);
	return otherwise;
}

int64_t scn_number(struct scn *c, const char *keys, int64_t otherwise)
{
	const char *value = scn_option(c, keys);
	struct amount a = amount_of(otherwise);

	if (value && (!scn_read_amount(value, &a) || !a.known))
		scn_wrong(c, "%s: not a number: %s", keys, value);
	return a.bytes;
}

struct ratio scn_ratio(struct scn *c, const char *keys, struct ratio otherwise)
{
	const char *value = scn_option(c, keys);

	if (value && !ratio_parse(value, &otherwise))
		scn_wrong(c, "%s: not a fraction: %s", keys, value);
	return otherwise;
}

bool scn_flag(struct scn *c, const char *keys, bool otherwise)
{
	const char *value = scn_option(c, keys);

	if (!value)
		return otherwise;
	if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
		scn_wrong(c, "%s: neither 0 nor 1: %s", keys, value);
	return *value == '1';
}

__attribute__((format(printf, 2, 0))) static void add_found(struct scn *c, const char *form,
							    va_list args)
{
	size_t room = sizeof(c->found) - c->n_found;
	int n = vsnprintf(c->found + c->n_found, room, form, args);

	if (n < 0 || (size_t)n >= room) {
		c->found_cut = true;
		c->n_found = sizeof(c->found) - 1;
		return;
	}
	c->n_found += (size_t)n;
}

void scn_found(struct scn *c, const char *form, ...)
{
	va_list args;

	va_start(args, form);
	add_found(c, form, args);
	va_end(args);
}

void scn_found_amount(struct scn *c, struct amount a)
{
	if (a.known)
		scn_found(c, "%lld", (long long)a.bytes);
	else
		scn_found(c, "null");
}

void scn_found_element(struct scn *c, const char *form, ...)
{
	va_list args;

	if (c->n_found)
		scn_found(c, ",");
	va_start(args, form);
	add_found(c, form, args);
	va_end(args);
}

void scn_found_end(struct scn *c)
{
	if (!c->n_found)
		scn_found(c, "none");
}

void scn_wrong(struct scn *c, const char *form, ...)
{
	va_list args;

	if (*c->wrong)
		return;
	va_start(args, form);
	vsnprintf(c->wrong, sizeof(c->wrong), form, args);
	va_end(args);
}

bool scn_is_wrong(const struct scn *c)
{
	return *c->wrong != 0;
}

void scn_differs(struct scn *c, const char *expected, const char *form, ...)
{
	va_list args;

	if (*c->differs)
		return;
	snprintf(c->expected, sizeof(c->expected), "%s", expected);
	va_start(args, form);
	vsnprintf(c->differs, sizeof(c->differs), form, args);
	va_end(args);
}
