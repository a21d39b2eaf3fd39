/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore_arb_with_retry(): rows W01 to W20 of the retry helper, with attempts that answer by
 * script. c(x) is how often item x was ended: by done(), or by a split that took it over.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "api.h"
#include "arbcase.h"

#define PART  SHMSTORE_ARB_PARTITION
#define RETRY SHMSTORE_ARB_RETRY
#define SPLIT SHMSTORE_ARB_SPLIT

enum {
	ITEMS = 16,
	STEPS = 16
};

struct item {
	char name[8];
	int n_ended, result;
	uint64_t target, min, data; /* of those that are split by their target */
};

struct script {
	struct arbcase c;
	struct item items[ITEMS];
	size_t n_items;
	int steps[STEPS]; /* what the attempts return */
	size_t n_steps, at;
	int depth;                         /* splits that are allowed; 0 = none */
	int (*in_split)(struct script *s); /* instead of splitting */
	char order[128];                   /* items that were attempted, in order */
	char events[256];
	uint64_t reserve; /* what each attempt reserves and leaves */
	uint64_t used_at_restore;
	int v, saved_v;
	uint64_t last_target;
};

static struct item *item_new(struct script *s, const char *name)
{
	struct item *i = &s->items[s->n_items++];

	cr_assert_leq(s->n_items, ITEMS);
	snprintf(i->name, sizeof(i->name), "%s", name);
	return i;
}

static void say(struct script *s, const char *word)
{
	strncat(s->events, word, sizeof(s->events) - strlen(s->events) - 1);
	strncat(s->events, " ", sizeof(s->events) - strlen(s->events) - 1);
}

static int attempt(void *ctx, void *item)
{
	struct script *s = ctx;
	struct item *i = item;
	struct shmstore_arb_reservation r;

	say(s, "try");
	strncat(s->order, i->name, sizeof(s->order) - strlen(s->order) - 1);
	s->last_target = i->target;
	s->v += 5;
	for (int k = 0; s->reserve && k < 2; k++)
		cr_assert_eq(shmstore_arb_reserve(s->c.s, PART, s->reserve, NULL, &r), 0);
	return s->at < s->n_steps ? s->steps[s->at++] : 0;
}

static int split(void *ctx, void *item, void **ret, size_t max)
{
	struct script *s = ctx;
	struct item *i = item, *piece;
	char name[8];

	cr_assert_eq(max, SHMSTORE_ARB_SPLIT_MAX);
	if (s->in_split)
		return s->in_split(s);
	if (i->target) {
		uint64_t next = shmstore_arb_smaller(i->target, i->min, i->data);

		if (!next)
			return 0;
		piece = item_new(s, i->name);
		piece->target = next;
		piece->min = i->min;
		piece->data = i->data;
		i->n_ended++;
		ret[0] = piece;
		return 1;
	}
	if (s->depth-- <= 0)
		return 0;
	for (int k = 0; k < 2; k++) {
		snprintf(name, sizeof(name), "%c", strcmp(i->name, "x") == 0 ? "pq"[k] : "uv"[k]);
		ret[k] = item_new(s, name);
	}
	i->n_ended++;
	return 2;
}

static void done(void *ctx, void *item, int result)
{
	struct item *i = item;

	(void)ctx;
	i->n_ended++;
	i->result = result;
}

static void save(void *ctx, void *item)
{
	struct script *s = ctx;

	(void)item;
	s->saved_v = s->v;
}

static void restore(void *ctx, void *item)
{
	struct script *s = ctx;
	struct shmstore_arb_pool_info info;

	(void)item;
	say(s, "restore");
	s->v = s->saved_v;
	cr_assert_eq(shmstore_arb_pool_info(s->c.s, PART, &info), 0);
	s->used_at_restore = info.used;
}

static uint64_t n_ready(const struct script *s)
{
	return atomic_load(&s->c.a->n_ops[WIRE_ARB_READY]);
}

