/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore-admin: looks into a partition and repairs it. Each command is a file in cmd/ or arb/.
 * Standard output carries the answer (text for people, or one JSON value), standard error
 * everything else. Everything goes through the library's public headers; the program runs one
 * thread but for the progress line.
 */
#include <argp.h>
#include <errno.h>
#include <locale.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "options.h"

#define COMMAND(name, arguments, summary) {#name, arguments, summary, cmd_##name},
static const struct admin_command list[] = {
#include "commands.def"
	{NULL, NULL, NULL, NULL},
};

static const struct commands commands = {
	.list = list,
	.of = "",
	.help = "Looks into a shmstore partition, the shared memory of this host's processes, and "
		"repairs it.\v",
	.tail = "\"" ADMIN_NAME " help COMMAND\" explains one; all of it is in " ADMIN_NAME "(1).",
};

int cmd_help(struct admin *a, int argc, char **argv)
{
	static char name[] = ADMIN_NAME, help[] = "--help";
	static const char *const names[] = {"COMMAND", "SUBCOMMAND", NULL};
	struct command_line line =
		OPTIONS_LINE(a, "help [COMMAND [SUBCOMMAND]]",
			     "Explains a command, or all of them.", .names = names);

	options_parse(&line, argc, argv);
	char *of[] = {name, line.n_args == 2 ? line.args[1] : help, help, NULL};
	if (line.n_args)
		return commands_run(&commands, line.args[0], a, 1 + (int)line.n_args, of);
	return commands_read(&commands, a, 2, of);
}

/* An answer cut by a full disk or a closed pipe must not look like success. */
static int finish_output(int status)
{
	bool broken = ferror(stdout) != 0;

	errno = 0;
	if (fclose(stdout) != 0 || broken)
		return message_fail("standard output", "%s",
				    errno ? strerror(errno) : "write error");
	return status;
}

int main(int argc, char **argv)
{
	static char name[] = ADMIN_NAME;
	struct admin a = {.root = ""};

	setlocale(LC_CTYPE, "");
	argp_err_exit_status = ADMIN_USAGE;
	if (argc < 1)
		return ADMIN_USAGE;
	argv[0] = name;
	options_init(&a);
	return finish_output(commands_read(&commands, &a, argc, argv));
}
