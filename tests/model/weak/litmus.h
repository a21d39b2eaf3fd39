/* SPDX-License-Identifier: Apache-2.0 */
/* litmus.h: what a small program for weak.c brings: its threads. */
#ifndef LITMUS_H
#define LITMUS_H

#include "weak.h"

extern const int litmus_threads;
/* a thread that may be killed; the next one goes on then. -1: none */
extern const int litmus_killed;
extern const unsigned litmus_late; /* stores of a thread that may wait, at most WEAK_LATE */
/* a thread may be ended anywhere: it holds no lock that the machine does not know */
extern const bool litmus_ends;
void litmus_begin(void);
void litmus_thread(int which);

#endif
