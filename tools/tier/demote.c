/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_demote.c: "shmstore-admin demote STORE KEY...": moves objects to the disk tier, each for
 * every store that links it. The choice of an eviction does not matter here: a user that names an
 * object wants that one gone from memory.
 */
#include <errno.h>

#include "message.h"
#include "moving.h"
#include "options.h"

static int move(struct shmstore *s, const void *key, size_t key_size)
{
	return shmstore_demote(s, key, key_size, 0);
}

static void hint(const char *partition, int error)
{
	if (error == -ENOSPC) {
		message_hint("to see what fills the tier: " ADMIN_NAME " -p %s tier", partition);
		message_hint("to let it grow: " ADMIN_NAME " -p %s tier --max SIZE", partition);
	}
}

int cmd_demote(struct admin *a, int argc, char **argv)
{
	typedef struct moving_options OF;
	static const struct options_row options[] = {
		{"all", 'a', NULL, "every object of the store but those that are pinned",
		 OPTIONS_FLAG, offsetof(OF, all)},
		{NULL},
	};
	static const struct moving_way way = {
		.name = "demote",
		.to = SHMSTORE_IN_TIER,
		.move = move,
		.hint = hint,
		.usage = "demote STORE KEY...\ndemote STORE --all",
		.help = "Moves objects to the partition's disk tier, "
			"each for all stores that link it.\v"
			"Their names stay: the next get brings them "
			"back. The memory of an object that is "
			"mapped is free when the last view is gone. "
			"Exit status 1 if one could not be "
			"moved; it is in memory still.",
	};

	return moving_run(a, argc, argv, options, &way);
}
