/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account.h: one partition under watch: its stores that live (members), its books (the fast tick of
 * each second and the last survey), its quota and its history. A cache of what the kernel knows:
 * account_open() makes all of it by one scan.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "loop.h"

/* The last minutes of a partition, for the page: one sample a second for
 * HISTORY_SECONDS, then one in ten for as many more. Pure. */

#define HISTORY_SECONDS 600u

struct history_sample {
	int64_t time_ns; /* CLOCK_REALTIME */
	uint64_t size, used, linked, pool, ghosts, inflight, foreign;
	uint64_t n_members;
	uint64_t put_n, get_n, handoff_n, adopt_n, put_bytes; /* ever */
};

struct history_ring {
	struct history_sample samples[HISTORY_SECONDS];
	size_t n, next;
};

/* Zeroed: nothing yet. */
struct history {
	struct history_ring seconds, tens;
	uint64_t n_added;
};

void history_add(struct history *h, const struct history_sample *s);
/* Of r->n samples, oldest first. NULL: there are fewer. */
const struct history_sample *history_at(const struct history_ring *r, size_t i);

struct accountquota;
struct arbhost;
struct config_partition;
struct finder;
struct host;
struct json_object;
struct member;
struct quota;
struct reap;
struct stages;
struct surveying;
struct tierkeeper;
struct tierscrub;

/* The fast tick: statfs, and the sums of the members' ledgers. Bytes unless n_. */
struct account_tick {
	int64_t time_ns; /* CLOCK_REALTIME */
	uint64_t size, used, used_max;
	uint64_t inodes_size, inodes_used;
	/* as the ledgers say; shared objects counted once per store */
	uint64_t linked, pool, mapped, reserved;
	uint64_t n_members, n_objects;
	uint64_t put_n, put_bytes, get_n, get_bytes, delete_n, handoff_n, handoff_bytes, adopt_n,
		adopt_bytes; /* ever, the gone included */
};

struct survey_store {
	char *name, *path, *label, *address;
	pid_t pid;
	uid_t uid;
	enum shmstore_alive alive;
	bool keep;
	struct shmstore_store_books books; /* .store is NULL */
	struct shmstore_counters counters;
};

struct survey_user {
	uid_t uid;
	char *name; /* "1000" where the user has none */
	struct shmstore_user_books books;
	uint64_t pss, uss; /* summed over its stores */
};

/* Sums of the stores with one label. */
struct survey_label {
	const char *label; /* the survey's */
	uint64_t n_stores, linked, pss, uss, pool;
};

struct survey_holder {
	enum shmstore_hold kind;
	pid_t pid;
	uid_t uid;
	char command[32];
	uint64_t inode, bytes, mapped, n_fds;
	uint64_t id;      /* of the inode, or of one packed object of a segment */
	char *path, *key; /* key: printable, NULL = none */
	bool first;
	uint64_t since_ns; /* CLOCK_MONOTONIC of the survey that met this hold first */
	bool told_old;     /* EVENT_GHOST_OLD was */
};

#define SURVEY_HOLDERS_MAX 1024u

/* One full reconcile. Immutable once published. */
struct survey {
	uint64_t sequence; /* 1, 2, … */
	int64_t time_ns;   /* CLOCK_REALTIME of its end */
	uint64_t duration_ns;
	uint64_t cost_ns; /* what it took of its worker: not what that waited for a processor */
	struct shmstore_usage usage;
	struct survey_store *stores;
	size_t n_stores;
	struct survey_user *users;
	size_t n_users;
	struct survey_holder *holders; /* the largest, at most SURVEY_HOLDERS_MAX */
	size_t n_holders, n_holders_left_out;
};

struct account {
	struct host *host;
	struct account *next;
	const struct config_partition *config;
	struct shmstore_partition *partition;
	const char *path;
	char uuid[37];
	int fd; /* the partition's directory */
	/* flock on the marker, for our life: one daemon per partition, and stores know that we
	 * live */
	int lock_fd;
	struct quota *quota;
	struct accountquota *accountquota; /* what binds quota to us */
	struct arbhost *arb;               /* the memory arbiter; NULL = off */
	struct stages *stages;             /* what workers have for stages of a job */
	struct tierkeeper *tier;
	struct tierscrub *scrub; /* tierkeeper.c's */
	struct member *members;  /* a list */
	size_t n_members;
	struct account_tick tick, before; /* the last one and the one before it */
	struct survey *survey;            /* the last one; NULL = none yet */
	struct surveying *running;        /* surveyor.c: the one whose result counts */
	/* The parts' own. */
	struct member *by_path;          /* uthash's head */
	struct account_tick gone;        /* what the stores that went had counted, ever */
	struct finder *finder;           /* finder.c */
	struct reap *reaps;              /* reaper.c: a list */
	struct account_wait *waits;      /* for the next one */
	uint64_t survey_due_ns;          /* CLOCK_MONOTONIC */
	uint64_t n_surveys, n_residuals; /* ever; in a row with a residual */
	struct loop_op tick_op;
	unsigned n_refs; /* ourselves, and what is in flight for us */
	bool closing;
	struct history history; /* last: it is large, and a field's offset has 16 bits */
};

/* Blocks for one look at the directories of the stores; at the daemon's start. The caller puts it
 * into h's list. 0; -EBUSY (another daemon has it), -errno (said in the log). */
int account_open(struct host *h, const struct config_partition *config, struct account **ret);
/* Operations in flight end on their own, by the loop's end. NULL is fine. Returns NULL. */
struct account *account_close(struct account *a);
/* For operations in flight: keeps the memory (and no more than that, once it is closing). */
void account_ref(struct account *a);
void account_unref(struct account *a);
/* An object for a message about it to watchers: its path comes first. */
struct json_object *account_json(const struct account *a);
/* Adds the counters that only grow, of a live store or of one that goes. */
void account_add_totals(struct account_tick *t, const struct shmstore_counters *c);
/*
 * The sums of each label, "" left out, sorted: of the stores of those users for whom counts() says
 * so; NULL: all. *ret is to be freed. -ENOMEM.
 */
int survey_labels(const struct survey *s, bool (*counts)(const void *arg, uid_t uid),
		  const void *arg, struct survey_label **ret, size_t *ret_n);
/* By its path (canonical or as given), or by uuid. NULL = not ours. */
struct account *account_find(struct host *h, const char *path);
struct account *account_find_uuid(struct host *h, const uint8_t uuid[16]);

/* Asks for a full reconcile that begins after this call; fn is called when it is published (or
 * failed: survey NULL). Several askers share one. */
struct account_wait {
	struct account_wait *next;
	void (*fn)(struct account_wait *w, const struct survey *survey, int error);
	uint64_t not_before_ns; /* account_survey_seldom() */
	bool waits;             /* asked, and fn is to be called */
};
int account_survey(struct account *a, struct account_wait *w);
/* The same, where no survey runs and w's time has come. */
void account_survey_seldom(struct account *a, struct account_wait *w);
void account_survey_cancel(struct account *a, struct account_wait *w);

/* The lock on a partition's marker, which says that a daemon lives. */
struct stat;

/* The process that holds a lock (flock) of that file, and its user. -ENOENT: nobody, or it
 * cannot be seen from here. */
int accountlock_holder(const struct stat *file, pid_t *ret_pid, uid_t *ret_uid);

#endif
