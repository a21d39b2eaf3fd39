/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation on an object in every state that the disk tier knows, under a key that is its own
 * file name and under one that is hashed. A state is made, the operation does what its contract
 * says, and then the object is what it must be for us and for the other store that may hold it;
 * when both are closed nothing is left, in memory or on disk.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "sys.h"
#include "tiered.h"

#define SIZE   ((uint64_t)300000)
#define THEIRS "theirs" /* the object's name in the other store */

enum state {
	MEMORY,
	DEMOTED,
	CLEAN,  /* promoted: the tier file is kept */
	MAPPED, /* demoted while we have a view */
	PINNED,
	SHARED,         /* in memory, with a name in another process's store */
	SHARED_DEMOTED, /* for both */
	SHARED_CLEAN,   /* promoted by us, not yet looked for by the other */
	N_STATES
};

static const char *const state_names[N_STATES] = {
	"memory", "demoted", "clean",          "mapped",
	"pinned", "shared",  "shared-demoted", "shared-clean",
};

struct scene {
	enum state state;
	const char *key;
	struct shmstore *s;
	struct other o;
	struct shmstore_view *view; /* MAPPED */
	bool gone;                  /* the operation took our name away */
	uint64_t seed;              /* what our name holds after the operation */
};

static bool in_tier(const struct scene *x)
{
	return x->state == DEMOTED || x->state == MAPPED || x->state == SHARED_DEMOTED;
}

static bool shared(const struct scene *x)
{
	return x->state >= SHARED;
}

/* Tier files that the state has. */
static int n_files(const struct scene *x)
{
	return x->state != MEMORY && x->state != PINNED && x->state != SHARED;
}

static int locate(const struct scene *x)
{
	return shmstore_locate(x->s, KEY(x->key));
}

static void share(struct scene *x)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff(x->s, KEY(x->key), 60000, &t), 0);
	cr_assert_eq(other_adopt(&x->o, THEIRS, &t), 0);
}

static struct scene begin(enum state state, const char *key)
{
	struct scene x = {.state = state,
			  .key = key,
			  .s = scratch_store("s"),
			  .o = other_start("o"),
			  .seed = 1};
	unsigned flags = SHMSTORE_CHECKSUM | (state == PINNED ? SHMSTORE_PIN : 0);

