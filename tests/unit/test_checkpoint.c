/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_checkpoint.c: an actor that is moved while requests come, with steps that fail, take too
 * long, or are answered late; and copies on peers that go down. $SHMSTORE_SEED plays one history.
 *
 *     a request runs at one place at a time, where the actor is; while it is not active none begins
 *     they begin in the order of their coming; one that was stopped begins again before later ones
 *     each is answered once: at the end of a history all are, or lost with the actor that was
 *     killed after every failure it is where it was, and after every save of an actor's copies the
 *     newest that can be reached is what a recovery takes and is never evicted
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "actor.h"
#include "ckptplan.h"
#include "dice.h"

#define HISTORIES 400u
#define STEPS     200u
#define STEP_MS   50u

enum is {
	NOT_YET,
	QUEUED,
	RUNS,
	ANSWERED,
	LOST
};

struct world {
	struct dice dice;
	struct actor *a;
	enum is requests[STEPS + 1];
	bool told[STEPS + 1]; /* to stop */
	uint64_t n, now, step, late;
	bool open, placing, killed;
	unsigned n_saved;
	char where[CKPT_NAME + 1];
};

static bool is_step(enum actor_action action)
{
	return action == ACTOR_SUSPEND || action == ACTOR_SERIALIZE || action == ACTOR_TRANSFER ||
	       action == ACTOR_DESERIALIZE || action == ACTOR_FORWARD || action == ACTOR_LOCATE;
}

static void begin_request(struct world *w, const struct actor_order *o)
{
	cr_assert_eq(w->requests[o->request], QUEUED, "%lu runs already",
		     (unsigned long)o->request);
	cr_assert_str_eq(o->peer, w->where, "not where it is");
	for (uint64_t i = 1; i < o->request; i++)
		cr_assert_neq(w->requests[i], QUEUED, "%lu was passed over", (unsigned long)i);
	w->requests[o->request] = RUNS;
	w->told[o->request] = false;
}

static void act(void *arg, const struct actor_order *o)
{
	struct world *w = arg;

	if (is_step(o->action)) {
		w->late = w->open ? w->late : w->step;
		w->step = o->step;
		w->open = true;
	}
	w->placing = o->action == ACTOR_PLACE;
	switch ((int)o->action) {
	case ACTOR_RUN:
		begin_request(w, o);
		break;
	case ACTOR_STOP:
		cr_assert_eq(w->requests[o->request], RUNS);
		w->told[o->request] = true;
		break;
	case ACTOR_RESUME:
		w->open = false;
		w->n_saved += w->a->stays;
		cr_assert(!w->a->stays || strcmp(o->peer, w->where) == 0,
			  "it was saved, and moved");
		snprintf(w->where, sizeof(w->where), "%s", o->peer);
		break;
	case ACTOR_HOME:
		cr_assert_str_eq(o->peer, w->where, "it is not where it was");
		break;
	case ACTOR_KILL:
		w->killed = true;
		break;
	case ACTOR_LOSE:
		cr_assert(w->killed && w->requests[o->request] == QUEUED);
		w->requests[o->request] = LOST;
		break;
	default:
		break;
	}
}

/* A request that runs, or 0. */
static uint64_t running(struct world *w)
{
	for (uint64_t i = 1 + dice_draw(&w->dice, w->n + 1); i <= w->n; i++)
		if (w->requests[i] == RUNS)
			return i;
	return 0;
}

static void end_request(struct world *w, uint64_t i)
{
	bool stops = w->told[i] && dice_draw(&w->dice, 2);

	w->requests[i] = stops ? QUEUED : ANSWERED;
	w->told[i] = false;
	cr_assert_eq(stops ? actor_stopped(w->a, i, w->now) : actor_answered(w->a, i, w->now), 0);
	if (w->requests[i] == ANSWERED)
		cr_assert_eq(actor_answered(w->a, i, w->now), -ENOENT, "twice");
}

static void answer_step(struct world *w, bool ok)
{
	uint64_t step = w->step;

	if (w->late && dice_draw(&w->dice, 4) == 0)
		cr_assert_eq(actor_done(w->a, w->late, ok, w->now), -ESTALE);
	if (!w->open)
		return;
	w->open = false;
	(void)actor_done(w->a, step, ok, w->now);
	cr_assert_eq(actor_done(w->a, step, ok, w->now), -ESTALE, "twice");
}

static void ask_for(struct world *w)
{
	uint64_t id = w->n + 1;

	w->requests[id] = QUEUED;
	w->n++;
	if (actor_request(w->a, id) < 0) {
		cr_assert(w->killed);
		w->requests[id] = LOST;
	} else {
		cr_assert_eq(actor_request(w->a, id), -EEXIST);
	}
}

