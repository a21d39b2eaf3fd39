/* SPDX-License-Identifier: Apache-2.0 */
#include "configkey.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "configvalue.h"

static const char *const LEVELS[] = {"emergency", "alert",  "critical", "error",
				     "warning",   "notice", "info",     "debug"};
static const char *const DETAILS[] = {"user", "full", "totals"};
static const char *const MODES[] = {"host", "first"}; /* as enum stage_mode */
/* off, then enum policy_kind */
static const char *const POLICIES[] = {"off", "lifo", "fifo", "group", "time", "shm"};
static const char *const QUEUES[] = {"limits", "host", "first"}; /* as enum config_queue */
static const char *const CASTS[] = {"round_robin", "all"};       /* as enum ckpt_strategy */
static const char *const CONFLICTS[] = {"error", "max", "host"}; /* as enum stage_conflict */

/* What the field of each kind of key is, and how its values are written. */
static const struct {
	enum {
		TEXT,
		OWN, /* a structure, which read_own() fills in */
		WORD,
		SWITCH,
		U16,
		U32,
		U64
	} form;
	const char *help;
	const char *const *words; /* WORD: an int, the place in this list */
	int n_words;
} kinds[] = {
	[KEY_PATH] = {TEXT, "an absolute path"},
	[KEY_PATH_OR_NONE] = {TEXT, "an absolute path, or none"},
	[KEY_TEXT] = {TEXT, "a text"},
	[KEY_SELECTION] = {TEXT, "resource, random, or fixed:NAME,NAME"},
	[KEY_OCTAL] = {U32, "an octal mode, as 0660"},
	[KEY_COUNT] = {U32, "a number"},
	[KEY_PORT] = {U16, "a number"},
	[KEY_NUMBER] = {U64, "a number"},
	[KEY_SIZE] = {U64, "a size, as 64MiB"},
	[KEY_SIZE32] = {U32, "a size, as 64MiB"},
	[KEY_SIZE_OR_NONE] = {U64, "a size, as 64GiB, or none"},
	[KEY_DURATION] = {U64, "a time, as 250ms, 10s or 5min"},
	[KEY_MICROS] = {U64, "a time, as 250ms, 10s or 5min"},
	[KEY_WATERMARK] = {U64, "a part of the size, as 90%, or a size above 1 MB"},
	[KEY_PERCENT] = {U32, "a part of the size, as 85%"},
	[KEY_SWITCH] = {SWITCH, "yes or no"},
	[KEY_LEVEL] = {WORD,
		       "one of emergency, alert, critical, error, warning, notice, info, debug",
		       LEVELS, 8},
	[KEY_DETAIL] = {WORD, "one of user, full, totals", DETAILS, 3},
	[KEY_STAGE_MODE] = {WORD, "one of host, first", MODES, 2},
	[KEY_CONFLICT] = {WORD, "one of error, max, host", CONFLICTS, 3},
	[KEY_POLICY] = {WORD, "one of off, lifo, fifo, group, time, shm", POLICIES, 6},
	[KEY_QUEUE] = {WORD, "one of limits, host, first", QUEUES, 3},
	[KEY_CAST] = {WORD, "one of round_robin, all", CASTS, 2},
	[KEY_STRATEGY] = {OWN, "one of none, conservative, conservative=p95, aggressive, "
			       "histogram, histogram:0.05, adaptive"},
	[KEY_RATIO] = {OWN, "a fraction, as 0.5 or 2"},
	[KEY_COPIES] = {OWN, "as explicit:2, explicit:max, or frac:0.5,min=1"},
	[KEY_STALE] = {OWN, "never, always, timeout:MS or maxage:MS"},
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
		r = configvalue_word(text, kinds[k->kind].words, kinds[k->kind].n_words, &word);
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

/* What it takes was right when it was checked. */
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
