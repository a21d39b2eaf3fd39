/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h: the commands of the program, or the subcommands of one of them: found by
 * name, and listed in --help. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "admin.h"

struct commands {
	const struct admin_command *list; /* ends with a NULL name */
	const char *of;   /* the command whose subcommands they are; "" = the program's own */
	const char *help; /* as of a struct command_line */
	const char *tail; /* what --help says below the list */
};

/* Runs the command called name with argv, or says that there is none. Its exit status. */
int commands_run(const struct commands *c, const char *name, struct admin *a, int argc,
		 char **argv);
/* Reads argv as far as a command's name, with the options of every command, and
 * runs that. Its exit status. */
int commands_read(const struct commands *c, struct admin *a, int argc, char **argv);

#endif
