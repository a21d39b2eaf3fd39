/* SPDX-License-Identifier: Apache-2.0 */
/* arbscript.h: runs a file of arbiter scenarios. */
#ifndef REPLAY_ARBSCRIPT_H
#define REPLAY_ARBSCRIPT_H

#include "script.h"
#include "verdict.h"

void arbscript_run(struct verdict *v, const struct script *s);

#endif
