/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weak.c: runs two or three threads in every order of their accesses to shared memory, on a
 * machine whose stores come late.
 *
 * A store, and the store of an addition, waits in its thread's buffer while later loads are
 * done. It comes to memory after what stands before it in the buffer, if it has release order,
 * else after the earlier ones of its own word. A sequentially consistent load waits until the
 * thread's sequentially consistent stores are in memory: any other load does not, as Arm's
 * ldapr. A word with an addition on its way is changed by nobody else. Loads see what is in
 * memory, or the thread's own last store.
 *
 * Threads are real ones, of which one runs at a time, or, where that is enough (litmus_ends),
 * contexts of one, which are faster. An execution is a list of choices; the next one takes the last
 * choice that has an alternative otherwise, and begins anew: nothing is written to the words
 * themselves. A thread is where its history of what it saw leads; an execution that comes to words,
 * buffers and histories that there were before ends there (litmus_ends). Exit status 0: what must
 * hold holds in all executions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <xxhash.h>

#include "visited.h"

#define WEAK_MACHINE
#include "litmus.h"
#undef pthread_mutex_lock
#undef pthread_mutex_unlock

#define THREADS litmus_threads

enum {
	STEP = -1,
	KILL = -2,
	THREADS_MAX = 3,
	WORDS = 64,
	BUFFER = WEAK_LATE,
	STEPS = 2000
};

struct word {
	const volatile void *at;
	uint64_t value;
	int adding; /* the thread with an addition on its way, or -1 */
};

struct late {
	struct word *word;
	uint64_t value;
	bool release, sequential, add;
};

static struct thread {
	pthread_t id;
	struct late buffer[BUFFER];
	unsigned n;
	bool done, paused, killed;
	const volatile void *asleep;
	bool fenced;      /* its stores come in their order from here on */
	uint64_t history; /* a hash of what it did and saw */
	enum {
		ANY,
		LOAD_SEQUENTIAL,
		ADD,
		LOCK,
		UNLOCK, /* what the thread stored is in memory */
		FENCE,  /* the same */
		BARRIER
	} next; /* what it is about to do */
	struct word *next_word;
	pthread_mutex_t *mutex;
} threads[THREADS_MAX];

static struct word words[WORDS];
static unsigned n_words;
static pthread_mutex_t *held;
static struct {
	uint8_t chosen, of;
} choices[STEPS];
static unsigned n_choices, at_choice;
static pthread_mutex_t baton = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed_on = PTHREAD_COND_INITIALIZER;
static int turn = -1; /* whose; -1: the scheduler's */
static __thread int self;
static const char *wrong;
static bool abandoned;
static struct visited met;

static unsigned choose(unsigned n)
{
	if (at_choice == STEPS) {
		fprintf(stderr, "weak: an execution without an end\n");
		exit(3);
	}
	if (at_choice == n_choices) {
		choices[at_choice].chosen = 0;
		choices[at_choice].of = (uint8_t)n;
		n_choices++;
	}
	return choices[at_choice++].chosen;
}

static struct context {
	ucontext_t at;
	char stack[1 << 17];
} contexts[THREADS_MAX];
static ucontext_t scheduler;

static void pass_to(int whom)
{
	turn = whom;
	pthread_cond_broadcast(&passed_on);
}

static void note(const volatile void *at, uint64_t saw)
{
	const uint64_t more[] = {threads[self].history, (uint64_t)(uintptr_t)at, saw};

	threads[self].history = XXH3_64bits(more, sizeof(more));
}

/* Gives the turn to the scheduler, and has it again. */
static void step(void)
{
	if (litmus_ends) {
		swapcontext(&contexts[self].at, &scheduler);
		note(NULL, ANY);
		return;
	}
	pass_to(-1);
	while (turn != self)
		pthread_cond_wait(&passed_on, &baton);
	note(NULL, ANY);
}

static struct word *word_of(const volatile void *at, uint64_t first)
{
	for (unsigned i = 0; i < n_words; i++) {
		if (words[i].at == at)
			return &words[i];
	}
	words[n_words] = (struct word){at, first, -1};
	return &words[n_words++];
}

static void about_to(int what, struct word *w)
{
	threads[self].next = what;
	threads[self].next_word = w;
	step();
	threads[self].next = ANY;
}

static uint64_t seen(const struct thread *t, const struct word *w)
{
	for (unsigned i = t->n; i > 0; i--) {
		if (t->buffer[i - 1].word == w)
			return t->buffer[i - 1].value;
	}
	return w->value;
}

static void later(struct word *w, uint64_t value, memory_order order, bool add)
{
	struct thread *t = &threads[self];

	t->buffer[t->n++] = (struct late){w, value,
					  t->fenced || order == memory_order_release ||
						  order >= memory_order_acq_rel,
					  order == memory_order_seq_cst, add};
	if (add)
		w->adding = self;
}