#define SCRIPT(...)                                                           \
	{                                                                     \
		.c = arbcase_begin(ARB_MIB, 0, 0), .steps = {__VA_ARGS__},    \
		.n_steps = sizeof((int[]){__VA_ARGS__}) / sizeof(int), .v = 5 \
	}

/* Runs the items whose names are letters of names. */
static int run(struct script *s, const char *names, struct shmstore_arb_work *w)
{
	void *items[ITEMS];
	size_t n = strlen(names);

	for (size_t i = 0; i < n; i++)
		items[i] = item_new(s, (char[]){names[i], '\0'});
	w->size = sizeof(*w);
	w->attempt = attempt;
	w->done = done;
	w->ctx = s;
	return shmstore_arb_with_retry(s->c.s, items, n, w);
}

static int ended(const struct script *s, const char *name)
{
	for (size_t i = 0; i < s->n_items; i++) {
		if (strcmp(s->items[i].name, name) == 0)
			return s->items[i].n_ended;
	}
	return -1;
}

Test(arb_retry, w01_w02_error_ends_the_item_and_no_other)
{
	struct script s = SCRIPT(-EIO);
	struct shmstore_arb_work w = {0};

	cr_assert_eq(run(&s, "xy", &w), -EIO);
	cr_assert_eq(ended(&s, "x"), 1);
	cr_assert_eq(ended(&s, "y"), 0);
	cr_assert_eq(s.items[0].result, -EIO);
	arbcase_end(&s.c);
}

Test(arb_retry, w03_error_ends_the_pieces)
{
	struct script s = SCRIPT(SPLIT, -EIO);
	struct shmstore_arb_work w = {.split = split};

	s.depth = 1;
	cr_assert_eq(run(&s, "xy", &w), -EIO);
	cr_assert_eq(ended(&s, "p"), 1);
	cr_assert_eq(ended(&s, "q"), 1);
	cr_assert_eq(ended(&s, "x"), 1);
	cr_assert_eq(ended(&s, "y"), 0);
	arbcase_end(&s.c);
}

Test(arb_retry, w04_split_without_a_policy_is_the_callers)
{
	struct script s = SCRIPT(SPLIT);
	struct shmstore_arb_work w = {0};

	cr_assert_eq(run(&s, "xy", &w), SPLIT);
	cr_assert_eq(ended(&s, "x"), 1);
	cr_assert_eq(ended(&s, "y"), 0);
	cr_assert(strstr(shmstore_arb_why(), "item 1 of 2"), "%s", shmstore_arb_why());
	arbcase_end(&s.c);
}

Test(arb_retry, w05_retry_is_ready_then_again)
{
	struct script s = SCRIPT(RETRY, 0);
	struct shmstore_arb_work w = {0};

	cr_assert_eq(run(&s, "x", &w), 0);
	cr_assert_str_eq(s.order, "xx");
	cr_assert_eq(n_ready(&s), 1);
	cr_assert_eq(w.n_attempts, 2);
	cr_assert_eq(w.n_splits, 0);
	cr_assert_eq(ended(&s, "x"), 1);
	/* Outside of the bracket: as many were ended as begun, once the last message was read. */
	cr_assert_eq(shmstore_arb_available(s.c.s), 0);
	cr_assert_eq(s.c.a->n_ops[WIRE_ARB_RETRY_BEGIN], 2);
	cr_assert_eq(s.c.a->n_ops[WIRE_ARB_RETRY_END], 2);
	arbcase_end(&s.c);
}

Test(arb_retry, w06_pieces_run_in_order)
{
	struct script s = SCRIPT(SPLIT, 0, 0);
	struct shmstore_arb_work w = {.split = split};

	s.depth = 1;
	cr_assert_eq(run(&s, "x", &w), 0);
	cr_assert_str_eq(s.order, "xpq");
	for (size_t i = 0; i < s.n_items; i++)
		cr_assert_eq(s.items[i].n_ended, 1);
	cr_assert_eq(w.n_splits, 1);
	arbcase_end(&s.c);
}

