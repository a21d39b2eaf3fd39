/* SPDX-License-Identifier: Apache-2.0 */
/* scnstage.c: the domain "stage": how a worker's memory is divided for a stage. Amounts are MiB;
 * one with a letter behind it is bytes. */
#include <stdlib.h>
#include <string.h>

#include "scn.h"
#include "stagebook.h"
#include "stagefits.h"

struct state {
	struct stage_config config;
	bool adaptive; /* Spark's prerequisite: without it nothing is done */
	struct stage_amounts base;
	struct stagebook *book;
	bool evaluated, merges, merged_fits;
	struct stage_reply reply;
	uint32_t id;
	struct stage_amounts merged;
};

static void begin(void *state)
{
	struct state *s = state;

	s->config = stage_defaults;
	s->adaptive = true;
	s->base.slots = 1;
	s->book = stagebook_new(&s->base, 0);
}

static bool has_letter(const char *text)
{
	return *text && strchr("KMGT", text[strlen(text) - 1]);
}

static bool read_mib(const char *text, int64_t *ret)
{
	struct amount a;

	if (!scn_read_amount(text, &a) || !a.known)
		return false;
	*ret = has_letter(text) ? a.bytes >> 20 : a.bytes;
	return true;
}

static int64_t mib(struct scn *c, const char *keys, int64_t otherwise)
{
	const char *text = scn_option(c, keys);

	if (text && !read_mib(text, &otherwise))
		scn_wrong(c, "%s: not a size: %s", keys, text);
	return otherwise;
}

static void do_conf(struct state *s, struct scn *c)
{
	struct stage_config config = stage_defaults;
	const char *mode = scn_text(c, "mode", "host");

	if (strcmp(mode, "host") != 0 && strcmp(mode, "first") != 0)
		scn_wrong(c, "no such mode: %s", mode);
	config.mode = !strcmp(mode, "first") ? STAGE_FIRST : STAGE_HOST;
	config.enabled = scn_flag(c, "enabled", config.enabled);
	config.shared_enabled =
		scn_flag(c, "shared_enabled|offheap_enabled", config.shared_enabled);
	s->adaptive = scn_flag(c, "aqe|adaptive", true);
	config.private_ratio = scn_ratio(c, "heap_ratio|private_ratio", config.private_ratio);
	config.shared_ratio = scn_ratio(c, "offheap_ratio|shared_ratio", config.shared_ratio);
	config.fallen_threshold =
		scn_ratio(c, "fallen_thr|fallen_threshold", config.fallen_threshold);
	config.whole_shared_div =
		scn_number(c, "whole_div|whole_shared_div", config.whole_shared_div);
	config.cap_mib = mib(c, "cap|total", config.cap_mib);
	config.wait_ms = scn_number(c, "wait|wait_ms", config.wait_ms);
	if (!stage_config_fits(&config))
		scn_wrong(c, "this configuration is not possible");
	else
		s->config = config;
}

static void do_base(struct state *s, struct scn *c)
{
	struct stage_amounts base = {.private_mib = mib(c, "private|heap", 0),
				     .shared_mib = mib(c, "shared|offheap", 0),
				     .slots = scn_number(c, "slots", 1)};

	if (!stage_amounts_fit(&base)) {
		scn_wrong(c, "this base is not possible");
		return;
	}
	s->base = base;
	stagebook_free(s->book);
	s->book = stagebook_new(&base, 0);
	if (!s->book)
		scn_wrong(c, "out of memory");
}

/* "5,0,2" */
static void read_nodes(struct scn *c, struct stage_ask *ask)
{
	int64_t *const counts[] = {&ask->n_native, &ask->n_convert, &ask->n_other};
	const char *at = scn_text(c, "nodes", "0,0,0");
	char text[32];

	for (size_t i = 0; i < 3; i++) {
		struct amount a;

		if (!scn_element(&at, ',', text, sizeof(text)) || !scn_read_amount(text, &a) ||
		    !a.known) {
			scn_wrong(c, "nodes: three numbers were expected");
			return;
		}
		*counts[i] = a.bytes;
	}
	if (*at)
		scn_wrong(c, "nodes: three numbers were expected");
}

static size_t one_of(struct scn *c, const char *key, const char *const words[], size_t n)
{
	const char *word = scn_text(c, key, words[0]);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(word, words[i]))
			return i;
	scn_wrong(c, "%s: no such word: %s", key, word);
	return 0;
}

