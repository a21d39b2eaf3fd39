/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preemptpick.h: lists the processes that run tasks, and idle workers, in the form that policy.h
 * takes. Private to the room.
 */
#ifndef PREEMPTPICK_H
#define PREEMPTPICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actord.h"
#include "admittask.h"
#include "loop.h"
#include "policy.h"
#include "preempt.h"

struct conn;
struct host;
struct loop;

struct preemptpick_who {
	struct conn *conn;            /* one of its connections */
	const struct pressproc *proc; /* NULL: an idle worker */
};

struct preemptpick {
	size_t n, n_never, n_foreign;
	size_t n_kept; /* whose end would lose an actor: no place has memory for it */
	struct policy_worker *workers; /* candidates; id: the index of */
	struct preemptpick_who *who;
	struct policy_victim *victims; /* room for n */
};

/* -ENOMEM. */
int preemptpick_init(struct preemptpick *p, const struct host *h);
void preemptpick_deinit(struct preemptpick *p);

struct policy preemptpick_policy(const struct host *h, enum policy_kind kind);
/* The demands on moves of pid's actors, where its end also frees n_tasks tasks' memory. */
struct actord_want preemptpick_want(const struct host *h, pid_t pid, unsigned n_tasks);
unsigned preemptpick_n_tasks(const struct preemptpick_who *who);
/* Its actors, and how many of them its end, with its tasks', lets move. */
struct actord_leaving preemptpick_leaving(const struct host *h, const struct preemptpick_who *who);
/* Does the process run a task that was let in, or wait for one? */
bool preemptpick_has_tasks(const struct host *h, pid_t pid);

/*
 * A process that was chosen, and a copy of what was known of its tasks then: the
 * tasks may go before it, with its connection. Private to the room.
 */

/* One of its tasks, as of the choice. */
struct preempt_lost {
	uint64_t id, parent, had;
	uint32_t uid;
	bool retriable;
	char *names;
	struct profile_name name; /* lang NULL: none */
};

struct preempt_victim {
	struct preempt_victim *next;
	struct preempt *of;
	struct loop_op poll;
	int pidfd;
	/* one of its connections; it may have ended: preemptvictim_client() */
	const struct conn *conn;
	struct preempt_record record;
	int64_t killed_used;     /* of the host, when memory came free last since the SIGKILL */
	uint64_t killed_mono_ns; /* the look at that */
	bool has_actors;
	/* record.n_tasks; an idle worker has none, nor has who was chosen for its actors */
	struct preempt_lost tasks[];
};

/* 0; -ESRCH and the like: it cannot be signalled for certain; -ENOMEM. */
int preemptvictim_new(const struct preemptpick_who *who, const struct policy_victim *chosen,
		      struct preempt_victim **ret);
void preemptvictim_free(struct preempt_victim *v, struct loop *l);
/* Its connection's client; NULL: that connection has ended. */
const struct client *preemptvictim_client(const struct preempt_victim *v, const struct host *h);

/*
 * Tells the victim's step to its own connections and to those of its tasks' parents, as
 * TASK_PREEMPT, and to watchers as an event.
 */
void preempttell(struct host *h, const struct preempt_victim *v);

#endif
