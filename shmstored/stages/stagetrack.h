/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagetrack.h: what a running stage needs: the limit of its worker's store, and the looks at its
 * process, which the next run is estimated by. For the files of this room, and for the requests.
 */
#ifndef STAGETRACK_H
#define STAGETRACK_H

#include "stages.h"

struct wire_staged;

/* The session gets what a says. */
void stagetrack_begin(struct stages_session *s, const struct stages_answer *a);
/*
 * Restores the store's limit, unless it was changed meanwhile. Remembers what the stage used if
 * told->learn.
 */
void stagetrack_end(struct stages_session *s, const struct stages_told *told);
/*
 * What earlier runs of this stage of m's user used privately, in MiB; 0: there were fewer than
 * PROFILE_WARM, or they are not remembered.
 */
int64_t stagetrack_measured(const struct member *m, const char *name);
/* Writes an answer as the protocol has it. */
void stagetrack_staged(const struct stages_answer *a, struct wire_staged *ret);

#endif
