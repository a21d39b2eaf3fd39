/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_promote.c: "shmstore-admin promote STORE KEY...": brings objects back from the disk tier,
 * several at once where threads are given. */
#include <errno.h>

#include "message.h"
#include "moving.h"
#include "options.h"

/* Only so that the disk and the processors have more than one to work at; how each of them ends,
 * move() says. */
static void ahead(struct shmstore *s, const struct iovec *keys, size_t n_keys, unsigned n_threads)
{
	(void)shmstore_prefetch(s, keys, n_keys, n_threads, 0, NULL);
}

static int move(struct shmstore *s, const void *key, size_t key_size)
{
	return shmstore_promote(s, key, key_size, 0);
}

static void hint(const char *partition, int error)
{
	if (error == -ENOSPC)
		message_hint("to make room: " ADMIN_NAME " -p %s evict --to 50%%", partition);
	else if (error == -EBADMSG)
		message_hint("what is lost with it has to be made anew; to check all tier "
			     "files: " ADMIN_NAME " -p %s verify --tier",
			     partition);
}

int cmd_promote(struct admin *a, int argc, char **argv)
{
	typedef struct moving_options OF;
	static const struct options_row options[] = {
		{"all", 'a', NULL, "every object of the store that is in the tier", OPTIONS_FLAG,
		 offsetof(OF, all)},
		{"threads", 't', "N", "that check and decompress (default: 0, none but its own)",
		 OPTIONS_UNSIGNED, offsetof(OF, n_threads)},
		{NULL},
	};
	static const struct moving_way way = {
		.name = "promote",
		.to = SHMSTORE_IN_MEMORY,
		.ahead = ahead,
		.move = move,
		.hint = hint,
		.usage = "promote STORE KEY...\npromote STORE --all",
		.help = "Brings objects back from the disk tier into memory, as a get does.\v"
			"Where the partition is full, others are moved to the tier for them. Their "
			"tier "
			"files stay as long as their names do, so that moving them there again "
			"costs no "
			"write.",
	};

	return moving_run(a, argc, argv, options, &way);
}
