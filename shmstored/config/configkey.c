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

const char *configkey_help(enum configkey_kind kind)
{
	switch (kind) {
	case KEY_PATH:
		return "an absolute path";
	case KEY_OCTAL:
		return "an octal mode, as 0660";
	case KEY_COUNT:
	case KEY_PORT:
		return "a number";
	case KEY_SIZE:
	case KEY_SIZE32:
		return "a size, as 64MiB";
	case KEY_DURATION:
	case KEY_MICROS:
		return "a time, as 250ms, 10s or 5min";
	case KEY_SWITCH:
		return "yes or no";
	case KEY_LEVEL:
		return "one of emergency, alert, critical, error, warning, notice, info, debug";
	case KEY_DETAIL:
		return "one of user, full, totals";
	case KEY_WATERMARK:
		return "a part of the size, as 90%, or a size above 1 MB";
	case KEY_PATH_OR_NONE:
		return "an absolute path, or none";
	case KEY_SIZE_OR_NONE:
		return "a size, as 64GiB, or none";
	case KEY_PERCENT:
		return "a part of the size, as 85%";
	case KEY_STRATEGY:
		return "one of none, conservative, conservative=p95, aggressive, histogram, "
		       "histogram:0.05, adaptive";
	case KEY_RATIO:
		return "a fraction, as 0.5 or 2";
	case KEY_NUMBER:
		return "a number";
	case KEY_NUMBER_OR_NONE:
		return "a number, or none";
	case KEY_STAGE_MODE:
		return "one of host, first";
	case KEY_CONFLICT:
		return "one of error, max, host";
	case KEY_POLICY:
		return "one of off, lifo, fifo, group, time, shm";
	case KEY_QUEUE:
		return "one of limits, host, first";
	case KEY_COPIES:
		return "as explicit:2, explicit:max, or frac:0.5,min=1";
	case KEY_SELECTION:
		return "resource, random, or fixed:NAME,NAME";
	case KEY_CAST:
		return "one of round_robin, all";
	case KEY_STALE:
		return "never, always, timeout:MS or maxage:MS";
	case KEY_TEXT:
	default:
		return "a text";
	}
}

/* The place of a word in the list of that kind, from 0. 0, -EINVAL. */
static int parse_word(enum configkey_kind kind, const char *text, uint64_t *ret)
{
	static const struct {
		const char *const *words;
		int n_words;
	} lists[] = {
		[KEY_LEVEL] = {LEVELS, 8},       [KEY_DETAIL] = {DETAILS, 3},
		[KEY_POLICY] = {POLICIES, 6},    [KEY_CAST] = {CASTS, 2},
		[KEY_QUEUE] = {QUEUES, 3},       [KEY_STAGE_MODE] = {MODES, 2},
		[KEY_CONFLICT] = {CONFLICTS, 3},
	};
	int word = 0, r = configvalue_word(text, lists[kind].words, lists[kind].n_words, &word);

	*ret = (uint64_t)(unsigned)word;
	return r;
}

/* The number that a value of that kind stands for; texts have none. 0, -EINVAL.
 * NOLINTNEXTLINE(readability-function-cognitive-complexity) */
