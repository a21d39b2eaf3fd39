/* SPDX-License-Identifier: Apache-2.0 */
/*
 * putqueue.h: puts of one partition that wait for room by the rules of createqueue.h, where the
 * configuration has it so (partition.queue); else they wait under the limit that holds them back
 * (quota.h). A store's client is the store. Loop's thread only; nothing of it blocks.
 *
 * An object is made in memory and goes to the disk from there, so a put has no place on the disk
 * itself: what the queue calls the fallback gives nothing, and ends the wait. "Spilling" is the
 * disk tier's demotion, "the disk is full" what the tier says.
 */
#ifndef PUTQUEUE_H
#define PUTQUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "createqueue.h"

struct account;
struct member;
struct put;
struct quota_answer;
struct quota_want;

struct putqueue {
	struct account *account;
	struct createqueue queue;
	struct put *puts; /* that wait */
	bool passing;
	uint64_t n_now;   /* refused at once: they did not want to wait */
	uint64_t missing; /* bytes of the largest that did not fit in this pass */
	uint32_t n_failed;
};

/* As a->config says. *ret NULL: puts wait under their limits. 0, -ENOMEM. */
int putqueue_new(struct account *a, struct putqueue **ret);
/* Waiting puts get no answer. Returns NULL. */
struct putqueue *putqueue_free(struct putqueue *p);

/*
 * As quota_request(): 0: granted; 1: it waits, and is answered later; -ENOSPC, -EDQUOT with ret;
 * -EMFILE: too many of this store wait; -EINVAL: serial waits already; -EPERM; -ENOMEM. A put that
 * may not wait overtakes only where a waiting one might.
 */
int putqueue_request(struct putqueue *p, struct member *m, const struct quota_want *want,
		     struct quota_answer *ret);
/* -ENOENT: it does not wait. Else it was answered with -ECANCELED. */
int putqueue_cancel(struct putqueue *p, struct member *m, uint64_t serial);
/* Its connection ended, or it is gone: its puts wait no more. */
void putqueue_left(struct putqueue *p, const struct member *m);
/* Memory may have come free, or time is over. */
void putqueue_pass(struct putqueue *p);

#endif
