/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpins.c: who pins what, in the caller's own books.
 *
 * A task pins a reservation or it does not; the owner's pin goes with the reservation when it
 * changes owners. A withheld PIN pins at once and takes that back when it fails: the pin of a task
 * is there as long as it was answered OK and not unpinned since, or any withheld PIN is for it.
 */
#include <string.h>

#include "arbmodel.h"

/* Is one withheld that is for this pin? */
static bool is_asked(const struct arbmodel *m, const struct arbmodel_bytes *b, uint64_t pinner)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (c->waits && !c->done && c->request.pins && c->request.first == b->id &&
		    c->request.pinner == pinner)
			return true;
	}
	return false;
}

static uint32_t find(const struct arbmodel_bytes *b, uint64_t task)
{
	uint32_t i = 0;

	while (i < b->n_pins && b->pins[i].task != task)
		i++;
	return i;
}

static void take_out(struct arbmodel_bytes *b, uint32_t i)
{
	memmove(b->pins + i, b->pins + i + 1, (--b->n_pins - i) * sizeof(*b->pins));
}

static bool is_owner(const struct arbmodel_bytes *b, uint64_t task)
{
	return !task || task == b->owner;
}

static uint32_t find_or_add(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task)
{
	uint32_t i = find(b, task);

	if (i < b->n_pins)
		return i;
	if (b->n_pins == ARBMODEL_PINS) {
		arbmodel_fail(m, "the model has no room for another pin");
		return 0;
	}
	b->pins[i].task = task;
	b->pins[i].stays = false;
	b->n_pins++;
	return i;
}

/* The withheld ones that were for it are for nothing now, or for the owner's. */
static void turn(struct arbmodel *m, const struct arbmodel_bytes *b, uint64_t pinner, bool to_owner)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		struct arbmodel_request *r = &m->contexts[i].request;

		if (!m->contexts[i].waits || !r->pins || r->first != b->id || r->pinner != pinner)
			continue;
		r->pins = to_owner;
		r->pinner = 0;
	}
}

void arbpins_ask(struct arbmodel *m, struct arbmodel_context *c, uint64_t task)
{
	struct arbmodel_bytes *b = arbmodel_bytes(m, c->request.first);

	if (!b)
		return;
	c->request.pins = true;
	c->request.pinner = is_owner(b, task) ? 0 : task;
	if (c->request.pinner)
		find_or_add(m, b, task);
}

void arbpins_done(struct arbmodel *m, struct arbmodel_context *c, bool ok)
{
	struct arbmodel_bytes *b = arbmodel_bytes(m, c->request.first);
	uint64_t pinner = c->request.pinner;
	uint32_t i;

	if (!b || !c->request.pins)
		return;
	c->request.pins = false;
	if (!pinner) {
		b->owner_pins |= ok;
		return;
	}
	i = find(b, pinner);
	b->pins[i].stays |= ok;
	if (!b->pins[i].stays && !is_asked(m, b, pinner))
		take_out(b, i);
}

void arbpins_pin(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task)
{
	if (is_owner(b, task))
		b->owner_pins = true;
	else
		b->pins[find_or_add(m, b, task)].stays = true;
}

void arbpins_unpin(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task)
{
	uint32_t i = find(b, task);

	if (is_owner(b, task)) {
		b->owner_pins = false;
		turn(m, b, 0, false);
	} else if (i < b->n_pins) {
		take_out(b, i);
		turn(m, b, task, false);
	}
}

void arbpins_own(struct arbmodel *m, struct arbmodel_bytes *b, uint64_t task)
{
	uint32_t i = find(b, task);

	if (task && i < b->n_pins) {
		b->owner_pins |= b->pins[i].stays;
		take_out(b, i);
		turn(m, b, task, true);
	}
	b->owner = task;
}

void arbpins_end_task(struct arbmodel *m, uint64_t task)
{
	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		struct arbmodel_bytes *b = &m->bytes[i];
		uint32_t k = find(b, task);

		if (!b->id || k == b->n_pins)
			continue;
		take_out(b, k);
		turn(m, b, task, false);
	}
}

uint32_t arbpins_of(const struct arbmodel *m, const struct arbmodel_bytes *b,
		    uint64_t ret[ARBMODEL_PINS + 1])
{
	uint32_t n = 0;

	if (b->owner_pins || is_asked(m, b, 0))
		ret[n++] = b->owner;
	for (uint32_t i = 0; i < b->n_pins; i++)
		ret[n++] = b->pins[i].task;
	return n;
}
