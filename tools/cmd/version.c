/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_version.c: "shmstore-admin version". */
#include <shmstore/shmstore.h>

#include "admin.h"
#include "jsonout.h"
#include "options.h"

int cmd_version(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(a, argc, argv, "version", "Prints the version of the library.");
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "version", shmstore_version());
	json_say(a, o, ADMIN_NAME " {version}\n");
	return ADMIN_OK;
}
