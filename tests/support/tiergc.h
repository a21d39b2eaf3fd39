/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiergc.h: what a gc on a partition with a disk tier meets: a store that has an object in each
 * place, by one that lives or by one that died, and names that are made by hand as killed processes
 * leave them. For test_tier_gc*.c and test_gcaway.c; they assert by criterion.
 */
#ifndef SHMSTORE_TEST_TIERGC_H
#define SHMSTORE_TEST_TIERGC_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

#include "gcplan.h"

enum {
	MB = 1 << 20
};

/* gcplan_gc_disk() on tiered_disk(). */
void tg_gc(struct gcplan *plan);
/* It has one thing to do, and that is this. */
void tg_gc_one(struct gcplan *plan, enum shmstore_gc_what what);

/* Paths below our directory of anchors, and below that of tier files; "" is the
 * directory itself. Static. */
const char *tg_anchors(const char *name);
const char *tg_files(const char *name);
/* A new file, whose blocks are counted already. */
void tg_write_file(const char *path, const char *text);
bool tg_exists(const char *path);

void tg_demote(struct shmstore *s, const char *key);
void tg_promote(struct shmstore *s, const char *key);
/* A store with "demoted", "clean" and "memory", of a MiB each. */
struct shmstore *tg_store_with_all(const char *name);
/* Each of them is where it was, and what it was. */
void tg_check_all(struct shmstore *s);
/* Closes it; nothing is left of it. */
void tg_end(struct shmstore *s);

/* A store as tg_store_with_all(), of a process that dies. */
struct tg_death {
	const char *name;
	bool keep;
	const struct shmstore_ticket *adopt;
};
void tg_die(struct tg_death d);
/* Nobody keeps it any more. */
void tg_unkeep(const char *store);

#endif
