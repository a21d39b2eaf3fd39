/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure.h: the host's memory as the daemon watches it. At each interval: how much there is, how
 * much is used and by which processes, the thresholds, and the gate. Off unless the configuration
 * switches it on. Reports read it and change nothing. The loop's thread only.
 */
#ifndef PRESSURE_H
#define PRESSURE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "amount.h"
#include "conn.h"
#include "gate.h"
#include "hash.h"
#include "log.h"
#include "loop.h"
#include "memsource.h"

/*
 * Processes that registered a store over the socket, each once however many
 * connections it has, and the private memory of each and of its descendants. A process that is
 * registered itself is not counted as a descendant, so that its memory counts once. The loop's
 * thread only.
 */

struct client;

struct pressproc {
	UT_hash_handle hh; /* by pid */
	struct pressproc *next, *prev;
	pid_t pid;
	uid_t uid;
	unsigned n_clients;
	struct procmem *mem; /* NULL: there was no memory for it */
	size_t n_descendants;
	struct amount private;
	/* admit.h */
	struct admit_task *tasks; /* that run */
	bool seen;                /* base is known: what is its own */
	int64_t base, grown;
	int64_t before; /* grown, before the host was read */
};

/* Processes of the host, and the parent of each. */
struct pressproc_parents {
	struct pressproc_parent {
		pid_t pid, parent;
	} * list;
	size_t n, room;
};

struct pressprocs {
	struct host *host;
	DIR *dir; /* of the pass over procfs; NULL: none is under way */
	/* what it found so far; what the last one found, sorted by pid */
	struct pressproc_parents fills, whole;
	struct pressproc *list, *by_pid;
	size_t n;
	bool swap; /* some of the host's was in use when all were read last */
	uint64_t pass_ns;
	char *proc; /* where procfs is mounted */
};

/* Its clients have left. */
void pressprocs_deinit(struct pressprocs *p);
/*
 * Adds processes that registered since the last look, and goes on with the pass that finds
 * descendants. now_ns: CLOCK_MONOTONIC.
 */
void pressprocs_look(struct pressprocs *p, uint64_t now_ns);
/* The client's process, watched from now on. NULL: it is in a pid namespace that we
 * do not see; out of memory. */
struct pressproc *pressprocs_link(struct pressprocs *p, struct client *c);
/* NULL: it is not registered. */
struct pressproc *pressprocs_find(const struct pressprocs *p, pid_t pid);
/* Reads one now, whenever the next look is. */
void pressprocs_read_one(const struct pressprocs *p, struct pressproc *proc);

/* Is told of each look. Watches are called in the order in which they were added. */
struct pressure_watch {
	struct pressure_watch *next;
	/* what is used is read next; NULL: need not be told */
	void (*before)(struct pressure_watch *w);
	void (*fn)(struct pressure_watch *w); /* all was read */
};

struct presslimits {
	struct deltarule rule;
	int64_t kill, gate, low; /* bytes: low < gate <= kill */
};

struct pressure {
	struct host *host;
	struct loop_op timer;
	struct event_sink sink; /* the kernel's word that memory is short: looked at once more */
	bool too_fast;          /* the rule has no thresholds for so little memory */
	uint64_t interval_ns;   /* of the timer that runs */
	struct pressure_watch *watches;
	struct pressprocs procs;
	/* The last sample. */
	int64_t time_ns;                 /* CLOCK_REALTIME */
	uint64_t mono_ns, procs_mono_ns; /* CLOCK_MONOTONIC; procs: when processes were read last */
	struct memsource_reading reading; /* without levels where the total is configured */
	struct amount total, used;
	struct amount private, store, other; /* used = private + store + other */
	bool limited;                        /* limits are those of total */
	struct presslimits limits;
	bool gated; /* gate has thresholds */
	struct gate gate;
	int64_t gate_since_ns;  /* CLOCK_REALTIME */
	bool above;             /* more than limits.kill was used when that was last known */
	uint64_t above_mono_ns; /* since when; CLOCK_MONOTONIC */
	/* Ever. */
	uint64_t n_samples, n_unknown, cost_ns, last_cost_ns;
	/* how often it was above, and for how long, without the time that runs */
	uint64_t n_above, above_ns;
	int64_t growth_most; /* bytes a second, between two samples */
	/* From the sample before to this one; only of samples that are half
	 * an interval apart or more. */
	struct amount grown;
	uint64_t grown_ns;
};

/*
 * 0 with *ret NULL: switched off. -ERANGE: memory can fill too fast for the configured interval, as
 * the log says. -errno.
 */
int pressure_new(struct host *h, struct pressure **ret);
struct pressure *pressure_free(struct pressure *p);
/* h->config was replaced. */
void pressure_reload(struct pressure *p);

/* A process that used memory has ended: looks now, and not with the next interval. */
void pressure_look(struct pressure *p);

void pressure_watch(struct pressure *p, struct pressure_watch *w);
void pressure_unwatch(struct pressure *p, struct pressure_watch *w);

/* For how long memory was above the kill threshold, ever, by the looks at it; CLOCK_MONOTONIC. */
uint64_t pressure_above_ns(const struct pressure *p);

/* The path that the total was read from; "host-total" if it is configured. */
const char *pressure_source(const struct pressure *p);

/*
 * The private memory of one process and of its descendants, read again and again:
 * RssAnon and VmSwap, which leave out what is mapped of a store. The files stay open between two
 * looks: a descriptor of procfs stays with its process, and never shows another one that has the
 * pid later.
 */
#define PROCMEM_CHILDREN_MAX 1024u /* with more than so many descendants the sum is unknown */

/*
 * proc: where procfs is mounted; borrowed. NULL: out of memory. The memory of a process that is not
 * there is unknown.
 */
struct procmem *procmem_new(const char *proc, pid_t pid);
struct procmem *procmem_free(struct procmem *m);

/*
 * swap: some of the host's is in use, so that a longer file is read now and then. A process that
 * has ended has no memory; that of one that cannot be read is unknown.
 */
struct amount procmem_read(struct procmem *m, bool swap);

/*
 * A connection as the governor knows it: its process, the tasks that it asked for, and
 * those that it told of. It hangs on the connection and ends with it.
 */

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
	/* NULL: it was not looked for, or is in a pid
	 * namespace that we do not see. */
	struct pressproc *proc;
	/* admit.h */
	struct admit_task *tasks; /* that wait or run */
	uint32_t n_tasks;
	bool told;   /* TASK_PREEMPT is understood there */
	bool worker; /* as its last task said: without one it is idle */
	bool used;   /* one was let in */
	/* profiles.h */
	struct profiled *profiled;
	int statm_fd;   /* of its process; -1: we may not, or it has told of no task */
	uint64_t floor; /* the least that its process had when one of these tasks began */
};

/* NULL: the connection has none. */
struct client *client_find(const struct conn *c);
/* Made if it is missing. NULL: out of memory. */
struct client *client_get(struct conn *c);

/* The kernel's word that tasks wait for memory (Documentation/accounting/psi.rst), as events. */
struct psi;

/*
 * Asks the kernel to tell when tasks waited for memory for config's psi_stall_us within
 * psi_window_us: of the daemon's cgroup where that has a memory.pressure, else of the host. root:
 * "" but in tests. 0 with *ret NULL: switched off; -errno: not to be had here.
 */
int psi_new(struct host *h, const char *root, struct psi **ret);
struct psi *psi_free(struct psi *p);

#endif
