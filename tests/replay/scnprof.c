/* SPDX-License-Identifier: Apache-2.0 */
/* scnprof.c: the domain "prof": profiles of tasks, what they say of the next one,
 * and who is admitted by that. */
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "profile.h"
#include "profilekey.h"
#include "scn.h"
#include "scnnames.h"

#define SAVED     16u
#define TASKS_MAX 65535u

/* A task, and its own copy of its kind's values. */
struct started {
	struct started *next;
	struct gateline_task gate;
	uint64_t values[PROFILE_RING];
};

struct state {
	struct profile *profile;
	struct gateline line;
	struct started *started;
	bool closed;
	uint64_t default_est;
	struct scn_names saved;
	char *texts[SAVED + 1];
	size_t lengths[SAVED + 1];
	bool admit;
	enum gateline_reason reason;
	uint64_t reserve, n_fit, resv;
	bool tried;
	const char *strategy;
	uint32_t eps_ppm;
};

static void begin(void *state)
{
	struct state *s = state;

	s->profile = profile_new(4096);
	gateline_init(&s->line);
}

static struct profile_name named(struct scn *c)
{
	struct profile_name name = {.lang = scn_text(c, "lang", ""),
				    .group = scn_text(c, "group", "")};

	name.func = scn_option(c, "key|func");
	if (!name.func) {
		scn_wrong(c, "which key?");
		name.func = "";
	}
	return name;
}

static uint64_t bytes_of(struct scn *c, const char *keys, uint64_t otherwise)
{
	int64_t bytes = scn_number(c, keys, (int64_t)otherwise);

	if (bytes < 0)
		scn_wrong(c, "%s: less than nothing", keys);
	return (uint64_t)bytes;
}

/* guided=none: nothing is collected and nothing is used. */
static bool guided(struct scn *c)
{
	const char *how = scn_text(c, "guided", "memory");

	return strcmp(how, "none") != 0 && strcmp(how, "0") != 0;
}

static void do_feed(struct state *s, struct scn *c)
{
	struct profile_name name = named(c), class = {.lang = name.lang,
						      .func = scn_text(c, "class", ""),
						      .group = ""};
	struct profile_task t = {
		.has = {scn_named(c, "mem|private"), scn_named(c, "shared"), scn_named(c, "cpu")}};
	uint64_t n = bytes_of(c, "x", 1);

	t.used[PROFILE_PRIVATE] = bytes_of(c, "mem|private", 0);
	t.used[PROFILE_SHARED] = bytes_of(c, "shared", 0);
	t.used[PROFILE_CPU] = bytes_of(c, "cpu", 0);
	t.life_ms = bytes_of(c, "life", 0);
	if (!guided(c))
		return;
	for (uint64_t i = 0; i < n && !scn_is_wrong(c); i++)
		if (profile_feed(s->profile, &name, &t) ||
		    (*class.func && profile_feed(s->profile, &class, &t)))
			scn_wrong(c, "it cannot be recorded");
}

/* "peak" as well as "conservative=peak". */
static struct profile_choice strategy_of(struct scn *c)
{
	const char *text = scn_text(c, "strategy", "peak");
	struct profile_choice choice = {.eps_ppm = PROFILE_EPS_PPM};

	while (choice.strategy <= PROFILE_AVERAGE &&
	       strcmp(text, profile_strategy_name(choice.strategy)) != 0)
		choice.strategy++;
	if (choice.strategy > PROFILE_AVERAGE && !profile_choice_read(text, &choice))
		scn_wrong(c, "no such strategy: %s", text);
	choice.eps_ppm =
		(uint32_t)ratio_floor(scn_ratio(c, "eps", RATIO_PPM(choice.eps_ppm)), 1000000);
	if (!guided(c))
		choice.strategy = PROFILE_NONE;
	return choice;
}

static struct gateline_task ask_of(struct state *s, struct scn *c, uint64_t values[PROFILE_RING])
{
	struct profile_name name = named(c);
	const struct profile_key *k = profile_find(s->profile, &name);
	struct profile_choice choice = strategy_of(c);
	struct gateline_task ask = {
		.form = GATELINE_TRY,
		.declared = bytes_of(c, "declared|decl|request|min", 0),
		.share = {.strategy = choice.strategy, .eps_ppm = choice.eps_ppm}};
	uint64_t estimate = profile_estimate(k, PROFILE_PRIVATE, choice.strategy, ask.declared,
					     bytes_of(c, "default|default_est", s->default_est));

	ask.share.estimate = estimate < PROFILE_MOST ? estimate : PROFILE_MOST;
	ask.share.values = values;
	ask.share.n_values = profile_values(k, PROFILE_PRIVATE, values);
	return ask;
}

