/* SPDX-License-Identifier: Apache-2.0 */
/* surveyor.h: when a partition is surveyed, and what follows from it. Asking for one is account_survey(). */
#ifndef SURVEYOR_H
#define SURVEYOR_H

#include <stdint.h>

struct account;

/* The first survey begins. 0, -ENOMEM. */
int surveyor_open(struct account *a);
/* Ends what runs; those who wait are told -ECANCELED. */
void surveyor_close(struct account *a);
/* Each second: begins one where it is time. */
void surveyor_tick(struct account *a, uint64_t now_ns);

#endif
