/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: a connection as the governor knows it: its process, the tasks that it asked for, and
 * those that it told of. It hangs on the connection and ends with it. Loop's thread only.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "conn.h"

struct admit_task;
struct host;
struct pressproc;
struct profiled;

/* The parts of a client, in the order in which they end. */
enum client_part {
	CLIENT_TASKS,
	CLIENT_PROFILED,
	CLIENT_PROC,
	CLIENT_PARTS
};

struct client {
	struct client *prev, *next; /* of host->clients, in the order in which they came */
	struct host *host;
	struct conn *conn;
	struct conn_end end;
	void (*left[CLIENT_PARTS])(struct client *c); /* NULL: it has no such part */
	/* pressure.h. NULL: it was not looked for, or is in a pid
	 * namespace that we do not see. */
	struct pressproc *proc;
	/* admit.h */
	struct admit_task *tasks; /* that wait or run */
	uint32_t n_tasks;
	bool told;   /* TASK_PREEMPT is understood there */
	bool worker; /* as its last task said: without one it is idle */
	bool used;   /* one was let in */
	/* profiletasks.h */
	struct profiled *profiled;
	int statm_fd;   /* of its process; -1: we may not, or it has told of no task */
	uint64_t floor; /* the least that its process had when one of these tasks began */
};

/* NULL: the connection has none. */
struct client *client_find(const struct conn *c);
/* Made if it is missing. NULL: out of memory. */
struct client *client_get(struct conn *c);

#endif