/* The gate is open for any number, or closed, and so much lies below it. */
static void set(struct gateline *line, bool closed, uint64_t cap)
{
	gateline_interval(line, &(struct gate){.closed = closed, .ramp = UINT64_MAX});
	line->cap = cap;
	admission_set_cap(&line->sums, cap);
}

static void do_try(struct state *s, struct scn *c)
{
	uint64_t values[PROFILE_RING];
	struct gateline_task ask = ask_of(s, c, values);
	enum gateline_outcome outcome;

	set(&s->line, s->closed, bytes_of(c, "cap", UINT64_MAX >> 1));
	outcome = gateline_ask(&s->line, &ask, 0);
	s->admit = ask.runs;
	s->reason = gateline_reason(&s->line, outcome);
	s->reserve = ask.share.estimate;
	gateline_end(&s->line, &ask);
	s->tried = true;
}

static struct started *start(struct started **list, const struct gateline_task *ask)
{
	struct started *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->gate = *ask;
	memcpy(k->values, ask->share.values, ask->share.n_values * sizeof(k->values[0]));
	k->gate.share.values = k->values;
	k->next = *list;
	*list = k;
	return k;
}

static void do_start(struct state *s, struct scn *c)
{
	uint64_t values[PROFILE_RING];
	struct gateline_task ask = ask_of(s, c, values);
	struct started *k;

	ask.share.estimate = bytes_of(c, "est|estimate", ask.share.estimate);
	k = start(&s->started, &ask);
	if (!k) {
		scn_wrong(c, "it cannot be started");
		return;
	}
	gateline_runs(&s->line, &k->gate);
	if (scn_named(c, "now"))
		admission_note(&s->line.sums, &k->gate.share, bytes_of(c, "now", 0), UINT64_MAX);
}

/* As many equal ones as are admitted one after the other, where nothing else runs. */
static void do_fill(struct state *s, struct scn *c)
{
	uint64_t values[PROFILE_RING];
	struct gateline_task ask = ask_of(s, c, values);
	struct started *k, *all = NULL;
	struct gateline line;

	gateline_init(&line);
	set(&line, false, bytes_of(c, "cap", 0));
	while (line.books.n_running < TASKS_MAX && (k = start(&all, &ask))) {
		gateline_ask(&line, &k->gate, 0);
		if (!k->gate.runs)
			break;
	}
	s->n_fit = line.books.n_running;
	for (; all; all = k) {
		k = all->next;
		free(all);
	}
}

static void do_save(struct state *s, struct scn *c)
{
	uint64_t i = scn_names_number(&s->saved, scn_need_word(c, 0));

	if (!i || i > SAVED) {
		scn_wrong(c, "too many are saved");
		return;
	}
	free(s->texts[i]);
	s->texts[i] = profile_text(s->profile, &s->lengths[i]);
	if (!s->texts[i])
		scn_wrong(c, "out of memory");
}

static void do_load(struct state *s, struct scn *c)
{
	uint64_t i = scn_names_find(&s->saved, scn_need_word(c, 0));
	const char *why = "";

	if (!i || !s->texts[i])
		scn_wrong(c, "nothing was saved by this name");
	else if (profile_load(s->profile, s->texts[i], s->lengths[i], true, &why))
		scn_wrong(c, "it cannot be loaded: %s", why);
}

/* As if one task of that kind had ended, but for how many there were. */
static int set_phases(struct profile *p, const struct profile_name *name, uint64_t life_ms,
		      const uint64_t *peaks, unsigned n)
{
	struct profile_key *k =
		profile_name_fits(name) && n && life_ms ? profilekey_get(p, name) : NULL;

	if (!k)
		return -1;
	k->lives = (struct profilering){0};
	profilering_add(&k->lives, life_ms);
	k->phases = (struct profilephases){.n = n, .n_tasks = 1};
	memcpy(k->phases.now, peaks, n * sizeof(*peaks));
	return 0;
}

static void do_phases(struct state *s, struct scn *c)
{
	struct profile_name name = named(c);
	uint64_t life = bytes_of(c, "life", 0), peaks[PROFILE_PHASES];
	unsigned n = 0;
	char text[32];

	for (const char *at = scn_text(c, "peaks", ""); *at && !scn_is_wrong(c); n++) {
		struct amount a = AMOUNT_UNKNOWN;

		if (n == PROFILE_PHASES || !scn_element(&at, ',', text, sizeof(text)) ||
		    !scn_read_amount(text, &a) || !a.known || a.bytes < 0) {
			scn_wrong(c, "not a list of at most %u sizes", PROFILE_PHASES);
			return;
		}
		peaks[n] = (uint64_t)a.bytes;
	}
	if (!scn_is_wrong(c) && set_phases(s->profile, &name, life, peaks, n))
		scn_wrong(c, "these are no phases");
}

