/* SPDX-License-Identifier: Apache-2.0 */
/* surveydata.h: a survey as data: filled by a worker from the library's survey of a partition. */
#ifndef SURVEYDATA_H
#define SURVEYDATA_H

#include <stdbool.h>

struct shmstore_partition;
struct survey;

/*
 * Surveys p. Blocks; looks users' names up. stop is asked now and then: true ends it with -ECANCELED.
 * 0 with *ret (sequence and ages are the caller's to fill in), or as shmstore_partition_survey().
 */
int surveydata_take(struct shmstore_partition *p, bool (*stop)(void *arg), void *arg, struct survey **ret);
struct survey *surveydata_free(struct survey *s);

#endif
