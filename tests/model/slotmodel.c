/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slotmodel.c: visits every state that a slot and its processes can come to
 * (docs/testing.md "Models and mutants").
 *
 *   slotmodel [words=1|2|2r] [generations=1..3] [leases=1|2] [kept=OAB] [effects] [remember_all]
 *   [no_inherit] [no_lock] [fails]
 *
 * An owner, a receiver that forks, a reader that pins, and one who recovers the dead. Each access
 * to shared memory is a step; each process may be killed before each of its own. kept: a digit for
 * each of the three, 1 if its names outlive it. The processes run the functions of
 * libshmstore/segment, access by access (machine.c).
 *
 * Breadth first: what it prints of a violation is a shortest way there. Exit status 0: all
 * holds in all states; 2: not, or, with "fails", the other way round: this must be found to be
 * wrong. 3: it could not be said.
 */
#include "slotmodel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "visited.h"

struct queued {
	struct state state;
	uint32_t number;
};

/* States that wait for their successors: a ring that grows. */
struct queue {
	struct queued *ring;
	size_t size, head, n;
};

static void push(struct queue *q, const struct state *s, uint32_t number)
{
	if (q->n == q->size) {
		size_t size = q->size ? q->size * 2 : 1 << 12;
		struct queued *ring = malloc(size * sizeof(*ring));

		if (!ring) {
			fprintf(stderr, "slotmodel: out of memory\n");
			exit(3);
		}
		for (size_t i = 0; i < q->n; i++)
			ring[i] = q->ring[(q->head + i) & (q->size - 1)];
		free(q->ring);
		*q = (struct queue){ring, size, 0, q->n};
	}
	q->ring[(q->head + q->n++) & (q->size - 1)] = (struct queued){*s, number};
}

static struct queued pop(struct queue *q)
{
	struct queued first = q->ring[q->head];

	q->head = (q->head + 1) & (q->size - 1);
	q->n--;
	return first;
}

/* The way to a state, by the choices made. */
static void print_way(const struct visited *v, uint32_t number)
{
	static struct successor next[ACTIONS_MAX];
	uint32_t way[1000], n = 0;
	struct state s;

	for (uint32_t i = number; i && n < 1000; i = v->from[i].parent)
		way[n++] = i;
	actors_first(&s);
	while (n) {
		actors_next(&s, next);
		s = next[v->from[way[--n]].choice].state;
		printf("%9s: %-12s ", next[v->from[way[n]].choice].who,
		       next[v->from[way[n]].choice].what);
		state_print(&s);
	}
}

static int search(void)
{
	static struct successor next[ACTIONS_MAX];
	struct visited v;
	struct queue q = {0};
	uint64_t n_steps = 0;
	const char *why = NULL;
	struct state s;

	visited_init(&v);
	actors_first(&s);
	visited_add(&v, &s, sizeof(s), 0, 0);
	push(&q, &s, 0);
	while (q.n && !why) {
		struct queued from = pop(&q);
		unsigned n = actors_next(&from.state, next);

		n_steps += n;
		for (unsigned i = 0; i < n && !why; i++) {
			if (!visited_add(&v, &next[i].state, sizeof(s), from.number, (uint8_t)i))
				continue;
			push(&q, &next[i].state, v.n - 1);
			why = holds(&next[i].state);
		}
	}
	if (why)
		print_way(&v, v.n - 1);
	printf("%s: %" PRIu32 " states, %" PRIu64 " steps\n", why ? why : "all holds", v.n,
	       n_steps);
	visited_deinit(&v);
	free(q.ring);
	return why ? 2 : 0;
}

static void usage(const char *word)
{
	fprintf(stderr, "slotmodel: what is '%s'? See the head of slotmodel.c\n", word);
	exit(3);
}

static void read_word(const char *word)
{
	if (strcmp(word, "words=1") == 0)
		model.n_words = 1;
	else if (strcmp(word, "words=2") == 0 || strcmp(word, "words=2r") == 0) {
		model.n_words = 2;
		model.second_word = word[7] ? RECEIVER : READER;
	} else if (sscanf(word, "generations=%u", &model.generations) == 1 &&
		   model.generations - 1 < GENERATIONS)
		return;
	else if (sscanf(word, "leases=%u", &model.leases) == 1 && model.leases - 1 < LEASES)
		return;
	else if (strncmp(word, "kept=", 5) == 0 && strspn(word + 5, "01") == PROCESSES &&
		 !word[5 + PROCESSES])
		for (unsigned i = 0; i < PROCESSES; i++)
			model.kept[i] = word[5 + i] == '1';
	else if (strcmp(word, "effects") == 0)
		model.effects = true;
	else if (strcmp(word, "remember_all") == 0)
		model.remember_all = true;
	else if (strcmp(word, "no_inherit") == 0)
		model.no_inherit = true;
	else if (strcmp(word, "no_lock") == 0)
		model.no_lock = true;
	else
		usage(word);
}

int main(int argc, char **argv)
{
	bool fails = false;
	int r;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "fails") == 0)
			fails = true;
		else
			read_word(argv[i]);
	}
	machine_init(model.n_words);
	for (unsigned i = 0; i < PROCESSES; i++)
		machine_holder[i] =
			i + (model.n_words == 2 && i == model.second_word ? SHMS_SEG_HOLDERS_A_WORD
									  : 0);
	r = search();
	if (fails && r == 0)
		fprintf(stderr, "slotmodel: nothing was found, and something is wrong here\n");
	return fails ? (r == 2 ? 0 : 2) : r;
}
