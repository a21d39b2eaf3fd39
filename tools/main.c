/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore-admin: looks into a partition and repairs it. Each command is a file in cmd/ or arb/. Standard output carries the answer
 * (text for people, or one JSON value), standard error everything else. Everything goes through the library's public headers; the
 * program runs one thread but for the progress line.
 */
#include <argp.h>
#include <errno.h>
#include <locale.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "commands.h"
#include "message.h"
#include "options.h"

static const struct admin_command list[] = {
	{"init", "", "make a partition, and with --size its own mount", cmd_init},
	{"doctor", "", "check host and mount, and say how to mend them", cmd_doctor},
	{"df", "", "how full the partition is", cmd_df},
	{"du", "", "what each store holds", cmd_du},
	{"ls", "[STORE]", "list objects", cmd_ls},
	{"stat", "STORE KEY", "everything about one object", cmd_stat},
	{"cat", "STORE KEY", "write the bytes of an object to standard output", cmd_cat},
	{"get", "STORE KEY [FILE]", "write the bytes of an object to a file", cmd_get},
	{"put", "STORE KEY [FILE]", "make an object of a file or of standard input", cmd_put},
	{"rm", "STORE [KEY...]", "remove objects, or a store, that nobody has open", cmd_rm},
	{"reconcile", "", "account for every byte and name who holds it", cmd_reconcile},
	{"gc", "", "remove what dead processes left", cmd_gc},
	{"verify", "", "check every object", cmd_verify},
	{"tier", "", "the disk tier: what is there; --set gives the partition one", cmd_tier},
	{"demote", "STORE KEY...", "move objects to the disk tier", cmd_demote},
	{"promote", "STORE KEY...", "bring objects back to memory", cmd_promote},
	{"evict", "--to SIZE", "move what is used least to the disk tier", cmd_evict},
	{"top", "", "watch the partition live", cmd_top},
	{"status", "", "the daemon, and the partitions that it watches", cmd_status},
	{"workers", "", "the stores that the daemon knows, and what they take", cmd_workers},
	{"quota", "", "limits, and what counts against them", cmd_quota},
	{"mem", "", "what the host and its memory cgroups use, term by term", cmd_mem},
	{"gate", "", "whether more work may begin on this host, and why", cmd_gate},
	{"preempt", "", "who had to stop for want of memory, and who would have to", cmd_preempt},
	{"actors", "", "where actors are, what waits for them, and copies of them", cmd_actors},
	{"watch", "", "print what happens, while it happens", cmd_watch},
	{"config", "", "show which partition, socket and limits are in force, and why", cmd_config},
	{"set", "KEY=VALUE", "set a limit until the daemon ends", cmd_set},
	{"arb", "SUBCOMMAND", "the memory arbiter: who holds, who waits, for what", cmd_arb},
	{"profile", "SUBCOMMAND", "what tasks used so far, and what the next ones will", cmd_profile},
	{"stage", "", "who is in which stage of a job, and with what memory", cmd_stage},
	{"reap", "STORE", "have the daemon remove a dead store", cmd_reap},
	{"version", "", "print the version", cmd_version},
	{"help", "[COMMAND]", "explain a command", cmd_help},
	{NULL, NULL, NULL, NULL},
};

static const struct commands commands = {
	.list = list,
	.kind = "command",
	.heading = "Commands",
	.of = "",
	.usage = "COMMAND [ARGUMENT...]",
	.help = "Looks into a shmstore partition, the shared memory of this host's processes, and repairs it.\v",
	.tail = "\"" ADMIN_NAME " help COMMAND\" explains one; all of it is in " ADMIN_NAME "(1).",
};

int cmd_help(struct admin *a, int argc, char **argv)
{
	static char name[] = ADMIN_NAME, help[] = "--help";
	char *help_argv[] = {name, help, NULL, NULL};
	static const char *const names[] = {"COMMAND", "SUBCOMMAND", NULL};
	static const struct argp argp = OPTIONS_ARGP(NULL, options_common, "help [COMMAND [SUBCOMMAND]]",
						     "Explains a command, or all of them.");
	struct command_line line = {.admin = a, .names = names};

	options_parse(&argp, &line, argc, argv);
	if (line.n_args) {
		char *subcommand = line.n_args == 2 ? strdup(line.args[1]) : NULL;
		if (subcommand) {
			help_argv[1] = subcommand;
			help_argv[2] = help;
		}
		int status = commands_run(&commands, line.args[0], a, subcommand ? 3 : 2, help_argv);
		free(subcommand);
		return status;
	}
	return commands_read(&commands, a, 2, help_argv);
}

/* An answer cut by a full disk or a closed pipe must not look like success. */
static int finish_output(int status)
{
	bool broken = ferror(stdout) != 0;

	errno = 0;
	if (fclose(stdout) != 0 || broken)
		return message_fail("standard output", "%s", errno ? strerror(errno) : "write error");
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
