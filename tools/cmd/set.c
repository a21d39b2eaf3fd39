/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_set.c: "shmstore-admin set KEY=VALUE": a limit of the daemon, which has the keys. */
#include <string.h>

#include "alloc.h"
#include "asking.h"
#include "cleanup.h"
#include "jsonout.h"
#include "message.h"
#include "options.h"

int cmd_set(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"KEY=VALUE", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "set KEY=VALUE",
		"Sets a limit of the partition (-p, or $SHMSTORE_PARTITION; may be left out where "
		"the daemon watches one only).\v"
		"Keys: limit, soft, user.USER.limit, user.USER.soft, label.LABEL.limit, "
		"label.LABEL.soft, store.STORE.limit, store.STORE.soft; USER is a name, a number "
		"or * for all others. Values: a size such as 4GiB (for the partition also 50%), "
		"none, or default. It holds until the daemon ends; for good it belongs into "
		"shmstored.conf(5). Root and the daemon's user only.",
		.names = names, .n_needed = 1);

	options_parse(&line, argc, argv);
	if (!strchr(line.args[0], '=')) {
		message_say("set: %s: is no KEY=VALUE, such as user.1000.limit=4GiB", line.args[0]);
		return ADMIN_USAGE;
	}
	const char *partition = asking_partition(a);
	_free_ char *assignment = shms_printed("%s%s%s", partition ? partition : "",
					       partition ? " " : "", line.args[0]);
	if (!assignment)
		message_no_memory();
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, line.args[0], shmstore_client_set(c, assignment));
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "set", line.args[0]);
	json_say(a, o,
		 "{set} is set for [partition?{partition}|the one partition that the daemon "
		 "watches] "
		 "until the daemon ends; to keep it, write it into shmstored.conf\n");
	return ADMIN_OK;
}
