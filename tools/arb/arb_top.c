/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb_top.c: "shmstore-admin arb top": the arbiter live: pools, what happened since the last
 * frame, and every context by its state. A frame is one question to the daemon. On a terminal
 * frames overwrite each other; elsewhere they follow one another; with --json each is the daemon's
 * document on a line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arb.h"
#include "asking.h"
#include "frames.h"
#include "human.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

struct top {
	const struct admin *admin;
	size_t order; /* of arb_order_names */
	struct frames frames;
	struct shmstore_client *client;
	struct json_object *before, *now; /* documents; before NULL: this is the first */
	int64_t before_ns, now_ns;
};

/* ---- a frame ---- */

/* The partition of that path in the frame before; NULL. */
static const struct json_object *same_before(const struct top *top, const char *path)
{
	for (size_t i = 0; i < jsonin_count(top->before, "partitions"); i++) {
		const struct json_object *p = jsonin_at(top->before, "partitions", i);

		if (strcmp(jsonin_text(p, "partition"), path) == 0)
			return p;
	}
	return NULL;
}

static void print_states(const struct json_object *p)
{
	static const char *const names[] = {"RUNNING", "ALLOC", "BLOCKED", "BUFN_WAIT", "BUFN"};
	uint64_t n[sizeof(names) / sizeof(names[0])] = {0}, n_other = 0;

	for (size_t i = 0; i < jsonin_count(p, "contexts"); i++) {
		const char *state = jsonin_text(jsonin_at(p, "contexts", i), "state");
		size_t s = 0;

		if (strcmp(state, "ALLOC_FREE") == 0)
			state = "ALLOC";
		while (s < sizeof(names) / sizeof(names[0]) && strcmp(names[s], state) != 0)
			s++;
		if (s < sizeof(names) / sizeof(names[0]))
			n[s]++;
		else
			n_other++;
	}
	printf("%s, ", human_count(jsonin_count(p, "tasks"), "task"));
	printf("%s:", human_count(jsonin_count(p, "contexts"), "context"));
	for (size_t s = 0; s < sizeof(names) / sizeof(names[0]); s++)
		printf("%s %" PRIu64 " %s", s ? "," : "", n[s], names[s]);
	if (n_other)
		printf(", %" PRIu64 " others", n_other);
	putchar('\n');
}

/* Prints the daemon's totals, each with its rate since the last frame if there was one. */
static void print_totals(const struct top *top, const struct json_object *p)
{
	static const struct {
		const char *member, *text;
	} totals[] = {
		{"messages", "messages"},    {"retries", "retries"}, {"splits", "splits"},
		{"nomem", "without memory"}, {"toobig", "too big"},  {"timeouts", "timeouts"},
		{"canceled", "canceled"},    {"removed", "removed"},
	};
	const struct json_object *before = same_before(top, jsonin_text(p, "partition"));
	const struct json_object *now_totals = jsonin_object(p, "totals"),
				 *before_totals = jsonin_object(before, "totals");
	double seconds = (double)(top->now_ns - top->before_ns) / 1e9;
	bool first = true;

	for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
		uint64_t n = jsonin_u64(now_totals, totals[i].member),
			 was = jsonin_u64(before_totals, totals[i].member);

		if (i && !n) /* what never happened is not worth a word */
			continue;
		printf("%s%s %" PRIu64, first ? "" : ", ", totals[i].text, n);
		if (before_totals && n >= was && seconds > 0)
			printf(" (%.0f/s)", (double)(n - was) / seconds);
		first = false;
	}
	putchar('\n');
}

/* Lines that are left for the contexts of one partition; 0 = all. */
static size_t room(const struct top *top, const struct json_object *p, size_t n_partitions)
{
	size_t used = 5 + jsonin_count(p, "pools");

	if (!top->frames.live)
		return 0;
	if (n_partitions > 1 || top->frames.rows <= used + 2)
		return n_partitions > 1 ? 10 : 1;
	return top->frames.rows - used - 2;
}

static void print_partition(const struct top *top, const struct json_object *p, size_t n_partitions,
			    bool first)
{
	const bool narrow = top->frames.live && top->frames.columns < 150;

	table_heading(jsonin_text(p, "partition"), first);
	if (!jsonin_flag(p, "enabled")) {
		puts("the arbiter is off");
		return;
	}
	print_states(p);
	print_totals(top, p);
	arb_print_pools(top->admin, p, narrow);
	size_t left =
		arb_print_contexts(top->admin, p, top->order, room(top, p, n_partitions), narrow);
	if (left)
		printf("... and %zu more\n", left);
	else if (!jsonin_count(p, "contexts"))
		puts("no contexts");
}

static void print_text(struct top *top)
{
	size_t n = jsonin_count(top->now, "partitions");

	printf("%s  by %s%s\n", frames_clock(time(NULL)), arb_order_names[top->order],
	       top->frames.keyboard ? "   (q quits, s sorts)" : "");
	for (size_t i = 0; i < n; i++)
		print_partition(top, jsonin_at(top->now, "partitions", i), n, i == 0);
	if (!top->frames.live)
		putchar('\n');
}

/* ---- the loop ---- */

/* Asks for the next document. As asking_ask(). */
static int take(void *arg)
{
	struct top *top = arg;
	struct json_object *now;
	int r = asking_ask(top->client, SHMSTORE_QUERY_ARBITER, asking_partition(top->admin), &now);

	if (r < 0)
		return r;
	jsonin_free(top->before);
	top->before = top->now;
	top->before_ns = top->now_ns;
	top->now = now;
	top->now_ns = frames_now();
	return 0;
}

static bool show(void *arg)
{
	struct top *top = arg;

	if (!top->admin->json) {
		print_text(top);
		return true;
	}
	json_print_line(top->now); /* frees it */
	top->now = NULL;
	return true;
}

int cmd_arb_top(struct admin *a, int argc, char **argv)
{
	typedef struct top OF;
	static const struct options_row options[] = {
		FRAMES_OPTIONS("1"),
		ARB_SORT_ROW(offsetof(OF, order)),
		{NULL},
	};
	struct top top = {
		.admin = a,
		.frames = {take, show, &top, &top.order, ARB_N_ORDERS, .interval = 1},
	};

	OPTIONS_PARSE(a, argc, argv, "arb top",
		      "Shows the arbiter live: pools, and every context by its state. Keys: q "
		      "quits, s sorts by the next column.\v"
		      "Columns are those of arb pools and arb threads; a narrow terminal leaves "
		      "some out. With --json, one document per interval and line. Without a "
		      "terminal, frames follow one another.",
		      .options = options, .own = &top);
	top.client = asking_open(a);
	asking_check(top.client, asking_partition(a), frames_run(&top.frames, !a->json));
	jsonin_free(top.before);
	jsonin_free(top.now);
	shmstore_client_free(top.client);
	return ADMIN_OK;
}
