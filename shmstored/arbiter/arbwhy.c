/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbwhy.c: who held what, as a sentence, for whoever is told NOMEM or SPLIT, or waited too long.
 *
 * The largest three holders of the pool among the first few hundred accounts: an explanation, not a
 * decision. It is written into the arbiter, and valid until the next step.
 */
#include <stdarg.h>
#include <stdio.h>

#include "arbcore.h"
#include "arbiter.h"
#include "sizetext.h"

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

static const char *sentence(struct arb *a, const struct arb_pool *p, const char *what,
			    uint64_t bytes)
{
	const struct arb_account *holders[N_HOLDERS] = {NULL};
	char *buf = a->why[a->n_why++ % 2];
	size_t at = 0;

	largest(p, holders);
	say(buf, &at, "%s %s of pool %s, which has %s, of which %s are pinned", what,
	    sizetext(bytes).text, p->name, sizetext((uint64_t)arbpool_limit(p)).text,
	    sizetext((uint64_t)arbpool_pinned(p)).text);
	for (unsigned i = 0; i < N_HOLDERS && holders[i]; i++)
		say(buf, &at, "%s task %llu:%u%s%s holds %s", i ? "," : ":",
		    (unsigned long long)holders[i]->task->id >> 32, (uint32_t)holders[i]->task->id,
		    holders[i]->task->name[0] ? " " : "", holders[i]->task->name,
		    sizetext((uint64_t)holders[i]->pinned).text);
	if (p->nobody.pinned)
		say(buf, &at, "%s %s are nobody's", holders[0] ? "," : ":",
		    sizetext((uint64_t)p->nobody.pinned).text);
	return buf;
}

const char *arbwhy_say(struct arb *a, const struct arb_ask *ask)
{
	return sentence(a, ask->want->pool, "the attempt needs", ask->want->need);
}

const char *arb_holders(struct arb *a, uint64_t pool, const char *what, uint64_t bytes)
{
	const struct arb_pool *p = arbpool_find(a, pool);

	return p ? sentence(a, p, what, bytes) : NULL;
}

/* The words for the numbers of arbiter.h. */
#define NAME(table, i) \
	((size_t)(i) < sizeof(table) / sizeof(*(table)) && (table)[i] ? (table)[i] : "?")

const char *arb_state_name(enum arb_state s)
{
	static const char *const names[] = {
#define STATE(name) #name,
#include "arbiter.def"
	};

	return s == ARB_UNKNOWN ? "UNKNOWN" : NAME(names, s);
}

const char *arb_outcome_name(enum arb_outcome o)
{
	static const char *const names[] = {
#define OUTCOME(name) #name,
#include "arbiter.def"
	};

	return NAME(names, o);
}

const char *arb_knob_name(enum arb_knob k)
{
	static const char *const names[] = {
#define KNOB(NAME, name, value, least, most) [ARB_KNOB_##NAME] = #name,
#include "arbiter.def"
	};

	return NAME(names, k);
}

const char *arb_op_name(enum arb_op op)
{
	static const char *const names[] = {
#define OP(name, form, call) [ARB_OP_##name] = #name,
#include "arbiter.def"
	};

	return NAME(names, op);
}
