/* SPDX-License-Identifier: Apache-2.0 */
/* metricsactors.c: a family and a sample for each number of all users' actors together. */
#include "metricsactors.h"

#include <stddef.h>

#include "actors.h"

static const struct metric of_actors[] = {
	{"shmstore_actor_places", "", "Processes that actors can be in.", false, FORM_U64,
	 offsetof(struct actors_books, n_places)},
	{"shmstore_actors", "", "Actors.", false, FORM_U64, offsetof(struct actors_books, n_actors)},
	{"shmstore_actor_calls_open", "", "Calls of them that wait for an answer.", false, FORM_U64,
	 offsetof(struct actors_books, n_calls)},
	{"shmstore_actor_calls_answered", "", "Calls that were answered.", true, FORM_U64,
	 offsetof(struct actors_books, n_answered)},
	{"shmstore_actor_calls_lost", "", "Calls whose actor was lost before it answered.", true, FORM_U64,
	 offsetof(struct actors_books, n_lost)},
	{"shmstore_actor_lost", "", "Actors whose process died, and of which no copy begins.", true, FORM_U64,
	 offsetof(struct actors_books, n_died)},
	{"shmstore_actor_restarts", "", "Times that an actor was begun from a copy here, because its process died.",
	 true, FORM_U64, offsetof(struct actors_books, n_restarts)},
	{"shmstore_actor_moves", "", "Times that an actor went to another process.", true, FORM_U64,
	 offsetof(struct actors_books, n_moves)},
	{"shmstore_actor_moves_failed", "", "Times that it was to go and stayed.", true, FORM_U64,
	 offsetof(struct actors_books, n_failed)},
};

void metricsactors_write(const struct metric_out *o, const struct actors *a)
{
	struct actors_books b;

	if (!a)
		return;
	actors_books(a, &b);
	for (size_t i = 0; i < sizeof(of_actors) / sizeof(of_actors[0]); i++) {
		metric_family(o, &of_actors[i]);
		metric_sample(o, &of_actors[i], &b, LABELS(NULL));
	}
}
