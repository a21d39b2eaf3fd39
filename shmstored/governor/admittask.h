/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admittask.h: the tasks that asked to begin, their connections and processes, and how much memory
 * each running task has. Loop's thread only.
 *
 * The private memory of a process and its descendants, as far as it exceeds what the process had
 * when the first of its running tasks began, is its tasks': in the order in which they began each
 * has as much as is expected of it, and the last one the rest. So it is known how much several
 * tasks of one process will still take together, whichever of them has what. When a task ends, what
 * exceeds the expectations of the tasks that still run counts as the process's own.
 */
#ifndef ADMITTASK_H
#define ADMITTASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "admission.h"
#include "conn.h"
#include "hash.h"
#include "policy.h"

struct admit;
struct pressprocs;

struct admit_task {
	UT_hash_handle hh; /* by id */
	uint64_t id;       /* of the host, never 0, never another's */
	struct admit_guest *guest;
	struct admit_task *prev, *next; /* of guest */
	struct admit_proc *proc;        /* NULL: it waits, or its process is not seen */
	struct admit_task *proc_prev, *proc_next;
	uint64_t serial; /* while it waits: of its request */
	bool runs;
	uint32_t uid;
	enum policylevel level; /* as it was said: NEVER to AUTO */
	bool retriable;
	uint64_t parent, n_children; /* n_children: that run now */
	bool counted;                /* among its parent's */
	uint64_t since_ns;           /* it waits, or runs, since then: loop_clock() */
	struct admission_ask ask;
	struct profile_name name; /* lang NULL: none was said */
	uint64_t now, most;       /* what it has, and has had at most, of its process's */
	bool alone;               /* it always was the only one of its process: now is its own */
	char *names;
	uint64_t values[];
};

/* A connection. */
struct admit_guest {
	UT_hash_handle hh; /* by conn */
	struct admit *of;
	struct conn *conn;
	struct conn_end end;
	struct admit_task *tasks;
	uint32_t n;
	bool told;   /* TASK_PREEMPT is understood there */
	bool worker; /* as its last task said: without one it is idle */
	bool used;   /* one was let in */
};

/* A process that runs some. */
struct admit_proc {
	UT_hash_handle hh; /* by pid */
	pid_t pid;
	bool seen; /* base is known: what is its own */
	int64_t base, grown;
	int64_t before; /* grown, before the host was read */
	struct admit_task *tasks;
};

struct admit_tasks {
	struct admit_task *all;
	struct admit_guest *guests;
	struct admit_proc *procs;
	uint64_t first_id, last_id; /* given by this daemon; what is below was given by earlier ones */
	struct admission *sums;
};

struct admit_kind {
	uint64_t id; /* 0: a new one */
	uint32_t uid;
	const struct profile_name *name; /* NULL: none */
	const struct admission_ask *ask; /* its values are copied */
};

/* Numbers begin above all that earlier daemons gave: they follow the host's CLOCK_BOOTTIME. */
void admittask_number(struct admit_tasks *t);
/* NULL: out of memory. */
struct admit_task *admittask_new(struct admit_tasks *t, const struct admit_kind *kind);
/* Adds a task that waits or runs to this guest. */
void admittask_join(struct admit_guest *g, struct admit_task *k);
/* Begins a task. 0; -ENOMEM: nothing has changed. */
int admittask_begin(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs);
/* A task was added that others may have named as their parent before. */
void admittask_count_children(struct admit_tasks *t);
/* Removes the task everywhere, and frees it. */
void admittask_free(struct admit_tasks *t, struct admit_task *k, struct pressprocs *procs);
struct admit_task *admittask_find(const struct admit_tasks *t, uint64_t id);

/* Both return NULL if there is none; get also if memory is out. */
struct admit_guest *admittask_guest(const struct admit_tasks *t, const struct conn *c);
struct admit_guest *admittask_get_guest(struct admit_tasks *t, struct conn *c);
void admittask_guest_free(struct admit_tasks *t, struct admit_guest *g, struct pressprocs *procs);

/*
 * Read how much each task has and will take. _before() is called before the host is read, the other
 * after it, and the lesser value counts: a task that has just taken or freed memory must not be
 * counted with bytes that the host's use does not have. remaining: of a task with a name, as
 * profiles_remaining().
 */
void admittask_look_before(struct admit_tasks *t, struct pressprocs *procs);
void admittask_look(struct admit_tasks *t, struct pressprocs *procs,
		    uint64_t (*remaining)(const struct admit_task *k, void *arg), void *arg);
/*
 * Does the process at the other end of the connection neither run a task nor wait for one to begin?
 */
bool admittask_is_idle(const struct admit_tasks *t, const struct admit_guest *g);
/* The level as it is now: NEVER to ALWAYS. */
enum policylevel admittask_level(const struct admit_task *k);

#endif
