/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.h: stage profiles as a service, for each partition: what a worker gets for a stage of a
 * job, by its rules and by what the other workers hold (both in stagebook.h). A worker is
 * a registered store. Loop's thread only.
 *
 * During a stage the worker's store may hold no more than its shared bytes, if the configured
 * limits allow as much. Its private bytes are not enforced: the worker is told of them, and
 * admission looks at them. The end of the stage, or of the connection, restores what was before.
 */
#ifndef STAGES_H
#define STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"
#include "loop.h"
#include "quota.h"
#include "stagebook.h"

#define STAGES_NAME       240u /* bytes of a stage's name */
#define STAGES_SHOWN      256u /* profiles that a document lists */
/* after that a query may say something else; the id is good for the daemon's life */
#define STAGES_EXPIRES_MS 60000u

/* A worker that has asked for a stage. The session ends with its connection. */
struct stages_session {
	struct stages_session *next, *prev;
	struct stages *of;
	struct member *member;
	struct stagebook_session at;
	/* of its stage, also while it waits for it; "": it is in none */
	char name[STAGES_NAME + 1];
	uint64_t serial;             /* of the BEGIN that waits */
	uint64_t asked_ns, began_ns; /* CLOCK_MONOTONIC */
	uint64_t waited_ns;          /* for this stage */
	bool limited;                /* its store's limit is the stage's: */
	struct quota_limits was, is;
};

/* The stages of one partition: account.stages. Other rooms read it. */
struct stages {
	struct account *account;
	struct stagebook *book;
	struct stage_amounts base;
	int64_t total_mib;
	struct stages_session *sessions;
	struct loop_op timer;
	bool closed;
	uint64_t n_queries, n_begun, n_waited, n_degraded, wait_ns;
};

extern const struct part stages_part;

/* The amounts of a profile, for an answer. */
struct stages_answer {
	uint32_t profile;
	struct stage_amounts amounts;
	unsigned rules;
	bool clamped, degraded;
};

/* 0; -ENOSPC: there are too many profiles; -ENOMEM. */
int stages_query(struct member *m, const struct stage_ask *ask, struct stages_answer *ret);
/*
 * Begins a stage with a profile. other: a second one that was asked for explicitly, or profile
 * again. 0: *ret says what the worker has; 1: it waits, and is answered later. -ENOENT: no such
 * profile; -EBUSY: the worker is in a stage; -EEXIST: the two differ, which the configuration does
 * not allow; -ENOSPC, -ENOMEM.
 */
int stages_begin(struct member *m, uint64_t serial, const char *name, uint32_t profile,
		 uint32_t other, uint64_t wait_ms, struct stages_answer *ret);
/* 0: *ret is the base, or what is left of it; -ENOENT: the worker is in no stage. */
int stages_end(struct member *m, struct stages_answer *ret);
/*
 * The private bytes that the worker may use now, for admission; UINT64_MAX: stage profiles are off.
 */
uint64_t stages_private(const struct member *m);

/* Sends an answer. CONN_OK, CONN_E_SLOW. */
int stages_send(struct conn *c, uint64_t serial, const struct stages_answer *a);

#endif
