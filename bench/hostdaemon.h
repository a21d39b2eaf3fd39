/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostdaemon.h: a shmstored of a benchmark's own, with one partition, below a place (place.h).
 * $SHMSTORED, else the program given. $SHMSTORE_SOCKET is set for all that is forked afterwards.
 */
#ifndef BENCH_HOSTDAEMON_H
#define BENCH_HOSTDAEMON_H

#include <stdint.h>
#include <sys/types.h>

#define HOSTDAEMON_PATH 160u

struct hostdaemon {
	pid_t pid; /* 0 = none */
	char socket[HOSTDAEMON_PATH], partition[HOSTDAEMON_PATH], config[HOSTDAEMON_PATH];
};

struct hostdaemon_options {
	const char *directory; /* for its configuration and its socket */
	const char *partition;
	const char *program;
	uint64_t limit;   /* the partition's, bytes; 0 = none */
	const char *more; /* configuration for the file's end; NULL = none */
};
/* Returns when it answers; exits where it does not. It ends with its starter. */
void hostdaemon_start(struct hostdaemon *d, const struct hostdaemon_options *o);
/* Idempotent. */
void hostdaemon_stop(struct hostdaemon *d);

/* Opens a connection and says HELLO; exits where that fails. */
int hostdaemon_connect(const struct hostdaemon *d);
/* Its answer to a question (enum wire_question): a JSON document; free() it. Exits
 * where there is no answer. */
char *hostdaemon_query(const struct hostdaemon *d, uint32_t what);

#endif
