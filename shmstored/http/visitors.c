/* SPDX-License-Identifier: Apache-2.0 */
/* visitors.c: see visitors.h. A connection is only shut down here: libmicrohttpd closes it. */
#include "visitors.h"

#include <stddef.h>
#include <sys/socket.h>

#define FIRST_NS UINT64_C(3000000000)  /* for the first headers */
#define NEXT_NS  UINT64_C(10000000000) /* for the next ones */

static bool owes(const struct visitor *one)
{
	return one->here && !one->asks && !one->sent_away;
}

static void send_away(struct visitor *one)
{
	(void)shutdown(one->fd, SHUT_RDWR);
	one->sent_away = true;
}

static unsigned n_from(const struct visitors *v, struct source from)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VISITORS_MOST; i++)
		n += v->all[i].here && source_same(v->all[i].from, from);
	return n;
}

static void make_room(struct visitors *v)
{
	struct visitor *worst = NULL;
	unsigned worst_n = 0;

	for (unsigned i = 0; i < VISITORS_MOST; i++) {
		struct visitor *one = &v->all[i];
		unsigned n = owes(one) ? n_from(v, one->from) : 0;

		if (n > worst_n || (n && n == worst_n && one->since_ns < worst->since_ns)) {
			worst = one;
			worst_n = n;
		}
	}
	if (worst)
		send_away(worst);
}

struct visitor *visitors_come(struct visitors *v, int fd, const struct sockaddr *from, uint64_t now_ns)
{
	unsigned i = 0;

	while (i < VISITORS_MOST && v->all[i].here)
		i++;
	if (i == VISITORS_MOST)
		return NULL;
	v->all[i] = (struct visitor){.fd = fd, .here = true, .from = source_of(from), .since_ns = now_ns};
	if (++v->n == VISITORS_MOST)
		make_room(v);
	return &v->all[i];
}

void visitors_go(struct visitors *v, struct visitor *one)
{
	one->here = false;
	v->n--;
}

void visitors_ask(struct visitor *one)
{
	one->asks = true;
}

void visitors_answered(struct visitor *one, uint64_t now_ns)
{
	one->asks = false;
	one->asked = true;
	one->since_ns = now_ns;
}

void visitors_tick(struct visitors *v, uint64_t now_ns)
{
	for (unsigned i = 0; i < VISITORS_MOST; i++) {
		struct visitor *one = &v->all[i];

		if (owes(one) && now_ns - one->since_ns >= (one->asked ? NEXT_NS : FIRST_NS))
			send_away(one);
	}
	/* All may have asked when the last came, and owe headers since. */
	if (v->n == VISITORS_MOST)
		make_room(v);
}
