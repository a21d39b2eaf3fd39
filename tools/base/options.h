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
	OPTIONS_VALUE,    /* an unsigned: value */
	OPTIONS_SMALL,    /* an int, at most value */
	OPTIONS_SECONDS,  /* a double: options_interval() */
	OPTIONS_USER,     /* a uid_t */
	OPTIONS_OWN,      /* the command's own parser takes it, by its key */
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

/* A command's arguments: the input of its argp. */
struct command_line {
	struct admin *admin;
	const char *const *names; /* of its arguments, NULL-terminated; NULL = it takes none */
	size_t n_needed;          /* so many of them must be there */
	bool many; /* the last of them may be repeated: those are in many_args, not in args */
	/* its own, ended by one without a name; NULL: argp has them */
	const struct options_row *options;
	void *own; /* where they go */
	size_t n_args;
	const char *args[OPTIONS_ARGS_MAX];
	size_t n_many;
	char **many_args;
};

/* The environment's part: the default partition, colours. */
void options_init(struct admin *a);
/* Hands down to an argp: the options of every command. The parser must give the struct admin to its
 * first child. */
extern const struct argp_child options_children[];
/* The argp of a command: its own options or NULL, their parser, its usage, and what --help says,
 * with \v before what goes below the options. */
#define OPTIONS_ARGP(options, parser, usage, help)                         \
	{                                                                  \
		options, parser, usage, help, options_children, NULL, NULL \
	}
/* The parser of a command without options of its own; other parsers hand it what they do not know.
 */
error_t options_common(int key, char *arg, struct argp_state *state);
/* Reads argv. Ends the program with the usage on standard error where it is wrong. */
void options_parse(const struct argp *argp, struct command_line *line, int argc, char **argv);
/* Says what is wrong with the command line and ends the program. */
void options_usage(const struct argp_state *state, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* The values of options: a whole number of at least least; a user's name or number. They end the
 * program where arg is none. */
uint64_t options_number(const struct argp_state *state, const char *option, const char *arg,
			uint64_t least);
/* Of --interval: a number of seconds between 0.05 and a day. Does not return where it is none. */
double options_interval(const struct argp_state *state, const char *arg);
/* Of an option that takes one of n names, some of which may be NULL: its number. Does not return
 * where it is none of them. */
size_t options_one_of(const struct argp_state *state, const char *option, const char *arg,
		      const char *const *names, size_t n);
uid_t options_user(const struct argp_state *state, const char *arg);

#endif
