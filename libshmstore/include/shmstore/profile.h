/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h: what tasks of one kind used so far, and so what the next one will use;
 * and whether it may begin now.
 *
 * With shmstored, and profile { private = conservative } (or another strategy) in its
 * configuration, the daemon keeps a profile for each user: of each kind of tasks how much
 * private memory, how many bytes of the store and how much processor time they took.
 * docs/governor.md has the rules.
 *
 *   kind    a language, a function and a group: empty, a class, or "class#instance", which
 *           counts for its class as well
 *   task    begins, runs, ends. Meanwhile the daemon looks at the process: the task's private
 *           memory is what that has more than when it began. Where several tasks run in one process
 *           at once, each is charged with what all of them take
 *
 *   uint32_t task;
 *   const struct shmstore_profile_kind kind = {"c", "join", ""};
 *   if (shmstore_profile_begin(s, &kind, &task) == 0) {
 *           join();
 *           shmstore_profile_end(s, task, NULL);
 *   }
 *
 * These hold for every function that takes a store, beside what it says itself:
 *
 *   Return   0, or -errno:
 *              -EINVAL    s is NULL or closed; a name is empty (a group may be), has a line break,
 *                         or more than SHMSTORE_PROFILE_NAME bytes
 *              -EPERM     the store was opened to be read only, or by the parent before a fork
 *              -ENOTSUP   no daemon, or it keeps no profiles: go on without
 *              -ENOMEM    out of memory, here or there
 *   Threads  many threads may call at once
 *   Fork     a child's copy of the store is not usable: -EPERM. The parent's tasks go on
 *   Never    starts a thread; begin, end and estimate are a round trip each, sample is one
 *            message. Since 0.1, all of it
 */
#ifndef SHMSTORE_PROFILE_H
#define SHMSTORE_PROFILE_H

#include "daemon.h"
#include "shmstore.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHMSTORE_PROFILE_NAME 255u /* bytes of each part of a kind's name */

/* ---- tasks ----------------------------------------------------------------------------------- */

struct shmstore_profile_kind {
	const char *lang, *func, *group; /* group: NULL is "" */
};

/*
 * A task begins, on whatever thread of this process.
 * Return: as above; -EMFILE: more than 1024 of this store run.
 */
SHMSTORE_API int shmstore_profile_begin(struct shmstore *s,
					const struct shmstore_profile_kind *kind,
					uint32_t *ret_task);
/*
 * Reports a task's private bytes, until the next report; a larger count of the kernel's wins.
 * Does not wait. Return: as above. A task that a restarted daemon does not know is no error.
 */
SHMSTORE_API int shmstore_profile_sample(struct shmstore *s, uint32_t task, uint64_t private_bytes);

enum shmstore_profile_how {
	SHMSTORE_PROFILE_DONE = 0,
	/* for want of memory: the next ones are estimated at 3/2 of what it had */
	SHMSTORE_PROFILE_KILLED = 1,
	SHMSTORE_PROFILE_PREEMPTED = 2, /* what it used until then is not what its kind uses */
	SHMSTORE_PROFILE_DROPPED = 3,   /* it failed: nothing is learned of it */
};
#define SHMSTORE_PROFILE_UNKNOWN UINT64_MAX
struct shmstore_profile_end {
	size_t size;  /* sizeof: by SHMSTORE_PROFILE_END_INIT */
	unsigned how; /* enum shmstore_profile_how */
	/* the most that it had; what the daemon saw counts where that is more */
	uint64_t private_bytes;
	uint64_t shared_bytes; /* bytes of objects that it created */
	uint64_t cpu_ms;       /* processor time */
};
#define SHMSTORE_PROFILE_END_INIT                                           \
	{                                                                   \
		sizeof(struct shmstore_profile_end), SHMSTORE_PROFILE_DONE, \
			SHMSTORE_PROFILE_UNKNOWN, SHMSTORE_PROFILE_UNKNOWN, \
			SHMSTORE_PROFILE_UNKNOWN                            \
	}
