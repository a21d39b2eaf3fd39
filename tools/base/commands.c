/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands.c: see commands.h. The options of every command may stand before its name or after it:
 * those before are parsed here, the rest is parsed by the command, with its own options added.
 */
#include "commands.h"

#include <string.h>

#include "message.h"
#include "options.h"

struct first_pass {
	struct admin *admin;
	const struct commands *commands;
	const char *name; /* NULL = none was given */
	int next;         /* index of what follows it */
};

static const char *kind_of(const struct commands *c)
{
	return *c->of ? "subcommand" : "command";
}

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct first_pass *first = state->input;
	const struct commands *c = first->commands;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = first->admin;
		return 0;
	case ARGP_KEY_ARG:
		first->name = arg;
		first->next = state->next;
		state->next = state->argc; /* the rest is the command's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		message_say("%s%sno %s given; \"" ADMIN_NAME " help%s%s\" lists them", c->of,
			    *c->of ? ": " : "", kind_of(c), *c->of ? " " : "", c->of);
		argp_state_help(state, stderr, ARGP_HELP_SHORT_USAGE | ARGP_HELP_EXIT_ERR);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The list of commands goes after the options in --help. */
static char *help_filter(int key, const char *text, void *input)
{
	const struct commands *c = ((const struct first_pass *)input)->commands;
	char *list = NULL, usage[64];
	size_t size = 0;

	if (key != ARGP_KEY_HELP_POST_DOC)
		return text ? strdup(text) : NULL;
	FILE *f = open_memstream(&list, &size);
	if (!f)
		return NULL;
	fputs(*c->of ? "Subcommands:\n" : "Commands:\n", f);
	for (const struct admin_command *one = c->list; one->name; one++) {
		snprintf(usage, sizeof(usage), "%s %s", one->name, one->arguments);
		fprintf(f, "  %-22s %s\n", usage, one->summary);
	}
	fprintf(f, "\n%s", c->tail);
	fclose(f);
	return list;
}

int commands_run(const struct commands *c, const char *name, struct admin *a, int argc, char **argv)
{
	for (const struct admin_command *one = c->list; one->name; one++) {
		if (strcmp(one->name, name) == 0)
			return one->run(a, argc, argv);
	}
	message_say("%s%s%s: no such %s; \"" ADMIN_NAME " help%s%s\" lists them", c->of,
		    *c->of ? " " : "", name, kind_of(c), *c->of ? " " : "", c->of);
	return ADMIN_USAGE;
}

int commands_read(const struct commands *c, struct admin *a, int argc, char **argv)
{
	char usage[64];
	const struct argp argp = {NULL, parse, usage, c->help, options_children, help_filter, NULL};
	struct first_pass first = {.admin = a, .commands = c};

	snprintf(usage, sizeof(usage), "%s%s [ARGUMENT...]", c->of,
		 *c->of ? " SUBCOMMAND" : "COMMAND");
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &first);
	if (!first.name)
		return ADMIN_USAGE;
	argv[first.next - 1] = argv[0];
	return commands_run(c, first.name, a, argc - first.next + 1, argv + first.next - 1);
}
