/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: the options that every command takes, and the reading of a command's arguments. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <argp.h>
#include <stddef.h>

#include "admin.h"

#define OPTIONS_ARGS_MAX 4

/* What a command was given: the input of its argp. */
struct command_line {
	struct admin *admin;
	const char *const *names; /* of its arguments, NULL-terminated; NULL = it takes none */
	size_t n_needed;          /* so many of them must be there */
	void *own;                /* where its parser puts its options */
	size_t n_args;
	const char *args[OPTIONS_ARGS_MAX];
};

/* The environment's part: the default partition, colours. */
void options_init(struct admin *a);
/* Hands down to an argp: the options of every command. The parser must give the struct admin to its first child. */
extern const struct argp_child options_children[];
/* The parser of a command without options of its own; other parsers hand it what they do not know. */
error_t options_common(int key, char *arg, struct argp_state *state);
/* Reads argv. Ends the program with the usage on standard error where it is wrong. */
void options_parse(const struct argp *argp, struct command_line *line, int argc, char **argv);
/* Says what is wrong with the command line and ends the program. */
void options_usage(const struct argp_state *state, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

#endif