/* A context of a task that holds nearly all, alone with a request that fits only in pieces:
 * ready() itself says SPLIT. */
static int attempt_large(void *ctx, void *item)
{
	struct script *s = ctx;
	struct item *i = item;
	struct shmstore_arb_reservation r[2];
	int e;

	strncat(s->order, i->name, sizeof(s->order) - strlen(s->order) - 1);
	for (int k = 0; k < 2; k++) {
		e = shmstore_arb_reserve(
			s->c.s, PART, strcmp(i->name, "x") == 0 ? 600 * ARB_KIB : 100, NULL, &r[k]);
		if (e != 0)
			return e;
	}
	cr_assert_eq(shmstore_arb_release(s->c.s, &r[0]), 0);
	cr_assert_eq(shmstore_arb_release(s->c.s, &r[1]), 0);
	return 0;
}

Test(arb_retry, w07_split_may_come_from_ready)
{
	struct script s = SCRIPT(0);
	struct shmstore_arb_work w = {
		.split = split, .size = sizeof(w), .attempt = attempt_large, .done = done};
	void *items[1] = {item_new(&s, "x")};

	s.depth = 1;
	w.ctx = &s;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_str_eq(s.order, "xpq", "%s", s.order);
	cr_assert_geq(n_ready(&s), 2);
	cr_assert(fakearb_uses(s.c.a, 0));
	arbcase_end(&s.c);
}

Test(arb_retry, w08_a_piece_is_split_again)
{
	struct script s = SCRIPT(SPLIT, SPLIT, 0, 0, 0);
	struct shmstore_arb_work w = {.split = split};

	s.depth = 2;
	cr_assert_eq(run(&s, "x", &w), 0);
	cr_assert_str_eq(s.order, "xpuvq");
	cr_assert_eq(w.n_attempts, 5);
	cr_assert_eq(w.n_splits, 2);
	arbcase_end(&s.c);
}

Test(arb_retry, w09_refused_split_names_the_item)
{
	struct script s = SCRIPT(SPLIT);
	struct shmstore_arb_work w = {.split = split};

	cr_assert_eq(run(&s, "x", &w), SPLIT);
	cr_assert_eq(ended(&s, "x"), 1);
	cr_assert(strstr(shmstore_arb_why(), "item 1 of 1"), "%s", shmstore_arb_why());
	arbcase_end(&s.c);
}

static int attempt_wrapped(void *ctx, void *item)
{
	struct script *s = ctx;
	struct shmstore_arb_reservation r;
	int e = shmstore_arb_reserve(s->c.s, PART, 100, NULL, &r);

	(void)item;
	say(s, "try");
	if (e != 0)
		return -EIO; /* a layer that knows errno only */
	return shmstore_arb_release(s->c.s, &r);
}

