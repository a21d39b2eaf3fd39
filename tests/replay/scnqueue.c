/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scnqueue.c: the domain "queue": requests to create objects on a store that is full. A request's
 * mode says what the store answers to it: ok; oom: no room anywhere; fallback: room on the disk
 * only; any other word: refused with that.
 */
#include <string.h>

#include "createqueue.h"
#include "scn.h"
#include "scnnames.h"

#define REQUESTS 1024u
#define WORD     31u

struct state {
	struct createqueue q;
	bool made;
	struct createqueue_request at[REQUESTS];
	struct createqueue_client of[REQUESTS];
	struct scn_names requests, clients;
	char modes[REQUESTS][WORD + 1];
	bool disk_over, spilling;
	uint64_t wait; /* of a request that names no deadline, in mode HOST */
	int64_t n_fallbacks, n_spills;
	uint64_t now_ms;
	const char *status;
};

static enum createqueue_got on_allocate(void *arg, struct createqueue_request *r, bool fallback)
{
	struct state *s = arg;
	const char *mode = s->modes[r - s->at];

	s->n_fallbacks += fallback;
	if (!strcmp(mode, "ok"))
		return CREATEQUEUE_GOT;
	if (!strcmp(mode, "oom"))
		return CREATEQUEUE_NO_ROOM;
	if (strstr(mode, "fallback") || strstr(mode, "fb"))
		return fallback ? CREATEQUEUE_GOT : CREATEQUEUE_NO_ROOM;
	return CREATEQUEUE_REFUSED;
}

static bool on_disk_full(void *arg)
{
	return ((struct state *)arg)->disk_over;
}

static bool on_spill(void *arg)
{
	struct state *s = arg;

	s->n_spills++;
	return s->spilling;
}

static void do_queue(struct state *s, struct scn *c)
{
	struct createqueue_config config = {0};
	const struct createqueue_ops ops = {on_allocate, on_disk_full, on_spill, s};
	const char *mode = scn_text(c, "mode", "first");

	if (strcmp(mode, "first") != 0 && strcmp(mode, "host") != 0)
		scn_wrong(c, "no such mode: %s", mode);
	config.mode = !strcmp(mode, "host") ? CREATEQUEUE_HOST : CREATEQUEUE_FIRST;
	config.grace = (uint64_t)scn_number(c, "grace", 2000);
	s->wait = (uint64_t)scn_number(c, "wait", 30000);
	config.per_client = (uint32_t)scn_number(c, "per_client", REQUESTS);
	config.max_bypass = (uint32_t)scn_number(c, "max_bypass", 64);
	s->disk_over = scn_flag(c, "disk_over", s->disk_over);
	s->spilling = scn_flag(c, "spill", s->spilling);
	createqueue_init(&s->q, &config, &ops);
	s->made = true;
	memset(s->at, 0, sizeof(s->at));
	memset(s->of, 0, sizeof(s->of));
	s->n_fallbacks = s->n_spills = 0;
}

static void set_mode(struct scn *c, char mode[WORD + 1], const char *word)
{
	if (strlen(word) > WORD)
		scn_wrong(c, "too long a mode");
	else
		memcpy(mode, word, strlen(word) + 1);
}

static void do_add(struct state *s, struct scn *c)
{
	uint64_t id = scn_names_number(&s->requests, scn_need_word(c, 0));
	uint64_t client = scn_names_number(&s->clients, scn_text(c, "client", "")), deadline;

	if (!id || id >= REQUESTS || !client || client >= REQUESTS) {
		scn_wrong(c, "too many requests, or too long a name");
		return;
	}
	if (s->at[id].result != CREATEQUEUE_UNKNOWN) {
		scn_wrong(c, "it waits already");
		return;
	}
	set_mode(c, s->modes[id], scn_text(c, "mode", "ok"));
	(void)scn_number(c, "bytes|size", 0);
	deadline = (uint64_t)scn_number(c, "deadline", 0);
	if (!deadline && s->q.config.mode == CREATEQUEUE_HOST)
		deadline = s->wait;
	(void)createqueue_add(&s->q, &s->at[id], &s->of[client],
			      deadline && deadline < UINT64_MAX - s->now_ms ? s->now_ms + deadline
									    : UINT64_MAX,
			      s->now_ms);
}

