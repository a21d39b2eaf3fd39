/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scnckpt.c: the domain "ckpt": copies of an actor's state on peers, recovery from them, and
 * an actor's move (scnactor.c).
 *
 * "bcast" sets options of the broadcast and begins a period, at once or with the "tick" that
 * follows it; "tick" lets time pass, and a period begins whenever one is due. Where no line of a
 * case names a version, each period has a new one.
 */
#include "scnckpt.h"

#include <stdlib.h>
#include <string.h>

static void begin(void *state)
{
	struct ckpt_state *s = state;

	s->cast = (struct ckpt_cast){.config = ckpt_defaults};
	s->k = -2;
}

static struct ckpt_peer *peer_of(struct ckpt_state *s, struct scn *c, const char *name)
{
	for (size_t i = 0; i < s->n_peers; i++)
		if (!strcmp(s->peers[i].name, name))
			return &s->peers[i];
	scn_wrong(c, "no such peer: %s", name);
	return NULL;
}

/* "p1:100"; ret is as it was without a number. */
static bool read_pair(const char **at, char *name, size_t room, int64_t *ret)
{
	struct amount a;
	char *colon;

	if (!scn_element(at, ',', name, room))
		return false;
	colon = strchr(name, ':');
	if (!colon)
		return true;
	*colon = 0;
	if (!scn_read_amount(colon + 1, &a) || !a.known || a.bytes < 0)
		return false;
	*ret = a.bytes;
	return true;
}

static void do_peers(struct ckpt_state *s, struct scn *c)
{
	char name[CKPT_NAME + 24];

	s->n_peers = 0;
	for (size_t i = 0; i < scn_n_words(c); i++)
		for (const char *at = scn_need_word(c, i); *at;) {
			int64_t bytes = INT64_MAX;

			if (s->n_peers == CKPT_PEERS ||
			    !read_pair(&at, name, sizeof(name), &bytes) ||
			    strlen(name) > CKPT_NAME) {
				scn_wrong(c, "a list of NAME:BYTES was expected");
				return;
			}
			s->down[s->n_peers] = false;
			s->peers[s->n_peers] = (struct ckpt_peer){.free = (uint64_t)bytes};
			memcpy(s->peers[s->n_peers++].name, name, strlen(name) + 1);
		}
}

/* Those that are up, which is what a daemon knows of; ret_at: where each stands among all. */
static size_t peers_up(const struct ckpt_state *s, struct ckpt_peer ret[CKPT_PEERS],
		       size_t ret_at[CKPT_PEERS])
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_peers; i++) {
		ret[n] = s->peers[i];
		ret_at[n] = i;
		n += !s->down[i];
	}
	return n;
}

static void read_num(struct scn *c, struct ckpt_num *num)
{
	const char *text = scn_option(c, "num");

	if (text && !ckpt_num_read(text, num))
		scn_wrong(c, "num: neither explicit:K nor frac:F: %s", text);
}

static void read_config(struct ckpt_state *s, struct scn *c, struct ckpt_config *config)
{
	const char *selection = scn_option(c, "selection|sel"),
		   *strategy = scn_option(c, "strategy");

	read_num(c, &config->num);
	if (selection && !strncmp(selection, "fixed:", 6) && strlen(selection) < sizeof(s->fixed)) {
		config->selection = CKPT_FIXED;
		memcpy(s->fixed, selection + 6, strlen(selection + 6) + 1);
		config->fixed = s->fixed;
	} else if (selection && !strcmp(selection, "resource")) {
		config->selection = CKPT_RESOURCE;
	} else if (selection && !strcmp(selection, "random")) {
		config->selection = CKPT_RANDOM;
	} else if (selection) {
		scn_wrong(c, "no such selection: %s", selection);
	}
	if (strategy && !strcmp(strategy, "all"))
		config->strategy = CKPT_ALL;
	else if (strategy && (!strcmp(strategy, "round_robin") || !strcmp(strategy, "rr")))
		config->strategy = CKPT_ROUND_ROBIN;
	else if (strategy)
		scn_wrong(c, "no such strategy: %s", strategy);
	config->frequency_ms =
		(uint64_t)scn_number(c, "frequency|freq|period", (int64_t)config->frequency_ms);
	config->retry = (uint32_t)scn_number(c, "retry", config->retry);
	config->reserve = (uint64_t)scn_number(c, "reserve", (int64_t)config->reserve);
	config->seed = (uint64_t)scn_number(c, "seed", (int64_t)config->seed);
}

static void add_name(char *list, size_t room, const char *name)
{
	size_t n = strlen(list);

	if (n + strlen(name) + 2 > room)
		return;
	if (n)
		list[n++] = ',';
	memcpy(list + n, name, strlen(name) + 1);
}