static void preempt(struct world *w)
{
	bool active = w->a->state == ACTOR_ACTIVE || w->a->stays;
	const char *to[] = {NULL, "p1", "p2"};
	int err = actor_preempt(w->a, to[dice_draw(&w->dice, 3)], w->now);

	cr_assert_eq(err, active ? 0 : -EBUSY);
}

static void save(struct world *w)
{
	bool active = w->a->state == ACTOR_ACTIVE;

	cr_assert_eq(actor_save(w->a, w->now), active ? 0 : -EBUSY);
}

static void look(const struct world *w)
{
	uint32_t queued = 0, runs = 0;

	for (uint64_t i = 1; i <= w->n; i++) {
		queued += w->requests[i] == QUEUED;
		runs += w->requests[i] == RUNS;
	}
	cr_assert_eq((w->a->n_requests - w->a->n_running), queued);
	cr_assert_eq(w->a->n_running, runs);
	cr_assert(w->a->state < ACTOR_SERIALIZING || !runs, "it runs while it is written");
}

static void step(struct world *w)
{
	uint64_t i;

	switch (dice_draw(&w->dice, 9)) {
	case 0:
	case 1:
		ask_for(w);
		break;
	case 2:
	case 3:
		i = running(w);
		if (i)
			end_request(w, i);
		break;
	case 4:
		answer_step(w, dice_draw(&w->dice, 8) != 0);
		break;
	case 5:
		if (w->placing)
			cr_assert_eq(actor_placed(w->a, "p3", w->now), 0);
		else
			cr_assert_eq(actor_placed(w->a, "p3", w->now), -ESTALE);
		break;
	case 6:
		w->now += dice_draw(&w->dice, STEP_MS);
		actor_tick(w->a, w->now);
		break;
	case 7:
		save(w);
		break;
	default:
		preempt(w);
	}
	look(w);
}

static void finish(struct world *w)
{
	for (unsigned i = 0;
	     i < 10 * STEPS && (w->a->n_requests - w->a->n_running) + w->a->n_running; i++) {
		uint64_t r = 1;

		while (r <= w->n && w->requests[r] != RUNS)
			r++;
		if (r <= w->n)
			end_request(w, r);
		w->now += STEP_MS;
		actor_tick(w->a, w->now);
	}
	for (uint64_t i = 1; i <= w->n; i++)
		cr_assert(w->requests[i] == ANSWERED || (w->killed && w->requests[i] == LOST),
			  "%lu has no answer", (unsigned long)i);
}

Test(checkpoint, an_actor_that_is_moved_answers_each_request_once_and_in_order)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);
	unsigned n_moved = 0, n_killed = 0, n_saved = 0;

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct world w = {.dice = {seed}};
		struct actor_config config = {.level = 1 + (int)(seed % 4),
					      .can_save = true,
					      .can_load = true,
					      .at_once = 1 + (uint32_t)(seed % 3),
					      .step_ms = STEP_MS,
					      .suspend_max_ms = 2 * STEP_MS};

		w.a = actor_new(&config, act, &w);
		for (unsigned i = 0; i < STEPS; i++)
			step(&w);
		finish(&w);
		n_moved += *w.where != 0;
		n_killed += w.killed;
		n_saved += w.n_saved;
		cr_assert(!w.killed || config.level == ACTOR_ALWAYS);
		actor_free(w.a);
	}
	cr_assert(n == 1 || (n_moved > n / 10 && n_killed > 0 && n_saved > n / 2),
		  "%u moved, %u killed, %u saved", n_moved, n_killed, n_saved);
}

Test(checkpoint, who_cannot_save_and_load_is_not_preempted)
{
	struct world w = {.now = 0};
	struct actor_config config = {.level = 3, .can_save = true};

	w.a = actor_new(&config, act, &w);
	cr_assert_eq(actor_preempt(w.a, "p1", 0), -EPERM);
	cr_assert_eq(actor_save(w.a, 0), -EPERM);
	cr_assert_eq(actor_level(3, true, false, true), -EINVAL);
	cr_assert_eq(actor_level(0, false, false, true), 0);
	actor_free(w.a);
}

static void count_lost(void *arg, const struct actor_order *o)
{
	unsigned *n = arg;

	n[o->action == ACTOR_LOSE]++;
	if (o->action == ACTOR_KILL)
		n[2]++;
}