	cr_assert_eq(put_pattern(x.s, key, SIZE, 1, flags), 0);
	if (shared(&x))
		share(&x);
	if (state == MAPPED)
		x.view = get_view(x.s, key, 0);
	if (n_files(&x))
		cr_assert_eq(shmstore_demote(x.s, KEY(key), 0), 0, "%s: %s", state_names[state],
			     shmstore_error_detail());
	if (state == CLEAN || state == SHARED_CLEAN)
		cr_assert_eq(shmstore_promote(x.s, KEY(key), 0), 0);
	cr_assert_eq(locate(&x), in_tier(&x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY, "%s",
		     state_names[state]);
	cr_assert_eq(tiered_count_files(), n_files(&x));
	return x;
}

/* Compares the bytes that a store's page says it links with the blocks of its objects. */
static int check_ledger(const struct shmstore_store_info *info, void *arg)
{
	const struct scene *x = arg;
	char path[SCRATCH_PATH + 700];
	uint64_t bytes = 0, met[16];
	size_t n_met = 0, i;
	struct dirent *e;
	struct stat st;
	DIR *d;

	snprintf(path, sizeof(path), "%s/objects", info->path);
	d = opendir(path);
	cr_assert_not_null(d, "%s", path);
	while ((e = readdir(d)) != NULL) {
		cr_assert_eq(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		for (i = 0; i < n_met && met[i] != st.st_ino; i++)
			;
		if (i < n_met) /* each inode once */
			continue;
		met[n_met++] = st.st_ino;
		if (S_ISREG(st.st_mode) && e->d_name[1] != 'k') /* "%k...": a sidecar */
			bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(d);
	cr_assert_eq(info->counters.linked_bytes, bytes, "%s: %s", state_names[x->state],
		     info->name);
	return 0;
}

static void ensure_ledgers(struct scene *x)
{
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(shmstore_partition_stores(p, check_ledger, x), 0);
	shmstore_partition_unref(p);
}

static void end(struct scene *x)
{
	const char *name = state_names[x->state];

	ensure_ledgers(x);
	cr_assert_eq(shmstore_contains(x->s, KEY(x->key)), !x->gone, "%s", name);
	cr_assert_eq(get_pattern(x->s, x->key, SIZE, x->seed), x->gone ? -ENOENT : 0, "%s: %s",
		     name, shmstore_error_detail());
	if (shared(x))
		cr_assert_eq(other_get(&x->o, THEIRS, SIZE, 1), 0, "%s", name);
	if (x->view) {
		cr_assert_eq(view_pattern(x->view, SIZE, 1), 0, "%s", name);
		shmstore_view_unref(x->view);
	}
	ensure_ledgers(x);
	ensure_books_close();
	cr_assert_eq(other_close(&x->o), 0);
	cr_assert_eq(shmstore_close(x->s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static void each_state(void (*operation)(struct scene *x))
{
	static char long_key[301];

	TIERED_OR_SKIP();
	memset(long_key, 'L', sizeof(long_key) - 1);
	for (enum state state = 0; state < N_STATES; state++) {
		for (int hashed = 0; hashed < 2; hashed++) {
			struct scene x = begin(state, hashed ? long_key : "k");

			operation(&x);
			end(&x);
		}
	}
}

#define EACH_STATE(what, result)                      \
	static void what##_##result(struct scene *x); \
	Test(tier_ops, what##_##result)               \
	{                                             \
		each_state(what##_##result);          \
	}                                             \
	static void what##_##result(struct scene *x)

/* ---- looking --------------------------------------------------------------------------------- */

EACH_STATE(contains_and_locate, move_nothing)
{
	cr_assert_eq(shmstore_contains(x->s, KEY(x->key)), 1);
	cr_assert_eq(shmstore_contains(x->s, KEY("other")), 0);
	cr_assert_eq(locate(x), in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_locate(x->s, KEY("other")), 0);
	if (shared(x))
		cr_assert_eq(other_locate(&x->o, THEIRS),
			     x->state == SHARED ? SHMSTORE_IN_MEMORY : SHMSTORE_IN_TIER);
}

static int look(const struct shmstore_object_info *info, void *arg)
{
	struct scene *x = arg;

	cr_assert_eq(info->error, 0);
	cr_assert(info->key_size == strlen(x->key) &&
		  memcmp(info->key, x->key, info->key_size) == 0);
	cr_assert(info->header_size > 0 && info->buffer_size == SIZE);
	cr_assert_eq(info->demoted, in_tier(x), "%s", state_names[x->state]);
	cr_assert_eq(info->pinned, x->state == PINNED);
	cr_assert_eq(info->blocks == 0, in_tier(x));
	cr_assert_eq(info->checksum, !in_tier(x));
	return 77;
}

EACH_STATE(foreach, says_where_it_is)
{
	cr_assert_eq(shmstore_foreach(x->s, look, x), 77);
	cr_assert_eq(count_objects(x->s), 1);
	cr_assert_eq(locate(x), in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
}

EACH_STATE(usage, counts_the_name_and_the_memory)
{
	struct shmstore_store_usage u;

	cr_assert_eq(shmstore_usage(x->s, &u), 0);
	cr_assert_eq(u.n_objects, 1);
	if (in_tier(x))
		cr_assert_lt(u.linked, SIZE);
	else
		cr_assert_geq(u.linked, SIZE);
}

EACH_STATE(get, brings_it_back)
{
	cr_assert_eq(get_pattern(x->s, x->key, SIZE, 1), 0);
	cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(x->s, x->key, SIZE, 1), 0);
	cr_assert_eq(tiered_count_files(), n_files(x), "its tier file is kept");
}

EACH_STATE(get_for_writing, changes_nobody_elses)
{
	struct shmstore_view *v = get_view(x->s, x->key, SHMSTORE_COW | SHMSTORE_VERIFY);

	memset(shmstore_view_buffer(v, 0, NULL), 0x55, SIZE);
	cr_assert_eq(get_pattern(x->s, x->key, SIZE, 1), 0);
	shmstore_view_unref(v);
}

EACH_STATE(read_only_handle, reads_it)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *r;

	options.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(p, "s", &options, &r), 0);
	cr_assert_eq(shmstore_contains(r, KEY(x->key)), 1);
	cr_assert_eq(shmstore_locate(r, KEY(x->key)),
		     in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(r, x->key, SIZE, 1), 0, "%s: %s", state_names[x->state],
		     shmstore_error_detail());
	cr_assert_eq(get_pattern(r, "other", SIZE, 1), -ENOENT);
	cr_assert_eq(shmstore_close(r), 0);
	shmstore_partition_unref(p);
}

EACH_STATE(gc, leaves_it)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_gc_report report;

	cr_assert_eq(shmstore_partition_gc(p, 0, &report), 0);
	cr_assert_eq(report.n_objects, 0);
	cr_assert_eq(locate(x), in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), n_files(x));
	shmstore_partition_unref(p);
}

/* ---- changing -------------------------------------------------------------------------------- */

EACH_STATE(put_and_create, find_the_key_held)
{
	cr_assert_eq(put_pattern(x->s, x->key, SIZE, 2, 0), -EEXIST);
	/* looked for before the copy */
	cr_assert_eq(put_pattern(x->s, x->key, 2 * SIZE * 4, 2, 0), -EEXIST);
	cr_assert_eq(seal_pattern(x->s, x->key, SIZE, 2, 0), -EEXIST);
	cr_assert_eq(locate(x), in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
}

EACH_STATE(put, replaces_it)
{
	cr_assert_eq(put_pattern(x->s, x->key, SIZE, 2, SHMSTORE_REPLACE), 0);
	x->seed = 2;
	cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), shared(x) ? n_files(x) : 0);
}

EACH_STATE(seal, replaces_it)
{
	cr_assert_eq(seal_pattern(x->s, x->key, SIZE, 2, SHMSTORE_REPLACE), 0);
	x->seed = 2;
	cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), shared(x) ? n_files(x) : 0);
	cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0,
		     "what a clean copy was of is another object now");
}