Test(arb_retry, w10_retry_behind_an_error_is_retry)
{
	struct script s = SCRIPT(0);
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt_wrapped, .done = done};
	void *items[1] = {item_new(&s, "x")};

	w.ctx = &s;
	cr_assert_eq(shmstore_arb_inject(s.c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_str_eq(s.events, "try try ");
	arbcase_end(&s.c);
}

static int retry_in_split(struct script *s)
{
	struct shmstore_arb_reservation r;

	cr_assert_eq(shmstore_arb_inject(s->c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0), 0);
	cr_assert_eq(shmstore_arb_reserve(s->c.s, PART, 100, NULL, &r), RETRY);
	return -ENOSPC;
}

Test(arb_retry, w11_retry_in_a_split_is_the_callers)
{
	struct script s = SCRIPT(SPLIT);
	struct shmstore_arb_work w = {.split = split};

	s.in_split = retry_in_split;
	cr_assert_eq(run(&s, "x", &w), RETRY);
	cr_assert_str_eq(s.order, "x");
	cr_assert_eq(ended(&s, "x"), 1);
	arbcase_end(&s.c);
}

Test(arb_retry, w12_w13_state_is_restored)
{
	struct script s = SCRIPT(RETRY, 0);
	struct shmstore_arb_work w = {.save = save, .restore = restore};

	cr_assert_eq(run(&s, "x", &w), 0);
	cr_assert_eq(s.v, 10);
	cr_assert_str_eq(s.events, "try restore try ");
	arbcase_end(&s.c);
}

Test(arb_retry, w14_w15_target_is_halved_down_to_the_least)
{
	struct script s = SCRIPT(SPLIT, SPLIT, 0, SPLIT, SPLIT, SPLIT);
	struct shmstore_arb_work w = {
		.split = split, .size = sizeof(w), .attempt = attempt, .done = done};
	struct item *x = item_new(&s, "x"), *y = item_new(&s, "y");
	void *items[2] = {x, y};

	x->target = y->target = 20;
	x->min = y->min = 5;
	w.ctx = &s;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_eq(s.last_target, 5);
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items + 1, 1, &w), SPLIT);
	cr_assert_eq(s.last_target, 5);
	arbcase_end(&s.c);
}

Test(arb_retry, w16_w17_target_by_the_data_that_there_are)
{
	cr_assert_eq(shmstore_arb_smaller(1000, 100, 200), 100);
	cr_assert_eq(shmstore_arb_smaller(100, 1, 2), 1);
	cr_assert_eq(shmstore_arb_smaller(1000, 100, 600), 500, "more than half of it: no use");
	cr_assert_eq(shmstore_arb_smaller(1000, 501, 0), 0);
	cr_assert_eq(shmstore_arb_smaller(0, 0, 0), 0);
}

static int attempt_outer(void *ctx, void *item)
{
	struct script *s = ctx;
	struct shmstore_arb_work inner = {
		.size = sizeof(inner), .attempt = attempt, .done = done, .ctx = s};
	struct shmstore_arb_reservation r;
	void *items[1] = {item_new(s, "i")};
	int e;

	(void)item;
	say(s, "outer");
	cr_assert_eq(shmstore_arb_reserve(s->c.s, PART, 300, NULL, &r), 0);
	e = shmstore_arb_with_retry(s->c.s, items, 1, &inner);
	/* The outer block's reservation is still there. */
	cr_assert_geq(fakearb_used(s->c.a), 300);
	return e;
}

Test(arb_retry, w18_inner_block_deals_with_its_own)
{
	struct script s = SCRIPT(RETRY, 0, -EIO);
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt_outer, .done = done};
	void *items[2] = {item_new(&s, "x"), item_new(&s, "y")};

	s.reserve = 10;
	w.ctx = &s;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_str_eq(s.events, "outer try try ");
	cr_assert(fakearb_uses(s.c.a, 300 + 2 * 10), "what succeeded leaves what it reserved");
	/* An error goes through both: the outer one's goes too, what its inner one's
	 * first part left included. */
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items + 1, 1, &w), -EIO);
	cr_assert(fakearb_uses(s.c.a, 300 + 2 * 10));
	cr_assert_eq(shmstore_arb_task_end(s.c.s, s.c.task), 0);
	arbcase_end(&s.c);
}

Test(arb_retry, w19_each_block_sees_its_own_injection)
{
	struct script s = SCRIPT(0);
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt_wrapped, .done = done};
	void *items[1] = {item_new(&s, "x")};

	w.ctx = &s;
	for (int i = 0; i < 2; i++) {
		s.events[0] = '\0';
		cr_assert_eq(shmstore_arb_inject(s.c.s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0),
			     0);
		cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
		cr_assert_str_eq(s.events, "try try ");
	}
	s.events[0] = '\0';
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_str_eq(s.events, "try ", "none is left over");
	arbcase_end(&s.c);
}