static void clear_sent(struct ckpt_state *s)
{
	s->sent[0] = s->missed[0] = 0;
	s->n_sent = s->n_missed = 0;
	s->n_attempts = 0;
	s->failed = false;
}

static void run_period(struct ckpt_state *s, struct scn *c)
{
	struct ckpt_peer up[CKPT_PEERS];
	size_t at[CKPT_PEERS], n_up = peers_up(s, up, at), i;
	int begun;

	s->pending = false;
	if (!s->versions_named)
		s->version++;
	begun = ckpt_cast_begin(&s->cast, up, n_up, s->version, s->bytes, s->now_ms);
	s->k = ckpt_num_of(&s->cast.config.num, n_up);
	s->failed |= begun < 0;
	while (begun > 0 && ckpt_cast_next(&s->cast, &i)) {
		bool ok;

		i = at[i];
		ok = !s->fails[i];
		s->n_attempts++;
		if (!ok && s->fails[i] != INT64_MAX)
			s->fails[i]--;
		if (!ckpt_cast_result(&s->cast, ok))
			continue;
		add_name(ok ? s->sent : s->missed, sizeof(s->sent), s->peers[i].name);
		*(ok ? &s->n_sent : &s->n_missed) += 1;
		if (ok && !ckptbook_add(&s->book, s->peers[i].name, s->version, s->bytes))
			scn_wrong(c, "too many copies");
	}
}

/* version=N, or changed=0|1: it is the one before, or the next. */
static void read_version(struct ckpt_state *s, struct scn *c)
{
	if (!scn_named(c, "version|ver|v|changed"))
		return;
	s->versions_named = true;
	s->version += scn_flag(c, "changed", false);
	s->version = (uint64_t)scn_number(c, "version|ver|v", (int64_t)s->version);
}

static void do_bcast(struct ckpt_state *s, struct scn *c)
{
	read_config(s, c, &s->cast.config);
	read_version(s, c);
	s->bytes = (uint64_t)scn_number(c, "size|bytes", (int64_t)s->bytes);
	if (s->versions_named && !s->version)
		s->version = 1;
	clear_sent(s);
	s->pending = true;
}

static void do_tick(struct ckpt_state *s, struct scn *c, int64_t ms)
{
	uint64_t until = s->now_ms + (uint64_t)ms;

	read_version(s, c);
	clear_sent(s);
	if (s->pending)
		s->cast.next_ms = s->now_ms + s->cast.config.frequency_ms;
	s->pending = false;
	while (s->cast.next_ms <= until && s->cast.config.frequency_ms && !scn_is_wrong(c)) {
		s->now_ms = s->cast.next_ms;
		run_period(s, c);
	}
	s->now_ms = until;
}

static int64_t number_of(struct scn *c, const char *text)
{
	struct amount a;

	if (!strcmp(text, "inf") || !strcmp(text, "always"))
		return INT64_MAX;
	if (!scn_read_amount(text, &a) || !a.known || a.bytes < 0)
		scn_wrong(c, "not a number: %s", text);
	return a.known ? a.bytes : 0;
}

static void do_fail(struct ckpt_state *s, struct scn *c)
{
	const struct ckpt_peer *p = peer_of(s, c, scn_need_word(c, 0));
	const char *n = scn_word(c, 1);

	if (p)
		s->fails[p - s->peers] = n ? number_of(c, n) : scn_number(c, "n", INT64_MAX);
}

/* "have p1:3,p2:4" or "have p1 3" */
static void do_have(struct ckpt_state *s, struct scn *c)
{
	char name[CKPT_NAME + 24];
	const char *at = scn_need_word(c, 0), *second = scn_word(c, 1);
	int64_t version = second ? number_of(c, second) : scn_number(c, "version|ver|v", 1);
	uint64_t bytes = (uint64_t)scn_number(c, "size|bytes", 0);

	while (*at && !scn_is_wrong(c)) {
		if (!read_pair(&at, name, sizeof(name), &version) || !peer_of(s, c, name))
			scn_wrong(c, "a list of NAME:VERSION was expected");
		else if (!ckptbook_add(&s->book, name, (uint64_t)version, bytes))
			scn_wrong(c, "too many copies");
	}
}

static void do_down(struct ckpt_state *s, struct scn *c, bool down)
{
	char name[CKPT_NAME + 1];

	for (size_t i = 0; i < scn_n_words(c) || !i; i++)
		for (const char *at = scn_need_word(c, i); *at && !scn_is_wrong(c);) {
			struct ckpt_peer *p = scn_element(&at, ',', name, sizeof(name))
						      ? peer_of(s, c, name)
						      : NULL;

			if (p)
				s->down[p - s->peers] = down;
			else
				scn_wrong(c, "a list of peers was expected");
		}
}

