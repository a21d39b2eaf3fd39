/* SPDX-License-Identifier: Apache-2.0 */
/* simtasks.h: steps of clients with tasks; see simprogram.c. */
#ifndef SIM_SIMTASKS_H
#define SIM_SIMTASKS_H

#include "simclient.h"

#define SIMTASKS_WAIT_MS  3000u /* as configured: nobody waits longer for the arbiter */
#define SIMTASKS_STAGE_MS 1500u /* nor for a stage */

void simtasks_arbiter(struct simclient *c);
void simtasks_gate(struct simclient *c);
void simtasks_done(struct simclient *c);
void simtasks_grow(struct simclient *c);
void simtasks_stage(struct simclient *c);
void simtasks_answered(struct simclient *c, const struct simrequest *q, uint16_t type,
		       const void *body);

#endif