Test(arb_retry, w20_what_was_reserved_is_released_before_ready)
{
	struct script s = SCRIPT(RETRY, 0);
	struct shmstore_arb_work w = {.save = save, .restore = restore};

	s.reserve = 1000;
	cr_assert_eq(run(&s, "x", &w), 0);
	cr_assert_eq(s.used_at_restore, 0);
	cr_assert(fakearb_uses(s.c.a, 2000), "the attempt that succeeded keeps its own");
	cr_assert_eq(shmstore_arb_task_end(s.c.s, s.c.task), 0);
	arbcase_end(&s.c);
}

/* The same out of a lease, where the daemon knows no single ones. */
static int attempt_leased(void *ctx, void *item)
{
	struct script *s = ctx;
	struct shmstore_arb_reservation r[3];

	(void)item;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shmstore_arb_reserve(s->c.s, PART, 1000, NULL, &r[i]), 0);
	cr_assert_eq(r[2].leased, 1000);
	cr_assert_eq(shmstore_arb_release(s->c.s, &r[1]), 0);
	cr_assert_eq(shmstore_arb_commit(s->c.s, &r[2], 600), 0);
	return s->at < s->n_steps ? s->steps[s->at++] : 0;
}

Test(arb_retry, leased_bytes_are_given_back)
{
	struct script s = {
		.c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0), .steps = {RETRY, -EIO}, .n_steps = 2};
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt_leased, .done = done};
	struct wire_lease *l = fakearb_lease(s.c.a);
	void *items[1] = {item_new(&s, "x")};

	w.ctx = &s;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), -EIO);
	cr_assert_eq(atomic_load(&l->settled), 1200);
	cr_assert_eq(atomic_load(&l->charged), 1200, "nothing is held");
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_eq(atomic_load(&l->charged), 1800 + 1000);
	arbcase_end(&s.c);
}

static void *release_it(void *arg)
{
	struct script *s = arg;
	struct shmstore_arb_reservation r;

	memcpy(&r, s->order, sizeof(r));
	ENSURE(shmstore_arb_release(s->c.s, &r) == 0);
	return NULL;
}

static int attempt_helped(void *ctx, void *item)
{
	struct script *s = ctx;
	struct shmstore_arb_reservation r;
	pthread_t thread;

	(void)item;
	cr_assert_eq(shmstore_arb_reserve(s->c.s, PART, 1000, NULL, &r), 0);
	memcpy(s->order, &r, sizeof(r));
	ENSURE(pthread_create(&thread, NULL, release_it, s) == 0);
	pthread_join(thread, NULL);
	return s->at < s->n_steps ? s->steps[s->at++] : 0;
}

Test(arb_retry, released_by_a_helper_is_not_released_again)
{
	struct script s = {
		.c = arbcase_begin(ARB_MIB, 64 * ARB_KIB, 0), .steps = {RETRY, 0}, .n_steps = 2};
	struct shmstore_arb_work w = {.size = sizeof(w), .attempt = attempt_helped, .done = done};
	struct wire_lease *l = fakearb_lease(s.c.a);
	void *items[1] = {item_new(&s, "x")};

	w.ctx = &s;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), 0);
	cr_assert_eq(atomic_load(&l->charged), 0);
	arbcase_end(&s.c);
}

Test(arb_retry, arguments_are_checked)
{
	struct script s = SCRIPT(0);
	struct shmstore_arb_work w = {0};
	void *items[1] = {NULL};

	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, NULL), -EINVAL);
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), -EINVAL);
	w.size = sizeof(w);
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, items, 1, &w), -EINVAL);
	w.attempt = attempt;
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, NULL, 1, &w), -EINVAL);
	cr_assert_eq(shmstore_arb_with_retry(s.c.s, NULL, 0, &w), 0);
	arbcase_end(&s.c);
}
