/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotatest.h: a world of fixed numbers for quota.h: used is what the test says, the stores' pages
 * are structs of its own, and what quota says is noted. For test_quota*.c.
 */
#ifndef SHMSTORE_TEST_QUOTATEST_H
#define SHMSTORE_TEST_QUOTATEST_H

#include "quota.h"

#define MIB    (UINT64_C(1) << 20)
#define CREDIT (64 * MIB)
#define NEVER  UINT64_MAX
#define SECOND UINT64_C(1000000000)

struct store {
	struct wire_credit page;
	struct quota_share share;
	struct quota_store *q;
	uint64_t asked;
	uint32_t n_asked;
	const char *lie;
	uint32_t n_lies;
};

struct quota_told { /* to one that waited */
	uint64_t serial;
	int error;
	struct quota_answer answer;
};

struct quota_level {
	enum wire_limit kind;
	char id[16];
	int level;
};

extern struct store a, b, c, d;
extern struct quota *q;
extern const struct quota_ops qt_ops;
extern uint64_t used_now, now;
extern struct quota_told answers[16];
extern size_t n_answers;
extern struct quota_level levels[16];
extern size_t n_levels;

/* A test suite's init and fini: a quota of epoch 7. */
void qt_start(void);
void qt_stop(void);
void qt_limit(enum wire_limit kind, const char *id, uint64_t hard, uint64_t soft);
void qt_add(struct store *s, uid_t uid, const char *label, const char *name);
/* deadline: 0 does not wait. */
int qt_request(struct store *s, uint64_t serial, uint64_t need, uint64_t ahead, uint64_t deadline);
/* A put of n bytes from beginning to end. */
bool qt_put(struct store *s, uint64_t n);
/* All 0: there is no such line. */
struct quota_line qt_line_of(enum wire_limit kind, const char *id);

#endif
