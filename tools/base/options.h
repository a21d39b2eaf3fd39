/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the options that every command takes, and the reading of a command's arguments. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "admin.h"

#define OPTIONS_ARGS_MAX 4
#define OPTIONS_MAX      12

/* Where an option's value goes in the command's own structure. */
enum options_kind {
	OPTIONS_FLAG,     /* a bool: true */
	OPTIONS_BITS,     /* an unsigned: value is added */
	OPTIONS_NUMBER,   /* a uint64_t, of at least value */
	OPTIONS_UNSIGNED, /* an unsigned */
	OPTIONS_WORD,     /* a size_t: which one of words (some may be NULL) */
	OPTIONS_TEXT,     /* a const char * */
	OPTIONS_SIZE,     /* the same, for human_parse(): it may be a part of something */
	OPTIONS_VALUE,    /* an unsigned: value */
	OPTIONS_SMALL,    /* an int, at most value */
	OPTIONS_SECONDS,  /* a double: at least 0.05, at most a day */
	OPTIONS_USER,     /* a uid_t */
};

struct options_row {
	const char *name;
	int key;         /* a letter; 0: it has none */
	const char *arg; /* what it takes, for people; NULL: nothing */
	const char *help;
	enum options_kind kind;
	size_t off;
	uint64_t value;
	const char *const *words;
	size_t n_words;
};

/* The arguments that a command may have, and their values once they are read. */
struct command_line {
	struct admin *admin;
	const char *usage, *help; /* what --help says: with \v before what goes below the options */
	const char *const *names; /* of its arguments, NULL-terminated; NULL = it takes none */
	size_t n_needed;          /* so many of them must be there */
	bool many; /* the last of them may be repeated: those are in many_args, not in args */
	/* its own, ended by one without a name; NULL: it has none */
	const struct options_row *options;
	void *own; /* where they go */
	/* looks at all of them together at the end, and calls options_usage(); NULL: need not */
	void (*check)(const struct argp_state *state, const struct command_line *line);
	size_t n_args;
	char *args[OPTIONS_ARGS_MAX];
	size_t n_many;
	char **many_args;
};

/* The environment's part: the default partition, colours. */
void options_init(struct admin *a);
/* Hands down to an argp: the options of every command. The parser must give the struct admin to its
 * first child. */
extern const struct argp_child options_children[];
#define OPTIONS_LINE(a, usage_text, help_text, ...)                                   \
	{                                                                             \
		.admin = (a), .usage = (usage_text), .help = (help_text), __VA_ARGS__ \
	}
/* Reads argv. Ends the program with the usage on standard error where it is wrong. */
void options_parse(struct command_line *line, int argc, char **argv);
/* The same of a command without arguments, or whose check() takes them. */
#define OPTIONS_PARSE(a, argc, argv, ...) \
	options_parse(&(struct command_line)OPTIONS_LINE(a, __VA_ARGS__), argc, argv)
/* Says what is wrong with the command line and ends the program. */
void options_usage(const struct argp_state *state, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* The commands of the program, or the subcommands of one of them: found by name, and listed in
 * --help. */
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
