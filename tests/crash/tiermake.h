/* SPDX-License-Identifier: Apache-2.0 */
/* tiermake.h: a disk tier for a test's partition. */
#ifndef TIERMAKE_H
#define TIERMAKE_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

/*
 * Gives the partition its tier in the directory disk (sandbox_disk()) and uses it once,
 * so that what the first use makes and leaves (directories, the lock of evictions) is
 * there. Return: the failing call's.
 */
int tier_make(struct shmstore_partition *p, const char *disk, bool fsync);

#endif
