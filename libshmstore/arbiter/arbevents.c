/* SPDX-License-Identifier: Apache-2.0 */
/* arbevents.c: see arbitrate.h. */
#include <stdlib.h>

#include "arbcontext.h"
#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"

static void no_queue(struct shms_arb_events *e)
{
	pthread_mutex_init(&e->lock, NULL);
	e->first = NULL;
	e->end = &e->first;
}

void shms_arb_events_init(struct shms_arb_events *e)
{
	no_queue(e);
	e->bell = SHMS_BELL_NULL;
}

void shms_arb_events_deinit(struct shms_arb_events *e)
{
	/* The contexts' end has emptied the queue. */
	shms_bell_deinit(&e->bell);
	pthread_mutex_destroy(&e->lock);
}

void shms_arb_events_fork_child(struct shms_arb_events *e)
{
	shms_bell_deinit(&e->bell);
	no_queue(e);
}

void shms_arb_ended(struct shms_request *q)
{
	struct shms_later *later = q->arg;
	struct shms_arb_events *e = later->events;

	SHMS_HELD(&e->lock);
	later->next = NULL;
	*e->end = later;
	e->end = &later->next;
	shms_bell_ring(&e->bell);
}

/* The first of the queue; NULL: there is none. */
static struct shms_later *take_first(struct shms_arb_events *e)
{
	struct shms_later *later;

	SHMS_HELD(&e->lock);
	later = e->first;
	if (later) {
		e->first = later->next;
		if (!e->first)
			e->end = &e->first;
	}
	if (!e->first)
		shms_bell_quiet(&e->bell);
	return later;
}

void shms_arb_forget(struct shmstore *s, struct shms_arb_events *e, struct shms_later *later)
{
	struct shms_later **at;

	shms_request_withdraw(&s->attach, &later->request);
	pthread_mutex_lock(&e->lock);
	for (at = &e->first; *at && *at != later; at = &(*at)->next)
		;
	if (*at) {
		*at = later->next;
		if (e->end == &later->next)
			e->end = at;
	}
	pthread_mutex_unlock(&e->lock);
	free(later);
}

int shmstore_arb_fd(struct shmstore *s)
{
	struct shms_arb_events *e = &s->arb->events;
	int fd = shms_request_fd(&s->attach);

	if (fd < 0)
		return fd;
	SHMS_HELD(&e->lock);
	return shms_bell_fd(&e->bell, fd, e->first);
}

int shmstore_arb_next(struct shmstore *s, struct shmstore_arb_done *ret)
{
	struct shms_later *later;
	int r;

	if (!ret)
		return shms_detail_null("ret");
	shms_request_look(&s->attach);
	later = take_first(&s->arb->events);
	if (!later)
		return 0;
	*ret = (struct shmstore_arb_done){.context = later->context,
					  .reservation = later->reservation};
	later->context->later = NULL;
	r = shms_arb_judge(later->request.error, &later->reply, SHMSTORE_ARB_DOWN);
	ret->outcome = shms_context_told(later->context, r);
	if (ret->outcome != 0)
		ret->reservation = (struct shmstore_arb_reservation){0};
	free(later);
	return 1;
}
