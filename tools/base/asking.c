/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asking.c: questions to the daemon for commands, and how the answers are shown. No daemon is an
 * answer as good as any, but not to the commands that are about it: they fail, and say how it is
 * started and what works without.
 */
#include "asking.h"

#include <errno.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "admin.h"
#include "jsonin.h"
#include "opening.h"
#include "table.h"

static int explain_none(const struct shmstore_client *c, int error)
{
	const char *path = shmstore_client_path(c), *why = shmstore_client_reason(c);

	if (error == -EPERM) {
		message_fail(path, "the daemon may not be asked: %s", why);
		message_hint("run this as root, or as a user whom shmstored.conf(5)'s socket keys "
			     "let in");
		return ADMIN_FAILED;
	}
	if (error != -ENOENT && error != -ETIMEDOUT)
		return message_fail(path, "the daemon cannot be asked: %s", why);
	message_say("no daemon answers at %s: %s", path, why);
	if (error == -ENOENT)
		message_hint("start it with: " ASKING_START_DAEMON);
	message_hint("if it was started: \"journalctl -u shmstored\" says why it does not run");
	message_hint(ADMIN_NAME " df, du, reconcile, gc and top work without");
	return ADMIN_FAILED;
}

int asking_explain(const struct shmstore_client *c, const char *what, int error)
{
	const char *why = shmstore_client_reason(c);

	if (shmstore_client_fd(c) < 0) /* not refused: it is the connection that ended */
		return explain_none(c, error);
	if (error == -EBADMSG && !*why)
		why = "the daemon's answer is no JSON document";
	return message_fail(what ? what : shmstore_client_path(c), "%s",
			    *why ? why : shmstore_strerror(error));
}

void asking_check(const struct shmstore_client *c, const char *what, int error)
{
	if (error < 0)
		exit(asking_explain(c, what, error));
}

int asking_parse(char *json, size_t n, struct json_object **ret)
{
	*ret = jsonin_parse(json, n);
	free(json);
	return *ret ? 0 : -EBADMSG;
}

int asking_ask(struct shmstore_client *c, enum shmstore_query what, const char *partition,
	       struct json_object **ret)
{
	char *json;
	size_t n;
	int r = shmstore_client_query(c, what, partition, &json, &n);

	return r < 0 ? r : asking_parse(json, n, ret);
}

int asking_client(const struct admin *a, uint32_t timeout_ms, struct shmstore_client **ret)
{
	const char *partition = asking_partition(a);
	struct stat st;

	if (partition && (stat(partition, &st) < 0 || !S_ISDIR(st.st_mode)))
		partition = NULL;
	return shmstore_client_new(a->socket ? a->socket : partition, timeout_ms, ret);
}

/* Is what lies at path here another partition than the daemon's of that path? */
static bool differs(const char *path, const char *uuid)
{
	struct shmstore_partition_info info;
	_partition_ struct shmstore_partition *p = NULL;

	return shmstore_partition_open(path, 0, &p) == 0 &&
	       shmstore_partition_info(p, &info) == 0 && strcmp(info.uuid, uuid) != 0;
}

const char *asking_elsewhere(struct shmstore_client *c, const char *partition)
{
	static char path[PATH_MAX];
	_json_ struct json_object *document = NULL;

	asking_ask(c, SHMSTORE_QUERY_STATUS, partition, &document);
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		snprintf(path, sizeof(path), "%s", jsonin_text(p, "partition"));
		if (differs(path, jsonin_text(p, "uuid")))
			return path;
	}
	return NULL;
}

struct shmstore_client *asking_open(const struct admin *a)
{
	struct shmstore_client *c;
	int r = asking_client(a, ASKING_TIMEOUT_MS, &c);

	if (r == -ENOMEM)
		message_no_memory();
	if (r < 0)
		exit(message_fail(a->socket ? a->socket : "$SHMSTORE_SOCKET",
				  "is too long for a socket's path"));
	r = shmstore_client_connect(c);
	if (r < 0)
		exit(explain_none(c, r));
	const char *elsewhere = asking_elsewhere(c, asking_partition(a));
	if (!elsewhere)
		return c;
	message_fail(elsewhere, "the daemon at %s watches another partition of that path",
		     shmstore_client_path(c));
	message_hint("it is one of another container or job, where other file systems are mounted");
	message_hint("start one here: " ASKING_START_DAEMON);
	exit(ADMIN_FAILED);
}

const char *asking_partition(const struct admin *a)
{
	static char text[PATH_MAX];
	const char *named = a->partition ? a->partition : getenv("SHMSTORE_PARTITION");

	if (!named || !*named)
		return NULL;
	return realpath(named, text) ? text : named; /* the daemon says that it is none */
}

struct json_object *asking_query(const struct admin *a, enum shmstore_query what)
{
	const char *partition = asking_partition(a);
	_client_ struct shmstore_client *c = asking_open(a);
	struct json_object *document;

	if (what == SHMSTORE_QUERY_RECONCILE)
		shmstore_client_set_timeout(c, ASKING_SURVEY_MS);
	progress_begin("asking shmstored");
	int r = asking_ask(c, what, partition, &document);
	progress_end();
	asking_check(c, partition, r);
	return document;
}

int asking_show(const struct admin *a, enum shmstore_query what, const struct asking_view *view)
{
	struct json_object *document = asking_query(a, what);
	const struct json_object *o =
		view->watched ? jsonin_object(document, view->watched) : document;
	int status = view->judge ? view->judge(document) : ADMIN_OK;

	if (view->watched && !jsonin_flag(o, "enabled")) {
		message_say("%s", view->unless);
		message_hint(
			"set pressure { enabled = yes } in shmstored.conf, and start it again");
		status = ADMIN_FAILED;
	}
	if (a->json) {
		json_print(document);
		return status;
	}
	const bool said = view->watched && status != ADMIN_OK; /* why it shows nothing */
	if (view->document && !said)
		view->document(a, o);
	for (size_t i = 0; view->partition && !said && i < jsonin_count(o, "partitions"); i++) {
		const struct json_object *p = jsonin_at(o, "partitions", i);

		table_heading(jsonin_text(p, "partition"), i == 0);
		view->partition(a, p);
	}
	jsonin_free(document);
	return status;
}
