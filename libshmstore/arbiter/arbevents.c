/* SPDX-License-Identifier: Apache-2.0 */
/* arbevents.c: see arbevents.h. */
#include "arbevents.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "arbcontext.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "sys.h"

static void no_queue(struct shms_arb_events *e)
{
	pthread_mutex_init(&e->lock, NULL);
	e->first = NULL;
	e->end = &e->first;
}

void shms_arb_events_init(struct shms_arb_events *e)
{
	no_queue(e);
	e->event_fd = e->epoll_fd = -1;
}

static void close_fds(struct shms_arb_events *e)
{
	e->event_fd = shms_close_fd(e->event_fd);
	e->epoll_fd = shms_close_fd(e->epoll_fd);
}

void shms_arb_events_deinit(struct shms_arb_events *e)
{
	/* What was in the queue went with its context. */
	close_fds(e);
	pthread_mutex_destroy(&e->lock);
}

void shms_arb_events_fork_child(struct shms_arb_events *e)
{
	close_fds(e);
	no_queue(e);
}

/* The queue has something. The lock is held; nobody reads the eventfd without it. */
static void ring(struct shms_arb_events *e)
{
	uint64_t one = 1;

	if (e->event_fd >= 0 && write(e->event_fd, &one, sizeof(one)) < 0)
		return; /* it is as full as it gets: readable */
}

static void quiet(struct shms_arb_events *e)
{
	uint64_t n;

	if (e->event_fd >= 0 && read(e->event_fd, &n, sizeof(n)) < 0)
		return; /* it was not rung */
}

void shms_arb_ended(struct shms_request *q)
{
	struct shms_later *later = q->arg;
	struct shms_arb_events *e = later->events;

	pthread_mutex_lock(&e->lock);
	later->next = NULL;
	*e->end = later;
	e->end = &later->next;
	ring(e);
	pthread_mutex_unlock(&e->lock);
}

/* The first of the queue; NULL: there is none. */
static struct shms_later *take_first(struct shms_arb_events *e)
{
	struct shms_later *later;

	pthread_mutex_lock(&e->lock);
	later = e->first;
	if (later) {
		e->first = later->next;
		if (!e->first)
			e->end = &e->first;
	}
	if (!e->first)
		quiet(e);
	pthread_mutex_unlock(&e->lock);
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

/* The lock is held. */
static int make_fds(struct shms_arb_events *e, int connection_fd)
{
	_fd_ int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	_fd_ int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event in = {.events = EPOLLIN};

	if (event_fd < 0 || epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &in) < 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection_fd, &in) < 0)
		return shms_error(errno);
	e->event_fd = shms_take_fd(&event_fd);
	e->epoll_fd = shms_take_fd(&epoll_fd);
	if (e->first)
		ring(e);
	return 0;
}

int shmstore_arb_fd(struct shmstore *s)
{
	struct shms_arb_events *e;
	int r = shms_store_usable(s, true), fd;

	if (r < 0)
		return r;
	fd = shms_request_fd(&s->attach);
	if (fd < 0)
		return fd;
	e = &s->arb->events;
	pthread_mutex_lock(&e->lock);
	r = e->epoll_fd < 0 ? make_fds(e, fd) : 0;
	if (r == 0)
		r = e->epoll_fd;
	pthread_mutex_unlock(&e->lock);
	return r;
}

int shmstore_arb_next(struct shmstore *s, struct shmstore_arb_done *ret)
{
	struct shms_later *later;
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	shms_request_look(&s->attach);
	later = take_first(&s->arb->events);
	if (!later)
		return 0;
	*ret = (struct shmstore_arb_done){.context = later->context, .reservation = later->reservation};
	later->context->later = NULL;
	r = shms_arb_judge(later->request.error, &later->reply, SHMSTORE_ARB_DOWN);
	ret->outcome = shms_context_told(later->context, r);
	if (ret->outcome != 0)
		ret->reservation = (struct shmstore_arb_reservation){0};
	free(later);
	return 1;
}
