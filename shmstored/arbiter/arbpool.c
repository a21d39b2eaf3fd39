/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpool.c: pools: made, resized, removed. Their bytes are the ledger's (arbledger.c), their
 * waiters the pump's (arbpump.c).
 */
#include "arbcore.h"

int arbpool_create(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_pool *p;

	*ret = ARB_INVALID;
	if (!m->pool || arbpool_find(a, m->pool) || m->kind < ARB_PARTITION ||
	    m->kind > ARB_PRIVATE)
		return 0;
	if (m->bytes > ARB_LARGEST || m->extra > m->bytes)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->id = m->pool;
	HASH_ADD(hh, a->pools, id, sizeof(p->id), p);
	if (!p->hh.tbl) {
		free(p);
		return -ENOMEM;
	}
	p->kind = (enum arb_pool_kind)m->kind;
	p->capacity = (int64_t)m->bytes;
	p->spill_reserve = (int64_t)m->extra;
	p->nobody.pool = p;
	arbitem_enter(a, &p->item, ARB_POOLS, p->id);
	if (m->name)
		(void)strncpy(p->name, m->name, ARB_NAME_MAX);
	*ret = ARB_OK;
	return 0;
}

static bool asks_over(const struct arb_context *c, const struct arb_pool *p, int64_t most)
{
	for (uint32_t i = 0; i < c->ask->n; i++)
		if (c->ask->want[i].pool == p && (int64_t)c->ask->want[i].bytes > most)
			return true;
	return false;
}

/* Answers waiting and rolled-back requests that are larger than the pool will ever be. */
static void turn_away(struct arb *a, struct arb_pool *p)
{
	const int64_t most = arbpool_most(p);
	struct arb_context *c;
	struct arb_want *w;

	for (c = a->n_bufn ? a->contexts : NULL; c; c = c->hh.next) {
		if (c->state != ARB_BUFN || !asks_over(c, p, most))
			continue;
		p->n_toobig++;
		arbpark_cancel(a, c, ARB_TOOBIG);
	}

	while ((w = arbline_over(&p->waiting, most, false)) != NULL) {
		p->n_toobig++;
		arbpark_cancel(a, w->context, ARB_TOOBIG);
	}
}

enum arb_outcome arbpool_resize(struct arb *a, const struct arb_message *m)
{
	struct arb_pool *p = arbpool_find(a, m->pool);

	if (!p || m->bytes > ARB_LARGEST)
		return ARB_INVALID;
	if (p->capacity == (int64_t)m->bytes)
		return ARB_OK;
	p->capacity = (int64_t)m->bytes;
	p->over = p->used > p->capacity;
	turn_away(a, p);
	arbnote_dirty(a, p);
	a->look = true;
	return ARB_OK;
}

enum arb_outcome arbpool_remove(struct arb *a, const struct arb_message *m)
{
	struct arb_pool *p = arbpool_find(a, m->pool);
	struct arb_account *account, *next;

	if (!p || p->n_reservations || p->n_waiting || p->n_rolled || p->promised)
		return ARB_INVALID;
	DL_FOREACH_SAFE2(p->accounts, account, next, pnext)
	{
		arbseen_add(&account->task->former, &account->stats);
		LL_DELETE(account->task->accounts, account);
		arbslab_put(&a->slabs.accounts, account);
	}
	HASH_DEL(a->pools, p);
	arb_leave(&p->item, ARB_POOLS);
	free(p);
	return ARB_OK;
}
