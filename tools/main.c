/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore-admin: looks into a partition and repairs it. This file finds the command; each command is a cmd_<name>.c.
 *
 * The options of every command may stand before or after its name: the ones before are parsed here, up to the first
 * argument, which is the command; the rest is parsed again by the command with its own options added. Standard output
 * carries the answer (text for people, or one JSON value), standard error everything else. Everything goes through the
 * library's public headers; the program runs one thread but for the progress line.
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
#include "message.h"
#include "options.h"

const struct admin_command admin_commands[] = {
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
	{"watch", "", "print what happens, while it happens", cmd_watch},
	{"config", "", "show which partition, socket and limits are in force, and why", cmd_config},
	{"set", "KEY=VALUE", "set a limit until the daemon ends", cmd_set},
	{"arb", "SUBCOMMAND", "the memory arbiter: who holds, who waits, for what", cmd_arb},
	{"reap", "STORE", "have the daemon remove a dead store", cmd_reap},
	{"version", "", "print the version", cmd_version},
	{"help", "[COMMAND]", "explain a command", cmd_help},
	{NULL, NULL, NULL, NULL},
};

struct first_pass {
	struct admin *admin;
	const char *command; /* NULL = none was given */
	int next;            /* index of what follows the command */
};

const struct admin_command *admin_command_find(const char *name)
{
	for (const struct admin_command *c = admin_commands; c->name; c++) {
		if (strcmp(c->name, name) == 0)
			return c;
	}
	return NULL;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse_first(int key, char *arg, struct argp_state *state)
{
	struct first_pass *first = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = first->admin;
		return 0;
	case ARGP_KEY_ARG:
		first->command = arg;
		first->next = state->next;
		state->next = state->argc; /* the rest is the command's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		message_say("no command given");
		argp_state_help(state, stderr, ARGP_HELP_SHORT_USAGE | ARGP_HELP_SEE | ARGP_HELP_EXIT_ERR);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void admin_list_commands(FILE *f, const struct admin_command *commands)
{
	for (const struct admin_command *c = commands; c->name; c++) {
		char usage[64];
		snprintf(usage, sizeof(usage), "%s %s", c->name, c->arguments);
		fprintf(f, "  %-22s %s\n", usage, c->summary);
	}
}

/* The list of commands, made of the table above, goes after the options in --help. */
static char *help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t size = 0;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return text ? strdup(text) : NULL;
	FILE *f = open_memstream(&list, &size);
	if (!f)
		return NULL;
	fputs("Commands:\n", f);
	admin_list_commands(f, admin_commands);
	fputs("\n\"" ADMIN_NAME " help COMMAND\" explains one; all of it is in " ADMIN_NAME "(1).", f);
	fclose(f);
	return list;
}

static const struct argp first_argp = {
	NULL,
	parse_first,
	"COMMAND [ARGUMENT...]",
	"Looks into a shmstore partition, the shared memory of this host's processes, and repairs it.\v",
	options_children,
	help_filter,
	NULL,
};

static int run(const char *name, struct admin *a, int argc, char **argv)
{
	const struct admin_command *c = admin_command_find(name);

	if (!c) {
		message_say("%s: no such command; \"" ADMIN_NAME " help\" lists them", name);
		return ADMIN_USAGE;
	}
	return c->run(a, argc, argv);
}

int cmd_help(struct admin *a, int argc, char **argv)
{
	static char name[] = ADMIN_NAME, help[] = "--help";
	char *help_argv[] = {name, help, NULL, NULL};
	static const char *const names[] = {"COMMAND", "SUBCOMMAND", NULL};
	static const struct argp argp = {NULL,
					 options_common,
					 "help [COMMAND [SUBCOMMAND]]",
					 "Explains a command, or all of them.",
					 options_children,
					 NULL,
					 NULL};
	struct command_line line = {.admin = a, .names = names};

	options_parse(&argp, &line, argc, argv);
	if (line.n_args) {
		char *subcommand = line.n_args == 2 ? strdup(line.args[1]) : NULL;
		if (subcommand) {
			help_argv[1] = subcommand;
			help_argv[2] = help;
		}
		int status = run(line.args[0], a, subcommand ? 3 : 2, help_argv);
		free(subcommand);
		return status;
	}
	struct first_pass first = {.admin = a};
	argp_parse(&first_argp, 2, help_argv, ARGP_IN_ORDER, NULL, &first);
	return ADMIN_OK;
}

/* What a full disk or a closed pipe took from the answer must not look like success. */
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
	struct first_pass first = {.admin = &a};

	setlocale(LC_CTYPE, "");
	argp_err_exit_status = ADMIN_USAGE;
	if (argc < 1)
		return ADMIN_USAGE;
	argv[0] = name;
	options_init(&a);
	argp_parse(&first_argp, argc, argv, ARGP_IN_ORDER, NULL, &first);
	if (!first.command)
		return ADMIN_USAGE;
	argv[first.next - 1] = name;
	return finish_output(run(first.command, &a, argc - first.next + 1, argv + first.next - 1));
}
