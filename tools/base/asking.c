/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asking.c: questions to the daemon for commands, and how the answers are shown. No daemon is an answer as good as any, but not to the
 * commands that are about it: they fail, and say how it is started and what works without.
 */
#include "asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jsonin.h"
#include "jsonout.h"
#include "message.h"
#include "progress.h"
#include "table.h"

static int explain_none(const struct shmstore_client *c, int error)
{
	const char *path = shmstore_client_path(c), *why = shmstore_client_reason(c);

	if (error == -EPERM) {
		message_fail(path, "the daemon may not be asked: %s", why);
		message_hint("run this as root, or as a user whom shmstored.conf(5)'s socket keys let in");
		return ADMIN_FAILED;
	}
	if (error != -ENOENT)
		return message_fail(path, "the daemon cannot be asked: %s", why);
	message_say("no daemon answers at %s: %s", path, why);
	message_hint("start it with: " ASKING_START_DAEMON);
	message_hint(ADMIN_NAME " df, du, reconcile, gc and top work without");
	return ADMIN_FAILED;
}

int asking_explain(const struct shmstore_client *c, const char *what, int error)
{
	const char *why = shmstore_client_reason(c);

	if (shmstore_client_fd(c) < 0) /* not refused: it is the connection that ended */
		return explain_none(c, error);
	return message_fail(what ? what : shmstore_client_path(c), "%s", *why ? why : shmstore_strerror(error));
}

int asking_open(const struct admin *a, struct shmstore_client **ret)
{
	struct shmstore_client *c;
	int r = shmstore_client_new(a->socket, ASKING_TIMEOUT_MS, &c);

	if (r == -ENOMEM)
		message_no_memory();
	if (r < 0)
		return message_fail(a->socket ? a->socket : "$SHMSTORE_SOCKET", "is too long for a socket's path");
	r = shmstore_client_connect(c);
	if (r < 0) {
		int status = explain_none(c, r);
		shmstore_client_free(c);
		return status;
	}
	*ret = c;
	return 0;
}

const char *asking_partition(const struct admin *a, char text[ASKING_PARTITION])
{
	const char *named = a->partition ? a->partition : getenv("SHMSTORE_PARTITION");

	if (!named || !*named)
		return NULL;
	if (!realpath(named, text)) /* the daemon says that it is none */
		return named;
	return text;
}

int asking_query(const struct admin *a, enum shmstore_query what, struct json_object **ret)
{
	char text[ASKING_PARTITION];
	const char *partition = asking_partition(a, text);
	struct shmstore_client *c = NULL;
	char *json;
	size_t n;
	int status = asking_open(a, &c);

	if (status)
		return status;
	if (what == SHMSTORE_QUERY_RECONCILE)
		shmstore_client_set_timeout(c, ASKING_SURVEY_MS);
	progress_begin("asking shmstored");
	int r = shmstore_client_query(c, what, partition, &json, &n);
	progress_end();
	if (r < 0) {
		status = asking_explain(c, partition, r);
	} else {
		*ret = jsonin_parse(json, n);
		free(json);
		if (!*ret)
			status = message_fail(shmstore_client_path(c), "the daemon's answer is no JSON document");
	}
	shmstore_client_free(c);
	return status;
}

static void show_to_people(const struct json_object *document, const struct asking_view *view)
{
	if (view->document)
		view->document(document, view->arg);
	if (!view->partition)
		return;
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		table_heading(jsonin_text(p, "partition"), i == 0);
		view->partition(p, view->arg);
	}
}

int asking_show(const struct admin *a, enum shmstore_query what, const struct asking_view *view)
{
	struct json_object *document;
	int status = asking_query(a, what, &document);

	if (status)
		return status;
	if (view->judge)
		status = view->judge(document);
	if (a->json) {
		json_print(document);
		return status;
	}
	show_to_people(document, view);
	jsonin_free(document);
	return status;
}
