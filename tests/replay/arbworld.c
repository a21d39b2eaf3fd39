/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbworld.c: plays the daemon and the clients around one arbiter core.
 *
 * Every message is followed by what the arbiter asks for until nothing moves: a spill takes the
 * whole reservation, as objects are spilled, and is done at once unless the script holds spills
 * back. A spill that is called off while it is held back is never done.
 *
 * The contract is watched meanwhile (fault): no reply to a thread that does not wait,
 * none withheld unsaid, all invariants hold. No thread or clock is real, so a script
 * is decided by its lines alone.
 */
#include "arbworld.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arbcheck.h"

#define START_NS   UINT64_C(1000000000)
#define SPILLS_MAX 100000 /* that follow one message: more never end */

int arbworld_init(struct arbworld *w)
{
	*w = (struct arbworld){.now_ns = START_NS, .next_reservation = 1};
	return arb_new(&w->core);
}

void arbworld_deinit(struct arbworld *w)
{
	arb_free(w->core);
	for (size_t i = 0; i < w->n_pools; i++)
		free(w->pools[i]);
	for (size_t i = 0; i < w->n_tasks; i++)
		free(w->tasks[i]);
	free(w->pools);
	free(w->tasks);
	free(w->threads);
	free(w->reservations);
	free(w->spills);
	free(w->why_copy);
	*w = (struct arbworld){0};
}

/* Room for one more in an array of n: 8, then twice as many whenever it is full. */
static void *grown(void *array, size_t n, size_t size)
{
	if (n == 0)
		return realloc(array, 8 * size);
	return n < 8 || n & (n - 1) ? array : realloc(array, 2 * n * size);
}

static uint64_t find(char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return i + 1;
	return 0;
}

static uint64_t find_new(char ***names, size_t *n, const char *name)
{
	uint64_t id = find(*names, *n, name);
	char **more;

	if (id)
		return id;
	more = grown(*names, *n, sizeof(**names));
	if (!more)
		return 0;
	*names = more;
	more[*n] = strdup(name);
	return more[*n] ? ++*n : 0;
}

uint64_t arbworld_pool(const struct arbworld *w, const char *name)
{
	return find(w->pools, w->n_pools, name);
}

uint64_t arbworld_pool_new(struct arbworld *w, const char *name)
{
	return find_new(&w->pools, &w->n_pools, name);
}

uint64_t arbworld_task(const struct arbworld *w, const char *name)
{
	return find(w->tasks, w->n_tasks, name);
}

uint64_t arbworld_task_new(struct arbworld *w, const char *name)
{
	return find_new(&w->tasks, &w->n_tasks, name);
}

struct arbworld_thread *arbworld_thread(const struct arbworld *w, const char *name)
{
	for (size_t i = 0; i < w->n_threads; i++)
		if (!strcmp(w->threads[i].name, name))
			return &w->threads[i];
	return NULL;
}

struct arbworld_thread *arbworld_thread_new(struct arbworld *w, const char *name)
{
	struct arbworld_thread *t = arbworld_thread(w, name);

	if (t)
		return t;
	t = grown(w->threads, w->n_threads, sizeof(*t));
	if (!t)
		return NULL;
	w->threads = t;
	t += w->n_threads++;
	*t = (struct arbworld_thread){.name = name};
	return t;
}

uint64_t arbworld_context(const struct arbworld *w, const struct arbworld_thread *t)
{
	return (uint64_t)(t - w->threads) + 1;
}

struct arbworld_reservation *arbworld_reservation(const struct arbworld *w, const char *name)
{
	for (size_t i = 0; i < w->n_reservations; i++)
		if (!strcmp(w->reservations[i].name, name))
			return &w->reservations[i];
	return NULL;
}

void arbworld_name(struct arbworld *w, const char *name, uint64_t id, size_t thread)
{
	struct arbworld_reservation *r = arbworld_reservation(w, name);

	if (!r) {
		r = grown(w->reservations, w->n_reservations, sizeof(*r));
		if (!r) {
			w->fault = "out of memory";
			return;
		}
		w->reservations = r;
		r += w->n_reservations++;
	}
	*r = (struct arbworld_reservation){.name = name, .id = id, .thread = thread};
}

static void completed(struct arbworld *w, struct arbworld_thread *t, enum arb_outcome o)
{
	t->waits = false;
	t->answered = true;
	t->last = o;
	for (size_t i = 0; o == ARB_OK && i < t->n_asked; i++)
		arbworld_name(w, t->asked[i], t->asked_id + i, (size_t)(t - w->threads));
	t->asked = NULL;
	t->n_asked = 0;
}

/* A spill that was asked for already is asked for anew, or called off. */
static void take_spill(struct arbworld *w, const struct arb_reply *r)
{
	struct arb_reply *more;

	for (size_t i = 0; i < w->n_spills; i++)
		if (w->spills[i].reservation == r->reservation) {
			memmove(w->spills + i, w->spills + i + 1,
				(--w->n_spills - i) * sizeof(*w->spills));
			break;
		}
	if (!r->bytes)
		return;
	more = grown(w->spills, w->n_spills, sizeof(*more));
	if (!more) {
		w->fault = "out of memory";
		return;
	}
	w->spills = more;
	more[w->n_spills++] = *r;
}

