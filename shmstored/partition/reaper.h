/* SPDX-License-Identifier: Apache-2.0 */
/* reaper.h: takes dead stores apart as soon as their locks are free, and their leases as they end. */
#ifndef REAPER_H
#define REAPER_H

#include <stdbool.h>
#include <stdint.h>

struct account;

/*
 * Something says that the store at path may be dead or gone: the loop looks at it next, and if it is, ends its member and has it reaped by a
 * worker; if its process is dead but its lock not free yet, it looks again soon. Idempotent.
 */
void reaper_look(struct account *a, const char *path);
/* Is there one at work, or about to be? */
bool reaper_busy(const struct account *a);
/* Bytes that stores had when they ended and are not reaped yet: they come back by themselves, and soon. An estimate, by their ledgers. */
uint64_t reaper_coming(const struct account *a);
/* The account closes: no more looks. */
void reaper_close(struct account *a);

#endif
