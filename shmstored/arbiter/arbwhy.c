/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbwhy.c: who held what, as a sentence, for whoever is told NOMEM or SPLIT.
 *
 * The largest three holders of the pool among the first few hundred accounts: an explanation, not a decision. It is written into the
 * arbiter, and valid until the next step.
 */
#include <stdarg.h>
#include <stdio.h>

#include "arbcore.h"

#define N_HOLDERS  3u
#define N_ACCOUNTS 512u /* looked at */

__attribute__((format(printf, 3, 4))) static void say(char *buf, size_t *at, const char *form, ...)
{
	va_list args;
	int n;

	va_start(args, form);
	n = vsnprintf(buf + *at, ARB_WHY_SIZE - *at, form, args);
	va_end(args);
	*at += n > 0 ? (size_t)n : 0;
	if (*at >= ARB_WHY_SIZE)
		*at = ARB_WHY_SIZE - 1;
}

static void enter(const struct arb_account **holders, const struct arb_account *account)
{
	const struct arb_account *swap;

	for (unsigned i = 0; i < N_HOLDERS && account && account->pinned; i++) {
		if (holders[i] && holders[i]->pinned >= account->pinned)
			continue;
		swap = holders[i];
		holders[i] = account;
		account = swap;
	}
}

static void largest(const struct arb_pool *p, const struct arb_account **holders)
{
	const struct arb_account *account;
	unsigned n = 0;

	DL_FOREACH2(p->accounts, account, pnext)
	{
		enter(holders, account);
		if (++n == N_ACCOUNTS)
			return;
	}
}

const char *arbwhy_say(struct arb *a, const struct arb_ask *ask)
{
	const struct arb_account *holders[N_HOLDERS] = {NULL};
	const struct arb_want *w = ask->want;
	char *buf = a->why[a->n_why++ % 2];
	size_t at = 0;

	largest(w->pool, holders);
	say(buf, &at, "the attempt needs %llu bytes of pool %s, which has %lld and %lld of them pinned",
	    (unsigned long long)w->need, w->pool->name, (long long)arbpool_limit(w->pool),
	    (long long)arbpool_pinned(w->pool));
	for (unsigned i = 0; i < N_HOLDERS && holders[i]; i++)
		say(buf, &at, "%s task %llu%s%s holds %llu", i ? "," : ":", (unsigned long long)holders[i]->task->id,
		    holders[i]->task->name[0] ? " " : "", holders[i]->task->name,
		    (unsigned long long)holders[i]->pinned);
	if (w->pool->nobody.pinned)
		say(buf, &at, "%s %llu are nobody's", holders[0] ? "," : ":",
		    (unsigned long long)w->pool->nobody.pinned);
	return buf;
}
