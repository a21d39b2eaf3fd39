/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_core.h: what the files of the quota share, and nobody else sees.
 *
 *   quota_group.c    limits, and the sums of the stores that they cover; what is used besides what
 *                    live stores say
 *   quota_credit.c   a store's page: what is read of it, what is granted and taken back through it
 *   quota_queue.c    requests that wait
 *   quota.c          the calls of quota.h; what is over a soft limit, who is asked to give it back,
 *                    who is told of it
 *
 * No callback but used(), credit() and share() is made while a list is walked: who is to be told is
 * noted (a wait that is done, a level, a liar, an ask), and told by quota_tell() as the last thing
 * of a call. So callbacks may call back.
 */
#ifndef QUOTA_CORE_H
#define QUOTA_CORE_H

#include "hash.h"
#include "quota.h"

#define QUOTA_KINDS 5 /* enum wire_limit, NONE included */
#define QUOTA_PAGE  UINT64_C(4096)

struct quota_group {
	UT_hash_handle hh; /* by kind and id */
	enum wire_limit kind;
	struct quota_limits own;  /* QUOTA_DEFAULT where nothing is set */
	uint64_t hard, soft, low; /* in force; 0 = none */
	int64_t base;         /* user, label: what is used besides the live stores' fresh - last */
	uint64_t out;         /* sums over its stores, as they were read last: outstanding, */
	uint64_t fresh, last; /* and these modulo 2^64 */
	uint64_t fresh_gone;  /* fresh + fresh_gone only grows, whoever comes and goes */
	uint64_t mark_fresh;  /* that total at the mark that is out */
	uint64_t rebase_n;    /* the mark of its last survey */
	bool rebased;         /* base is of a survey of this life */
	bool loose; /* and something came during that: it may be counted twice, found and come */
	int64_t inherited;          /* the part of base that an earlier life left in the pages */
	struct quota_store *stores; /* linked by their links[kind] */
	uint32_t n_stores, n_active, n_waiting;
	uint32_t n_holding; /* of the waits: those that it holds back */
	uint64_t walk;      /* the last walk of the queue in which it held one back */
	uint64_t n_refused, n_refused_seen;
	uint64_t deficit; /* the largest that was missing since the last tick */
	bool asking;      /* was over soft, and is not below low so far */
	int level, level_told;
	char key[]; /* kind as a character, then id and its NUL */
};

struct quota_wait {
	struct quota_wait *prev, *next; /* in the queue, or among the done */
	struct quota_wait *prev_of, *next_of;
	struct quota_store *store;
	struct quota_want want; /* look: refused, not timed out, at the deadline */
	enum {
		QUOTA_DONE,
		QUOTA_QUEUED,
		QUOTA_PUT
	} is;
	struct createqueue_request at; /* of a put */
	uint32_t held;    /* bits of enum wire_limit: those that it closes for who comes later */
	uint32_t natural; /* those that hold it back */
	uint32_t turns;   /* how often another limit than before held it back */
	int error;        /* once done, with the answer; of a put: of the last attempt */
	struct quota_answer answer;
};

struct quota_link {
	struct quota_store *prev, *next;
};

struct quota_store {
	struct quota_link links[QUOTA_KINDS]; /* [PARTITION] holds all stores */
	struct quota_group *groups[QUOTA_KINDS];
	void *user;
	struct wire_credit *credit; /* NULL = no page */
	bool limited; /* a hard limit covers it: it has credit; else granted is WIRE_UNLIMITED */
	bool active, liar, liar_told;
	const char *lie;
	/* as we wrote it: what the page says of it is never believed while we live */
	uint64_t granted;
	/* the most that it may have charged: granted, or more where less
	 * than that could be taken back */
	uint64_t booked;
	uint64_t charged, settled, fresh, last; /* as read last, charged cut to booked */
	uint64_t doubt;             /* what its page says that it has in flight and cannot have */
	uint64_t out;               /* booked - settled - doubt, as it is in the groups' sums */
	uint64_t pledge, pledge_ns; /* up to this total it needs what it has, until then */
	uint64_t charged_seen, active_ns; /* when it charged last */
	/* to be asked for; what it was asked for, and its given_bytes then */
	uint64_t want, asked, given_seen;
	bool ask; /* want is to be told */
	struct quota_share share;
	uint64_t part[2];         /* of the pools and objects that are asked for now */
	struct quota_wait *waits; /* a list */
	uint32_t n_queued;
	struct createqueue_client puts;
};

