/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's ledger drifted from what its files take: below 0 where slack was punched out of small
 * objects or a kept store with aliases was opened again, up with aliases and with objects that came
 * back by a handoff, and on huge=always. Its limit drifted with it, to refusals for good.
 *
 * SHMSTORE_HISTORIES=1000 for more; SHMSTORE_SEED=n begins with another one.
 */
#include <criterion/criterion.h>

#include "ledgermodel.h"
#include "scratch.h"
#include "tiered.h"

#define HISTORIES 6 /* of each kind: all of them take some seconds */
#define STEPS     150

static void play(const char *mount, bool tier)
{
	int n = ledger_histories(HISTORIES);
	uint64_t seed = ledger_seed();

	scratch_dir(mount);
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	if (tier)
		TIERED_OR_SKIP();
	for (int i = 0; i < n; i++)
		ledger_history(seed + (uint64_t)i, STEPS, tier);
}

Test(ledger_drift, huge_never)
{
	play("size=1g,huge=never", false);
}

Test(ledger_drift, huge_within_size)
{
	play("size=1g,huge=within_size", false);
}

Test(ledger_drift, huge_advise)
{
	play("size=1g,huge=advise", false);
}

Test(ledger_drift, huge_always)
{
	play("size=1g,huge=always", false);
}

Test(ledger_drift, with_a_tier)
{
	play("size=1g,huge=never", true);
}
