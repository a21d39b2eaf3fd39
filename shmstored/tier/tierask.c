/* SPDX-License-Identifier: Apache-2.0 */
/* tierask.c: see tierask.h. */
#include "tierask.h"

#include <shmstore/inspect.h>
#include <stdatomic.h>

#include "account.h"
#include "conn.h"
#include "member.h"
#include "pagewords.h"

static struct wire_packed *packed_of(const struct member *m)
{
	/* Without credit the page is mapped for reading alone. */
	return m->conn && m->credit ? (struct wire_packed *)(void *)((char *)m->page + WIRE_PACKED_OFF) : NULL;
}

/* Asked already, it is woken again: an event loop gives for a while only. To who has not read what came before nothing is sent. */
static void ask(struct member *m, struct wire_packed *w, uint64_t bytes)
{
	struct wire_ask body = {.bytes = bytes};

	if (!atomic_load_explicit(&w->wanted, memory_order_relaxed)) {
		atomic_store_explicit(&w->asked_ns, shmstore_lease_clock_ms() * 1000000, memory_order_relaxed);
		/* Release: pairs with the owner's look (packgive.c). */
		atomic_store_explicit(&w->wanted, bytes, memory_order_release);
	}
	(void)conn_send(m->conn, WIRE_ASK, 0, &body, NULL, 0);
}

void tierask(struct account *a, uint64_t need, uint64_t used)
{
	for (struct member *m = a->members; m; m = m->next) {
		struct wire_packed *w = packed_of(m);
		uint64_t bytes = w ? atomic_load_explicit(&w->bytes, memory_order_relaxed) : 0;

		if (!bytes || need > used)
			continue;
		/* The page's number may be anything. */
		bytes = (uint64_t)((__uint128_t)need * (bytes < used ? bytes : used) / used);
		if (bytes)
			ask(m, w, bytes);
	}
}
