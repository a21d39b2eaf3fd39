/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocfail.h: the program's malloc family, replaced: counts, and fails the n-th call. Holds for
 * libc's own use too (opendir, strdup ...). Not in sanitizer builds, which bring their own: then
 * allocfail_works() is false and the counts stay 0.
 */
#ifndef ALLOCFAIL_H
#define ALLOCFAIL_H

#include <stdbool.h>

bool allocfail_works(void);
/* From now on the n-th allocation (from 1; 0 = none) fails, with all also each one
 * after it. Resets the count. */
void allocfail_arm(unsigned long n, bool all);
/* Ends that; returns how many allocations were asked for since. */
unsigned long allocfail_disarm(void);
/* Blocks allocated and not freed. */
long allocfail_live(void);

#endif
