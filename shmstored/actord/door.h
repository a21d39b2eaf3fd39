/* SPDX-License-Identifier: Apache-2.0 */
/* door.h: actors and other daemons, as actord.h has them. */
#ifndef DOOR_H
#define DOOR_H

#include "actord.h"

extern const struct actord actord_whole;

/*
 * profilepeers.c: profiles of other daemons (docs/actors.md). Each daemon sends what it has
 * measured itself, and nothing that others sent it. A daemon's new profile replaces its former one:
 * so nothing counts twice, however often it is sent.
 */
struct profilepeers;

/* *ret NULL: there are no other daemons, or no profiles. 0, -ENOMEM. */
int profilepeers_new(struct host *h, struct profilepeers **ret);
/* Returns NULL. pp may be NULL. */
struct profilepeers *profilepeers_free(struct profilepeers *pp);
/* As actord.h's profiled. */
void profilepeers_changed(const struct host *h, uint32_t uid, bool anew);

#endif
