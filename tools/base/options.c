/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c: the options that every command takes, as an argp child: -p, --socket, --json, --bytes,
 * --no-color. SHMSTORE_ADMIN_ROOT is the variable by which tests show the doctor another machine.
 * Strings stay argv's.
 */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <shmstore/shmstore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "jsonin.h"

/* The command being parsed, as its usage, which begins with its name; NULL = none yet. */
static const char *command;

enum {
	OPTION_NO_COLOR = 0x1000,
	OPTION_SOCKET
};

static const struct argp_option common_options[] = {
	{"partition", 'p', "DIRECTORY", 0,
	 "the partition (default: $SHMSTORE_PARTITION, else the one built in)", 0},
	{"socket", OPTION_SOCKET, "FILE", 0,
	 "the daemon's socket (default: $SHMSTORE_SOCKET, else that of the partition's daemon)", 0},
	{"json", 'j', NULL, 0, "answer in JSON, sizes in bytes", 0},
	{"bytes", 'b', NULL, 0, "sizes in bytes, not in KiB, MiB, GiB", 0},
	{"no-color", OPTION_NO_COLOR, NULL, 0, "no colours, as with NO_COLOR set", 0},
	{NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0},
	{NULL, 0, NULL, 0, NULL, 0},
};

/* NOLINTNEXTLINE(readability-non-const-parameter): argp's type */
static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	struct admin *a = state->input;

	switch (key) {
	case 'p':
		if (!*arg)
			options_usage(state, "-p needs a directory");
		a->partition = arg;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case 'b':
		a->bytes = true;
		return 0;
	case OPTION_NO_COLOR:
		a->color = false;
		return 0;
	case OPTION_SOCKET:
		if (!*arg)
			options_usage(state, "--socket needs a file");
		a->socket = arg;
		return 0;
	case 'h':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp common_argp = {common_options, parse_common, NULL, NULL, NULL, NULL, NULL};
const struct argp_child options_children[] = {
	{&common_argp, 0, "Options of every command, before or after its name:", 100},
	{NULL, 0, NULL, 0},
};

static void print_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, ADMIN_NAME " %s\n", shmstore_version());
}

void options_init(struct admin *a)
{
	const char *no_color = getenv("NO_COLOR"); /* no-color.org: set and not empty */
	const char *term = getenv("TERM");
	const char *root = getenv("SHMSTORE_ADMIN_ROOT");

	argp_program_version_hook = print_version;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	a->color = isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
		   !(term && strcmp(term, "dumb") == 0);
	if (root)
		a->root = root;
}

void options_usage(const struct argp_state *state, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	// NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is not
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (command)
		message_say("%.*s: %s", (int)strcspn(command, " "), command, text);
	else
		message_say("%s", text);
	argp_state_help(state, stderr, ARGP_HELP_SHORT_USAGE);
	exit(ADMIN_USAGE);
}

/* A whole number of at least least. This and the others end the program where arg is none. */
static uint64_t read_number(const struct argp_state *state, const char *option, const char *arg,
			    uint64_t least)
{
	uint64_t value;

	if (human_number(arg, UINT64_MAX, &value) && value >= least)
		return value;
	if (least)
		options_usage(state, "%s %s: is no number of at least %" PRIu64, option, arg,
			      least);
	options_usage(state, "%s %s: is no number", option, arg);
}

/* Of --interval: a number of seconds between 0.05 and a day. */
static double read_interval(const struct argp_state *state, const char *arg)
{
	char *end;

	errno = 0;
	double seconds = strtod(arg, &end);
	if (errno || *end || end == arg || !(seconds >= 0.05 && seconds <= 86400))
		options_usage(state,
			      "--interval %s: is no number of seconds between 0.05 and 86400", arg);
	return seconds;
}

/* Which one of n names, some of which may be NULL. */
static size_t read_word(const struct argp_state *state, const char *option, const char *arg,
			const char *const *names, size_t n)
{
	char list[256] = "";
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		if (!names[i])
			continue;
		if (strcmp(arg, names[i]) == 0)
			return i;
		if (used < sizeof(list))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", names[i]);
	}
	options_usage(state, "%s %s: is none of %s", option, arg, list);
}

/* A user's name or number. */
static uid_t read_user(const struct argp_state *state, const char *arg)
{
	const struct passwd *pw = getpwnam(arg);
	uint64_t uid;

	if (pw)
		return pw->pw_uid;
	if (*arg < '0' || *arg > '9')
		options_usage(state, "%s: there is no such user", arg);
	if (!human_number(arg, UINT32_MAX - 1, &uid))
		options_usage(state, "%s: is no user", arg);
	return (uid_t)uid;
}

/* Options of a command's own without a letter have these keys. */
#define FIRST_KEY 0x2000

