/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowd.c: users with connections are a list, the last one that came first: there are as many as people and services on a host, and never
 * more than connections. Tokens are kept as the time at which the bucket would be full, so that they come back without a timer.
 */
#include "crowd.h"

#include <errno.h>
#include <stdlib.h>

#define SECOND_NS UINT64_C(1000000000)
#define TOKEN_NS  (SECOND_NS / CROWD_RATE)

struct user {
	struct user *next;
	uid_t uid;
	uint32_t n;
};

struct crowd {
	struct user *users;
	uint32_t n;
	uint64_t full_ns; /* when no token will be missing */
};

int crowd_new(uint64_t now_ns, struct crowd **ret)
{
	struct crowd *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->full_ns = now_ns;
	*ret = c;
	return 0;
}

struct crowd *crowd_free(struct crowd *c)
{
	struct user *u;

	if (!c)
		return NULL;
	while ((u = c->users)) {
		c->users = u->next;
		free(u);
	}
	free(c);
	return NULL;
}

/* Where uid's entry hangs; *NULL: it has none. */
static struct user **find(struct crowd *c, uid_t uid)
{
	struct user **at = &c->users;

	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return at;
}

/* Places that only administrators get, so that they can look when others have filled the rest. */
static uint32_t kept_back(const struct crowd_limits *limits)
{
	uint32_t n = limits->all / 16;

	return limits->admin ? 0 : n > 16 ? 16 : n;
}

static enum crowd_verdict judge(struct crowd *c, uid_t uid, const struct crowd_limits *limits)
{
	struct user **at = find(c, uid), *u = *at;

	if (c->n >= limits->all - kept_back(limits))
		return CROWD_FULL;
	if (u && u->n >= limits->user)
		return CROWD_USER_FULL;
	if (u) {
		*at = u->next;
	} else {
		u = calloc(1, sizeof(*u));
		if (!u)
			return CROWD_NO_MEMORY;
		u->uid = uid;
	}
	u->next = c->users;
	c->users = u;
	u->n++;
	c->n++;
	return CROWD_WELCOME;
}

static void pay(struct crowd *c, uint64_t tokens, uint64_t now_ns)
{
	if (c->full_ns < now_ns)
		c->full_ns = now_ns;
	c->full_ns += tokens * TOKEN_NS;
}

enum crowd_verdict crowd_enter(struct crowd *c, uid_t uid, const struct crowd_limits *limits, uint64_t now_ns)
{
	enum crowd_verdict verdict = judge(c, uid, limits);

	pay(c, 1, now_ns);
	if (verdict != CROWD_WELCOME)
		crowd_fault(c, now_ns);
	return verdict;
}

void crowd_fault(struct crowd *c, uint64_t now_ns)
{
	pay(c, CROWD_FAULT, now_ns);
}

void crowd_leave(struct crowd *c, uid_t uid)
{
	struct user **at = find(c, uid), *u = *at;

	if (!u)
		return;
	c->n--;
	if (--u->n)
		return;
	*at = u->next;
	free(u);
}

uint64_t crowd_ready_ns(const struct crowd *c)
{
	const uint64_t burst_ns = CROWD_BURST * TOKEN_NS;

	return c->full_ns > burst_ns ? c->full_ns - burst_ns : 0;
}