static void do_resv(struct state *s, struct scn *c)
{
	struct profile_name name = named(c);
	uint64_t now = bytes_of(c, "now", 0);

	s->resv = profile_remaining(profile_find(s->profile, &name), bytes_of(c, "age", 0));
	if (now > s->resv)
		s->resv = now;
}

static void do_strategy(struct state *s, struct scn *c)
{
	const char *text = scn_option(c, "v");
	struct profile_choice choice;

	if (!text)
		text = scn_need_word(c, 0);
	s->strategy = "error";
	s->eps_ppm = 0;
	if (profile_choice_read(text, &choice)) {
		s->strategy = profile_strategy_name(choice.strategy);
		s->eps_ppm = choice.eps_ppm;
	}
}

static uint64_t word_number(struct scn *c)
{
	struct amount a = AMOUNT_UNKNOWN;

	if (!scn_read_amount(scn_need_word(c, 0), &a) || !a.known || a.bytes < 0)
		scn_wrong(c, "a number is missing");
	return (uint64_t)a.bytes;
}

static void do_oomkilled(struct state *s, struct scn *c)
{
	struct profile_name name = named(c);
	uint64_t had = bytes_of(c, "had", 0);

	if (guided(c) && profile_killed(s->profile, &name, had))
		scn_wrong(c, "it cannot be recorded");
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	struct state *s = state;

	if (!s->profile)
		scn_wrong(c, "out of memory");
	else if (!strcmp(verb, "feed"))
		do_feed(s, c);
	else if (!strcmp(verb, "default_est"))
		s->default_est = word_number(c);
	else if (!strcmp(verb, "try"))
		do_try(s, c);
	else if (!strcmp(verb, "start"))
		do_start(s, c);
	else if (!strcmp(verb, "fill"))
		do_fill(s, c);
	else if (!strcmp(verb, "save"))
		do_save(s, c);
	else if (!strcmp(verb, "load"))
		do_load(s, c);
	else if (!strcmp(verb, "reset"))
		profile_reset(s->profile);
	else if (!strcmp(verb, "gateclosed"))
		s->closed = word_number(c) != 0;
	else if (!strcmp(verb, "oomkilled"))
		do_oomkilled(s, c);
	else if (!strcmp(verb, "phases"))
		do_phases(s, c);
	else if (!strcmp(verb, "resv"))
		do_resv(s, c);
	else if (!strcmp(verb, "strategy"))
		do_strategy(s, c);
	else
		return false;
	return true;
}

static bool found_stat(struct state *s, struct scn *c, const char *key)
{
	struct profile_name name = {.lang = "", .group = ""};
	struct profile_stat stat;
	const char *what = scn_need_word(c, 0);
	size_t i = 0;

	name.func = scn_need_word(c, 1);
	stat = profile_stat(profile_find(s->profile, &name), PROFILE_PRIVATE);
	const struct {
		const char *key;
		uint64_t value;
	} values[] = {{"n", stat.n}, {"peak", stat.peak}, {"avg", stat.average}, {"p95", stat.p95}};

	if (strcmp(what, "stat") != 0)
		return false;
	while (i < sizeof(values) / sizeof(values[0]) && strcmp(values[i].key, key) != 0)
		i++;
	if (i == sizeof(values) / sizeof(values[0]))
		return false;
	scn_found_amount(c, amount_of((int64_t)values[i].value));
	return true;
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	struct state *s = state;

	(void)expected;
	if (scn_n_words(c))
		return found_stat(s, c, key);
	if (s->tried && !strcmp(key, "admit"))
		scn_found(c, "%d", s->admit);
	else if (s->tried && !strcmp(key, "est"))
		scn_found_amount(c, amount_of((int64_t)s->reserve));
	else if (s->tried && !strcmp(key, "reason"))
		scn_found(c, "%s", gateline_reason_name(s->reason));
	else if (!strcmp(key, "fit"))
		scn_found_amount(c, amount_of((int64_t)s->n_fit));
	else if (!strcmp(key, "resv"))
		scn_found_amount(c, amount_of((int64_t)s->resv));
	else if (s->strategy && !strcmp(key, "strategy"))
		scn_found(c, "%s", s->strategy);
	else
		return false;
	return true;
}

static void end(void *state)
{
	struct state *s = state;

	profile_free(s->profile);
	for (struct started *k = s->started, *next; k; k = next) {
		next = k->next;
		free(k);
	}
	for (size_t i = 0; i <= SAVED; i++)
		free(s->texts[i]);
	scn_names_deinit(&s->saved);
}

const struct scn_domain scn_prof_domain = {"prof", sizeof(struct state), begin, verb, found, end};
