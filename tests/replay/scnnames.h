/* SPDX-License-Identifier: Apache-2.0 */
/* scnnames.h: numbers for the names of a case, as modules know requests,
 * clients and objects by numbers. */
#ifndef REPLAY_SCNNAMES_H
#define REPLAY_SCNNAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy.h"

#define SCN_NAME_MAX 63u

struct scn_names {
	size_t n, room;
	char (*names)[SCN_NAME_MAX + 1];
};

/* From 1, in the order in which they were named first. 0: too long a name, or no memory. */
uint64_t scn_names_number(struct scn_names *names, const char *name);
/* The same, but 0 for a name that was not named yet. */
uint64_t scn_names_find(const struct scn_names *names, const char *name);
/* number: one that there is. */
const char *scn_names_name(const struct scn_names *names, uint64_t number);
void scn_names_deinit(struct scn_names *names);

/* A level by its number, or its name in any case. false: there is none. */
bool scn_level(const char *text, enum policylevel *ret);

#endif
