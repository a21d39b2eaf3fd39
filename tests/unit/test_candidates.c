/* SPDX-License-Identifier: Apache-2.0 */
/* The objects that could be demoted, as one walk finds them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "candidates.h"
#include "crowded.h"
#include "sys.h"
#include "tiered.h"

/* The candidates that a walk finds, and the victims that are chosen of them. */
struct found {
	struct shmstore_partition *p;
	struct shms_evict_users users;
	struct shms_candidates c;
	struct shms_victim *v;
	size_t n;
};

static struct found look(void)
{
	struct found f = {.p = scratch_partition()};

	cr_assert_eq(shms_evict_users_open(f.p, geteuid(), &f.users), 0);
	cr_assert_eq(shms_evict_users_look(&f.users), 0);
	cr_assert_eq(shms_candidates_find(f.p, f.users.v, f.users.n, 0, 0, &f.c), 0);
	cr_assert_eq(shms_weigh(&f.c, CROWDED_OF * MIB, shms_now_real_ns(), &f.v, &f.n), 0);
	return f;
}

static void forget(struct found *f)
{
	free(f->v);
	shms_candidates_deinit(&f->c);
	shms_evict_users_close(&f->users);
	shmstore_partition_unref(f->p);
}

/* The victim that an object of store a is; NULL: it is none. */
static const struct shms_victim *victim(const struct found *f, unsigned i)
{
	uint64_t inode = inode_of("a", nth(i));

	for (size_t k = 0; k < f->n; k++) {
		if (f->c.v[f->v[k].id].inode == inode)
			return &f->v[k];
	}
	return NULL;
}

static struct shms_victim victim_of(const struct found *f, unsigned i)
{
	const struct shms_victim *v = victim(f, i);

	cr_assert_not_null(v, "k%u is a candidate", i);
	return v ? *v : (struct shms_victim){0};
}

Test(candidates, who_is_one_and_what_is_known_of_it)
{
	struct shms_victim one, two, clean;
	struct shmstore_ticket t;
	struct shmstore *s;
	struct found f;
	struct other o;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	o = other_start("b");
	crowded_fill(s, 0, 5, 0);
	crowded_fill(s, 5, 1, SHMSTORE_PIN);
	cr_assert_eq(shmstore_handoff(s, KEY("k1"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "its own key", &t), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k2"), 60000, &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k3"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_demote(s, KEY("k4"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_promote(s, KEY("k4"), 0), 0);
	f = look();
	one = victim_of(&f, 0);
	two = victim_of(&f, 1);
	clean = victim_of(&f, 4);
	cr_assert_eq(f.n, 3, "k3 is demoted");
	cr_assert_null(victim(&f, 2), "leased");
	cr_assert_null(victim(&f, 5), "pinned");
	cr_assert_eq(one.n_names, 1);
	cr_assert_eq(two.n_names, 2);
	cr_assert_eq(one.bytes, CROWDED_WHOLE);
	cr_assert_not(one.clean);
	cr_assert(clean.clean);
	cr_assert_gt(one.age_ns, clean.age_ns);
	/* Patterns do not compress, and two tier files of this store say so. */
	cr_assert_gt(one.ratio, SHMS_VICTIM_ONE * 9 / 10);
	cr_assert_eq(f.c.v[clean.id].n_clean, 1);
	forget(&f);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(candidates, a_store_that_compressed_well_is_expected_to_again)
{
	static const char zeros[MIB];
	struct iovec buffer = {(void *)(uintptr_t)zeros, sizeof(zeros)};
	struct shmstore *s;
	struct found f;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	cr_assert_eq(shmstore_put(s, KEY("zeros"), NULL, 0, &buffer, 1, 0), 0);
	crowded_fill(s, 0, 1, 0);
	f = look();
	cr_assert_eq(victim_of(&f, 0).ratio, SHMS_VICTIM_ONE, "nothing is known yet");
	forget(&f);
	cr_assert_eq(shmstore_demote(s, KEY("zeros"), 0), 0, "%s", shmstore_error_detail());
	f = look();
	cr_assert_lt(victim_of(&f, 0).ratio, SHMS_VICTIM_ONE / 10);
	forget(&f);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(candidates, who_holds_more_than_its_share_weighs_more)
{
	struct shmstore *s, *small;
	struct shmstore_ticket t;
	struct found f;

	CROWDED_OR_SKIP(NULL);
	s = scratch_store("a");
	small = scratch_store("b");
	crowded_fill(s, 0, 50, 0);
	cr_assert_eq(put_pattern(small, "theirs", CROWDED_SIZE, 1, 0), 0);
	f = look();
	/* 50 of 32 MiB. */
	cr_assert_gt(victim_of(&f, 0).weight, SHMS_VICTIM_ONE * 5 / 4);
	cr_assert_lt(victim_of(&f, 0).weight, SHMS_VICTIM_ONE * 2);
	forget(&f);
	cr_assert_eq(shmstore_handoff(s, KEY("k0"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(small, KEY("k0"), &t, 0), 0);
	f = look();
	cr_assert_eq(victim_of(&f, 0).weight, SHMS_VICTIM_ONE,
		     "who needs it most says what it is worth");
	forget(&f);
	cr_assert_eq(shmstore_close(small), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(candidates, of_very_many_the_older_half_is_looked_at, .timeout = 120)
{
	enum {
		MORE = SHMS_CANDIDATES_MAX + 1000
	};
	struct shmstore *s;
	struct found f;
	struct stat st;
	char path[SCRATCH_PATH + 64];
	int64_t middle = 0;

	scratch_dir("size=512m");
	if (!scratch_is_mount() || !tiered_begin(NULL))
		cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n");
	s = scratch_store("a");
	for (unsigned i = 0; i < MORE; i++) {
		cr_assert_eq(shmstore_put(s, KEY(nth(i)), NULL, 0, NULL, 0, 0), 0);
		if (i == MORE / 2) {
			crowded_tick();
			snprintf(path, sizeof(path), "objects/%s", nth(i));
			cr_assert_eq(stat(scratch_store_path("a", path), &st), 0);
			middle = shms_stat_ns(&st.st_ctim);
		}
	}
	f = look();
	cr_assert(f.c.cut);
	cr_assert_leq(f.c.n, SHMS_CANDIDATES_MAX);
	cr_assert_gt(f.c.n, SHMS_CANDIDATES_MAX / 2 - 1);
	for (size_t i = 0; i < f.c.n; i++) {
		const struct shms_candidate_name *n = f.c.v[i].names;

		cr_assert_leq(f.c.v[i].used_ns, middle + 1000000000, "among the older ones");
		cr_assert_eq(f.c.v[i].n_names, 1);
		snprintf(path, sizeof(path), "objects/%s", n->name);
		cr_assert_eq(stat(scratch_store_path("a", path), &st), 0);
		cr_assert_eq(st.st_ino, f.c.v[i].inode, "its name is still its own");
	}
	forget(&f);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