/*
 * It ends, and what it used is remembered. A task that is not ended, as its process died or the
 * store was closed, teaches nothing.
 *   end   NULL: SHMSTORE_PROFILE_END_INIT
 * Return: as above; -EINVAL also: end->size, end->how; -ENOENT: no such task runs: the daemon was
 * started anew since; -EMFILE: too many users have a profile.
 */
SHMSTORE_API int shmstore_profile_end(struct shmstore *s, uint32_t task,
				      const struct shmstore_profile_end *end);

/* The expected use of a task. */
struct shmstore_profile_use {
	uint64_t private_bytes, shared_bytes, cpu_ms;
	/* of so many tasks it is known; 0: it is what was declared, or the daemon's default */
	uint64_t n;
};
/*
 *   declared   what the program itself expects; 0, or NULL: it does not know. n is not read
 * Return: as above.
 */
SHMSTORE_API int shmstore_profile_estimate_sized(
	struct shmstore *s, const struct shmstore_profile_kind *kind,
	const struct shmstore_profile_use *declared,
	struct shmstore_profile_use *ret SHMSTORE_RET_SIZE);
#define shmstore_profile_estimate(...) SHMSTORE_FILLS(profile_estimate, profile_use, __VA_ARGS__)

/* ---- admission ------------------------------------------------------------------------------- */

/*
 * Asks whether a task may begin. A daemon that watches the host's memory (docs/governor.md) holds
 * back tasks that would not fit: a task asks, is let in, runs and ends. Its declared or usual use
 * counts until then, or until its store or process ends. Unwatched, all are let in at once.
 *
 *   struct shmstore_task_ask ask = SHMSTORE_TASK_ASK_INIT;
 *   struct shmstore_task_grant grant;
 *   ask.declared = 64 << 20;
 *   if (shmstore_task_admit(s, &ask, &grant) == 0) {
 *           work();
 *           shmstore_task_done(s, grant.task);
 *   }
 */

/* How willing a task is to be preempted where memory is short. Those that are
 * least so are let in first. */
enum shmstore_task_level {
	SHMSTORE_TASK_NEVER = 0,
	SHMSTORE_TASK_LOW = 1,
	SHMSTORE_TASK_MED = 2,
	SHMSTORE_TASK_HIGH = 3,
	SHMSTORE_TASK_ALWAYS = 4,
	/* HIGH if it is SHMSTORE_TASK_RETRIABLE and has started no other
	 * task that runs; else NEVER */
	SHMSTORE_TASK_AUTO = 5,
};

#define SHMSTORE_TASK_RETRIABLE (1u << 0) /* flags: it can be begun anew */
/*
 * flags: this process is a worker, of a pool that makes another where one ends. While it runs no
 * task it is idle, and is the first that is asked to give memory back, and ended where memory is
 * short. The last ask of the store counts.
 */
#define SHMSTORE_TASK_WORKER    (1u << 1)

#define SHMSTORE_TASK_TRY     UINT64_C(0) /* wait_ms: now or not at all */
#define SHMSTORE_TASK_FOREVER UINT64_MAX  /* as long as it takes */
struct shmstore_task_ask {
	size_t size; /* sizeof: by SHMSTORE_TASK_ASK_INIT */
	/* NULL: of no kind; else what is expected is estimated by its profile, if there is one */
	const struct shmstore_profile_kind *kind;
	uint64_t declared; /* private bytes that it says it needs; 0: it does not say */
	uint64_t wait_ms;
	/* the task that started it: grant.task, of any process of the user; 0: none */
	uint64_t parent;
	unsigned level; /* enum shmstore_task_level */
	unsigned flags;
	/* whose task it is: SHMSTORE_PROFILE_MINE; another's is for root and
	 * the daemon's user: -EPERM */
	uint32_t user;
	/* While it waits, about ten times a second; other than 0 ends the wait with -ECANCELED.
	 * NULL: none. Calls nothing of this store. */
	int (*idle)(void *arg);
	void *idle_arg;
};
#define SHMSTORE_TASK_ASK_INIT                                                       \
	{                                                                            \
		sizeof(struct shmstore_task_ask), NULL, 0, SHMSTORE_TASK_FOREVER, 0, \
			SHMSTORE_TASK_NEVER, 0, SHMSTORE_PROFILE_MINE, NULL, NULL    \
	}