static void do_eval(struct state *s, struct scn *c)
{
	static const char *const roots[] = {[STAGE_EXCHANGE] = "exchange", [STAGE_FINAL] = "final"};
	static const char *const fallbacks[] = {"found", "none", "partial", "whole"};
	struct stage_ask ask = {0};
	struct stage_config config = s->config;

	read_nodes(c, &ask);
	ask.has_nonshare = scn_named(c, "nonshare");
	ask.nonshare = scn_ratio(c, "nonshare", RATIO(0, 1));
	ask.root = (enum stage_root)one_of(c, "root", roots, 2);
	ask.fallback = (enum stage_fallback)one_of(c, "fallback", fallbacks, 4);
	ask.want_slots = scn_number(c, "want_slots|slots", 0);
	(void)scn_text(c, "stage|stage_id", "");
	config.enabled &= s->adaptive;
	if (!stage_ask_fits(&ask))
		scn_wrong(c, "this is not possible");
	if (scn_is_wrong(c))
		return;
	s->reply = stage_evaluate(&config, &s->base, &ask);
	s->evaluated = true;
	if (stagebook_id(s->book, &s->reply.amounts, &s->id))
		scn_wrong(c, "there are too many profiles");
}

/* "1024:2048:4" */
static struct stage_amounts read_amounts(struct scn *c, const char *key)
{
	struct stage_amounts a = {.slots = 1};
	const char *at = scn_text(c, key, "");
	char text[32];

	if (!scn_element(&at, ':', text, sizeof(text)) || !read_mib(text, &a.private_mib) ||
	    !scn_element(&at, ':', text, sizeof(text)) || !read_mib(text, &a.shared_mib) ||
	    (*at && (!scn_element(&at, ':', text, sizeof(text)) || !read_mib(text, &a.slots))) ||
	    *at || !stage_amounts_fit(&a))
		scn_wrong(c, "%s: PRIVATE:SHARED:SLOTS was expected", key);
	return a;
}

static void do_merge(struct state *s, struct scn *c)
{
	static const char *const words[] = {"error", "max", "host"};
	struct stage_amounts a = read_amounts(c, "a"), b = read_amounts(c, "b");
	enum stage_conflict conflict = (enum stage_conflict)one_of(c, "conflict", words, 3);

	s->merges = true;
	s->merged_fits = stage_merge(&a, &b, conflict, mib(c, "total|cap", 0), &s->merged);
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	struct state *s = state;

	if (!s->book)
		scn_wrong(c, "out of memory");
	else if (!strcmp(verb, "conf"))
		do_conf(s, c);
	else if (!strcmp(verb, "base"))
		do_base(s, c);
	else if (!strcmp(verb, "eval"))
		do_eval(s, c);
	else if (!strcmp(verb, "merge"))
		do_merge(s, c);
	else
		return false;
	return true;
}

static bool found_reply(const struct state *s, struct scn *c, const char *key, const char *expected)
{
	const struct stage_amounts *a = &s->reply.amounts;
	const struct {
		const char *key;
		int64_t value;
		bool mib;
	} values[] = {
		{"private", a->private_mib, true},
		{"shared", a->shared_mib, true},
		{"slots", a->slots, false},
		{"per_slot", a->shared_mib / a->slots, true},
		{"shared_per_slot", a->shared_mib / a->slots, true},
		{"private_per_slot", a->private_mib / a->slots, true},
		{"clamped", s->reply.clamped, false},
		{"id", s->id, false},
	};

	if (!strcmp(key, "rule")) {
		scn_found(c, "%s",
			  s->reply.rules & STAGE_RULE_WHOLE     ? "whole"
			  : s->reply.rules & STAGE_RULE_PARTIAL ? "partial"
								: "none");
		return true;
	}
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (!strcmp(key, values[i].key)) {
			bool bytes = values[i].mib && has_letter(expected);

			scn_found_amount(
				c, amount_of(bytes ? values[i].value << 20 : values[i].value));
			return true;
		}
	return false;
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	const struct state *s = state;

	if (s->evaluated && found_reply(s, c, key, expected))
		return true;
	if (s->merges && !strcmp(key, "merged")) {
		if (s->merged_fits)
			scn_found(c, "%lld:%lld:%lld", (long long)s->merged.private_mib,
				  (long long)s->merged.shared_mib, (long long)s->merged.slots);
		else
			scn_found(c, "error");
	} else {
		return false;
	}
	return true;
}

static void end(void *state)
{
	stagebook_free(((struct state *)state)->book);
}

const struct scn_domain scn_stage_domain = {"stage", sizeof(struct state), begin, verb, found, end};
