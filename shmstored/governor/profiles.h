/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiles.h: what the tasks of each user used so far. Each user has a profile (profile.h), which
 * is fed as tasks end and asked before they begin. It is written to a file now and then and at the
 * daemon's end, and read again at the daemon's start. Loop's thread only.
 *
 * No user's tasks enter another user's profile. The requests decide which users may look at, load
 * or reset one (req_task.c).
 */
#ifndef PROFILES_H
#define PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate.h"
#include "hash.h"
#include "loop.h"
#include "profile.h"
#include "scanner.h"

struct profiles {
	struct host *host;
	struct user *users; /* of profiles.c */
	struct adaptation adaptation;
	int dir_fd; /* -1: nothing is kept */
	char *path;
	struct loop_op timer; /* runs while something is to be written */
	bool writing;         /* the job is with a worker */
	struct scanner_job job;
	struct user *written; /* by the job. Users stay as long as we do */
	char *text;
	size_t n;
	int error;
	struct loop_op looks; /* of profiletasks.c: runs while tasks do */
};

#define PROFILES_USERS_MAX 256u

/*
 * ret NULL: the configuration says not to collect any (profile.private = none). A file that is
 * refused is logged, and is no error. 0, -ENOMEM.
 */
int profiles_new(struct host *h, struct profiles **ret);
/*
 * Writes what is not written. To be called after scanner_free(), before loop_free(). Returns NULL.
 */
struct profiles *profiles_free(struct profiles *p);

/*
 * The user's profile, made if there is none. NULL: out of memory, or PROFILES_USERS_MAX users have
 * one.
 */
struct profile *profiles_of(struct profiles *p, uint32_t uid);
/* NULL: the user has none. */
const struct profile *profiles_find(const struct profiles *p, uint32_t uid);
/*
 * The base of estimates: the user's profile, merged with those of other daemons. NULL: nothing is
 * known of the user.
 */
const struct profile *profiles_known(const struct profiles *p, uint32_t uid);
/* Takes view as that. 0, -ENOMEM. */
int profiles_set_view(struct profiles *p, uint32_t uid, struct profile *view);
/*
 * Returns each user that has a profile, in the order of their numbers; UINT32_MAX: there are no
 * more. at: 0 begins.
 */
uint32_t profiles_next(const struct profiles *p, uint32_t at);

/* How a task has ended. */
enum profiles_end {
	PROFILES_DONE,
	PROFILES_KILLED,    /* for want of memory, when it had used[PROFILE_PRIVATE] */
	PROFILES_PREEMPTED, /* what it used until then is not what its kind uses */
	PROFILES_DROPPED,   /* nor here */
};
/*
 * A task has ended. If its group is "class#instance", the class is fed as well. 0; -EINVAL: a name
 * is too long; -ENOMEM; -EMFILE: too many users.
 */
int profiles_ended(struct profiles *p, uint32_t uid, const struct profile_name *name,
		   const struct profile_task *task, enum profiles_end how);

/* The key of the name, or, if its instance is not known, of its class. NULL: neither is known. */
const struct profile_key *profiles_key(const struct profiles *p, uint32_t uid,
				       const struct profile_name *name);

struct profiles_estimate {
	uint64_t used[PROFILE_RESOURCES];
	uint64_t n;                     /* of so many tasks it is known */
	enum profile_strategy strategy; /* by which it was reckoned */
	const struct profile_key *key;  /* of the kind, or of its class; NULL: neither is known */
};
/*
 * Estimates the next such task's use. declared: the task's own figure; 0: none. If the
 * instance is not known, its class is asked. After a preemption the estimate is the peak.
 */
struct profiles_estimate profiles_estimate(const struct profiles *p, uint32_t uid,
					   const struct profile_name *name,
					   const uint64_t declared[PROFILE_RESOURCES]);

