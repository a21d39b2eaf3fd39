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
#include "human.h"
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

static void print_limits(const struct admin *a, const struct json_object *document)
{
	char size[HUMAN_SIZE];

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		printf("limits of    %s\n", jsonin_text(p, "partition"));
		for (size_t j = 0; j < jsonin_count(p, "limits"); j++) {
			const struct json_object *l = jsonin_at(p, "limits", j);

			printf("             %s %s: ", jsonin_text(l, "kind"), jsonin_text(l, "id"));
			printf("hard %s, ",
			       jsonin_has(l, "hard") ? human_bytes(jsonin_u64(l, "hard"), a->bytes, size) : "none");
			printf("soft %s\n",
			       jsonin_has(l, "soft") ? human_bytes(jsonin_u64(l, "soft"), a->bytes, size) : "none");
		}
		if (!jsonin_count(p, "limits"))
			puts("             none but the size of the file system");
	}
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
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "config",
		"Shows which partition and which socket are in force, by what each was chosen, and the limits that "
		"the daemon holds.\v"
		"What shmstored would make of its file: shmstored --check-config.");
	struct command_line line = {.admin = a};
	char partition[PATH_MAX], socket[PATH_MAX];
	struct json_object *limits;
	const char *from, *socket_from, *mode = getenv("SHMSTORE_DAEMON");
	bool there;

	options_parse(&argp, &line, argc, argv);
	if (!opening_path(a, partition))
		return ADMIN_FAILED;
	from = by("-p", a->partition, "SHMSTORE_PARTITION");
	socket_from = by("--socket", a->socket, "SHMSTORE_SOCKET");
	there = find_daemon(a, socket);
	limits = there ? ask(a, a->partition || getenv("SHMSTORE_PARTITION") ? partition : NULL) : NULL;
	if (a->json) {
		struct json_object *o = jsonmake_new();
		jsonmake_prose(o, "partition", partition);
		jsonmake_prose(o, "partition_from", from);
		jsonmake_prose(o, "socket", socket);
		jsonmake_prose(o, "socket_from", socket_from);
		jsonmake_prose(o, "daemon", there ? "answers" : "none");
		jsonmake_prose(o, "daemon_mode", mode && *mode ? mode : "auto");
		jsonmake_child(o, "quota", limits);
		json_print(o);
		return ADMIN_OK;
	}
	printf("partition    %s (%s)\n", partition, from);
	printf("socket       %s (%s)\n", socket, socket_from);
	printf("daemon       %s; stores look for it: %s\n", there ? "answers" : "none answers",
	       mode && *mode ? mode : "auto");
	if (limits) {
		print_limits(a, limits);
		jsonin_free(limits);
	} else {
		puts("limits       none: the size of the file system");
	}
	return ADMIN_OK;
}
