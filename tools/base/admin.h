/* SPDX-License-Identifier: Apache-2.0 */
/* admin.h: what every subcommand of shmstore-admin is given, the table of them, and what they say
 * on standard error: "shmstore-admin: <what>: <why>", and below it what to do. */
#ifndef ADMIN_H
#define ADMIN_H

#include <stdbool.h>
#include <stdint.h>

#define ADMIN_NAME "shmstore-admin"

/* The exit status of the program, and what a command's run() returns. */
enum admin_status {
	ADMIN_OK = 0,     /* done and clean */
	ADMIN_FAILED = 1, /* failed, or what was looked at is not clean */
	ADMIN_USAGE = 2,  /* asked in a wrong way */
};

/* The options of a command. Strings are those of argv or of the environment. */
struct admin {
	const char *partition; /* as given; NULL = the default */
	const char *socket;    /* the daemon's, as given; NULL = the default */
	const char *root;      /* put before every path in /proc, /sys and /etc; "" but in tests */
	bool json;
	bool bytes;      /* sizes exact instead of human */
	bool color;      /* standard output is a terminal that likes colours */
	bool narrow;     /* columns that may be left out are */
	const void *own; /* the command's own options, once they are read; NULL: it has none */
};

struct admin_command {
	const char *name;
	const char *arguments; /* for usage lines */
	const char *summary;
	int (*run)(struct admin *a, int argc,
		   char **argv); /* argv[0] is the program's name; returns enum admin_status */
};

#define COMMAND(name, ...) int cmd_##name(struct admin *a, int argc, char **argv);
#include "commands.def"
/* Subcommands of arb. */
int cmd_arb_inject(struct admin *a, int argc, char **argv);
int cmd_arb_cancel(struct admin *a, int argc, char **argv);
int cmd_arb_set(struct admin *a, int argc, char **argv);

/* "shmstore-admin: <text>". Control characters are escaped, also below. */
void message_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "shmstore-admin: <what>: <why>". Returns ADMIN_FAILED, so that a command may return it. */
int message_fail(const char *what, const char *why, ...) __attribute__((format(printf, 2, 3)));
/* The same with the library's words for error (a -errno). */
int message_error(const char *what, int error);
/* "; refused to this process: …", where system calls are that we cannot do without and error may
 * stem from it; else "". Static. */
const char *message_refused(int error);
/* The same with what the library's last call has to say about it
 * (shmstore_error_detail()), where it has something. */
int message_detail(const char *what, int error);
/* "shmstore-admin: <what>: <why>", where why may begin with what itself. Returns ADMIN_FAILED. */
int message_because(const char *what, const char *why);
/* An indented line below the message: what to do about it. */
void message_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Such a line with a command of this tool: "  to see the stores: shmstore-admin -p /p du". */
void message_command(const char *partition, const char *purpose, const char *command, ...)
	__attribute__((format(printf, 3, 4)));
/* Out of memory: says so and ends the program. */
void message_no_memory(void) __attribute__((noreturn));

/* text as one word of a shell command that we print for people to run: itself, or in quotes where a
 * shell would change it. Lives until the program ends. */
const char *shellword(const char *text);

/* A line about work that takes more than two seconds, one at a time in the program. what: static
 * text such as "verify". */
void progress_begin(const char *what);
/* How far it is; cheap, may be called for every object. 0 = nothing to say. */
void progress_set(uint64_t n_objects, uint64_t bytes);
/* Takes the line off the terminal, because something else is about to be
 * printed. It comes back by itself. */
void progress_clear(void);
void progress_end(void);

/* Dying of a signal only after what was begun is undone: from here on SIGINT, SIGTERM and SIGHUP
 * end system calls with EINTR instead of the program; a second one ends it. */
void interrupt_catch(void);
bool interrupt_pending(void);
/* Dies of the signal that came, if one came. */
void interrupt_finish(void);

#endif
