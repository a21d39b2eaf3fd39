/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempt.h: if memory is short, asks processes that run tasks to stop, and makes them (policy.h
 * chooses which). There is one wave at a time: no process is chosen while one of the last wave
 * lives, unless that is stuck. Off unless the configuration switches it on. Loop's thread only.
 *
 *   notice    TASK_PREEMPT, and an event ("preempt"), name the process, its tasks, and the time
 *             that they have. Actors there that may be moved are moved (actord.h)
 *   SIGTERM   after that time, if memory is still above the kill threshold
 *   SIGKILL   after a further time for ending; at once, also instead of what comes before it, if
 *             the kernel has no memory left within two intervals as it fills now
 *   stuck     it lives on after SIGKILL, though no memory has come free for five seconds: it is
 *             traced, or waits for a disk that is gone. The next wave does not wait for it
 *
 * No signal comes while the process has an actor: it waits for the move, and does not come if that
 * fails. Between gate and kill threshold there is only the notice. A process that ends its tasks in
 * time lives; so does one if the need passes by. Signals go by a descriptor of the process
 * (socket.h), to processes of users that the daemon may signal, and only if all of the process's
 * tasks may be preempted, or if it said that it is a worker and runs none.
 */
#ifndef PREEMPT_H
#define PREEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "actord.h"
#include "admit.h"
#include "loop.h"
#include "policy.h"

struct preempt;

#define PREEMPT_RECENT 32u

enum preempt_step {
	PREEMPT_NOTICED,
	PREEMPT_TERMED,
	PREEMPT_KILLED,
	PREEMPT_STUCK,   /* it was killed, and does not die */
	PREEMPT_GONE,    /* it died */
	PREEMPT_YIELDED, /* it ended its tasks, and lives */
	PREEMPT_SPARED,  /* it did not, and the need passed by */
};

/* A victim and its last step. */
struct preempt_record {
	uint64_t number;  /* from 1 */
	int64_t time_ns;  /* CLOCK_REALTIME of its notice */
	uint64_t mono_ns; /* CLOCK_MONOTONIC of the look that its last step followed */
	pid_t pid;
	uid_t uid;
	unsigned n_tasks;
	enum policylevel level;
	enum policy_why why;
	enum preempt_step step;
	bool notice_only, retry;
	bool keeps_actors; /* it had to be moved, and could not be: so it goes on */
	int64_t bytes;     /* that its end was to free */
	int64_t used;      /* of the host, when it was chosen */
	uint64_t delay_ms; /* before its tasks should be tried again */
};

struct preempt_counts {
	uint64_t n_waves;
	uint64_t n_steps[PREEMPT_SPARED + 1];     /* by enum preempt_step */
	uint64_t n_level[POLICYLEVEL_ALWAYS + 1]; /* notices, by level */
	size_t n_alive;                           /* of this wave */
};

/* ret NULL: the host's memory is not watched. 0, -ENOMEM. */
int preempt_new(struct host *h, struct preempt **ret);
/* Victims that live go on. To be called before admit_free(). Returns NULL. */
struct preempt *preempt_free(struct preempt *p);

void preempt_counts(const struct preempt *p, struct preempt_counts *ret);
/* The last victims, also of the wave that runs, newest first. Returns their number. */
size_t preempt_recent(const struct preempt *p, struct preempt_record ret[PREEMPT_RECENT]);
const char *preempt_step_name(enum preempt_step s);

/*
 * A candidate. The plan lists them in the order in which they would go, wave after wave, until none
 * is left.
 */
struct preempt_plan {
	pid_t pid;
	uid_t uid;
	unsigned n_tasks;
	size_t n_actors, n_movable; /* of these actors: to where there is memory, at the notice */
	enum policylevel level;
	enum policy_why why;
	bool retry, now; /* now: in the wave that memory as it is calls for */
	int64_t bytes;
};
struct preempt_plans {
	enum policy_kind policy;
	int64_t need; /* bytes that are to be freed now; 0 or less: none */
	size_t n;
	struct preempt_plan *plans; /* to be freed */
	size_t n_never,
		/* processes that are no candidates: a task is NEVER; the
		 * daemon may not signal them; */
		n_foreign, n_kept; /* no place has memory for an actor of theirs */
};
/* Plans by the configured policy, or by shm if that is off. -ENOMEM. */
int preempt_plan(const struct preempt *p, struct preempt_plans *ret);

/*
 * For this room only: a list of the processes that run tasks, and of idle workers, in the form that
 * policy.h takes.
 */

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
