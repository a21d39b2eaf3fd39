/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gcaction.h: for gc's own modules: its hands, which tell what is done, and do it, or in a dry run
 * note it; and what it does with stores and the disk tier.
 */
#ifndef SHMS_GCACTION_H
#define SHMS_GCACTION_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "name.h"
#include "page.h"
#include "sys.h"
#include "tier.h"
#include "tierscan.h"

struct shms_gc_candidate {
	char *below; /* path below the partition */
	bool store;  /* it has a page */
	uid_t uid;
};

struct shms_gc {
	struct shmstore_partition *p;
	struct shms_inodes *gone; /* dry run: names that would be gone; NULL: remove them */
	int (*fn)(const struct shmstore_gc_action *action, void *arg);
	void *arg;
	int error; /* of the first step that failed; the detail says it */
	struct shmstore_gc_report report;
	uint64_t now_ms;
	unsigned waits;  /* of a millisecond, for locks of owners that are gone */
	bool end_leases; /* of dead stores */
	struct shms_gc_candidate *list;
	size_t n_list, list_size;
	struct shms_tierfind find; /* the disk tier */
};
#define SHMS_GC_INIT(partition, callback, argument)                                  \
	{                                                                            \
		.p = (partition), .fn = (callback), .arg = (argument),               \
		.now_ms = shms_now_boot_ms(), .find = SHMS_TIERFIND_INIT(partition), \
	}

/* A store at hand. */
struct shms_gc_target {
	const struct shms_gc_candidate *c;
	int parentfd, fd;
	const char *name;
	struct shms_page page;
	uint64_t now_ms; /* UINT64_MAX: all its leases are of another boot, or are to end */
};
#define SHMS_GC_TARGET_NULL              \
	{                                \
		.parentfd = -1, .fd = -1 \
	}

/* Reports a, which happened to what is called below in the partition (or, with a leading slash,
 * anywhere), with its evidence. fn's value, or -ENOMEM. */
int shms_gc_tell(struct shms_gc *g, struct shmstore_gc_action *a, const char *below,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));
#define shms_gc_kept(g, below, ...)                                                        \
	shms_gc_tell((g), &(struct shmstore_gc_action){.what = SHMSTORE_GC_KEPT}, (below), \
		     __VA_ARGS__)

/*
 * Tells that below, which is uid's, stays because it could not be dealt with (cannot: "look into
 * it"). That it is another user's is no failure, and said only where that can be the reason.
 */
int shms_gc_unsure(struct shms_gc *g, const char *below, uid_t uid, int error, const char *cannot);

/* The one place where a name goes, or in a dry run would, with the tier file that nobody names
 * then. ret: what that frees. 0, -ENOENT (gone already), -errno. */
int shms_gc_take(struct shms_gc *g, int dirfd, const char *name, struct shms_tierdrop *ret);
/*
 * Tells of a name that was taken away, or not (a->error): a says what it is, and of how many
 * objects. below, evidence: as of shms_gc_tell(). 0, also where somebody was faster; fn's value,
 * -ENOMEM.
 */
int shms_gc_freed(struct shms_gc *g, struct shmstore_gc_action *a,
		  const struct shms_tierdrop *freed, const char *below, const char *evidence);
/* Takes the name away and tells it. As shms_gc_freed(). */
int shms_gc_remove(struct shms_gc *g, struct shmstore_gc_action *a, int dirfd, const char *name,
		   const char *below, const char *evidence);
/* The same as shms_gc_take() on the disk. */
int shms_gc_take_file(struct shms_gc *g, int files_fd, const char *name, struct shms_tierdrop *ret);
/* Has the one that made the file of that name, which is of unnamed.c's form, died before it had its
 * own? Nobody has it open then. */
bool shms_gc_half_made(int dirfd, const char *name);
#define SHMS_GC_HALF_MADE "half-made: nobody has it open, so whoever made it is gone"

/* Names in a directory that we do not make: they are told by the first, and by their number. */
struct shms_gc_odd {
	unsigned long long n;
	char name[SHMS_NAME_SIZE];
};
void shms_gc_odd_note(struct shms_gc_odd *o, const char *name);
/* below: of the directory. As shms_gc_tell(). */
int shms_gc_odd_tell(struct shms_gc *g, const struct shms_gc_odd *o, const char *below);

/*
 * gcstore.c: what gc does with one store. Opens the store or directory c. -ENOENT: there is none;
 * -EPERM; -EMFILE, -ENOMEM. ret is written on success only.
 */
int shms_gc_target_open(struct shms_gc *g, const struct shms_gc_candidate *c,
			struct shms_gc_target *ret);
void shms_gc_target_close(struct shms_gc_target *t);
/* The owner lives. As all that follow: 0, fn's value, -ENOMEM, -EMFILE. */
int shms_gc_live_store(struct shms_gc *g, struct shms_gc_target *t);
/* The owner is dead, and we hold the lock: what its page says decides, which is in t->page then.
 * A kept store's lock ends. */
int shms_gc_locked_store(struct shms_gc *g, struct shms_gc_target *t, int *io_lock);

/* gctier.c: finds out whether there is a tier; shms_tierfind_close() of g->find is owed in any
 * case. */
int shms_gc_tier_open(struct shms_gc *g);
/* Tier files, anchors and residents that nobody names. */
int shms_gc_tier(struct shms_gc *g);
/* The directories of other partitions below the same disk.path. */
int shms_gc_away(struct shms_gc *g);

#endif
