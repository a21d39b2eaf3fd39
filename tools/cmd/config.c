/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_config.c: "shmstore-admin config": what the commands of this program, and programs that name
 * nothing, go by here and now: which partition and which socket, by what they were chosen, and what
 * the daemon holds them to. Asks; changes nothing.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asking.h"
#include "figure.h"
#include "jsonin.h"
#include "jsonout.h"
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

		figure_print(l, a->bytes, "             {kind} {id}: hard ");
		figure_print(l, a->bytes,
			     jsonin_has(l, "hard") ? "{hard:size}, soft " : "none, soft ");
		figure_print(l, a->bytes, jsonin_has(l, "soft") ? "{soft:size}\n" : "none\n");
	}
	if (!jsonin_count(p, "limits"))
		puts("             none but the size of the file system");
}

static void print_text(const struct admin *a, const struct json_object *o)
{
	const bool there = strcmp(jsonin_text(o, "daemon"), "none") != 0;
	const struct json_object *quota = jsonin_object(o, "quota");

	figure_print(o, false,
		     "partition    {partition} ({partition_from})\nsocket       {socket} "
		     "({socket_from})\n");
	figure_print(o, false,
		     there ? "daemon       answers; stores look for it: {daemon_mode}\n"
			   : "daemon       none answers; stores look for it: {daemon_mode}\n");
	for (size_t i = 0; i < jsonin_count(quota, "partitions"); i++)
		print_limits(a, jsonin_at(quota, "partitions", i));
	if (!quota)
		puts("limits       none: the size of the file system");
}

/* NULL: no daemon answers, or it does not watch that. */
static struct json_object *ask(const struct admin *a, const char *partition)
{
	struct json_object *document = NULL;
	struct shmstore_client *c;
	char path[ASKING_PARTITION];

	if (asking_client(a, ASKING_TIMEOUT_MS, &c) < 0)
		return NULL;
	if (!asking_elsewhere(c, partition, path))
		asking_ask(c, SHMSTORE_QUERY_QUOTA, partition, &document);
	shmstore_client_free(c);
	return document;
}

/* The daemon's socket as the library chooses it, and whether somebody listens there. */
static bool find_daemon(const struct admin *a, char path[PATH_MAX])
{
	struct shmstore_client *c;
	bool there;

	path[0] = '\0';
	if (asking_client(a, ASKING_TIMEOUT_MS, &c) < 0)
		return false;
	there = shmstore_client_connect(c) == 0;
	snprintf(path, PATH_MAX, "%s", shmstore_client_path(c));
	shmstore_client_free(c);
	return there;
}

int cmd_config(struct admin *a, int argc, char **argv)
{
	struct command_line line =
		OPTIONS_LINE(a, "config",
			     "Shows which partition and which socket are in force, by what each "
			     "was chosen, and the limits that the daemon holds.\v"
			     "What shmstored would make of its file: shmstored --check-config.");
	char partition[PATH_MAX], socket[PATH_MAX];
	struct json_object *limits;
	const char *from, *socket_from, *mode = getenv("SHMSTORE_DAEMON");
	bool there;

	options_parse(&line, argc, argv);
	if (!opening_path(a, partition))
		return ADMIN_FAILED;
	from = by("-p", a->partition, "SHMSTORE_PARTITION");
	socket_from = by("--socket", a->socket, "SHMSTORE_SOCKET");
	there = find_daemon(a, socket);
	limits = there ? ask(a, a->partition || getenv("SHMSTORE_PARTITION") ? partition : NULL)
		       : NULL;
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "partition_from", from);
	jsonmake_prose(o, "socket", socket);
	jsonmake_prose(o, "socket_from", socket_from);
	jsonmake_prose(o, "daemon", there ? "answers" : "none");
	jsonmake_prose(o, "daemon_mode", mode && *mode ? mode : "auto");
	jsonmake_child(o, "quota", limits);
	json_show(a, o, print_text);
	return ADMIN_OK;
}