static int key_of(const struct command_line *line, size_t i)
{
	return line->options[i].key ? line->options[i].key : FIRST_KEY + (int)i;
}

static void set_option(const struct argp_state *state, const struct options_row *o, void *at,
		       char *arg)
{
	char name[32];
	uint64_t bytes;

	snprintf(name, sizeof(name), "--%s", o->name);
	switch (o->kind) {
	case OPTIONS_FLAG:
		*(bool *)at = true;
		return;
	case OPTIONS_BITS:
		*(unsigned *)at |= (unsigned)o->value;
		return;
	case OPTIONS_NUMBER:
		*(uint64_t *)at = read_number(state, name, arg, o->value);
		return;
	case OPTIONS_UNSIGNED:
		*(unsigned *)at = (unsigned)read_number(state, name, arg, o->value);
		return;
	case OPTIONS_WORD:
		*(size_t *)at = read_word(state, name, arg, o->words, o->n_words);
		return;
	case OPTIONS_SIZE:
		if (!human_parse(arg, (uint64_t)1 << 40, &bytes))
			options_usage(state, "%s %s: is no size, such as 8G or 50%%", name, arg);
		*(const char **)at = arg;
		return;
	case OPTIONS_TEXT:
		*(const char **)at = arg;
		return;
	case OPTIONS_VALUE:
		*(unsigned *)at = (unsigned)o->value;
		return;
	case OPTIONS_SMALL:
		if (read_number(state, name, arg, 0) > o->value)
			options_usage(state, "%s %s: is more than %" PRIu64, name, arg, o->value);
		*(int *)at = (int)read_number(state, name, arg, 0);
		return;
	case OPTIONS_SECONDS:
		*(double *)at = read_interval(state, arg);
		return;
	case OPTIONS_USER:
		*(uid_t *)at = read_user(state, arg);
		return;
	default:
		return;
	}
}

static error_t read_own(int key, char *arg, const struct argp_state *state)
{
	const struct command_line *line = state->input;

	for (size_t i = 0; line->options && line->options[i].name; i++) {
		if (key_of(line, i) != key)
			continue;
		set_option(state, &line->options[i], (char *)line->own + line->options[i].off, arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	size_t n_names = 0;

	while (line->names && line->names[n_names])
		n_names++;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = line->admin;
		return 0;
	case ARGP_KEY_ARG:
		if (line->many && line->n_args + 1 == n_names)
			return ARGP_ERR_UNKNOWN; /* argp asks again, for all that are left */
		if (line->n_args == n_names)
			options_usage(state, "%s: one argument too many", arg);
		line->args[line->n_args++] = arg;
		return 0;
	case ARGP_KEY_ARGS:
		line->many_args = state->argv + state->next;
		line->n_many = (size_t)(state->argc - state->next);
		return 0;
	case ARGP_KEY_END:
		if (line->names && line->n_args + line->n_many < line->n_needed)
			options_usage(state, "%s is missing", line->names[line->n_args]);
		if (line->check)
			line->check(state, line);
		return 0;
	default:
		return read_own(key, arg, state);
	}
}

void options_parse(struct command_line *line, int argc, char **argv)
{
	struct argp_option options[OPTIONS_MAX + 1] = {{NULL}};
	const struct argp_option *own = line->options ? options : NULL; /* argp leaks empty ones */
	const struct argp argp = {own,  parse, line->usage, line->help, options_children,
				  NULL, NULL};

	for (size_t i = 0; own && i < OPTIONS_MAX && line->options[i].name; i++) {
		const struct options_row *o = &line->options[i];

		options[i] = (struct argp_option){o->name, key_of(line, i), o->arg, 0, o->help, 0};
	}
	command = line->usage;
	line->admin->own = line->own;
	error_t error = argp_parse(&argp, argc, argv, 0, NULL, line);
	if (error) {
		message_say("the command line cannot be read: %s", shmstore_strerror(error));
		exit(ADMIN_USAGE);
	}
}

/* ---- commands -------------------------------------------------------------------------------- */

/*
 * The options of every command may stand before its name or after it: those before are parsed here,
 * the rest is parsed by the command, with its own options added.
 */

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
static error_t parse_first(int key, char *arg, struct argp_state *state)
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
	const struct argp argp = {NULL,        parse_first, usage, c->help, options_children,
				  help_filter, NULL};
	struct first_pass first = {.admin = a, .commands = c};

	snprintf(usage, sizeof(usage), "%s%s [ARGUMENT...]", c->of,
		 *c->of ? " SUBCOMMAND" : "COMMAND");
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &first);
	if (!first.name)
		return ADMIN_USAGE;
	argv[first.next - 1] = argv[0];
	return commands_run(c, first.name, a, argc - first.next + 1, argv + first.next - 1);
}
