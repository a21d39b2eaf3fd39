/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h: what fresh processes find after a victim's end. All return 0, or -1 with a
 * message in the shared page. */
#ifndef VERIFY_H
#define VERIFY_H

#include "scenario.h"

/* The first call about the dead store. */
enum verify_path {
	VERIFY_GC,     /* gc */
	VERIFY_REOPEN, /* its name is opened again */
	VERIFY_ADOPT,  /* its name is opened again and its objects taken over */
	VERIFY_N_PATHS,
};
extern const char *const verify_path_name[VERIFY_N_PATHS];

/* rc: what the call returned, NULL where the victim was killed in it. */
int verify_look(struct world *w, enum verify_path path, const int *rc);
/* shared.in is used up or good for a third store; good where rc says that
 * the victim's adopt failed. */
int verify_ticket(struct world *w, const int *rc);
/* gc until no lease is left; then: a second gc finds nothing, the books close with all terms 0
 * but what the survivor links. */
int verify_settled(struct world *w);
/* shared.pool is what the books say now. */
int verify_pool(struct world *w);

#endif