enum shmstore_task_reason {
	/* let in: nothing else ran, so nothing else could make room for it */
	SHMSTORE_TASK_WHY_PROGRESS = 1,
	SHMSTORE_TASK_WHY_FITS = 2, /* let in: there is room */
	/* let in: no daemon, or it does not watch the host's memory. task is 0 */
	SHMSTORE_TASK_WHY_OFF = 3,
	/* not: memory is short, or as many began within this interval as may */
	SHMSTORE_TASK_WHY_GATE = 4,
	/* not: what those that run will still take leaves no room for it, or
	 * for one that came before it */
	SHMSTORE_TASK_WHY_FULL = 5,
	SHMSTORE_TASK_WHY_TOOBIG = 6, /* not: it declared more than ever may be used */
};
struct shmstore_task_grant {
	uint64_t task;      /* of the host; 0 where it was not let in, or nobody counts it */
	uint64_t reserve;   /* private bytes that are expected of it */
	uint64_t waited_ms; /* at the daemon that answered */
	uint32_t reason;    /* enum shmstore_task_reason */
	uint32_t reserved;
};

/* Results of shmstore_task_admit() above 0: the task was not let in; reason says why. */
#define SHMSTORE_TASK_REFUSED  1 /* with SHMSTORE_TASK_TRY: it would have to wait */
#define SHMSTORE_TASK_TIMEDOUT 2 /* wait_ms are over */
#define SHMSTORE_TASK_TOOBIG   3 /* never */
/*
 * Asks, and waits. After the daemon's end the next one is asked, or after 10 s the task is let in.
 *   ask   NULL: SHMSTORE_TASK_ASK_INIT; a new daemon is given the rest of wait_ms
 *   ret   filled where 0 or more is returned
 * Return: 0: it may begin; above 0 as above; -EINVAL also: ask->size, level, flags;
 * -EPERM also: user, or parent is another user's; -EMFILE: more than 1024 tasks of this
 * store; -ECANCELED: idle said so.
 */
SHMSTORE_API int shmstore_task_admit_sized(struct shmstore *s, const struct shmstore_task_ask *ask,
					   struct shmstore_task_grant *ret SHMSTORE_RET_SIZE);
#define shmstore_task_admit(...) SHMSTORE_FILLS(task_admit, task_grant, __VA_ARGS__)
/*
 * It has ended, well or not.
 *   task   grant.task; 0: nothing is done. The number stays good where the daemon is started anew:
 *          the next one is told by the store's next call what runs
 * Return: as above; -ENOENT: no such task runs, or no daemon does; -EPERM also: it
 * was let in by another store.
 */
SHMSTORE_API int shmstore_task_done(struct shmstore *s, uint64_t task);

/* ---- giving way ------------------------------------------------------------------------------ */

/*
 * Where memory is short, and the daemon preempts (pressure { preempt = shm }), it asks processes to
 * give way, and then ends them. A store is told what concerns it: of its own tasks; of tasks whose
 * parent is one of its own, as the owner; and of itself, where it is an idle worker.
 *
 *   struct shmstore_preempt p;
 *   while (shmstore_preempt_next(s, &p) == 1) {
 *           if (p.what == SHMSTORE_PREEMPT_NOTICE && is_mine(p.task))
 *                   // and shmstore_task_done(), within p.grace_ms: then this process lives
 *                   stop(p.task);
 *           if (p.what == SHMSTORE_PREEMPT_LOST && p.flags & SHMSTORE_PREEMPT_RETRY)
 *                   // one that another process ran for us: it has ended for want of memory
 *                   begin_again(p.task, p.delay_ms);
 *   }
 */
