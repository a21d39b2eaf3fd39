/* SPDX-License-Identifier: Apache-2.0 */
/* accountquota_state.h: what accountquota.c, _limits.c, _say.c and _set.c, and the
 * requests for credit, share. */
#ifndef ACCOUNTQUOTA_STATE_H
#define ACCOUNTQUOTA_STATE_H

#include "account.h"
#include "quota.h"

struct conn;
struct member;

struct accountquota_configured {
	enum wire_limit kind;
	char *id;
	struct quota_limits limits;
};

struct accountquota {
	struct account *account;
	struct quota_limits partition; /* as configured or set; the watermarks are not in it */
	struct quota_limits applied;   /* with them */
	struct accountquota_configured *configured;
	size_t n_configured;
	struct loop_op timer;
	bool closed; /* the account is gone; the timer's last call frees us */
	struct quota_mark *mark;
	struct account_wait survey; /* that we asked for */
	bool surveying;
	bool look_again; /* requests came meanwhile that wait for one which begins after them */
	uint64_t survey_next_ns;
	struct putqueue *puts; /* NULL: puts wait under their limits */
};

/* bytes: 0 = none, QUOTA_DEFAULT = as configured, else as the default of its kind. 0, -EINVAL
 * (soft over hard), -ENOMEM. */
int accountquota_change(struct account *a, enum wire_limit kind, const char *id, bool soft,
			uint64_t bytes);
/* The partition's limits and watermarks, where they changed or its size did. */
int accountquota_apply_partition(struct accountquota *k);
void accountquota_limits_deinit(struct accountquota *k);

/* As quota_request() and quota_cancel(), of a registered member. */
int accountquota_request(struct member *m, const struct quota_want *want, struct quota_answer *ret);
int accountquota_cancel(struct member *m, uint64_t serial);
/* A request that waited has ended. A connection that cannot be told ends, unless it
 * is the one that is handled. */
void accountquota_answer(struct member *m, uint64_t serial, int error,
			 const struct quota_answer *a);
/* r: of conn_send() to it. */
void accountquota_sent(struct member *m, int r);
/* REFUSED, with a sentence that says which limit, how much of it is used, and who
 * can help. As conn_send(). */
int accountquota_refuse(struct account *a, struct conn *c, uint64_t serial, int error,
			const struct quota_answer *why);

#endif
