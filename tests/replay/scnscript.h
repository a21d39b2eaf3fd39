/* SPDX-License-Identifier: Apache-2.0 */
/* scnscript.h: runs a file of SCN v1. */
#ifndef REPLAY_SCNSCRIPT_H
#define REPLAY_SCNSCRIPT_H

#include "script.h"
#include "verdict.h"

void scnscript_run(struct verdict *v, const struct script *s);

#endif
