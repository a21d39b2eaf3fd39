/* SPDX-License-Identifier: Apache-2.0 */
/* moving.h: objects of one store moved between memory and the disk tier: what demote and promote
 * share. */
#ifndef MOVING_H
#define MOVING_H

#include <shmstore/shmstore.h>

#include "options.h"

#define MOVING_BATCH 64 /* keys that are begun together */

/* The options of a command, as they were given. */
struct moving_options {
	bool all;
	unsigned n_threads;
};

struct moving_way {
	const char *name; /* of the command */
	int to;           /* SHMSTORE_IN_TIER or SHMSTORE_IN_MEMORY */
	/* Begins many at once, so that the moves after it find their work done. May be NULL. */
	void (*ahead)(struct shmstore *s, const struct iovec *keys, size_t n_keys,
		      unsigned n_threads);
	int (*move)(struct shmstore *s, const void *key, size_t key_size);
	/* Prints a hint below an error of move(). partition: quoted for the shell. */
	void (*hint)(const char *partition, int error);
	const char *usage, *help; /* as of a struct command_line */
};

/* Reads the command line, moves, and says what became of it. Returns the exit status. */
int moving_run(struct admin *a, int argc, char **argv, const struct options_row *options,
	       const struct moving_way *way);

#endif