EACH_STATE(put_of_its_view, is_one_more_name)
{
	struct shmstore_view *v = get_view(x->s, x->key, 0);
	struct iovec buffer = {shmstore_view_buffer(v, 0, NULL), SIZE};
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);

	cr_assert_eq(shmstore_put(x->s, KEY("again"), header, header_size, &buffer, 1, 0), 0);
	shmstore_view_unref(v);
	if (x->state != PINNED)
		cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0);
	cr_assert_eq(get_pattern(x->s, "again", SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(x->s, KEY("again")), 0);
}

EACH_STATE(delete, takes_the_tier_file_along)
{
	cr_assert_eq(shmstore_delete(x->s, KEY(x->key)), 0);
	x->gone = true;
	cr_assert_eq(locate(x), 0);
	cr_assert_eq(shmstore_delete(x->s, KEY(x->key)), -ENOENT);
	cr_assert_eq(count_objects(x->s), 0);
	cr_assert_eq(tiered_count_files(), shared(x) ? n_files(x) : 0);
}

EACH_STATE(delete_and_put, make_a_new_object)
{
	cr_assert_eq(shmstore_delete(x->s, KEY(x->key)), 0);
	cr_assert_eq(put_pattern(x->s, x->key, SIZE, 2, 0), 0);
	x->seed = 2;
	cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0);
	cr_assert_eq(locate(x), SHMSTORE_IN_TIER);
}

/* ---- to others ------------------------------------------------------------------------------- */

