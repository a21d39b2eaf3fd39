/* SPDX-License-Identifier: Apache-2.0 */
/* A survey says what usage, books and reconcile say, and whose it is; it can be given up. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

#define LIST_MAX 64

struct heard {
	struct shmstore_usage usage;
	struct shmstore_store_books stores[LIST_MAX];
	char names[LIST_MAX][64], labels[LIST_MAX][64];
	struct shmstore_user_books users[LIST_MAX];
	struct shmstore_holder holders[LIST_MAX];
	size_t n_stores, n_users, n_holders, n_progress;
	uint64_t give_up_at;
	int fail;
};

static int on_store(const struct shmstore_store_books *b, void *arg)
{
	struct heard *h = arg;

	cr_assert_lt(h->n_stores, LIST_MAX);
	cr_assert_eq(h->n_users + h->n_holders, 0, "stores come first");
	snprintf(h->names[h->n_stores], sizeof(h->names[0]), "%s", b->store->name);
	snprintf(h->labels[h->n_stores], sizeof(h->labels[0]), "%s", b->store->label);
	h->stores[h->n_stores++] = *b;
	return h->fail;
}

static int on_user(const struct shmstore_user_books *b, void *arg)
{
	struct heard *h = arg;

	cr_assert_lt(h->n_users, LIST_MAX);
	h->users[h->n_users++] = *b;
	return 0;
}

static int on_holder(const struct shmstore_holder *b, void *arg)
{
	struct heard *h = arg;

	cr_assert_lt(h->n_holders, LIST_MAX);
	h->holders[h->n_holders++] = *b;
	return 0;
}

static int on_progress(uint64_t n_names, void *arg)
{
	struct heard *h = arg;

	h->n_progress++;
	return h->give_up_at && n_names >= h->give_up_at;
}

static int survey(struct heard *h)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_survey s = {
		.size = sizeof(s),
		.store = on_store,
		.user = on_user,
		.holder = on_holder,
		.progress = on_progress,
		.arg = h,
	};
	int r = shmstore_partition_survey(p, &s, &h->usage);

	shmstore_partition_unref(p);
	return r;
}

static struct shmstore_user_books *user(struct heard *h, uid_t uid)
{
	for (size_t i = 0; i < h->n_users; i++) {
		if (h->users[i].uid == uid)
			return &h->users[i];
	}
	cr_assert_fail("no user %u", (unsigned)uid);
	return NULL;
}

/* Every byte that is ours is some user's, once. */
static void ensure_users_add_up(const struct heard *h)
{
	uint64_t linked = 0, pool = 0, ghosts = 0, inflight = 0, n_stores = 0;

	for (size_t i = 0; i < h->n_users; i++) {
		linked += h->users[i].linked;
		pool += h->users[i].pool;
		ghosts += h->users[i].ghosts;
		inflight += h->users[i].inflight;
		n_stores += h->users[i].n_stores;
	}
	cr_assert_eq(linked, h->usage.linked);
	cr_assert_eq(pool, h->usage.pool);
	cr_assert_eq(ghosts, h->usage.ghosts);
	cr_assert_eq(inflight, h->usage.inflight);
	cr_assert_eq(n_stores, h->usage.n_stores);
}

static void need_mount(void)
{
	if (!scratch_is_mount())
		cr_skip_test("needs a file system of its own (root)");
}

/* An object shared by two stores, a lease, a pooled file, a ghost in another process, a writer. */
struct scene {
	struct shmstore *a, *b;
	struct other other;
	struct shmstore_writer *writer;
};

static void scene_begin(struct scene *s)
{
	struct shmstore_ticket t;
	uint64_t size = 3000000;

	s->a = scratch_store("a");
	s->b = scratch_store("b");
	s->other = other_start("other");
	cr_assert_eq(put_pattern(s->a, "x", 1000000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s->a, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(s->b, KEY("x"), &t, 0), 0);
	cr_assert_eq(shmstore_handoff(s->a, KEY("x"), 60000, &t), 0);
	cr_assert_eq(put_pattern(s->a, "p", 200000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s->a, KEY("p")), 0);
	cr_assert_eq(other_put(&s->other, "g", 700000, 1), 0);
	cr_assert_eq(other_view(&s->other, "g", 0), 0);
	cr_assert_eq(unlink(scratch_store_path("other", "objects/g")), 0);
	cr_assert_eq(shmstore_create(s->b, KEY("w"), 10, &size, 1, 0, &s->writer), 0);
}

static void scene_end(struct scene *s)
{
	shmstore_abort(s->writer);
	other_kill(&s->other);
	shmstore_close(s->a);
	shmstore_close(s->b);
}

Test(survey, says_what_usage_and_books_say)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage usage;
	struct heard h = {0};
	uint64_t pss = 0;
	struct scene s;

	need_mount();
	scene_begin(&s);
	cr_assert_eq(survey(&h), 0);
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &usage), 0);
	cr_assert_eq(memcmp(&usage, &h.usage, sizeof(usage)), 0);
	cr_assert_eq(usage.residual, 0);
	cr_assert_eq(h.n_stores, 3);
	for (size_t i = 0; i < h.n_stores; i++) {
		pss += h.stores[i].pss;
		if (strcmp(h.names[i], "b") == 0)
			cr_assert_eq(h.stores[i].uss, 0, "b's only object is a's too");
	}
	cr_assert_geq(pss + h.n_stores, usage.linked - usage.metadata);
	cr_assert_leq(pss, usage.linked - usage.metadata);
	ensure_users_add_up(&h);
	cr_assert_eq(user(&h, geteuid())->n_stores, 3);
	cr_assert_geq(user(&h, geteuid())->ghosts, 700000);
	cr_assert_geq(user(&h, geteuid())->inflight, 3000000);
	cr_assert_geq(h.n_holders, 2);
	scene_end(&s);
	shmstore_partition_unref(p);
}

