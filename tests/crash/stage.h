/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.h: the partition on which scenarios are played over and over: built once for a scenario
 * with its survivor, checked to be the same after each play (every name of the tree, statfs to the
 * byte), and built anew after a failure, so that one failure does not become many.
 */
#ifndef STAGE_H
#define STAGE_H

#include "sandbox.h"
#include "scenario.h"
#include "survivor.h"

struct stage {
	struct world world;
	struct survivor survivor;
	bool built;
	char *tree;               /* with the survivor alone */
	struct sandbox_used used; /* then, without a pool of segments */
	char *bare;               /* with nobody */
};

/* mount: of the tmpfs; disk: for TIER, a directory that is not in memory. 0 or -1. */
int stage_init(struct stage *st, const char *mount, const char *disk);
/* For world.sc; does nothing where it stands. 0, or -1 with a message. */
int stage_build(struct stage *st);
/* The survivor leaves and the partition is bare. 0, or -1 with a message. */
int stage_strike(struct stage *st);
/* After a failure: ends the survivor and wipes the mount. */
void stage_burn(struct stage *st);
/* Tree and statfs are as after stage_build(); where the scenario is FRESH:
 * strikes. 0, or -1 with a message. */
int stage_check_same(struct stage *st);

#endif
