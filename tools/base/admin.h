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

/* The options common to all commands. Strings are those of argv or of the environment. */
struct admin {
	const char *partition; /* as given; NULL = the default */
	const char *socket;    /* the daemon's, as given; NULL = the default */
	const char *root;      /* put before every path in /proc, /sys and /etc; "" but in tests */
	bool json;
	bool bytes; /* sizes exact instead of human */
	bool color; /* standard output is a terminal that likes colours */
};

struct admin_command {
	const char *name;
	const char *arguments; /* for usage lines */
	const char *summary;
	int (*run)(struct admin *a, int argc,
		   char **argv); /* argv[0] is the program's name; returns enum admin_status */
};

int cmd_init(struct admin *a, int argc, char **argv);
int cmd_doctor(struct admin *a, int argc, char **argv);
int cmd_df(struct admin *a, int argc, char **argv);
int cmd_du(struct admin *a, int argc, char **argv);
int cmd_ls(struct admin *a, int argc, char **argv);
int cmd_stat(struct admin *a, int argc, char **argv);
int cmd_cat(struct admin *a, int argc, char **argv);
int cmd_get(struct admin *a, int argc, char **argv);
int cmd_put(struct admin *a, int argc, char **argv);
int cmd_rm(struct admin *a, int argc, char **argv);
int cmd_config(struct admin *a, int argc, char **argv);
int cmd_reconcile(struct admin *a, int argc, char **argv);
int cmd_gc(struct admin *a, int argc, char **argv);
int cmd_verify(struct admin *a, int argc, char **argv);
int cmd_tier(struct admin *a, int argc, char **argv);
int cmd_demote(struct admin *a, int argc, char **argv);
int cmd_promote(struct admin *a, int argc, char **argv);
int cmd_evict(struct admin *a, int argc, char **argv);
int cmd_top(struct admin *a, int argc, char **argv);
int cmd_status(struct admin *a, int argc, char **argv);
int cmd_workers(struct admin *a, int argc, char **argv);
int cmd_mem(struct admin *a, int argc, char **argv);
int cmd_gate(struct admin *a, int argc, char **argv);
int cmd_preempt(struct admin *a, int argc, char **argv);
int cmd_actors(struct admin *a, int argc, char **argv);
int cmd_quota(struct admin *a, int argc, char **argv);
int cmd_watch(struct admin *a, int argc, char **argv);
int cmd_set(struct admin *a, int argc, char **argv);
int cmd_profile(struct admin *a, int argc, char **argv);
int cmd_stage(struct admin *a, int argc, char **argv);
int cmd_arb(struct admin *a, int argc, char **argv);
int cmd_reap(struct admin *a, int argc, char **argv);
int cmd_version(struct admin *a, int argc, char **argv);
int cmd_help(struct admin *a, int argc, char **argv);

#endif
