/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbstage.h: a partition under a daemon of the test's own, where others use the arbiter while one
 * is disturbed, and what must hold of it afterwards.
 *
 * Beside the one who is disturbed there is the neighbour: a process with a store of its own that
 * asks, when told, for more than fits beside what the other one holds, by a task that is above all
 * others. It must be given it, whatever becomes of the other.
 */
#ifndef ARBSTAGE_H
#define ARBSTAGE_H

#include <shmstore/arbiter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "owndaemon.h"
#include "sandbox.h"

#define ARBSTAGE_MIB     (UINT64_C(1) << 20)
#define ARBSTAGE_SIZE    "48m"
/* of the one who is disturbed, where the neighbour is to wait for it */
#define ARBSTAGE_HELD    (26 * ARBSTAGE_MIB)
#define ARBSTAGE_WAIT_MS 20000u /* the daemon's longest wait: nobody's is to end by that */

/* Shared by all processes of a stage. */
struct arbshared {
	bool asked; /* the neighbour, and it has not answered yet */
	char message[1024];
};

struct arbstage {
	const char *mount;
	char path[256], directory[64], socket[128], config[128];
	struct own_daemon daemon;
	struct arbshared *shared;
	struct sandbox_used bare; /* with the neighbour alone */
	pid_t neighbour;
	int ask_fd, answer_fd;
};

/* Sets the message (the first one wins) and returns false. */
__attribute__((format(printf, 2, 3))) bool arbstage_fail(struct arbstage *st, const char *format,
							 ...);

/* On a bare mount. All return false with a message. */
bool arbstage_init(struct arbstage *st, const char *mount, const char *shmstored);
void arbstage_deinit(struct arbstage *st);
bool arbstage_start_neighbour(struct arbstage *st);
void arbstage_end_neighbour(struct arbstage *st);
bool arbstage_start(struct arbstage *st); /* the daemon and the neighbour */
bool arbstage_stop(struct arbstage *st);

/* By the one who is disturbed, while s holds ARBSTAGE_HELD: returns when
 * the neighbour is blocked. */
bool arbstage_ask(struct arbstage *st, struct shmstore *s);
/* The answer to arbstage_ask(), where it asked: an outcome or -errno in *ret. */
bool arbstage_answer(struct arbstage *st, int *ret);
/* The daemon's books are empty but for what the kernel counts; bare: and that is what there was
 * with the neighbour alone. */
bool arbstage_settled(struct arbstage *st, bool bare);

#endif
