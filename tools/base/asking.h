/* SPDX-License-Identifier: Apache-2.0 */
/* asking.h: shmstored, as a command asks it: connected, or refused with what to do about it. */
#ifndef ASKING_H
#define ASKING_H

#include <limits.h>
#include <shmstore/daemon.h>
#include <stdbool.h>

#include "admin.h"

struct json_object;

#define ASKING_TIMEOUT_MS 5000u
#define ASKING_SURVEY_MS  3600000u /* as long as it takes to account for every byte */
#define ASKING_PARTITION  (PATH_MAX + 1)
#define ASKING_START_DAEMON \
	"shmstored & (for yourself), or systemctl enable --now shmstored (for all users)"

/* A client of the daemon that --socket names, or else the one of the partition that is meant; not
 * connected yet. As shmstore_client_new(). */
int asking_client(const struct admin *a, uint32_t timeout_ms, struct shmstore_client **ret);
/*
 * Whether what the daemon watches is another partition than what lies here at the same path (told
 * apart by their uuids), as in another container: its path. partition: the one that is meant; NULL:
 * each that it watches.
 */
bool asking_elsewhere(struct shmstore_client *c, const char *partition,
		      char ret_path[ASKING_PARTITION]);
/* A connected client, to be freed, whose partitions are those that are here. 0, or the command's
 * exit status once everything is said. */
int asking_open(const struct admin *a, struct shmstore_client **ret);
/* The partition that -p or else $SHMSTORE_PARTITION names, as the daemon knows it (absolute); NULL:
 * none was named, all are meant. */
const char *asking_partition(const struct admin *a, char text[ASKING_PARTITION]);
/* A document about a partition (NULL: all), to be freed with jsonin_free(). As
 * shmstore_client_query(); -EBADMSG: it is no JSON. */
int asking_ask(struct shmstore_client *c, enum shmstore_query what, const char *partition,
	       struct json_object **ret);
/* The document in an answer of n bytes, which are freed. 0, -EBADMSG. */
int asking_parse(char *json, size_t n, struct json_object **ret);
/* One document about the partition named, or all; to be freed with jsonin_free(). 0, or the exit
 * status: all is said. */
int asking_query(const struct admin *a, enum shmstore_query what, struct json_object **ret);

/* How a command shows an answer to people. All but arg are optional. */
struct asking_view {
	int (*judge)(const struct json_object *document); /* the exit status that it stands for */
	/* The member that is shown of the document: where its "enabled" is not true, the daemon
	 * does not watch the host's memory, and the command fails with what follows from that. */
	const char *watched, *unless;
	/* prints what it says as a whole */
	void (*document)(const struct json_object *document, void *arg);
	/* and each partition, under its heading */
	void (*partition)(const struct json_object *partition, void *arg);
	void *arg;
};
/* Asks, and shows the answer: in JSON as it is, or as view says. Returns the exit status. */
int asking_show(const struct admin *a, enum shmstore_query what, const struct asking_view *view);
/* Says why a request failed. what: what was asked about; NULL: the daemon. Returns ADMIN_FAILED. */
int asking_explain(const struct shmstore_client *c, const char *what, int error);
/* The end of a request: says why it failed, if it did, and frees c. Returns the exit status. */
int asking_close(struct shmstore_client *c, const char *what, int error);

#endif