struct quota {
	struct quota_config config;
	struct quota_ops ops;
	struct quota_group *groups; /* hash */
	struct quota_group *partition;
	struct quota_limits defaults[QUOTA_KINDS];
	struct quota_wait *queue, *done; /* lists */
	struct createqueue puts;
	bool passing;
	uint64_t missing;  /* bytes of the largest put that did not fit in this pass */
	uint32_t n_failed; /* of its attempts */
	uint64_t walk;
	uint64_t now_ns; /* of the call that is made */
	uint64_t n_marks, n_books;
	struct quota_store *victim; /* from whom credit is taken next */
	bool marked, telling;
	/* since the last survey began: of what was not granted, or is of the dead; a limit
	 * refused somebody for a sum that may have counted twice */
	bool unsure, loose_refused;
	bool tell_levels, tell_stores; /* somebody among them is to be told */
};

/* Walks over a group's stores; the one it stands on may not be removed. s is declared:
 * NOLINTBEGIN(bugprone-macro-parentheses) */
#define QUOTA_EACH(s, group) \
	for (struct quota_store *s = (group)->stores; s; s = s->links[(group)->kind].next)
/* The limits that cover s, of the kinds from first to last. g is declared. */
#define QUOTA_EACH_LIMIT(g, s, first, last)                                \
	for (struct quota_group * g, *const *g##_at = &(s)->groups[first]; \
	     g##_at <= &(s)->groups[last]; g##_at++)                       \
		if ((g = *g##_at) != NULL)
#define QUOTA_EACH_SHARED(g, s) QUOTA_EACH_LIMIT(g, s, WIRE_LIMIT_PARTITION, WIRE_LIMIT_LABEL)
#define QUOTA_EACH_OF(g, s)     QUOTA_EACH_LIMIT(g, s, WIRE_LIMIT_PARTITION, QUOTA_KINDS - 1)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline const char *quota_group_id(const struct quota_group *g)
{
	return g->key + 1;
}

/* ---- quota_group.c ---- */

struct quota_group *quota_group_find(struct quota *q, enum wire_limit kind, const char *id);
/* Found or made. NULL: no memory, or id is too long. */
struct quota_group *quota_group_get(struct quota *q, enum wire_limit kind, const char *id);
/* Goes where nothing is in it, nothing is set for it and nothing is booked on it. */
void quota_group_drop(struct quota *q, struct quota_group *g);
/* Computes what is in force, and lets its stores know. */
void quota_group_limit(struct quota *q, struct quota_group *g, uint64_t now_ns);
void quota_group_enter(struct quota_group *g, struct quota_store *s);
void quota_group_leave(struct quota_group *g, struct quota_store *s);
/* Bytes used under the limit: the kernel is asked after the pages were read. */
uint64_t quota_group_used(struct quota *q, const struct quota_group *g);
/* Bytes that n more would be over hard; 0: they fit. */
uint64_t quota_group_over(struct quota *q, const struct quota_group *g, uint64_t n);
/* Takes base from a page of an earlier daemon; the largest counts until the first survey. */
void quota_group_inherit(struct quota_group *g, int64_t base);
void quota_group_level(struct quota *q, struct quota_group *g, int level);
void quota_group_line(struct quota *q, const struct quota_group *g, struct quota_line *ret);

/* ---- quota_credit.c ---- */

/* Reads the page anew: settled first, so that the sums are upper bounds
 * whatever happens meanwhile. */
void quota_credit_read(struct quota *q, struct quota_store *s);
void quota_credit_read_all(struct quota *q, struct quota_group *g);
/* The part of its credit that it has not charged. */
uint64_t quota_credit_unspent(const struct quota_store *s);
/* The bytes that it lacks of so many; 0: it is enough. */
uint64_t quota_credit_lack(const struct quota_store *s, uint64_t need);
/* The part of that credit that may go to others; all: also what the store is about to use. */
uint64_t quota_credit_spare(const struct quota *q, const struct quota_store *s, bool all);
/* n more; need of what it then has is pledged. */
void quota_credit_grant(struct quota *q, struct quota_store *s, uint64_t n, uint64_t need);
/* Takes up to n unspent bytes; returns how many it were. */
uint64_t quota_credit_take(struct quota_store *s, uint64_t n);
/* A store's limits changed, or it is new: from and to unlimited credit; the
 * page says what is in force. */
void quota_credit_update(struct quota *q, struct quota_store *s);
void quota_credit_publish(const struct quota_store *s);
/* Believes a new store's page as far as it may. */
void quota_credit_inherit(struct quota *q, struct quota_store *s);
/* Makes it count as one that is at work, or no longer. */
void quota_credit_active(struct quota_store *s, bool active, uint64_t now_ns);

/* A live store goes: its bytes become base. */
void quota_base_leave(struct quota *q, struct quota_store *s);

/* ---- quota_queue.c ---- */

/* The limit was lowered, or memory was taken that nobody charged (directories, other programs'
 * files): unspent credit comes back. */
void quota_queue_restore(struct quota *q, struct quota_group *g);
/* Grants what is wanted, and some of it ahead. 0 with granted and bytes set, or bits of the limits
 * that hold it back: those in held, else its user's and its label's, else the partition's. */
uint32_t quota_queue_grant(struct quota *q, struct quota_store *s, const struct quota_want *want,
			   uint32_t held, struct quota_answer *ret);
/* Bits of the limits of s under which somebody waits already. */
uint32_t quota_queue_held(const struct quota_store *s);
/* 0, -EMFILE, -ENOMEM. */
int quota_queue_add(struct quota *q, struct quota_store *s, const struct quota_want *want,
		    uint32_t held);
void quota_queue_walk(struct quota *q, uint64_t now_ns);
/* Ends a wait: error 0 with granted and bytes set, else with limit. */
void quota_queue_end(struct quota *q, struct quota_wait *w, int error, uint32_t held);
/* Frees the wait, wherever it is listed. */
void quota_queue_forget(struct quota *q, struct quota_wait *w);
/* The one of s that waits under that serial. NULL: there is none. */
struct quota_wait *quota_queue_find(const struct quota_store *s, uint64_t serial);
/* As quota_request(), where puts wait by createqueue.h. */
int quota_put_request(struct quota *q, struct quota_store *s, const struct quota_want *want,
		      struct quota_answer *ret);
/* Memory may have come free, or time is over. */
void quota_put_pass(struct quota *q);
/* Makes the queue that q->config.puts says. */
void quota_put_init(struct quota *q);
/* Limits under which need bytes can never be. */
uint32_t quota_queue_never(const struct quota_store *s, uint64_t need);
/* Fills in the limit that is named to people, of those in held, if any; how much of it is used.
 * Returns the error of who was refused for it. */
int quota_queue_name(struct quota *q, const struct quota_store *s, uint32_t held,
		     struct quota_answer *ret);
/* Writes down that held refused, or makes wait, a request that lacks so many bytes. */
void quota_queue_note(struct quota *q, struct quota_store *s, uint32_t held, uint64_t lack,
		      bool refused);

/* ---- quota.c ---- */

/* Calls the callbacks for what was noted meanwhile. */
void quota_tell(struct quota *q);
/* As quota_request(), under the limits, at q->now_ns; nobody is told. */
int quota_try(struct quota *q, struct quota_store *s, const struct quota_want *want,
	      struct quota_answer *ret);

#endif