static void do_process(struct state *s)
{
	static const char *const names[] = {
		[CREATEQUEUE_OK] = "ok",
		[CREATEQUEUE_FULL] = "full",
		[CREATEQUEUE_TRANSIENT] = "transient",
		[CREATEQUEUE_DISK] = "disk",
	};

	s->status = names[createqueue_process(&s->q, s->now_ms)];
}

static void do_repeat(struct state *s, struct scn *c)
{
	struct amount times = AMOUNT_UNKNOWN;
	int64_t adv = scn_number(c, "adv", 0);
	const char *status = scn_option(c, "status");

	if (!scn_read_amount(scn_need_word(c, 0), &times) || !times.known)
		scn_wrong(c, "how many times?");
	for (int64_t i = 0; i < times.bytes && !scn_is_wrong(c); i++) {
		s->now_ms += (uint64_t)adv;
		do_process(s);
		if (status && !scn_same(status, s->status)) {
			scn_differs(c, status, "%s, time %lld", s->status, (long long)i + 1);
			return;
		}
	}
}

static int64_t word_number(struct scn *c)
{
	struct amount a = AMOUNT_UNKNOWN;

	if (!scn_read_amount(scn_need_word(c, 0), &a) || !a.known || a.bytes < 0)
		scn_wrong(c, "a number is missing");
	return a.bytes;
}

static void do_mode(struct state *s, struct scn *c)
{
	uint64_t id = scn_names_find(&s->requests, scn_need_word(c, 0));

	if (id && id < REQUESTS)
		set_mode(c, s->modes[id], scn_need_word(c, 1));
	else
		scn_wrong(c, "no such request");
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	struct state *s = state;

	if (!strcmp(verb, "queue")) {
		do_queue(s, c);
		return true;
	}
	if (!s->made)
		do_queue(s, c);
	if (!strcmp(verb, "spill"))
		s->spilling = word_number(c) != 0;
	else if (!strcmp(verb, "disk"))
		s->disk_over = word_number(c) != 0;
	else if (!strcmp(verb, "add"))
		do_add(s, c);
	else if (!strcmp(verb, "mode"))
		do_mode(s, c);
	else if (!strcmp(verb, "adv"))
		s->now_ms += (uint64_t)word_number(c);
	else if (!strcmp(verb, "process"))
		do_process(s);
	else if (!strcmp(verb, "repeat"))
		do_repeat(s, c);
	else
		return false;
	return true;
}

static void found_request(struct state *s, struct scn *c, const char *what, const char *name)
{
	static const char *const names[] = {
		[CREATEQUEUE_UNKNOWN] = "unknown",   [CREATEQUEUE_PENDING] = "pending",
		[CREATEQUEUE_CREATED] = "ok",        [CREATEQUEUE_OUT_OF_DISK] = "outofdisk",
		[CREATEQUEUE_TIMED_OUT] = "timeout",
	};
	uint64_t id = scn_names_find(&s->requests, name);
	enum createqueue_result result =
		id && id < REQUESTS ? s->at[id].result : CREATEQUEUE_UNKNOWN;

	if (!strcmp(what, "req") && result > CREATEQUEUE_PENDING)
		createqueue_drop(&s->q, &s->at[id]);
	else if (strcmp(what, "req") != 0 && strcmp(what, "peek") != 0)
		scn_wrong(c, "neither \"req\" nor \"peek\": %s", what);
	scn_found(c, "%s", result == CREATEQUEUE_WRONG ? s->modes[id] : names[result]);
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	struct state *s = state;

	(void)expected;
	if (!s->made)
		return false;
	if (scn_n_words(c)) {
		found_request(s, c, scn_need_word(c, 0), key);
		return true;
	}
	if (!strcmp(key, "status"))
		scn_found(c, "%s", s->status ? s->status : "none");
	else if (!strcmp(key, "gc"))
		scn_found_amount(c, amount_of(s->n_spills));
	else if (!strcmp(key, "fallbacks"))
		scn_found_amount(c, amount_of(s->n_fallbacks));
	else if (!strcmp(key, "calls"))
		scn_found_amount(c, amount_of((int64_t)s->q.counts.calls));
	else if (!strcmp(key, "empty"))
		scn_found(c, "%d", !s->q.waiting && !s->q.ended);
	else
		return false;
	return true;
}

static void end(void *state)
{
	struct state *s = state;

	scn_names_deinit(&s->requests);
	scn_names_deinit(&s->clients);
}

const struct scn_domain scn_queue_domain = {"queue", sizeof(struct state), NULL, verb, found, end};
