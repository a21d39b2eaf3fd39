/* SPDX-License-Identifier: Apache-2.0 */
/* broker.h: the work of one handoff between users: everything about it that asks the file
 * system, for a worker thread. */
#ifndef BROKER_H
#define BROKER_H

#include <limits.h>
#include <stdint.h>
#include <sys/acl.h>
#include <sys/types.h>

/*
 * Where objects from other users arrive: one kept store per receiving user,
 * <partition>/inbox/<uid>, owned by that user, of which only handoff/ is used. It is a store like
 * any other: walked, accounted, its expired leases removed by any gc.
 *
 * inbox/ itself is root's: in a directory that all may write to, anybody could take the
 * name of another user's inbox.
 */

/* Leases in one inbox, and of them of one donor: that a donor cannot fill another
 * user's inbox, nor keep others out of it. Not bytes: these are the donor's, who pays
 * for them under its own limits. */
#define INBOX_LEASES_MAX       1024u
#define INBOX_LEASES_DONOR_MAX 256u

struct shmstore_partition;

/*
 * The open handoff/ directory of uid's inbox, made where it is missing. Blocks: for a worker
 * thread. partition_fd: p's directory. 0; -EPERM (its user made something else of it; we are not
 * root), -errno. ret_why: a sentence, on failure.
 */
int inbox_open(struct shmstore_partition *p, int partition_fd, uid_t uid, int *ret_fd,
	       const char **ret_why);
/* May donor put one more lease into the inbox? 0, -EDQUOT. Expired ones are removed where it is
 * short. now_ms: CLOCK_BOOTTIME. */
int inbox_room(int fd, uid_t donor, uint64_t now_ms);

struct broker_ask {
	struct shmstore_partition *partition;
	int partition_fd;
	char store[PATH_MAX]; /* the sender's registered store, below the partition */
	/* as the sender named it: …/<store>/handoff/<lease>, with lease_ms
	 * …/<store>/objects/<name> */
	char path[PATH_MAX];
	uid_t from, to;
	/* not 0: to is from, whose own inbox gets a lease of an object that stays */
	uint32_t lease_ms;
};

struct broker_answer {
	char path[PATH_MAX]; /* the lease in the inbox, below the partition */
	uint64_t bytes;      /* of memory that the file takes */
	const char *why;     /* on failure: a sentence */
};

/* 0, -errno out of shmstore.h's list. Blocks. */
int broker_run(const struct broker_ask *ask, struct broker_answer *ret);

/* acl.c gives one more reader a place in a POSIX access list (acl(5)). It is pure. */
#define ACL_READERS_MAX 64 /* users and groups that one file may be readable for */

/*
 * A copy of the list with the right to read for one more user. Everybody but the file's owner
 * keeps at most the right to read, as far as it was in force; users and groups that had none are
 * left out. The caller frees it (acl_free()). NULL, errno: EDQUOT (too many readers), ENOMEM,
 * EINVAL (no access list of a file).
 */
acl_t acl_with_reader(acl_t list, uid_t uid);

#endif