uint64_t weak_load(const volatile void *at, uint64_t first, memory_order order)
{
	struct word *w = word_of(at, first);

	about_to(order == memory_order_seq_cst ? LOAD_SEQUENTIAL : ANY, w);
	note(at, seen(&threads[self], w));
	return seen(&threads[self], w);
}

void weak_store(const volatile void *at, uint64_t first, uint64_t value, memory_order order)
{
	struct word *w = word_of(at, first);

	about_to(ANY, w);
	note(at, value);
	later(w, value, order, false);
}

uint64_t weak_add(const volatile void *at, uint64_t first, uint64_t n, memory_order order)
{
	struct word *w = word_of(at, first);
	uint64_t value;

	about_to(ADD, w);
	value = w->value;
	note(at, value);
	later(w, (uint32_t)(value + n), order, true);
	return value;
}

uint64_t weak_change(const volatile void *at, uint64_t first, int how, uint64_t with,
		     memory_order order)
{
	struct word *w = word_of(at, first);
	uint64_t before;

	about_to(ADD, w);
	before = w->value;
	note(at, before);
	later(w,
	      how == '='   ? with
	      : how == '|' ? before | with
	      : how == '&' ? before & with
			   : before ^ with,
	      order, true);
	return before;
}

bool weak_cas(const volatile void *at, uint64_t first, uint64_t expected, uint64_t value,
	      memory_order order)
{
	struct word *w = word_of(at, first);
	bool same;

	about_to(ADD, w);
	same = w->value == expected;
	note(at, same);
	if (same)
		later(w, value, order, true);
	return same;
}

void weak_order(memory_order order)
{
	if (order != memory_order_acquire)
		threads[self].fenced = true;
}

void weak_fence(void)
{
	about_to(FENCE, NULL);
	note(NULL, FENCE);
}

int weak_barrier(void)
{
	about_to(BARRIER, NULL);
	note(NULL, BARRIER);
	return 0;
}

void weak_lock(pthread_mutex_t *m)
{
	threads[self].mutex = m;
	about_to(LOCK, NULL);
	note(m, LOCK);
	held = m;
}

void weak_unlock(pthread_mutex_t *m)
{
	about_to(UNLOCK, NULL);
	note(m, UNLOCK);
	if (held == m)
		held = NULL;
}

int weak_pause(void)
{
	threads[self].paused = true;
	step();
	return 0;
}

void weak_sleep(const volatile void *at, uint64_t first, uint64_t value)
{
	struct word *w = word_of(at, first);

	about_to(ANY, w);
	note(at, w->value != value);
	if (w->value != value)
		return;
	threads[self].asleep = at;
	step();
}

void weak_wake(const volatile void *at)
{
	about_to(ANY, NULL);
	note(at, ANY);
	for (int i = 0; i < THREADS; i++) {
		if (threads[i].asleep == at)
			threads[i].asleep = NULL;
	}
}

void weak_ensure(bool holds, const char *what)
{
	if (!holds && !wrong)
		wrong = what;
}

/* ---- the scheduler --------------------------------------------------------------------------- */

static bool may_go(int i)
{
	const struct thread *t = &threads[i];

	/* The next owner of what the killed one had. */
	if (litmus_killed >= 0 && i == litmus_killed + 1 &&
	    (!threads[i - 1].done || threads[i - 1].n))
		return false;
	if (t->done || t->paused || t->asleep || t->n == litmus_late)
		return false;
	if (t->next == LOCK)
		return !held;
	if (t->next == UNLOCK || t->next == FENCE)
		return !t->n;
	for (int k = 0; t->next == BARRIER && k < THREADS; k++) {
		if (threads[k].n)
			return false;
	}
	for (unsigned k = 0; k < t->n; k++) {
		if (t->next == LOAD_SEQUENTIAL && t->buffer[k].sequential)
			return false;
		if (t->next == ADD && t->buffer[k].word == t->next_word)
			return false;
	}
	return t->next != ADD || t->next_word->adding < 0;
}

static bool may_come(const struct thread *t, unsigned at)
{
	const struct late *s = &t->buffer[at];

	if (s->word->adding >= 0 && !s->add)
		return false;
	for (unsigned k = 0; k < at; k++) {
		if (s->release || t->buffer[k].word == s->word)
			return false;
	}
	return true;
}

static void come(struct thread *t, unsigned at)
{
	struct late s = t->buffer[at];

	memmove(&t->buffer[at], &t->buffer[at + 1], (t->n - at - 1) * sizeof(s));
	t->n--;
	s.word->value = s.value;
	if (s.add)
		s.word->adding = -1;
	for (int i = 0; i < THREADS; i++)
		threads[i].paused = false;
}

