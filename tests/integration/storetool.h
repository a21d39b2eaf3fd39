/* SPDX-License-Identifier: Apache-2.0 */
/* storetool.h: what storetool's commands share. A command is given its words, ending with
 * NULL, and prints one line. */
#ifndef STORETOOL_H
#define STORETOOL_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

#define STORETOOL_WORDS 8

extern struct shmstore_partition *partition;
extern struct shmstore *store; /* the current one */

/* "0", or the error with what the library has to say of it. Returns r. */
int answer(int r);
uint64_t number(const char *word);
/* Is name among the words? */
bool flag(char **words, const char *name);

void do_tier(char **w);
void do_move(char **w);
void do_locate(char **w);
void do_prefetch(char **w);
void do_evict(char **w);
void do_tier_info(char **w);

#endif
