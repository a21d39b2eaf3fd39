/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shmstore/daemon.h: a tool's connection to shmstored: ask what it knows, watch
 * what happens, set limits, reap.
 *
 * Programs that own stores need none of this: their stores register by themselves (shmstore.h,
 * options.daemon). Answers are JSON documents as in docs/operations.md, checked and bounded in time
 * and size. Conventions are those of shmstore.h. A client is used by one thread at a time. After a
 * fork it is the parent's: the child only frees it. All since 0.1.
 *
 *   struct shmstore_client *c;
 *   char *json;
 *   if (shmstore_client_new(NULL, 5000, &c) < 0)
 *           abort();
 *   if (shmstore_client_query(c, SHMSTORE_QUERY_STATUS, NULL, &json, NULL) < 0)
 *           fprintf(stderr, "%s: %s\n", shmstore_client_path(c), shmstore_client_reason(c));
 */
#ifndef SHMSTORE_DAEMON_H
#define SHMSTORE_DAEMON_H

#include <shmstore/shmstore.h>

#ifdef __cplusplus
extern "C" {
#endif

/* bytes of an answer; a longer one is -EBADMSG */
#define SHMSTORE_CLIENT_JSON_MAX ((size_t)64 << 20)

struct shmstore_client;

enum shmstore_query {
	SHMSTORE_QUERY_STATUS = 1,  /* the daemon, and each partition in short */
	SHMSTORE_QUERY_WORKERS = 2, /* stores, users and labels */
	SHMSTORE_QUERY_QUOTA = 3,   /* limits, and what is used of them */
	SHMSTORE_QUERY_HOLDERS = 4, /* who holds memory that has no name */
	SHMSTORE_QUERY_EVENTS = 5,  /* the last ones */
	SHMSTORE_QUERY_HISTORY = 6, /* the last minutes */
	/* as STATUS, after every byte was accounted for anew: as long as that takes */
	SHMSTORE_QUERY_RECONCILE = 7,
	SHMSTORE_QUERY_ARBITER = 8, /* the arbiter's pools, tasks, contexts, totals and knobs */
	SHMSTORE_QUERY_ARB_LOG = 9, /* its last transitions, oldest first */
	SHMSTORE_QUERY_MEMORY = 16, /* the host's memory as the daemon watches it, term by term */
	SHMSTORE_QUERY_GATE = 17,   /* whether more work may begin, and who waits */
	SHMSTORE_QUERY_STAGES = 32, /* who runs which stage of a job, with what */
	/* where actors are, what waits for them, copies of them, and other daemons */
	SHMSTORE_QUERY_ACTORS = 48,
};

/*
 * Makes a client. Nothing is connected yet: each call below connects where there is no connection,
 * so that a client outlives a restart of the daemon.
 *   socket       the daemon's socket, or the directory of a partition; NULL: the default partition.
 *                Of a partition it is $SHMSTORE_SOCKET, else .socket in it, where that is there and
 *                our user's, else /run/shmstored/socket
 *   timeout_ms   the most that one call takes, 1 to 86,400,000
 * Ownership: to be freed. Return: 0; -EINVAL (timeout, or a path too long for a socket), -ENOMEM.
 */
SHMSTORE_API int shmstore_client_new(const char *socket, uint32_t timeout_ms,
				     struct shmstore_client **ret);
/* Closes the connection. c may be NULL. Returns NULL. */
SHMSTORE_API struct shmstore_client *shmstore_client_free(struct shmstore_client *c);
/* Another timeout for the calls that follow. Return: 0, -EINVAL. */
SHMSTORE_API int shmstore_client_set_timeout(struct shmstore_client *c, uint32_t timeout_ms);
/* The socket that is meant. Owned by the client; valid until the next call that connects. */
SHMSTORE_API const char *shmstore_client_path(const struct shmstore_client *c);
/* Why the last call failed, as a sentence: the daemon's where it said one. May hold any bytes but
 * NUL. "" = it did not fail. Owned by the client, until the next call. */
SHMSTORE_API const char *shmstore_client_reason(const struct shmstore_client *c);

/*
 * Every call below returns, beside what it says:
 *   -ENOENT      no daemon: nobody listens, or it ended the connection
 *   -EPERM       one may not use the socket, or not ask that
 *   -ETIMEDOUT   it does not answer in time; the connection is closed
 *   -EBADMSG     what answers is no shmstored, or a broken one; the connection is closed
 *   -ENOTSUP     it speaks another version of the protocol
 *   -EMFILE, -ENOMEM
 */

/* Connects where there is no connection. Return: 0. */
SHMSTORE_API int shmstore_client_connect(struct shmstore_client *c);
/*
 *   partition   its path; NULL: all that the daemon watches
 *   ret_json    the document, ends in a NUL. Ownership: the caller's, by free()
 *   ret_size    its bytes without the NUL; may be NULL
 * Return: 0; -EINVAL (such a question or so long a path is not asked; the client watches), -ENOENT
 * also where the daemon does not watch that partition.
 */
SHMSTORE_API int shmstore_client_query(struct shmstore_client *c, enum shmstore_query what,
				       const char *partition, char **ret_json, size_t *ret_size);
/*
 * A limit at run time.
 *   assignment   "[PARTITION ]KEY=VALUE", as in shmstored.conf(5)
 * Return: 0; -EINVAL, -EPERM (root and the daemon's user only).
 */
SHMSTORE_API int shmstore_client_set(struct shmstore_client *c, const char *assignment);
/*
 * Removes a dead store now.
 *   path       the store's, absolute
 *   ret_json   what was done, as shmstore_client_query()
 * Return: 0; -EBUSY (its owner lives), -ENOENT (there is no such store),
 * -EPERM (another user's), -EINVAL.
 */
SHMSTORE_API int shmstore_client_reap(struct shmstore_client *c, const char *path, char **ret_json,
				      size_t *ret_size);

/* An operator's word to the arbiter of a partition. Root and the daemon's user only. */
enum shmstore_arb_order {
	/* kind: the knob (its place among "knobs" of the ARBITER document, from 1); value */
	SHMSTORE_ARB_ORDER_KNOB = 1,
	/* kind: enum shmstore_arb_injection; target; value: how many; skip; pool (0: any) */
	SHMSTORE_ARB_ORDER_INJECT = 2,
	SHMSTORE_ARB_ORDER_CANCEL = 3, /* target: what it waits for ends with CANCELED */
};
struct shmstore_client_arb {
	unsigned order; /* enum shmstore_arb_order */
	unsigned kind;
	bool task; /* target is a task; else a context. Ids are those of the ARBITER document */
	uint64_t target;
	int64_t value;
	uint64_t skip, pool;
};
/*
 *   partition   its path
 * Return: 0; -EINVAL (no such order, knob or target; value out of range), -EPERM, -ENOENT (it does
 * not watch that partition), -ENOTSUP (the arbiter is off there).
 */
SHMSTORE_API int shmstore_client_arbiter(struct shmstore_client *c, const char *partition,
					 const struct shmstore_client_arb *what);

#define SHMSTORE_WATCH_NEW UINT64_MAX /* since: what happens from now on */

/*
 * From here on the client watches: only shmstore_client_event() and
 * shmstore_client_fd() are of use.
 *   since    number of the event after which all that are kept are wanted, 0 = all;
 *            SHMSTORE_WATCH_NEW
 *   events   names separated by commas, "store-came,store-went"; NULL or "" = all
 * Return: 0; -EINVAL (no such event; the client watches already).
 */
SHMSTORE_API int shmstore_client_watch(struct shmstore_client *c, uint64_t since,
				       const char *events);
/*
 * The next event.
 *   timeout_ms    how long it is waited for; 0: not at all, -1: for ever
 *   ret_sequence  its number; may be NULL
 *   ret_json      one JSON object, ends in a NUL. Ownership: the client's, until the next call
 * Return: 1; 0: none in time, or a signal came. -ENOENT: the daemon ended; what follows needs
 * another shmstore_client_watch(), since the last number. -EINVAL: the client does not watch.
 */
SHMSTORE_API int shmstore_client_event(struct shmstore_client *c, int timeout_ms,
				       uint64_t *ret_sequence, const char **ret_json);
/* For event loops: readable when shmstore_client_event() has something to say. The
 * client's. Return: fd, -ENOENT. */
SHMSTORE_API int shmstore_client_fd(const struct shmstore_client *c);

#ifdef __cplusplus
}
#endif
#endif
