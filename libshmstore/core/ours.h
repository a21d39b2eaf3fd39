/* SPDX-License-Identifier: Apache-2.0 */
/* ours.h: every open store of this process, from before anything of it is
 * locked until it is closed. */
#ifndef SHMS_OURS_H
#define SHMS_OURS_H

struct shmstore;

void shms_ours_add(struct shmstore *s);
/* May be called for one that is not there. */
void shms_ours_del(struct shmstore *s);
/* None comes or goes in between. */
void shms_ours_lock(void);
void shms_ours_unlock(void);
/* Locked: the first, of which the others are ->next. */
struct shmstore *shms_ours_first(void);
/* Locked, in a child of a fork: none of them is this process's. */
void shms_ours_forget(void);

#endif
