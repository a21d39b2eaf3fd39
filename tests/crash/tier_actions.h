/* SPDX-License-Identifier: Apache-2.0 */
/* tier_actions.h: as actions.h, of the disk tier. */
#ifndef TIER_ACTIONS_H
#define TIER_ACTIONS_H

#include "scenario.h"

/* The object that the survivor handed off is in the store as "t": in memory; demoted. */
void setup_adopt(struct world *w);
void setup_adopt_demote(struct world *w);
/* "a" under LONG1 too, one object: both demoted; then "a" promoted, so
 * that LONG1 finds it resident. */
void setup_long_alias_demoted(struct world *w);
void setup_resident(struct world *w);
/* A lease on the demoted "a". */
void setup_handoff_as_is(struct world *w);
/* Somebody wants more memory of the store's segments than they have, and has
 * written that to its page. */
void setup_asked(struct world *w);
/* Leaves all that killed processes can leave, at once. */
void setup_torn(struct world *w);

int run_demote(struct world *w);
int run_promote(struct world *w);
int run_prefetch(struct world *w);
int run_pin(struct world *w);
int run_handoff_as_is(struct world *w);
int run_evict(struct world *w);
int run_evict_all(struct world *w);
int run_tier_set(struct world *w);
void undo_tier_set(struct world *w);
int run_tier_unset(struct world *w);

#endif
