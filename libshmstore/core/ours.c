/* SPDX-License-Identifier: Apache-2.0 */
/* ours.c: see ours.h. */
#include "ours.h"

#include <pthread.h>

#include "cleanup.h"
#include "handle.h"

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shmstore *all;

void shms_ours_add(struct shmstore *s)
{
	SHMS_HELD(&all_lock);
	s->next = all;
	s->prev = &all;
	if (all)
		all->prev = &s->next;
	all = s;
}

void shms_ours_del(struct shmstore *s)
{
	SHMS_HELD(&all_lock);
	if (s->prev) {
		*s->prev = s->next;
		if (s->next)
			s->next->prev = s->prev;
		s->prev = NULL;
	}
}

void shms_ours_lock(void)
{
	pthread_mutex_lock(&all_lock);
}

void shms_ours_unlock(void)
{
	pthread_mutex_unlock(&all_lock);
}

struct shmstore *shms_ours_first(void)
{
	return all;
}

void shms_ours_forget(void)
{
	struct shmstore **to = &all;

	for (struct shmstore *s = all; s; s = s->next) {
		if (!s->readonly) {
			s->prev = NULL;
			continue;
		}
		*to = s;
		s->prev = to;
		to = &s->next;
	}
	*to = NULL;
}
