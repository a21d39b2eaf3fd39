/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_reap.c: "shmstore-admin reap STORE": the daemon removes one dead store, and tells each step
 * with its evidence. It is the daemon's word whether the store is dead, by its lock; a user may
 * have his own reaped.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asking.h"
#include "gctable.h"
#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "opening.h"
#include "options.h"

/* The path of the store called name, of those that the daemon knows. False: none, or several; said.
 */
static bool find_known(const struct json_object *document, const char *name,
		       char ret_path[PATH_MAX])
{
	size_t found = 0;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);
		for (size_t w = 0; w < jsonin_count(p, "workers"); w++) {
			const struct json_object *worker = jsonin_at(p, "workers", w);
			if (strcmp(jsonin_text(worker, "name"), name) != 0)
				continue;
			snprintf(ret_path, PATH_MAX, "%s", jsonin_text(worker, "path"));
			found++;
		}
	}
	if (found > 1) {
		message_fail(name, "several partitions have a store of that name");
		message_hint("say which: with -p, or by its path");
	}
	return found == 1;
}

/* The path of what the user called a store. Ends the program where there is none. */
static void find_path(const struct admin *a, const char *store, char ret_path[PATH_MAX])
{
	char partition[PATH_MAX];

	if (store[0] == '/') {
		snprintf(ret_path, PATH_MAX, "%s", store);
		return;
	}
	/* Also one that the daemon does not know of: where it would be. */
	opening_path(a, partition);
	if ((size_t)snprintf(ret_path, PATH_MAX, "%s/stores/%s", partition, store) < PATH_MAX &&
	    access(ret_path, F_OK) == 0) {
		char real[PATH_MAX];
		if (realpath(ret_path, real))
			snprintf(ret_path, PATH_MAX, "%s", real);
		return;
	}
	_json_ struct json_object *document = asking_query(a, SHMSTORE_QUERY_WORKERS);
	if (find_known(document, store, ret_path))
		return;
	message_fail(store, "there is no such store, or not any more");
	message_hint("to see them: " ADMIN_NAME " workers");
	exit(ADMIN_FAILED);
}

/* Done where all went that may: leases stay until they end. A kept store is not what was asked for.
 */
static int judge(const struct json_object *document, const char *store)
{
	if (jsonin_u64(document, "failed"))
		return ADMIN_FAILED;
	if (jsonin_flag(document, "leases_stay"))
		return ADMIN_OK;
	for (size_t i = 0; i < jsonin_count(document, "actions") && !jsonin_u64(document, "stores");
	     i++) {
		const struct json_object *action = jsonin_at(document, "actions", i);
		if (strcmp(jsonin_text(action, "what"), "kept") == 0 &&
		    strcmp(jsonin_text(action, "path"), jsonin_text(document, "path")) == 0)
			return message_fail(store, "stays: %s", jsonin_text(action, "evidence"));
	}
	return ADMIN_OK;
}

static void print(const struct admin *a, const struct json_object *document)
{
	for (size_t i = 0; i < jsonin_count(document, "actions"); i++) {
		const struct json_object *o = jsonin_at(document, "actions", i);

		if (jsonin_has(o, "error"))
			message_fail(jsonin_text(o, "path"), "%s", jsonin_text(o, "error"));
	}
	gctable_print(a, document, jsonin_u64(document, "tier_files") != 0);
	gctable_total(a, document);
}

int cmd_reap(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"STORE", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "reap STORE",
		"Has the daemon remove the dead store STORE (a name, or the store's path) now.\v"
		"The daemon does so by itself when an owner dies; this is for seeing why one is "
		"still there. A store whose owner lives, and a kept one, stays. Users may have "
		"their own stores reaped. Without a daemon: \"" ADMIN_NAME " gc\".",
		.names = names, .n_needed = 1);
	struct json_object *document = NULL;
	char path[PATH_MAX], *json;
	size_t n;

	options_parse(&line, argc, argv);
	_client_ struct shmstore_client *c = asking_open(a);
	find_path(a, line.args[0], path);
	shmstore_client_set_timeout(c, ASKING_SURVEY_MS);
	int r = shmstore_client_reap(c, path, &json, &n);
	if (r == 0)
		r = asking_parse(json, n, &document);
	asking_check(c, r == -EBADMSG ? line.args[0] : "reap", r);
	int status = judge(document, line.args[0]);
	json_show(a, document, print);
	return status;
}