/* One more task was let in. Nothing changes where the configuration has pinned a strategy. */
void profiles_admitted(struct profiles *p);
/* By which estimates are reckoned now, if their kind was not preempted. */
enum profile_strategy profiles_strategy(const struct profiles *p);

/* As profile_load() and profile_reset(), of the user's profile, which will be written. */
int profiles_load(struct profiles *p, uint32_t uid, const char *text, size_t n,
		  const char **ret_why);
void profiles_reset(struct profiles *p, uint32_t uid);

/*
 * The files in which users' profiles outlive the daemon: one for each user, in a
 * directory that is the daemon's alone. A file is written under another name and then renamed, so
 * that at every instant the old or the new one is there as a whole.
 */

#define PROFILEFILE_MAX ((size_t)16 << 20) /* bytes of a file that is read */

/*
 * Opens the directory: configured; if NULL, /var/lib/shmstored/profiles for root, else
 * shmstored/profiles below $XDG_STATE_HOME or ~/.local/state. Makes it if it is missing, and locks
 * it as long as the descriptor is open. ret_path is to be freed, and may be set also if the call
 * fails. Return: fd; -EBUSY: another daemon has it; -EPERM: others may write to it; -ENOENT: there
 * is no place for it; -errno.
 */
int profilefile_open(const char *configured, char **ret_path);
/* Calls fn for each user that has a file. Return: 0, -errno. */
int profilefile_each(int dir_fd, void (*fn)(uint32_t uid, void *arg), void *arg);
/*
 * Return: 0; -ENOENT; -EPERM: the file is not ours, or others may write to it; -EFBIG; -errno.
 * Ownership: free().
 */
int profilefile_read(int dir_fd, uint32_t uid, char **ret_text, size_t *ret_n);
/* Return: 0: the file is on the disk; -errno: the old file is as it was. */
int profilefile_write(int dir_fd, uint32_t uid, const char *text, size_t n);
/*
 * Renames a file that was refused to profile-UID.refused, so that an administrator can look at it.
 */
int profilefile_put_aside(int dir_fd, uint32_t uid);

/*
 * The running tasks, whose clients say when they begin and end, and the looks at
 * their processes in between. A client's tasks end with its connection, and then enter no profile.
 *
 * A task's private memory is how much its process has grown since it began (anonymous pages, by
 * /proc/PID/statm, and memory of its store that is no object yet, as arrays that are born there),
 * or what its client says, if that is more. Several tasks that run in one process at once are
 * therefore each charged with what all of them take: too much, never too little.
 */
struct conn;

/* A running task: one of client.profiled. */
struct profiled {
	uint64_t id;
	char *names; /* three, each with its NUL */
	struct profile_name name;
	uint64_t began_ns;
	bool seen;     /* its process could be looked at when it began: */
	uint64_t base; /* what that had then */
	bool has_told;
	uint64_t told; /* by the client, the last time */
	struct profiletrack track;
	UT_hash_handle hh;
};

#define PROFILETASKS_MAX 1024u /* of one client */

/* 0; -EEXIST: it runs already; -EMFILE: too many tasks; -ENOMEM. */
int profiletasks_begin(struct profiles *p, struct conn *c, uint32_t task,
		       const struct profile_name *name);
/* The client says what the task has now. 0; -ENOENT. */
int profiletasks_sample(const struct conn *c, uint32_t task, uint64_t bytes);
/* told: what the client says of the task, in used and has. 0; -ENOENT; as profiles_ended(). */
int profiletasks_end(struct profiles *p, struct conn *c, uint32_t task,
		     const struct profile_task *told, enum profiles_end how);

/*
 * A JSON document of what is known of users' tasks, and of those that run.
 * docs/governor.md lists its fields.
 */

/* all: of every user; else of this one. The caller puts the object. NULL: out of memory. */
struct json_object *profilereport_make(const struct host *h, bool all, uint32_t uid);

/* p->looks' fn: looks at the processes of all that run tasks. */
void profiletasks_look(struct loop_op *op, int result, unsigned flags);

#endif
