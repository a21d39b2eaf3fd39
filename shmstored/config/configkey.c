/* SPDX-License-Identifier: Apache-2.0 */
#include "configkey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "configvalue.h"

#define ONE_OF "one of "

/* The field of each kind of key, and how its values are written. */
static const struct {
	const char *help; /* of a WORD the words, with ", " between them, after ONE_OF */
	enum {
		TEXT,
		OWN,  /* a structure, which read_own() fills in */
		WORD, /* an int, the word's place in the list */
		SWITCH,
		U16,
		U32,
		U64
	} form;
} kinds[] = {
	[KEY_PATH] = {"an absolute path", TEXT},
	[KEY_PATH_OR_NONE] = {"an absolute path, or none", TEXT},
	[KEY_TEXT] = {"a text", TEXT},
	[KEY_SELECTION] = {"resource, random, or fixed:NAME,NAME", TEXT},
	[KEY_OCTAL] = {"an octal mode, as 0660", U32},
	[KEY_COUNT] = {"a number", U32},
	[KEY_PORT] = {"a number", U16},
	[KEY_NUMBER] = {"a number", U64},
	[KEY_SIZE] = {"a size, as 64MiB", U64},
	[KEY_SIZE32] = {"a size, as 64MiB", U32},
	[KEY_SIZE_OR_NONE] = {"a size, as 64GiB, or none", U64},
	[KEY_DURATION] = {"a time, as 250ms, 10s or 5min", U64},
	[KEY_MICROS] = {"a time, as 250ms, 10s or 5min", U64},
	[KEY_WATERMARK] = {"a part of the size, as 90%, or a size above 1 MB", U64},
	[KEY_PERCENT] = {"a part of the size, as 85%", U32},
	[KEY_SWITCH] = {"yes or no", SWITCH},
	/* emergency is 0 */
	[KEY_LEVEL] = {"one of emergency, alert, critical, error, warning, notice, info, debug",
		       WORD},
	[KEY_DETAIL] = {"one of user, full, totals", WORD}, /* as enum config_detail */
	[KEY_STAGE_MODE] = {"one of host, first", WORD},    /* as enum stage_mode */
	[KEY_CONFLICT] = {"one of error, max, host", WORD}, /* as enum stage_conflict */
	[KEY_POLICY] = {"one of off, lifo, fifo, group, time, shm", WORD}, /* enum policy_kind */
	[KEY_QUEUE] = {"one of limits, host, first", WORD}, /* as enum config_queue */
	[KEY_CAST] = {"one of round_robin, all", WORD},     /* as enum ckpt_strategy */
	[KEY_STRATEGY] = {"one of none, conservative, conservative=p95, aggressive, histogram, "
			  "histogram:0.05, adaptive",
			  OWN},
	[KEY_RATIO] = {"a fraction, as 0.5 or 2", OWN},
	[KEY_COPIES] = {"as explicit:2, explicit:max, or frac:0.5,min=1", OWN},
	[KEY_STALE] = {"never, always, timeout:MS or maxage:MS", OWN},
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
