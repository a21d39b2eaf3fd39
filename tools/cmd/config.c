/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_config.c: "shmstore-admin config": what the commands of this program, and programs that name
 * nothing, go by here and now: which partition and which socket, by what they were chosen, and what
 * the daemon holds them to. Asks; changes nothing.
 */
#include <limits.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>

#include "admin.h"
#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"

/* By what a value was chosen. */
static const char *by(const char *option, const char *given, const char *variable)
{
	const char *set = getenv(variable);

	return given ? option : set && *set ? variable : "default";
}

static void print_limits(const struct admin *a, const struct json_object *p)
{
	figure_print(p, a->bytes, "limits of    {partition}\n");
	for (size_t i = 0; i < jsonin_count(p, "limits"); i++) {
		const struct json_object *l = jsonin_at(p, "limits", i);

		figure_print(l, a->bytes,
			     "             {kind} {id}: hard [has hard?{hard:size}|none], soft "
			     "[has soft?{soft:size}|none]\n");
	}
	if (!jsonin_count(p, "limits"))
		puts("             none but the size of the file system");
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	const struct json_object *quota = jsonin_object(o, "quota");

	figure_print(
		o, false,
		"partition    {partition} ({partition_from})\n"
		"socket       {socket} ({socket_from})\n"
		"daemon       [daemon=none?none ]answers; stores look for it: {daemon_mode}\n");
	for (size_t i = 0; i < jsonin_count(quota, "partitions"); i++)
		print_limits(a, jsonin_at(quota, "partitions", i));
	if (!quota)
		puts("limits       none: the size of the file system");
}

/* Adds the daemon's socket as the library chooses it, whether somebody listens there, and the
 * limits where it watches that partition (NULL: all). */
static void add_daemon(struct json_object *o, const struct admin *a, const char *partition)
{
	_client_ struct shmstore_client *c = NULL;
	struct json_object *limits = NULL;
	bool there =
		asking_client(a, ASKING_TIMEOUT_MS, &c) == 0 && shmstore_client_connect(c) == 0;

	if (there && !asking_elsewhere(c, partition))
		asking_ask(c, SHMSTORE_QUERY_QUOTA, partition, &limits);
	jsonmake_prose(o, "socket", c ? shmstore_client_path(c) : "");
	jsonmake_prose(o, "daemon", there ? "answers" : "none");
	jsonmake_child(o, "quota", limits);
}

int cmd_config(struct admin *a, int argc, char **argv)
{
	const char *mode = getenv("SHMSTORE_DAEMON");
	char partition[PATH_MAX];

	OPTIONS_PARSE(a, argc, argv, "config",
		      "Shows which partition and which socket are in force, by what each was "
		      "chosen, and the limits that the daemon holds.\v"
		      "What shmstored would make of its file: shmstored --check-config.");
	opening_path(a, partition);
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "partition_from", by("-p", a->partition, "SHMSTORE_PARTITION"));
	jsonmake_null(o, "socket");
	jsonmake_prose(o, "socket_from", by("--socket", a->socket, "SHMSTORE_SOCKET"));
	jsonmake_null(o, "daemon");
	jsonmake_prose(o, "daemon_mode", mode && *mode ? mode : "auto");
	add_daemon(o, a, a->partition || getenv("SHMSTORE_PARTITION") ? partition : NULL);
	json_show(a, o, print_text);
	return ADMIN_OK;
}

/* ---- version --------------------------------------------------------------------------------- */

int cmd_version(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(a, argc, argv, "version", "Prints the version of the library.");
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "version", shmstore_version());
	json_say(a, o, ADMIN_NAME " {version}\n");
	return ADMIN_OK;
}
