/* SPDX-License-Identifier: Apache-2.0 */
/* asking.h: shmstored, as a command asks it: connected, or refused with what to do about it. */
#ifndef ASKING_H
#define ASKING_H

#include <shmstore/daemon.h>

#include "admin.h"

struct json_object;

#define ASKING_TIMEOUT_MS 5000u
#define ASKING_SURVEY_MS  3600000u /* as long as it takes to account for every byte */
#define ASKING_START_DAEMON \
	"shmstored & (for yourself), or systemctl enable --now shmstored (for all users)"

/* A client of the daemon that --socket names, or else the one of the partition that is meant; not
 * connected yet. As shmstore_client_new(). */
int asking_client(const struct admin *a, uint32_t timeout_ms, struct shmstore_client **ret);
static inline void asking_hang_up(struct shmstore_client **c)
{
	shmstore_client_free(*c);
}
/* A local that is freed. */
#define _client_ __attribute__((cleanup(asking_hang_up)))
/*
 * The path of a partition that the daemon watches and that is another one than what lies here at
 * that path (told apart by their uuids), as in another container; NULL: there is none. Static.
 * partition: the one that is meant; NULL: each that it watches.
 */
const char *asking_elsewhere(struct shmstore_client *c, const char *partition);
/* A connected client whose partitions are those that are here; else it says why not, and ends the
 * program. */
struct shmstore_client *asking_open(const struct admin *a);
/* The partition that -p or else $SHMSTORE_PARTITION names, as the daemon knows it (absolute); NULL:
 * none was named, all are meant. Static. */
const char *asking_partition(const struct admin *a);
/* A document about a partition (NULL: all), to be freed with jsonin_free(). As
 * shmstore_client_query(); -EBADMSG: it is no JSON. */
int asking_ask(struct shmstore_client *c, enum shmstore_query what, const char *partition,
	       struct json_object **ret);
/* The document in an answer of n bytes, which are freed. 0, -EBADMSG. */
int asking_parse(char *json, size_t n, struct json_object **ret);
/* One document about the partition named, or all; ends the program where it cannot be had. */
struct json_object *asking_query(const struct admin *a, enum shmstore_query what);

/* How a command shows an answer to people. All are optional. */
struct asking_view {
	int (*judge)(const struct json_object *document); /* the exit status that it stands for */
	/* The member that is shown of the document: where its "enabled" is not true, the daemon
	 * does not watch the host's memory, and the command fails with what follows from that. */
	const char *watched, *unless;
	/* prints what it says as a whole */
	void (*document)(const struct admin *a, const struct json_object *document);
	/* and each partition, under its heading */
	void (*partition)(const struct admin *a, const struct json_object *partition);
};
/* Asks, and shows the answer: in JSON as it is, or as view says. Returns the exit status. */
int asking_show(const struct admin *a, enum shmstore_query what, const struct asking_view *view);
#define ASKING_SHOW(a, what, ...) asking_show(a, what, &(struct asking_view){__VA_ARGS__})
/* Says why a request failed. what: what was asked about; NULL: the daemon. Returns ADMIN_FAILED. */
int asking_explain(const struct shmstore_client *c, const char *what, int error);
/* Says so, and ends the program, where error is below 0. */
void asking_check(const struct shmstore_client *c, const char *what, int error);

#endif
