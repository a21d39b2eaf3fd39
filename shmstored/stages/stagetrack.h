/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagetrack.h: what a running stage needs: the limit of its worker's store. For the files of this
 * room, and for the requests.
 */
#ifndef STAGETRACK_H
#define STAGETRACK_H

#include "stages.h"

struct wire_staged;

/* The session gets what a says. */
void stagetrack_begin(struct stages_session *s, const struct stages_answer *a);
/* Restores the store's limit, unless it was changed meanwhile. */
void stagetrack_end(struct stages_session *s);
/* Writes an answer as the protocol has it. */
void stagetrack_staged(const struct stages_answer *a, struct wire_staged *ret);

#endif
