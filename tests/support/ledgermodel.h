/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledgermodel.h: random histories of three stores in one partition, and after each step the ledgers
 * against what the file system says: walked here, not by the library, so that both may be wrong.
 */
#ifndef SHMSTORE_TEST_LEDGERMODEL_H
#define SHMSTORE_TEST_LEDGERMODEL_H

#include <stdbool.h>
#include <stdint.h>

/* Plays history number seed: steps of them, in scratch_partition(). tier: it has a disk tier.
 * Aborts, and says which seed and step, where a ledger differs by a byte or a name. */
void ledger_history(uint64_t seed, int steps, bool tier);
/* $SHMSTORE_HISTORIES, or n. */
int ledger_histories(int n);
/* $SHMSTORE_SEED, or 1. */
uint64_t ledger_seed(void);

#endif
