/* SPDX-License-Identifier: Apache-2.0 */
/* metricsactors.c: a family and a sample for each number of all users' actors together. */
#include <stddef.h>

#include "actors.h"
#include "metricswrite.h"

#define OF      struct actors_books
#define METRICS "shmstore_"
static const struct field of_actors[] = {
	GAUGE(n_places, "places", "actor_places", "Processes that actors can be in."),
	GAUGE(n_actors, NULL, "actors", "Actors."),
	GAUGE(n_calls, "calls", "actor_calls_open", "Calls of them that wait for an answer."),
	COUNTER(n_answered, "answered", "actor_calls_answered", "Calls that were answered."),
	COUNTER(n_lost, "lost", "actor_calls_lost", "Calls whose actor was lost before it answered."),
	COUNTER(n_died, "died", "actor_lost", "Actors whose process died, and of which no copy begins."),
	COUNTER(n_restarts, "restarts", "actor_restarts",
		"Times that an actor was begun from a copy here, because its process died."),
	COUNTER(n_moves, "moves", "actor_moves", "Times that an actor went to another process."),
	COUNTER(n_failed, "failed", "actor_moves_failed", "Times that it was to go and stayed."),
};
#undef METRICS
#undef OF

void metricsactors_write(struct metric_out *o, const struct actors *a)
{
	struct actors_books b;

	if (!a)
		return;
	actors_books(a, &b);
	metric_one(o, of_actors, &b);
}