static bool is_new(void)
{
	struct {
		uint64_t words, held, histories[THREADS_MAX], buffers[THREADS_MAX];
		bool done[THREADS_MAX], paused[THREADS_MAX], asleep[THREADS_MAX];
	} state;

	memset(&state, 0, sizeof(state));
	for (unsigned i = 0; i < n_words; i++) {
		const uint64_t word[] = {(uint64_t)(uintptr_t)words[i].at, words[i].value,
					 (uint64_t)words[i].adding};

		state.words += XXH3_64bits(word, sizeof(word)); /* they are met in any order */
	}
	state.held = (uint64_t)(uintptr_t)held;
	for (int i = 0; i < THREADS; i++) {
		const struct thread *t = &threads[i];

		state.histories[i] = t->history;
		for (unsigned k = 0; k < t->n; k++) {
			const uint64_t late[] = {state.buffers[i],
						 (uint64_t)(uintptr_t)t->buffer[k].word->at,
						 t->buffer[k].value};

			state.buffers[i] = XXH3_64bits(late, sizeof(late));
		}
		state.done[i] = t->done;
		state.paused[i] = t->paused;
		state.asleep[i] = t->asleep != NULL;
	}
	return visited_add(&met, &state, sizeof(state), 0, 0);
}

static void *run(void *arg);

static void run_context(void)
{
	note(NULL, ANY);
	litmus_thread(self);
	threads[self].done = true;
}

/* Until its next step. */
static void go(int i)
{
	if (litmus_ends) {
		self = i;
		swapcontext(&scheduler, &contexts[i].at);
		return;
	}
	pass_to(i);
	while (turn != -1)
		pthread_cond_wait(&passed_on, &baton);
}

static void start(int i)
{
	struct context *c = &contexts[i];

	if (!litmus_ends) {
		pthread_create(&threads[i].id, NULL, run, &threads[i]);
		return;
	}
	getcontext(&c->at);
	c->at.uc_stack.ss_sp = c->stack;
	c->at.uc_stack.ss_size = sizeof(c->stack);
	c->at.uc_link = &scheduler;
	makecontext(&c->at, run_context, 0);
}

static void *run(void *arg)
{
	self = (int)((struct thread *)arg - threads);
	pthread_mutex_lock(&baton);
	while (turn != self)
		pthread_cond_wait(&passed_on, &baton);
	litmus_thread(self);
	threads[self].done = true;
	pass_to(-1);
	pthread_mutex_unlock(&baton);
	return NULL;
}

/* One execution. False: nobody can go on, and not all are done. */
static bool execute(void)
{
	memset(threads, 0, sizeof(threads));
	n_words = at_choice = 0;
	held = NULL;
	turn = -1;
	abandoned = false;
	litmus_begin();
	pthread_mutex_lock(&baton);
	for (int i = 0; i < THREADS; i++)
		start(i);
	for (;;) {
		struct {
			int thread, late; /* which one of its buffer; or STEP, KILL */
		} may[THREADS_MAX * (BUFFER + 2)];
		unsigned n = 0, k;

		for (int i = 0; i < THREADS; i++) {
			if (may_go(i))
				may[n++] = (typeof(may[0])){i, STEP};
			if (i == litmus_killed && !threads[i].done)
				may[n++] = (typeof(may[0])){i, KILL};
			for (unsigned at = 0; at < threads[i].n; at++) {
				if (may_come(&threads[i], at))
					may[n++] = (typeof(may[0])){i, (int)at};
			}
		}
		if (!n)
			break;
		if (litmus_ends && n > 1 && at_choice == n_choices && !is_new()) {
			abandoned = true;
			break;
		}
		k = n > 1 ? choose(n) : 0;
		if (may[k].late == KILL) {
			threads[may[k].thread].done = threads[may[k].thread].killed = true;
			continue;
		}
		if (may[k].late >= 0) {
			come(&threads[may[k].thread], (unsigned)may[k].late);
			continue;
		}
		go(may[k].thread);
	}
	for (int i = 0; i < THREADS; i++) {
		if (!threads[i].done && !abandoned)
			weak_ensure(false, "a thread waits for ever");
	}
	pthread_mutex_unlock(&baton);
	for (int i = 0; i < THREADS && !wrong && !litmus_ends; i++)
		pthread_join(threads[i].id, NULL);
	return !wrong;
}

int main(int argc, char **argv)
{
	bool fails = argc > 1 && strcmp(argv[1], "fails") == 0;
	unsigned long n = 0;

	visited_init(&met);
	for (;;) {
		n++;
		if (!execute())
			break;
		while (n_choices && choices[n_choices - 1].chosen + 1 == choices[n_choices - 1].of)
			n_choices--;
		if (!n_choices)
			break;
		choices[n_choices - 1].chosen++;
	}
	printf("%s: %lu executions\n", wrong ? wrong : "all holds", n);
	fflush(stdout);
	_exit(fails ? (wrong ? 0 : 2) : wrong ? 2 : 0);
}
