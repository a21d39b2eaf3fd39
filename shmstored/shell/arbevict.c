/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbevict.c: room out of what is evictable: the disk tier demotes, and stores are asked for their recycled files, both at once.
 *
 * One at a time: more that is wanted meanwhile is begun when it is over. It has succeeded when the kernel counts so many bytes less, however
 * that came about. An eviction that gave nothing is not repeated for REST_NS: until then nothing
 * counts as evictable, and its waiters are beyond help.
 */
#include "accountquota.h"
#include "arbhost_state.h"
#include "tierkeeper.h"

#define ASKED_NS \
	UINT64_C(1000000000) /* that stores have for their recycled files: a busy one gives them with its next call */
#define REST_NS UINT64_C(2000000000)

void arbevict_want(struct arbhost *h, uint64_t bytes)
{
	if (bytes > h->evict.wanted)
		h->evict.wanted = bytes;
}

/* The core's job is over, well or not: the kernel's count was booked before. */
static void end(struct arbhost *h)
{
	struct arb_message ended = {.op = ARB_OP_SPILLED, .flags = ARB_ALL, .reservation = ARB_EVICTABLE};
	struct arb_message again = {.op = ARB_OP_UNPIN, .reservation = ARB_EVICTABLE};
	bool helped = h->kernel.used <= h->evict.goal;

	h->evict.running = false;
	if (h->evict.asked_until_ns)
		accountquota_ask_recycled(h->account, 0);
	h->evict.asked_until_ns = 0;
	if (!helped) {
		h->evict.rest_until_ns = arb_now(h) + REST_NS;
		arbkernel_refresh(h, NULL);
	}
	arbhost_step(h, &ended);
	if (helped)
		arbhost_step(h, &again); /* what is left of it may be had as well */
}

static void begin(struct arbhost *h)
{
	struct arbkernel *k = &h->kernel;
	uint64_t bytes = h->evict.wanted;

	h->evict.wanted = 0;
	h->evict.running = true;
	h->evict.goal = k->used > bytes ? k->used - bytes : 0;
	if (k->recyclable) {
		accountquota_ask_recycled(h->account, bytes);
		h->evict.asked_until_ns = arb_now(h) + ASKED_NS;
	}
	/* Recycled files come on top: they may take a moment, or never come. */
	h->evict.demoting = k->demotable && tierkeeper_make_room(h->account, bytes);
}

void arbevict_look(struct arbhost *h)
{
	if (h->evict.running) {
		bool waits = h->evict.demoting || arb_now(h) < h->evict.asked_until_ns;

		if (!waits || h->kernel.used <= h->evict.goal)
			end(h);
	}
	if (!h->evict.running && h->evict.wanted)
		begin(h);
}