Test(checkpoint, an_actor_that_is_killed_loses_all_of_its_requests_once)
{
	struct actor_config config = {.level = 1, .can_save = true, .can_load = true, .at_once = 2};
	unsigned n[3] = {0};
	struct actor *a = actor_new(&config, count_lost, n);

	for (uint64_t i = 1; i <= 5; i++)
		cr_assert_eq(actor_request(a, i), 0);
	cr_assert_eq(actor_preempt(a, "p1", 0), 0);
	actor_kill(a);
	actor_kill(a);
	cr_assert_eq(n[1], 5u);
	cr_assert_eq(n[2], 1u);
	cr_assert_eq(a->state, ACTOR_KILLED);
	cr_assert_eq(a->deadline_ms, UINT64_MAX);
	cr_assert_eq(actor_request(a, 6), -EPIPE);
	cr_assert_eq(actor_answered(a, 1, 0), -ENOENT);
	actor_free(a);
}

struct steps {
	enum actor_action last;
	uint64_t step;
	unsigned n_lost;
	char to[CKPT_NAME + 1];
};

static void note(void *arg, const struct actor_order *o)
{
	struct steps *s = arg;

	s->n_lost += o->action == ACTOR_LOSE;
	if (is_step(o->action)) {
		s->last = o->action;
		s->step = o->step;
		snprintf(s->to, sizeof(s->to), "%s", o->peer);
	}
}

/* From each state up to its being saved, also while a request runs. */
Test(checkpoint, a_copy_goes_on_in_its_place_or_it_goes_on_at_home)
{
	struct actor_config config = {
		.level = 1, .can_save = true, .can_load = true, .step_ms = STEP_MS};

	for (enum actor_state from = ACTOR_ACTIVE; from <= ACTOR_PLACING; from++) {
		struct steps s = {0};
		struct actor *a = actor_new(&config, note, &s);
		bool saved = from == ACTOR_PLACING;

		cr_assert_eq(actor_request(a, 1), 0);
		cr_assert_eq(actor_request(a, 2), 0);
		if (from > ACTOR_ACTIVE)
			cr_assert_eq(actor_preempt(a, NULL, 0), 0);
		if (from > ACTOR_SUSPENDING)
			cr_assert_eq(actor_done(a, s.step, true, 0), 0);
		if (from > ACTOR_STOPPING)
			cr_assert_eq(actor_answered(a, 1, 0), 0);
		if (saved)
			cr_assert_eq(actor_done(a, s.step, true, 0), 0);
		cr_assert_eq(a->state, from);
		cr_assert_eq(actor_use_copy(a, "p1", 0), saved ? -EBUSY : 0);
		if (!saved) {
			cr_assert_eq(a->state, ACTOR_DESERIALIZING);
			cr_assert(s.last == ACTOR_DESERIALIZE && strcmp(s.to, "p1") == 0);
			cr_assert_eq(actor_done(a, s.step, false, 0), 0);
			cr_assert_eq(a->state, ACTOR_ACTIVE);
			cr_assert_eq(a->n_running, 1u);
			cr_assert_eq(actor_answered(a, from > ACTOR_STOPPING ? 2 : 1, 0), 0,
				     "it goes on at home");
			cr_assert_eq(actor_use_copy(a, "p2", 0), 0);
			actor_kill(a);
			cr_assert_eq(s.n_lost, from > ACTOR_STOPPING ? 0u : 1u);
		}
		actor_free(a);
	}
}

static void ignore(void *arg, const struct actor_order *o)
{
	(void)arg;
	(void)o;
}

Test(checkpoint, a_queue_is_bounded)
{
	struct actor_config config = {.level = 3, .can_save = true, .can_load = true};
	struct actor *a = actor_new(&config, ignore, NULL);

	for (uint64_t id = 0; id < ACTOR_REQUESTS; id++)
		cr_assert_eq(actor_request(a, id), 0);
	cr_assert_eq(actor_request(a, ACTOR_REQUESTS), -EAGAIN);
	cr_assert_eq(actor_request(a, 0), -EEXIST);
	actor_free(a);
}

#define PEERS 6u

/* Of PEERS those that are up: whom peers are chosen of. Returns their number. */
static unsigned some_peers(struct dice *d, struct ckpt_peer peers[PEERS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < PEERS; i++) {
		peers[n] = (struct ckpt_peer){.free = dice_draw(d, 4)};
		snprintf(peers[n].name, sizeof(peers[n].name), "p%u", i);
		n += dice_draw(d, 3) != 0;
	}
	return n;
}

