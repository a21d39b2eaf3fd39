/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagetrack.h: what goes with a stage while it runs: the limit of its worker's store, and the looks at its process by which the next run is known. For the files of
 * this room, and for the requests.
 */
#ifndef STAGETRACK_H
#define STAGETRACK_H

#include "stages.h"

struct wire_staged;

/* The session has what a says. */
void stagetrack_begin(struct stages_session *s, const struct stages_answer *a);
/* Its store's limit is as it was before, unless somebody set another meanwhile. What it used is remembered if told->learn. */
void stagetrack_end(struct stages_session *s, const struct stages_told *told);
/* What earlier runs of the stage of m's user used privately, in MiB; 0: there were fewer than PROFILE_WARM, or nobody remembers. */
int64_t stagetrack_measured(const struct member *m, const char *name);
/* An answer as the protocol has it. */
void stagetrack_staged(const struct stages_answer *a, struct wire_staged *ret);

#endif
