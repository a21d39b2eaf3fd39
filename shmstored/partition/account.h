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

#include "host.h"
#include "loop.h"
#include "quota.h"

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

/*
 * The limits of one partition under watch: between the pure quota.h, and the
 * pages, connections, events and surveys of its account. Loop's thread only. Nothing of it
 * blocks, but for one fstatvfs().
 */

/* a->host, a->config, a->path and a->fd are set; no member is there yet. Makes a->quota with the
 * configured limits. 0, -errno. */
int accountquota_open(struct account *a);
/* No member is there any more. Idempotent. */
void accountquota_close(struct account *a);
/* a->config was replaced: its limits and watermarks take the place of the earlier configuration's
 * (NULL: there was none); limits set at run time stay. */
int accountquota_reload(struct account *a, const struct config_partition *before);

/* It died or closed. Its page is still mapped; clears m->quota. Before a reap
 * of it starts. Idempotent. */
void accountquota_remove(struct member *m);
/* At the daemon's start a scan found the store of a dead owner at path. bytes: what its ledger says
 * that it takes, linked + pool. */
void accountquota_left(struct account *a, const char *path, uid_t uid, const char *label,
		       uint64_t bytes);
/*
 * A reap freed so much of what that dead store had (struct shmstore_gc_report.freed). books:
 * quota_books() of the time when it was submitted: a survey that ends meanwhile may
 * have seen these files, or not.
 */
void accountquota_freed(struct account *a, uint64_t books, uid_t uid, const char *label,
			uint64_t bytes);

/* Each second, after a->tick is read. */
void accountquota_tick(struct account *a);
/* Memory may have come free: waiting requests are looked at again. Cheap; as often as you like. */
void accountquota_room(struct account *a);

/*
 * Asks stores for their recycled files, of the largest pool first, until these are bytes; 0: not
 * any more. A store's request from the limits replaces it.
 */
void accountquota_ask_recycled(struct account *a, uint64_t bytes);

/* A survey is published (NULL: it failed). */
void accountquota_surveyed(struct account *a, const struct survey *survey);

/*
 * A limit at run time: "[PARTITION ]KEY=VALUE". PARTITION may be left out where there is one
 * only. KEY: limit, soft, user.UID.limit, user.UID.soft (UID: a number, a name or *),
 * label.NAME.limit, label.NAME.soft, store.NAME.limit, store.NAME.soft. VALUE: a size as in
 * shmstored.conf(5) ("4GiB"; "50%" for the partition's), "none", or "default" (what * says; for
 * the partition what was configured). Emits EVENT_LIMIT_SET. 0; -EINVAL, -ENOENT (no such
 * partition), -ENOMEM with a sentence in ret_reason.
 */
int accountquota_set(struct host *h, const char *assignment, char *ret_reason, size_t size);

/* ---- what its files share, and the requests for credit ------------------------------------ */

struct accountquota {
	struct account *account;
	struct quota_limits partition; /* as configured or set; the watermarks are not in it */
	struct quota_limits applied;   /* with them */
	struct loop_op timer;
	struct account_wait survey; /* that we asked for */
	bool look_again; /* requests came meanwhile that wait for one which begins after them */
};

/* The partition's limits and watermarks, where they changed or its size did. */
int accountquota_apply_partition(struct accountquota *k);

/* As quota_request(), of a registered member. */
int accountquota_request(struct member *m, const struct quota_want *want, struct quota_answer *ret);
/* REFUSED, with a sentence that says which limit, how much of it is used, and who
 * can help. As conn_send(). */
int accountquota_refuse(struct account *a, struct conn *c, uint64_t serial, int error,
			const struct quota_answer *why);

/* Dead stores are taken apart as soon as their locks are free, and their leases as they end. */
struct page_head;

/*
 * Something says that the store at path may be dead or gone: the loop looks at it next, and if it
 * is, ends its member and has it reaped by a worker; if its process is dead but its lock not free
 * yet, it looks again soon. Idempotent.
 */
