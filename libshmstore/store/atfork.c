/* SPDX-License-Identifier: Apache-2.0 */
/* atfork.c: what becomes of every open store of this process in a child: see parts.h. */
#include <pthread.h>

#include "arbitrate.h"
#include "cleanup.h"
#include "handle.h"
#include "parts.h"
#include "tier.h"

static struct shms_handle *all; /* during a fork */

static void fork_prepare(void)
{
	for (struct shms_handle *h = all = shms_ours_lock(); h; h = h->next) {
		pthread_mutex_lock(&h->recycle.lock);
		pthread_mutex_lock(&h->links.lock);
		pthread_mutex_lock(&h->s.arb->lock);
		pthread_mutex_lock(&h->attach.lock);
		pthread_mutex_lock(&h->running.lock);
		pthread_mutex_lock(&h->packed.lock);
		if (shms_packed_pack(&h->s))
			shms_pack_fork_prepare(shms_packed_pack(&h->s));
	}
}

static void fork_parent(void)
{
	for (struct shms_handle *h = all; h; h = h->next) {
		if (shms_packed_pack(&h->s))
			shms_pack_fork_parent(shms_packed_pack(&h->s));
		pthread_mutex_unlock(&h->packed.lock);
		pthread_mutex_unlock(&h->running.lock);
		pthread_mutex_unlock(&h->attach.lock);
		pthread_mutex_unlock(&h->s.arb->lock);
		pthread_mutex_unlock(&h->links.lock);
		pthread_mutex_unlock(&h->recycle.lock);
	}
	shms_ours_unlock();
}

void shms_atfork_close_fds(struct shms_handle *h)
{
	h->lock_fd = shms_close_fd(h->lock_fd);
	h->s.clean_fd = shms_close_fd(h->s.clean_fd);
	h->s.objects_fd = shms_close_fd(h->s.objects_fd);
	h->s.dir_fd = shms_close_fd(h->s.dir_fd);
	h->parent_fd = shms_close_fd(h->parent_fd);
}

/*
 * In the child: give up the lock, and every descriptor that would keep the parent's memory alive. A
 * handle that only reads owns nothing, and goes on.
 */
static void fork_child(void)
{
	for (struct shms_handle *h = all; h; h = h->next) {
		struct shmstore *s = &h->s;

		if (s->readonly) {
			shms_fairlock_init(&s->names); /* whoever had it is not here */
		} else {
			atomic_store_explicit(&h->forked, true, memory_order_relaxed);
			s->page = NULL; /* not inherited */
			shms_credit_off(s);
			s->ledger = NULL;
			shms_atfork_close_fds(h);
		}
		if (shms_packed_pack(s))
			shms_pack_fork_child(shms_packed_pack(s));
		h->packed.dir_fd = shms_close_fd(h->packed.dir_fd);
		pthread_mutex_unlock(&h->packed.lock);
		pthread_mutex_unlock(&h->running.lock);
		shms_running_fork_child(&h->running);
		shms_attach_fork_child(&h->attach);
		shms_arb_fork_child(s->arb);
		shms_recycle_forked(&h->recycle);
		/* Small memory of writers, which is not inherited. */
		atomic_store_explicit(&h->small_map, NULL, memory_order_relaxed);
		pthread_mutex_unlock(&h->links.lock);
		pthread_mutex_unlock(&h->recycle.lock);
		shms_tier_forked(s->p);
	}
	shms_ours_forget();
	shms_ours_unlock();
}

static void register_fork(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void shms_atfork_add(struct shms_handle *h)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_fork);
	shms_ours_add(h);
}