Test(checkpoint, the_newest_copy_that_can_be_reached_is_kept_and_taken)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};
		struct ckpt_peer peers[PEERS];
		struct ckptbook b = {0};
		uint64_t versions[PEERS] = {0}, best = 0;
		const struct ckpt_copy *copy;
		unsigned n_up = some_peers(&d, peers);

		for (unsigned i = 0; i < 12; i++) {
			uint64_t at = dice_draw(&d, PEERS), version = 1 + dice_draw(&d, 5);
			char name[8];

			snprintf(name, sizeof(name), "p%u", (unsigned)at);
			cr_assert(ckptbook_add(&b, name, version, 10));
			versions[at] = version > versions[at] ? version : versions[at];
		}
		for (unsigned i = 0; i < n_up; i++) {
			unsigned at = (unsigned)(peers[i].name[1] - '0');

			best = versions[at] > best ? versions[at] : best;
		}
		copy = ckptbook_recover(&b, peers, n_up);
		cr_assert_eq(copy != NULL, best != 0);
		cr_assert(!best || copy->version == best);
	}
}

Test(checkpoint, a_broadcast_sends_to_chosen_peers_that_are_up_and_never_the_same_version_twice)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct dice d = {seed};
		struct ckpt_config config = ckpt_defaults;
		struct ckpt_peer peers[PEERS];
		struct ckpt_cast c;
		uint64_t version = 1, sent = 0;

		config.num.k = 1 + (uint32_t)dice_draw(&d, 7);
		config.selection = dice_draw(&d, 2) ? CKPT_RESOURCE : CKPT_RANDOM;
		config.strategy = (enum ckpt_strategy)dice_draw(&d, 2);
		config.retry = (uint32_t)dice_draw(&d, 3);
		c = (struct ckpt_cast){.config = config};
		for (unsigned i = 0; i < 20; i++) {
			size_t to, n_to = 0, n_attempts = 0, n_sent = 0;
			unsigned n_up = some_peers(&d, peers);
			int begun;

			version += dice_draw(&d, 2);
			begun = ckpt_cast_begin(&c, peers, n_up, version, 1, i);
			cr_assert_eq(begun, version != sent);
			cr_assert(!begun || c.choice.n <= config.num.k);
			while (ckpt_cast_next(&c, &to)) {
				bool ok = dice_draw(&d, 2);

				cr_assert(to < n_up);
				cr_assert(config.selection == CKPT_RANDOM || peers[to].free >= 1);
				n_to += ckpt_cast_result(&c, ok);
				n_attempts++;
				n_sent += ok;
				sent = ok ? version : sent;
			}
			cr_assert(!begun || n_to == (config.strategy == CKPT_ALL ? c.choice.n
										 : c.choice.n > 0));
			cr_assert_leq(n_attempts, n_to * (1 + config.retry));
			cr_assert_eq(n_sent + c.n_missed, begun ? n_to : 0);
		}
	}
}

Test(checkpoint, words_that_are_none_are_refused)
{
	static const char *const nums[] = {"",
					   "explicit:",
					   "explicit:x",
					   "frac:",
					   "frac:1.5",
					   "frac:0.5,min",
					   "frac:0.5,min=",
					   "frac:0.5,short=no",
					   "explicit:99999999999",
					   "all",
					   "explicit:00000000000000000000000000000000000000001"};
	static const char *const stales[] = {
		"",          "timeout", "timeout:", "timeout:x", "maxage:99999999999999999999",
		"sometimes", "never:",  "alway"};
	static const char *const right[] = {"never", "always", "timeout:0",
					    "maxage:18446744073709551615"};
	struct ckpt_stale stale = {.ms = 0};
	char text[CKPT_STALE_MAX];
	struct ckpt_num num;
	uint64_t delay;

	for (size_t i = 0; i < sizeof(nums) / sizeof(nums[0]); i++)
		cr_assert_not(ckpt_num_read(nums[i], &num), "%s", nums[i]);
	for (size_t i = 0; i < sizeof(stales) / sizeof(stales[0]); i++)
		cr_assert_not(ckpt_stale_read(stales[i], &stale), "%s", stales[i]);
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		cr_assert(ckpt_stale_read(right[i], &stale));
		ckpt_stale_write(&stale, text);
		cr_assert_str_eq(text, right[i]);
	}
	cr_assert(ckpt_stale_read("timeout:300", &stale));
	cr_assert_eq(ckpt_stale_use(&stale, 2999, 0, &delay), CKPT_USE_FRESH);
	cr_assert_eq(ckpt_stale_use(&stale, 2999, CKPT_NONE, &delay), CKPT_USE_STALE);
	cr_assert_eq(delay, 300u);
	cr_assert(ckpt_stale_read("maxage:3000", &stale));
	cr_assert_eq(ckpt_stale_use(&stale, 2999, 400, &delay), CKPT_USE_STALE);
	cr_assert_eq(ckpt_stale_use(&stale, 3000, 400, &delay), CKPT_USE_FRESH);
	cr_assert_eq(ckpt_stale_use(&stale, CKPT_NONE, CKPT_NONE, &delay), CKPT_USE_NOTHING);
}
