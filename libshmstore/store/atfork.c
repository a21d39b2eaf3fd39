/* SPDX-License-Identifier: Apache-2.0 */
/* atfork.c: what becomes of every open store of this process in a child: see parts.h. */
#include <pthread.h>

#include "arbitrate.h"
#include "cleanup.h"
#include "handle.h"
#include "parts.h"
#include "tier.h"

static void fork_prepare(void)
{
	shms_ours_lock();
	for (struct shmstore *s = shms_ours_first(); s; s = s->next) {
		pthread_mutex_lock(&s->recycle.lock);
		pthread_mutex_lock(&s->links.lock);
		pthread_mutex_lock(&s->arb->lock);
		pthread_mutex_lock(&s->attach.lock);
		pthread_mutex_lock(&s->running.lock);
		shms_packed_fork_prepare(&s->packed);
	}
}

static void fork_parent(void)
{
	for (struct shmstore *s = shms_ours_first(); s; s = s->next) {
		shms_packed_fork_parent(&s->packed);
		pthread_mutex_unlock(&s->running.lock);
		pthread_mutex_unlock(&s->attach.lock);
		pthread_mutex_unlock(&s->arb->lock);
		pthread_mutex_unlock(&s->links.lock);
		pthread_mutex_unlock(&s->recycle.lock);
	}
	shms_ours_unlock();
}

void shms_atfork_close_fds(struct shmstore *s)
{
	s->lock_fd = shms_close_fd(s->lock_fd);
	s->clean_fd = shms_close_fd(s->clean_fd);
	s->objects_fd = shms_close_fd(s->objects_fd);
	s->dir_fd = shms_close_fd(s->dir_fd);
	s->parent_fd = shms_close_fd(s->parent_fd);
}

/*
 * In the child: give up the lock, and every descriptor that would keep the parent's memory alive. A
 * handle that only reads owns nothing, and goes on.
 */
static void fork_child(void)
{
	for (struct shmstore *s = shms_ours_first(); s; s = s->next) {
		if (s->readonly) {
			shms_fairlock_init(&s->names); /* whoever had it is not here */
		} else {
			atomic_store_explicit(&s->forked, true, memory_order_relaxed);
			s->page = NULL; /* not inherited */
			shms_credit_off(&s->credit);
			s->ledger = NULL;
			shms_atfork_close_fds(s);
		}
		shms_packed_fork_child(&s->packed);
		pthread_mutex_unlock(&s->running.lock);
		shms_running_fork_child(&s->running);
		shms_attach_fork_child(&s->attach);
		shms_arb_fork_child(s->arb);
		shms_recycle_forked(&s->recycle);
		/* Small memory of writers, which is not inherited. */
		atomic_store_explicit(&s->small_map, NULL, memory_order_relaxed);
		pthread_mutex_unlock(&s->links.lock);
		pthread_mutex_unlock(&s->recycle.lock);
		shms_tier_forked(s->p);
	}
	shms_ours_forget();
	shms_ours_unlock();
}

static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void shms_atfork_add(struct shmstore *s)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork);
	shms_ours_add(s);
}