static void take_reply(struct arbworld *w, const struct arb_reply *r)
{
	if (r->why) {
		free(w->why_copy);
		w->why = w->why_copy = strdup(r->why);
	}
	if (r->kind == ARB_REPLY_SPILL)
		take_spill(w, r);
	else if (!r->context || r->context > w->n_threads || !w->threads[r->context - 1].waits)
		w->fault = "a reply came to a thread that does not wait for one";
	else if (r->outcome == ARB_PENDING)
		w->fault = "a reply says PENDING";
	else
		completed(w, &w->threads[r->context - 1], r->outcome);
}

static enum arb_outcome step(struct arbworld *w, const struct arb_message *m,
			     struct arbworld_thread *asks)
{
	const struct arb_reply *replies = NULL;
	enum arb_outcome o;
	size_t n = 0;
	int r;

	r = arb_step(w->core, m, w->now_ns, &replies, &n);
	if (r < 0) {
		w->fault = "out of memory";
		return ARB_INVALID;
	}
	o = (enum arb_outcome)r;
	if (asks && o == ARB_PENDING)
		asks->waits = true;
	else if (o == ARB_PENDING)
		w->fault = "PENDING for a message that cannot wait";
	for (size_t i = 0; i < n; i++)
		take_reply(w, &replies[i]);
	return o;
}

/* The whole reservation leaves, as objects do; or nothing does. */
static void answer_spill(struct arbworld *w, uint64_t reservation)
{
	struct arb_message m = {.op = ARB_OP_SPILLED, .flags = ARB_ALL, .reservation = reservation};
	struct arb_reservation_info i;

	if (!w->failing && arb_reservation(w->core, reservation, &i))
		m.bytes = i.bytes;
	step(w, &m, NULL);
}

static void settle(struct arbworld *w)
{
	uint64_t first;

	for (unsigned n = 0; w->n_spills && !w->held && !w->fault; n++) {
		first = w->spills[0].reservation;
		memmove(w->spills, w->spills + 1, --w->n_spills * sizeof(*w->spills));
		answer_spill(w, first);
		if (n == SPILLS_MAX)
			w->fault = "asks for spills for ever";
	}
	if (!w->fault)
		w->fault = arb_check(w->core);
}

enum arb_outcome arbworld_send(struct arbworld *w, const struct arb_message *m)
{
	enum arb_outcome o = step(w, m, NULL);

	settle(w);
	return o;
}

enum arb_outcome arbworld_ask(struct arbworld *w, struct arbworld_thread *t,
			      const struct arb_message *m, char **names, size_t n)
{
	enum arb_outcome o;

	if (t->waits) {
		o = step(w, m, NULL); /* the arbiter must refuse it */
		return o;
	}
	t->answered = false;
	t->asked = names;
	t->n_asked = n;
	t->asked_id = m->reservation;
	o = step(w, m, t);
	if (o != ARB_PENDING)
		completed(w, t, o);
	settle(w);
	return o;
}

enum arb_outcome arbworld_say(struct arbworld *w, const struct arb_message *m)
{
	struct arbworld_thread *t =
		m->context && m->context <= w->n_threads ? &w->threads[m->context - 1] : NULL;
	bool may_wait = m->op == ARB_OP_RESERVE || m->op == ARB_OP_RESIZE || m->op == ARB_OP_PIN ||
			m->op == ARB_OP_READY;
	enum arb_outcome o = step(w, m, may_wait && t && !t->waits ? t : NULL);

	if (may_wait && t && !t->waits && o != ARB_PENDING) {
		t->answered = true;
		t->last = o;
	}
	settle(w);
	return o;
}

uint64_t arbworld_ids(struct arbworld *w, size_t n)
{
	uint64_t id = w->next_reservation;

	w->next_reservation += n;
	return id;
}

void arbworld_release(struct arbworld *w)
{
	w->held = false;
	settle(w);
}

void arbworld_tick(struct arbworld *w)
{
	arbworld_send(w, &(struct arb_message){.op = ARB_OP_TICK});
}

void arbworld_advance(struct arbworld *w, uint64_t ns)
{
	uint64_t end = w->now_ns + ns, due;

	while ((due = arb_next_deadline(w->core)) != 0 && due <= end && !w->fault) {
		w->now_ns = due > w->now_ns ? due : w->now_ns;
		arbworld_tick(w);
		if (arb_next_deadline(w->core) == due)
			w->fault = "a deadline has passed and is still there";
	}
	w->now_ns = end;
}

enum arb_state arbworld_state(const struct arbworld *w, const struct arbworld_thread *t)
{
	struct arb_context_info i;

	if (!t || !arb_context(w->core, arbworld_context(w, t), &i))
		return ARB_UNKNOWN;
	return i.state;
}
