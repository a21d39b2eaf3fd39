/* SPDX-License-Identifier: Apache-2.0 */
/* admin.h: what every subcommand of shmstore-admin is given, and the table of them. */
#ifndef ADMIN_H
#define ADMIN_H

#include <stdbool.h>

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

#endif
