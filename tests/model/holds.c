/* SPDX-License-Identifier: Apache-2.0 */
/* holds.c: what must hold in each state of the model. */
#include <stddef.h>

#include "segslot.h"
#include "slotmodel.h"

static bool there(const struct state *s, unsigned who, unsigned generation)
{
	return (s->memory.word & 2) && (s->memory.word >> 2 & 3u) == generation &&
	       s->memory.bytes == generation && (s->memory.holders >> 2 * who & 1);
}

static const char *process_holds(const struct state *s, unsigned who)
{
	const struct process *p = &s->p[who];
	bool name = s->memory.holders >> 2 * who & 1, view = s->memory.holders >> 2 * who & 2;

	if (p->view && s->memory.bytes != p->view)
		return "a view shows other bytes";
	if (p->child && s->memory.bytes != p->child)
		return "a forked child's view shows other bytes";
	if (p->name && !there(s, who, p->name))
		return "an object that is held is lost";
	if (!p->alive && p->had && !there(s, who, p->had))
		return "a dead kept store's object is lost";
	if (model.effects || !p->alive || p->op != OP_NONE)
		return NULL;
	if (name != (p->name != 0))
		return "a name bit without a name, or a name without its bit";
	if (view != (p->dropped || p->pinned))
		return "a view bit without a view, or a view without its bit";
	return NULL;
}

/* With all dead and recovered, and all leases past, the owner gets the slot back. */
static int give_back(const void *arg)
{
	struct shms_segslot slot = shms_segslot_at(&machine_segment, 0);

	(void)arg;
	for (unsigned i = 0; i < PROCESSES; i++)
		shms_segment_recover(&machine_segment, machine_holder[i], false);
	shms_segslot_free(&slot, MACHINE_PAST_END);
	return shms_segstate_of(slot.state->value) == SHMS_SEG_FREE && !shms_segslot_held(&slot);
}

const char *holds(const struct state *s)
{
	struct machine_memory memory = s->memory;

	for (unsigned who = 0; who < PROCESSES; who++) {
		const char *why = process_holds(s, who);

		if (why)
			return why;
	}
	if (s->wrong)
		return s->wrong == WRONG_NAME ? "a kept store has what it never took"
					      : "a store began anew beside its child";
	for (unsigned k = 0; k < LEASES; k++) {
		unsigned g = s->promised[k];

		if (g &&
		    !((s->memory.word & 3) == SHMS_SEG_SEALED && (s->memory.word >> 2 & 3u) == g &&
		      s->memory.bytes == g && (s->memory.word >> (4 + k) & 1)))
			return "a lease that nobody took, and that did not end, is gone";
	}
	return machine_run(&memory, give_back, NULL) ? NULL : "a slot leaks";
}