Test(survey, files_are_their_owners_whoever_links_or_holds_them)
{
	struct heard h = {0}, again = {0};
	uint64_t linked, pool, ghosts, inflight;
	struct scene s;

	need_mount();
	scene_begin(&s);
	cr_assert_eq(survey(&h), 0);
	linked = user(&h, 0)->linked;
	pool = user(&h, 0)->pool;
	ghosts = user(&h, 0)->ghosts;
	inflight = user(&h, 0)->inflight;
	cr_assert_gt(pool, 0);
	/* The shared object and the pooled file become another user's; the
	 * ghost and the writer stay. */
	cr_assert_eq(chown(scratch_store_path("a", "objects/x"), 4711, 4711), 0);
	cr_assert_eq(survey(&again), 0);
	ensure_users_add_up(&again);
	cr_assert_geq(user(&again, 4711)->linked, 1000000);
	cr_assert_eq(user(&again, 4711)->linked + user(&again, 0)->linked, linked);
	cr_assert_eq(user(&again, 4711)->n_stores, 0);
	cr_assert_eq(user(&again, 0)->pool, pool);
	cr_assert_eq(user(&again, 0)->ghosts, ghosts);
	cr_assert_eq(user(&again, 0)->inflight, inflight);
	/* A ghost whose holder is root, and whose file is not. */
	memset(&again, 0, sizeof(again));
	cr_assert_eq(other_put(&s.other, "h", 500000, 1), 0);
	cr_assert_eq(chown(scratch_store_path("other", "objects/h"), 4712, 4712), 0);
	cr_assert_eq(other_view(&s.other, "h", 0), 0);
	cr_assert_eq(unlink(scratch_store_path("other", "objects/h")), 0);
	cr_assert_eq(survey(&again), 0);
	ensure_users_add_up(&again);
	cr_assert_geq(user(&again, 4712)->ghosts, 500000);
	cr_assert_leq(user(&again, 0)->ghosts, ghosts);
	scene_end(&s);
}

Test(survey, is_given_up_by_its_progress)
{
	struct heard h = {.give_up_at = 1};
	struct shmstore *s = scratch_store("a");
	char name[32];

	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "objects/%d", i);
		cr_assert_eq(close(open(scratch_store_path("a", name), O_CREAT | O_WRONLY | O_EXCL,
					0400)),
			     0);
	}
	h.usage.used = 4711;
	cr_assert_eq(survey(&h), -ECANCELED);
	cr_assert_eq(h.n_progress, 1);
	cr_assert_eq(h.n_stores + h.n_users + h.n_holders, 0,
		     "nothing is told of what was given up");
	cr_assert_eq(h.usage.used, 4711);
	h = (struct heard){0};
	cr_assert_eq(survey(&h), 0);
	cr_assert_geq(h.n_progress, 1);
	cr_assert_eq(h.usage.n_objects, 5000);
	shmstore_close(s);
}

Test(survey, a_callback_ends_it)
{
	struct heard h = {.fail = 7};
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");

	cr_assert_eq(survey(&h), 7);
	cr_assert_eq(h.n_stores, 1);
	cr_assert_eq(h.n_users, 0);
	shmstore_close(a);
	shmstore_close(b);
}

Test(survey, wrong_arguments_are_refused)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_survey s = {.size = sizeof(s)};
	struct shmstore_usage usage;

	cr_assert_eq(shmstore_partition_survey(NULL, &s, &usage), -EINVAL);
	cr_assert_eq(shmstore_partition_survey(p, NULL, &usage), -EINVAL);
	cr_assert_eq(shmstore_partition_survey(p, &s, NULL), 0, "every answer may be left out");
	s.flags = 1;
	cr_assert_eq(shmstore_partition_survey(p, &s, &usage), -EINVAL);
	s = (struct shmstore_survey){.size = 8};
	cr_assert_eq(shmstore_partition_survey(p, &s, &usage), -EINVAL);
	shmstore_partition_unref(p);
}