static int parse_number(const struct configkey *k, const char *text, uint64_t *ret)
{
	struct profile_choice choice;
	struct ckpt_stale stale;
	struct ckpt_num num;
	struct ratio ratio;
	bool on = false;
	int r;

	*ret = 0;
	switch (k->kind) {
	case KEY_OCTAL:
		return configvalue_number(text, 8, k->least, k->most, ret);
	case KEY_COUNT:
	case KEY_PORT:
	case KEY_NUMBER:
		return configvalue_number(text, 10, k->least, k->most, ret);
	case KEY_NUMBER_OR_NONE:
		*ret = UINT64_MAX;
		return strcmp(text, "none") == 0
			       ? 0
			       : configvalue_number(text, 10, k->least, k->most, ret);
	case KEY_SIZE_OR_NONE:
		if (strcmp(text, "none") == 0)
			return 0;
		r = config_parse_size(text, 0, ret);
		return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
	case KEY_PERCENT:
		return configvalue_percent(text, k->least, k->most, ret);
	case KEY_SIZE:
	case KEY_SIZE32:
		r = config_parse_size(text, 0, ret);
		return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
	case KEY_DURATION:
		r = configvalue_duration(text, ret);
		return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
	case KEY_MICROS:
		r = configvalue_duration(text, ret);
		*ret = r == 0 ? *ret / 1000 : 0;
		return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
	case KEY_SWITCH:
		r = configvalue_switch(text, &on);
		*ret = on;
		return r;
	case KEY_LEVEL:
	case KEY_DETAIL:
	case KEY_POLICY:
	case KEY_CAST:
	case KEY_QUEUE:
	case KEY_STAGE_MODE:
	case KEY_CONFLICT:
		return parse_word(k->kind, text, ret);
	case KEY_COPIES:
		return ckpt_num_read(text, &num) ? 0 : -EINVAL;
	case KEY_STALE:
		return ckpt_stale_read(text, &stale) ? 0 : -EINVAL;
	case KEY_SELECTION:
		return !strcmp(text, "resource") || !strcmp(text, "random") ||
				       (!strncmp(text, "fixed:", 6) && text[6])
			       ? 0
			       : -EINVAL;
	case KEY_RATIO:
		return ratio_parse(text, &ratio) && ratio_compare(ratio, RATIO(k->most, 1)) <= 0
			       ? 0
			       : -EINVAL;
	case KEY_WATERMARK:
		return configvalue_watermark(text, ret);
	case KEY_PATH:
	case KEY_PATH_OR_NONE:
		return *text == '/' || (k->kind == KEY_PATH_OR_NONE && strcmp(text, "none") == 0)
			       ? 0
			       : -EINVAL;
	case KEY_STRATEGY:
		return profile_choice_read(text, &choice) ? 0 : -EINVAL;
	case KEY_TEXT:
	default:
		return *text ? 0 : -EINVAL;
	}
}

int configkey_check(const struct configkey *k, const char *text)
{
	uint64_t number;

	return parse_number(k, text, &number);
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

int configkey_store(const struct configkey *k, const char *text, void *base)
{
	char *at = (char *)base + k->offset;
	uint64_t number = 0;

	parse_number(k, text, &number); /* was right when it was checked */
	switch (k->kind) {
	case KEY_PATH:
	case KEY_PATH_OR_NONE:
	case KEY_TEXT:
	case KEY_SELECTION:
		return set_text((char **)(void *)at, text);
	case KEY_OCTAL:
	case KEY_COUNT:
	case KEY_PERCENT:
	case KEY_SIZE32:
		*(uint32_t *)(void *)at = (uint32_t)number;
		return 0;
	case KEY_PORT:
		*(uint16_t *)(void *)at = (uint16_t)number;
		return 0;
	case KEY_SWITCH:
		*(bool *)at = number != 0;
		return 0;
	case KEY_STRATEGY:
		profile_choice_read(text, (struct profile_choice *)(void *)at);
		return 0;
	case KEY_COPIES:
		ckpt_num_read(text, (struct ckpt_num *)(void *)at);
		return 0;
	case KEY_STALE:
		ckpt_stale_read(text, (struct ckpt_stale *)(void *)at);
		return 0;
	case KEY_RATIO:
		ratio_parse(text, (struct ratio *)(void *)at);
		return 0;
	case KEY_LEVEL:
	case KEY_STAGE_MODE:
	case KEY_CONFLICT:
	case KEY_POLICY:
	case KEY_QUEUE:
	case KEY_CAST:
	case KEY_DETAIL:
		*(int *)(void *)at = (int)number;
		return 0;
	case KEY_SIZE:
	case KEY_SIZE_OR_NONE:
	case KEY_DURATION:
	case KEY_MICROS:
	case KEY_WATERMARK:
	case KEY_NUMBER:
	case KEY_NUMBER_OR_NONE:
	default:
		*(uint64_t *)(void *)at = number;
		return 0;
	}
}
