/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preemptvictim.h: a process that was chosen, and a copy of what was known of its tasks then: the
 * tasks may go before it, with its connection. Private to the room.
 */
#ifndef PREEMPTVICTIM_H
#define PREEMPTVICTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "loop.h"
#include "preempt.h"
#include "preemptpick.h"

struct conn;

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
	struct preempt *of; /* NULL: nobody cares any more */
	struct loop_op poll;
	int pidfd;
	const struct conn *conn; /* one of its connections; it may have ended: preemptvictim_guest() */
	struct preempt_record record;
	int64_t killed_used;        /* of the host, when memory came free last since the SIGKILL */
	uint64_t killed_mono_ns;    /* the look at that */
	struct preempt_lost *tasks; /* record.n_tasks; an idle worker has none, */
	bool has_actors;            /*   nor has who was chosen for its actors */
};

/* 0; -ESRCH and the like: it cannot be signalled for certain; -ENOMEM. */
int preemptvictim_new(const struct preemptpick_who *who, const struct policy_victim *chosen,
		      struct preempt_victim **ret);
void preemptvictim_free(struct preempt_victim *v);
/* Its connection's guest; NULL: that connection has ended. */
const struct admit_guest *preemptvictim_guest(const struct preempt_victim *v, const struct admit_tasks *t);

/*
 * Tells the victim's step to its own connections and to those of its tasks' parents, as
 * TASK_PREEMPT, and to watchers as an event.
 */
void preempttell(struct host *h, const struct preempt_victim *v);

#endif