void reaper_look(struct account *a, const char *path);
/* Is the owner that wrote this head at path known to be dead? Somebody's gc may hold its lock. */
bool reaper_knows_dead(const struct account *a, const char *path, const struct page_head *owner);
/* Books what a reap freed, all but the stores' pages, which are never charged. owner: whose it was;
 * NULL: not known. books: quota_books() when the reap was submitted. */
void reaper_book(struct account *a, uint64_t books, const struct page_head *owner,
		 const struct shmstore_gc_report *report);
/* Is there one at work, or about to be? */
bool reaper_busy(const struct account *a);
/* Bytes that stores had when they ended and are not reaped yet: they come back by themselves, and
 * soon. An estimate, by their ledgers. */
uint64_t reaper_coming(const struct account *a);
/* The account closes: no more looks. */
void reaper_close(struct account *a);

/* Gc of a whole partition now and then, in a worker, after jobs that somebody waits for: what no
 * death announces, as leases of live stores that ended, torn leftovers. Removals are events. */
void sweep_start(struct account *a);

/* Notices stores that come and go in stores/ without a word to us: watches a's stores/; sets
 * a->finder. Before the first scan, so that nothing falls in between. 0, -errno: only surveys find
 * them then. */
int finder_open(struct account *a);
void finder_close(struct account *a);

/* When a partition is surveyed, and what follows from it. Asking for one is account_survey(). */

/* The first survey begins. 0, -ENOMEM. */
int surveyor_open(struct account *a);
/* Ends what runs; those who wait are told -ECANCELED. */
void surveyor_close(struct account *a);
/* Each second: begins one where it is time. */
void surveyor_tick(struct account *a, uint64_t now_ns);

/*
 * A part of the daemon that does something for each partition under watch (the disk tier, the
 * memory arbiter), as the partition knows it: by what it wants to be told. All members but name may
 * be NULL. Loop's thread only; none of them blocks.
 */
struct part {
	const char *name;
	/* The account is complete but for its surveys. 0, or -errno: the account is not opened. */
	int (*open)(struct account *a);
	/* Idempotent; called also where open was not, and in the reverse order. */
	void (*close)(struct account *a);
	/* a->config was replaced. */
	void (*reload)(struct account *a);
	/* Each second, after a->tick is read. */
	void (*tick)(struct account *a);
	/* A survey was published. */
	void (*surveyed)(struct account *a, const struct survey *survey);
	/* A store's page was mapped; its connection ended, or it is gone. */
	void (*came)(struct member *m);
	void (*left)(struct member *m);
	/* The reap of a dead store has ended: its remains are gone, or stay. */
	void (*reaped)(struct account *a);
	/* An eviction that was asked for has ended, well or not. */
	void (*evicted)(struct account *a);
	/* Makes room for so many bytes; 0: none, only asks. True: it is under way. */
	bool (*spill)(struct account *a, uint64_t bytes);
	/* The disk that it would need is full. */
	bool (*disk_full)(const struct account *a);
	/* Lowers the bytes at which memory is to be given back, and down to which: 0 = never. */
	void (*marks)(const struct account *a, uint64_t *io_high, uint64_t *io_low);
};

/* Calls one member of every part of a that has it, in their order. */
#define PART_EACH(a, member, ...)                                                         \
	do {                                                                              \
		for (const struct part *const *part_ = (a)->host->parts; part_ && *part_; \
		     part_++) {                                                           \
			if ((*part_)->member)                                             \
				(*part_)->member(__VA_ARGS__);                            \
		}                                                                         \
	} while (0)

/* Asks them until one says yes. */
#define PART_ANY(a, member, ...)                                                                \
	({                                                                                      \
		const struct part *const *part_ = (a)->host->parts;                             \
		while (part_ && *part_ && !((*part_)->member && (*part_)->member(__VA_ARGS__))) \
			part_++;                                                                \
		part_ ? part_[0] != NULL : false;                                               \
	})

#endif
