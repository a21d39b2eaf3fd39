/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brokerscene.h: a shared partition, a donor with a lease of an object, and the broker that
 * moves it to a receiver's inbox. Each user is a child with that uid. The scene of
 * test_broker.c and test_inbox.c.
 */
#ifndef SHMSTORE_TEST_BROKERSCENE_H
#define SHMSTORE_TEST_BROKERSCENE_H

#include <shmstore/shmstore.h>
#include <sys/types.h>

#include "broker.h"
#include "scratch.h"

enum {
	DONOR = 60001,
	RECEIVER = 60002,
	THIRD = 60003,
	SIZE = 300000,
};

extern struct shmstore_partition *scene_partition; /* root's own handle */
extern int scene_partition_fd;
extern char scene_path[SCRATCH_PATH];
extern struct shmstore_ticket *scene_ticket; /* shared with the children */

/* A test suite's init, which skips where we are not root, and its fini. */
void scene_begin(void);
void scene_end(void);

struct scene_part {
	uid_t uid;
	int (*fn)(const char *arg);
	const char *arg;
};
/* A struct scene_part's fn(arg), by this process, which is that user from then on. */
int scene_play(void *arg);
/* Calls fn(arg) as that user, and returns its result. */
int scene_as(uid_t uid, int (*fn)(const char *arg), const char *arg);
/* A kept store of whoever calls, without the daemon. */
struct shmstore *scene_store(const char *name);
/* The donor has an object "k" and a lease of it, whose ticket is in *scene_ticket. */
int scene_donate(const char *arg);
void scene_ask_for(struct broker_ask *ask, const char *named);
int scene_broker(const char *named, struct broker_answer *ret);
/* From the donor's lease to the ticket of the receiver's. */
void scene_hand_over(void);
int scene_inbox_leases(uid_t uid);
/* The partition's path and the rest; static. */
const char *scene_below(const char *rest);
/* Adopts *scene_ticket as "x" into that store: the errno. */
int scene_adopt_only(const char *arg);

#endif
