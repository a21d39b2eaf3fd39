/* SPDX-License-Identifier: Apache-2.0 */
#include "configkey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "configvalue.h"

#define ONE_OF "one of "

static const struct {
	enum {
		TEXT,
		OWN,
		WORD,
		SWITCH,
		U16,
		U32,
		U64
	} form;
	const char *help; /* of a WORD the words come after ONE_OF */
} kinds[] = {
#define KIND(NAME, form, help) {form, help},
#include "configkind.def"
#undef KIND
};

const char *configkey_help(enum configkey_kind kind)
{
	return kinds[kind].help;
}

static bool is_text(enum configkey_kind kind, const char *text)
{
	if (kind == KEY_TEXT)
		return *text != '\0';
	if (kind == KEY_SELECTION)
		return !strcmp(text, "resource") || !strcmp(text, "random") ||
		       (!strncmp(text, "fixed:", 6) && text[6]);
	return *text == '/' || (kind == KEY_PATH_OR_NONE && !strcmp(text, "none"));
}

/* Fills in the structure that a value of that kind stands for. False: it is none. */
static bool read_own(const struct configkey *k, const char *text, void *ret)
{
	if (k->kind == KEY_STRATEGY)
		return profile_choice_read(text, ret);
	if (k->kind == KEY_COPIES)
		return ckpt_num_read(text, ret);
	if (k->kind == KEY_STALE)
		return ckpt_stale_read(text, ret);
	return ratio_parse(text, ret) &&
	       ratio_compare(*(const struct ratio *)ret, RATIO(k->most, 1)) <= 0;
}

/* The number that a value of the other kinds stands for. 0, -EINVAL. */
static int parse_number(const struct configkey *k, const char *text, uint64_t *ret)
{
	bool on = false;
	int word = 0, r;

	*ret = 0;
	switch ((int)k->kind) {
	case KEY_OCTAL:
		return configvalue_number(text, 8, k->least, k->most, ret);
	case KEY_COUNT:
	case KEY_PORT:
	case KEY_NUMBER:
		return configvalue_number(text, 10, k->least, k->most, ret);
	case KEY_PERCENT:
		return configvalue_percent(text, k->least, k->most, ret);
	case KEY_WATERMARK:
		return configvalue_watermark(text, ret);
	case KEY_SWITCH:
		r = configvalue_switch(text, &on);
		*ret = on;
		return r;
	case KEY_SIZE:
	case KEY_SIZE32:
	case KEY_SIZE_OR_NONE:
		if (k->kind == KEY_SIZE_OR_NONE && strcmp(text, "none") == 0)
			return 0;
		r = config_parse_size(text, 0, ret);
		break;
	case KEY_DURATION:
	case KEY_MICROS:
		r = configvalue_duration(text, ret);
		*ret /= k->kind == KEY_MICROS ? 1000 : 1;
		break;
	default:
		r = configvalue_word(text, kinds[k->kind].help + strlen(ONE_OF), &word);
		*ret = (uint64_t)(unsigned)word;
		return r;
	}
	return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
}

int configkey_check(const struct configkey *k, const char *text)
{
	union {
		struct profile_choice choice;
		struct ckpt_num num;
		struct ckpt_stale stale;
		struct ratio ratio;
		uint64_t number;
	} room;

	if (kinds[k->kind].form == TEXT)
		return is_text(k->kind, text) ? 0 : -EINVAL;
	if (kinds[k->kind].form == OWN)
		return read_own(k, text, &room) ? 0 : -EINVAL;
	return parse_number(k, text, &room.number);
}

static int set_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

/* The text has passed configkey_check(). */
int configkey_store(const struct configkey *k, const char *text, void *base)
{
	void *at = (char *)base + k->offset;
	uint64_t number = 0;

	if (kinds[k->kind].form == TEXT)
		return set_text(at, text);
	if (kinds[k->kind].form == OWN)
		return read_own(k, text, at) ? 0 : -EINVAL;
	parse_number(k, text, &number);
	if (kinds[k->kind].form == WORD)
		*(int *)at = (int)number;
	else if (kinds[k->kind].form == SWITCH)
		*(bool *)at = number != 0;
	else if (kinds[k->kind].form == U16)
		*(uint16_t *)at = (uint16_t)number;
	else if (kinds[k->kind].form == U32)
		*(uint32_t *)at = (uint32_t)number;
	else
		*(uint64_t *)at = number;
	return 0;
}

void configkey_clear(const struct configkey *k, void *base)
{
	if (kinds[k->kind].form == TEXT)
		free(*(char **)(void *)((char *)base + k->offset));
}