enum shmstore_preempt_what {
	/* task is to be ended within grace_ms; 0: memory is to be given back by this idle worker */
	SHMSTORE_PREEMPT_NOTICE = 1,
	/* its process goes on: the need passed by, or it ended its tasks in time */
	SHMSTORE_PREEMPT_SPARED = 2,
	SHMSTORE_PREEMPT_LOST = 3, /* its process has ended, and the task with it */
};
#define SHMSTORE_PREEMPT_RETRY (1u << 0) /* flags: it may be tried again, after delay_ms */
/* asked only, so far: memory is not so short that a process is ended for it */
#define SHMSTORE_PREEMPT_ASKED (1u << 1)
struct shmstore_preempt {
	uint64_t task, parent;       /* as shmstore_task_grant.task, and shmstore_task_ask.parent */
	uint64_t bytes;              /* private ones that it had when it was chosen */
	uint64_t grace_ms, delay_ms; /* grace_ms: of a NOTICE */
	uint32_t what;               /* enum shmstore_preempt_what */
	uint32_t flags;              /* SHMSTORE_PREEMPT_* */
};
/*
 * The oldest of what was said and not taken. Nothing is waited for, but that a daemon is looked for
 * where there is none, as by every call. Of more than 1024 the oldest are forgotten; so is what
 * comes while this process reads nothing for so long that the daemon has nowhere to put it.
 * Return: 1: *ret is filled; 0: nothing was said; as above.
 */
SHMSTORE_API int shmstore_preempt_next_sized(struct shmstore *s,
					     struct shmstore_preempt *ret SHMSTORE_RET_SIZE);
#define shmstore_preempt_next(...) SHMSTORE_FILLS(preempt_next, preempt, __VA_ARGS__)
/*
 * A descriptor for poll(), the store's and always the same: readable when shmstore_preempt_next()
 * may have something. Only calls find a new daemon: call it once a second where tasks run long.
 * Return: the descriptor, or as above.
 */
SHMSTORE_API int shmstore_preempt_fd(struct shmstore *s);

/* ---- for tools ------------------------------------------------------------------------------- */

/* user: a uid, or one of these. -EPERM: only root and the daemon's user may name another's. */
#define SHMSTORE_PROFILE_MINE UINT32_MAX
#define SHMSTORE_PROFILE_ALL  (UINT32_MAX - 1)

/*
 * Every call below returns, beside the codes of all calls with a client (daemon.h):
 *   -ENOTSUP   also: the daemon keeps no profiles
 *
 * The profile as a JSON document, with the tasks that run (shmstore-admin(1) lists its fields).
 * ret_json, ret_size: as shmstore_client_query().
 */
SHMSTORE_API int shmstore_client_profile(struct shmstore_client *c, uint32_t user, char **ret_json,
					 size_t *ret_size);
/* The profile as the text that shmstore_client_profile_load() takes; not of SHMSTORE_PROFILE_ALL.
 * Ownership: free(). Return: 0, -EINVAL. */
SHMSTORE_API int shmstore_client_profile_text(struct shmstore_client *c, uint32_t user,
					      char **ret_text, size_t *ret_size);
/*
 * Replaces the profile by that of a text, as a prior: half as many tasks, so that new ones outweigh
 * them soon. Not of SHMSTORE_PROFILE_ALL.
 * Return: 0; -EBADMSG: it is cut off, changed, or says what cannot be; -ENOTSUP also: another
 * version wrote it; -EINVAL: empty, or above 16 MiB. Nothing was changed then.
 */
SHMSTORE_API int shmstore_client_profile_load(struct shmstore_client *c, uint32_t user,
					      const char *text, size_t size);
/* Nothing is known any more. Return: 0. */
SHMSTORE_API int shmstore_client_profile_reset(struct shmstore_client *c, uint32_t user);

#ifdef __cplusplus
}
#endif

#endif