static void do_recover(struct ckpt_state *s, struct scn *c)
{
	struct ckpt_peer up[CKPT_PEERS];
	size_t at[CKPT_PEERS], n_up = peers_up(s, up, at);

	s->recovered = true;
	s->panics = scn_flag(c, "panic|panic_on_missing", false);
	s->copy = ckptbook_recover(&s->book, up, n_up);
}

static uint64_t ms_of(struct scn *c, const char *key)
{
	struct amount a = scn_amount(c, key, AMOUNT_UNKNOWN);

	return a.known && a.bytes >= 0 ? (uint64_t)a.bytes : CKPT_NONE;
}

static void do_stale(struct ckpt_state *s, struct scn *c)
{
	const char *policy = scn_text(c, "policy", "never");
	struct ckpt_stale stale = {.ms = 0};

	if (!ckpt_stale_read(policy, &stale))
		scn_wrong(c, "no such policy: %s", policy);
	else
		s->use = ckpt_stale_use(&stale, ms_of(c, "last_age"), ms_of(c, "fresh_takes"),
					&s->delay_ms);
	s->staled = true;
}

static void do_count(struct ckpt_state *s, struct scn *c)
{
	struct ckpt_num num = ckpt_defaults.num;
	struct ckpt_peer up[CKPT_PEERS];
	size_t at[CKPT_PEERS], n_up = peers_up(s, up, at);

	read_num(c, &num);
	s->k = ckpt_num_of(&num, n_up);
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	struct ckpt_state *s = state;

	if (s->pending && strcmp(verb, "bcast") != 0 && strcmp(verb, "tick") != 0 &&
	    strcmp(verb, "fail") != 0)
		run_period(s, c);
	if (!strcmp(verb, "peers"))
		do_peers(s, c);
	else if (!strcmp(verb, "count"))
		do_count(s, c);
	else if (!strcmp(verb, "bcast"))
		do_bcast(s, c);
	else if (!strcmp(verb, "fail"))
		do_fail(s, c);
	else if (!strcmp(verb, "tick"))
		do_tick(s, c, number_of(c, scn_need_word(c, 0)));
	else if (!strcmp(verb, "have"))
		do_have(s, c);
	else if (!strcmp(verb, "down") || !strcmp(verb, "up"))
		do_down(s, c, *verb == 'd');
	else if (!strcmp(verb, "recover"))
		do_recover(s, c);
	else if (!strcmp(verb, "stale"))
		do_stale(s, c);
	else
		return scn_actor_verb(s, c, verb);
	return true;
}

/* A list of names, or where a number is expected how many they are. */
static void found_names(struct scn *c, const char *expected, const char *list, uint32_t n,
			bool failed)
{
	if (*expected && strspn(expected, "0123456789") == strlen(expected))
		scn_found(c, "%u", n);
	else
		scn_found(c, "%s", failed ? "error" : *list ? list : "none");
}

static bool found_recovery(const struct ckpt_state *s, struct scn *c, const char *key)
{
	if (!strcmp(key, "from"))
		scn_found(c, "%s", s->copy ? s->copy->peer : s->panics ? "error" : "fresh");
	else if (!strcmp(key, "version") && s->copy)
		scn_found_amount(c, amount_of((int64_t)s->copy->version));
	else if (!strcmp(key, "version"))
		scn_found(c, "none");
	else
		return false;
	return true;
}

static bool found_stale(const struct ckpt_state *s, struct scn *c, const char *key)
{
	static const char *const uses[] = {"fresh", "stale", "nothing"};

	if (!strcmp(key, "use"))
		scn_found(c, "%s", uses[s->use]);
	else if (!strcmp(key, "delay"))
		scn_found_amount(c, amount_of((int64_t)s->delay_ms));
	else
		return false;
	return true;
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	struct ckpt_state *s = state;

	if (s->pending)
		run_period(s, c);
	if (s->recovered && found_recovery(s, c, key))
		return true;
	if (s->staled && found_stale(s, c, key))
		return true;
	if (!strcmp(key, "k"))
		scn_found(c, s->k < 0 ? "error" : "%lld", (long long)s->k);
	else if (!strcmp(key, "sent"))
		found_names(c, expected, s->sent, s->n_sent, s->failed);
	else if (!strcmp(key, "missed"))
		found_names(c, expected, s->missed, s->n_missed, false);
	else if (!strcmp(key, "attempts"))
		scn_found_amount(c, amount_of((int64_t)s->n_attempts));
	else if (!strcmp(key, "degraded"))
		scn_found(c, "%d", s->cast.choice.degraded);
	else if (!strcmp(key, "events"))
		scn_found(c, "%s", *s->events ? s->events : "none");
	else
		return false;
	return true;
}

static void end(void *state)
{
	scn_actor_end(state);
}

const struct scn_domain scn_ckpt_domain = {"ckpt", sizeof(struct ckpt_state), begin, verb, found,
					   end};
