/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghostage.h: since when a process holds an inode without a name, as a series of surveys saw it.
 * Pure: the surveys' sightings and time in, ages out.
 */
#ifndef GHOSTAGE_H
#define GHOSTAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ghostage;

int ghostage_new(struct ghostage **ret);
struct ghostage *ghostage_free(struct ghostage *g);

/* One survey: begin, see for each hold, end. Holds not seen by the end are forgotten. */
void ghostage_begin(struct ghostage *g);
/* Returns the time of the survey that saw this hold first: now_ns where it is this
 * one, or where memory is out. */
uint64_t ghostage_see(struct ghostage *g, uint64_t inode, pid_t pid, uint64_t now_ns);
void ghostage_end(struct ghostage *g);
/* True once for a hold that was seen for age_ns or longer. */
bool ghostage_is_old(struct ghostage *g, uint64_t inode, pid_t pid, uint64_t now_ns,
		     uint64_t age_ns);

#endif