static void hand_over(struct scene *x, unsigned flags, int where)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff_flags(x->s, KEY(x->key), 60000, flags, &t), 0);
	cr_assert_eq(t.buffer_size, SIZE);
	cr_assert_eq(locate(x), where, "%s", state_names[x->state]);
	cr_assert_eq(shmstore_delete(x->s, KEY(x->key)), 0);
	x->gone = true;
	cr_assert_eq(other_adopt(&x->o, "given", &t), 0, "%s", state_names[x->state]);
	cr_assert_eq(other_locate(&x->o, "given"), where);
	cr_assert_eq(other_get(&x->o, "given", SIZE, 1), 0);
	cr_assert_eq(other_adopt(&x->o, "twice", &t), -ESTALE);
}

EACH_STATE(handoff, promotes_it_for_the_receiver)
{
	hand_over(x, 0, SHMSTORE_IN_MEMORY);
}

EACH_STATE(handoff_as_is, moves_nothing)
{
	hand_over(x, SHMSTORE_AS_IS, in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
}

static bool has_expired(void *until_ms)
{
	return shms_now_boot_ms() > *(uint64_t *)until_ms;
}

EACH_STATE(lease_that_nobody_takes, ends_by_its_time)
{
	struct shmstore_ticket t;
	uint64_t until_ms;

	cr_assert_eq(shmstore_handoff_flags(x->s, KEY(x->key), 1, SHMSTORE_AS_IS, &t), 0);
	until_ms = shms_now_boot_ms() + 1;
	cr_assert(wait_until(has_expired, &until_ms, 10000));
	cr_assert_eq(other_adopt(&x->o, "given", &t), -ESTALE);
}

EACH_STATE(adopt, finds_the_key_held_and_replaces)
{
	struct shmstore_ticket t;

	cr_assert_eq(other_put(&x->o, "new", SIZE, 3), 0);
	cr_assert_eq(other_handoff(&x->o, "new", 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(x->s, KEY(x->key), &t, 0), -EEXIST);
	cr_assert_eq(locate(x), in_tier(x) ? SHMSTORE_IN_TIER : SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_adopt(x->s, KEY(x->key), &t, SHMSTORE_REPLACE), 0);
	x->seed = 3;
	cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), shared(x) ? n_files(x) : 0);
}

EACH_STATE(adopt_of_a_demoted_object, replaces_by_its_stub)
{
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(x->s, "new", SIZE, 3, 0), 0);
	cr_assert_eq(shmstore_demote(x->s, KEY("new"), 0), 0);
	cr_assert_eq(shmstore_handoff_flags(x->s, KEY("new"), 60000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_adopt(x->s, KEY(x->key), &t, 0), -EEXIST);
	cr_assert_eq(shmstore_adopt(x->s, KEY(x->key), &t, SHMSTORE_REPLACE), 0);
	x->seed = 3;
	cr_assert_eq(locate(x), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_delete(x->s, KEY("new")), 0);
	cr_assert_eq(locate(x), SHMSTORE_IN_TIER);
}

EACH_STATE(adopt_by_ourselves, is_the_same_object)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff_flags(x->s, KEY(x->key), 60000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_adopt(x->s, KEY(x->key), &t, 0), 0, "held already");
	cr_assert_eq(shmstore_handoff_flags(x->s, KEY(x->key), 60000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_adopt(x->s, KEY("second"), &t, 0), 0);
	cr_assert_eq(get_pattern(x->s, "second", SIZE, 1), 0);
	cr_assert_eq(get_pattern(x->s, x->key, SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(x->s, KEY(x->key)), 0);
	x->gone = true;
	cr_assert_eq(get_pattern(x->s, "second", SIZE, 1), 0);
	cr_assert_leq(tiered_count_files(), n_files(x));
}

/* ---- moving ---------------------------------------------------------------------------------- */

EACH_STATE(demote, moves_all_names_but_not_a_pinned_one)
{
	int pinned = x->state == PINNED;

	for (int i = 0; i < 2; i++) {
		cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), pinned ? -EPERM : 0, "%s: %s",
			     state_names[x->state], shmstore_error_detail());
		cr_assert_eq(locate(x), pinned ? SHMSTORE_IN_MEMORY : SHMSTORE_IN_TIER);
		if (shared(x))
			cr_assert_eq(other_locate(&x->o, THEIRS), SHMSTORE_IN_TIER);
	}
	cr_assert_eq(tiered_count_files(), !pinned, "one object, one file");
	cr_assert_eq(tiered_count_anchors(), !pinned);
	cr_assert_eq(shmstore_demote(x->s, KEY("other"), 0), -ENOENT);
	if (!shared(x) && !x->view)
		cr_assert(pinned || ensure_books_close().linked < SIZE);
}

