/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object whose clean copy had been damaged was never demoted again while another store held its
 * old stub: the resident of the old tier file was a link that nobody knew of. With a view on it, it
 * even had two residents, of which an eviction knew one.
 */
#include <criterion/criterion.h>

#include "api.h"
#include "tiered.h"

#define SIZE 300000

Test(tier_two_residents, an_object_with_a_damaged_clean_copy_is_demoted_and_evicted)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_view *v;
	struct shmstore_ticket t;

	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");
	struct other o = other_start("o");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(links_of("s", "k"), 2, "our name and the resident, for the other store");

	tiered_damage("s", "k", 100);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(links_of("s", "k"), 3, "and that of the new tier file, for the view");
	shmstore_view_unref(v);
	what.bytes = 1ull << 40;
	shmstore_partition_evict(scratch_partition(), &what, NULL);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	other_delete(&o, "k");
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
