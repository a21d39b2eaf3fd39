/* SPDX-License-Identifier: Apache-2.0 */
/* arb.h: the subcommands of "shmstore-admin arb" that say something to the arbiter. */
#ifndef ARB_H
#define ARB_H

#include "admin.h"

int cmd_arb_inject(struct admin *a, int argc, char **argv);
int cmd_arb_cancel(struct admin *a, int argc, char **argv);
int cmd_arb_set(struct admin *a, int argc, char **argv);

#endif