EACH_STATE(demote_by_the_other, is_for_us_too)
{
	if (!shared(x))
		return;
	cr_assert_eq(other_demote(&x->o, THEIRS), 0);
	/* Of an object that we promoted its own name is in the tier still:
	 * then it has nothing to do. */
	cr_assert_eq(locate(x), x->state == SHARED_CLEAN ? SHMSTORE_IN_MEMORY : SHMSTORE_IN_TIER);
	cr_assert_eq(other_locate(&x->o, THEIRS), SHMSTORE_IN_TIER);
	cr_assert_eq(tiered_count_files(), 1);
}

EACH_STATE(promote, brings_it_back_once_for_all)
{
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(shmstore_promote(x->s, KEY(x->key), 0), 0);
		cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	}
	cr_assert_eq(shmstore_promote(x->s, KEY("other"), 0), -ENOENT);
	if (!shared(x))
		return;
	cr_assert_eq(other_promote(&x->o, THEIRS, 0), 0);
	if (strcmp(x->key, "k") == 0)
		cr_assert_eq(inode_of("s", "k"), inode_of("o", THEIRS), "it is one object");
}

EACH_STATE(moves_there_and_back, write_it_once)
{
	struct shms_stub first, now;

	if (x->state == PINNED)
		return;
	cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0);
	for (int i = 0; i < 3 && strcmp(x->key, "k") == 0; i++) {
		cr_assert(tiered_stub("s", "objects", "k", &first));
		cr_assert_eq(get_pattern(x->s, x->key, SIZE, 1), 0);
		cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0);
		cr_assert(tiered_stub("s", "objects", "k", &now));
		cr_assert_eq(now.id, first.id);
	}
	cr_assert_eq(tiered_count_files(), 1);
}

EACH_STATE(pin, holds_it_in_memory_for_all)
{
	cr_assert_eq(shmstore_pin(x->s, KEY(x->key), true), 0);
	cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), -EPERM);
	if (shared(x)) {
		cr_assert_eq(other_get(&x->o, THEIRS, SIZE, 1), 0);
		cr_assert_eq(other_demote(&x->o, THEIRS), -EPERM);
	}
	cr_assert_eq(shmstore_pin(x->s, KEY(x->key), false), 0);
	cr_assert_eq(shmstore_pin(x->s, KEY("other"), true), -ENOENT);
	cr_assert_eq(shmstore_demote(x->s, KEY(x->key), 0), 0);
	cr_assert_eq(locate(x), SHMSTORE_IN_TIER);
}

EACH_STATE(prefetch, brings_back_what_is_there)
{
	struct iovec keys[3] = {{(char *)(uintptr_t)x->key, strlen(x->key)},
				{(char *)(uintptr_t) "other", 5},
				{(char *)(uintptr_t)x->key, strlen(x->key)}};
	int results[3] = {1, 1, 1};

	for (unsigned n_threads = 0; n_threads < 3; n_threads += 2) {
		cr_assert_eq(shmstore_prefetch(x->s, keys, 3, n_threads, 0, results), 2);
		cr_assert(results[0] == 0 && results[1] == -ENOENT && results[2] == 0);
		cr_assert_eq(locate(x), SHMSTORE_IN_MEMORY);
	}
}
