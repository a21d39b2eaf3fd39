/* SPDX-License-Identifier: Apache-2.0 */
/* Many keys promoted ahead: all of them, in whatever number of threads, each with its own result,
 * and no more than there is room for. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"
#include "tiered.h"
#include "tierformat.h"

enum {
	N_KEYS = 40
};

static bool watching;
static _Atomic unsigned n_started;

/* The library's threads are started here: counted, and none may take the program's signals. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *),
		   void *arg)
{
	typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	sigset_t blocked;

	if (watching) {
		n_started++;
		cr_assert_eq(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
		cr_assert(sigismember(&blocked, SIGTERM) == 1 &&
			  sigismember(&blocked, SIGUSR1) == 1);
	}
	return NEXT(create *, "pthread_create")(thread, attributes, fn, arg);
}

static char names[N_KEYS][16];
static struct iovec keys[N_KEYS];
static int results[N_KEYS];

static uint64_t size_of(int i)
{
	return i % 10 == 3 ? SHMS_TIER_FRAME + 12345 : (uint64_t)(i + 1) * 3000;
}

static void name_keys(void)
{
	for (int i = 0; i < N_KEYS; i++) {
		snprintf(names[i], sizeof(names[i]), "key%d", i);
		keys[i] = (struct iovec){names[i], strlen(names[i])};
	}
}

static struct shmstore *store_of_demoted(void)
{
	struct shmstore *s = scratch_store("s");

	name_keys();
	for (int i = 0; i < N_KEYS; i++) {
		cr_assert_eq(put_pattern(s, names[i], size_of(i), (uint64_t)i, 0), 0);
		cr_assert_eq(shmstore_demote(s, KEY(names[i]), 0), 0);
	}
	return s;
}

static int n_threads_now(void)
{
	return count_dir("/proc/self/task");
}

static void finish(struct shmstore *s)
{
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static void fetch_all(unsigned n_threads)
{
	struct shmstore *s;
	int n_before;

	TIERED_OR_SKIP();
	s = store_of_demoted();
	n_before = n_threads_now();
	cr_assert_eq(shmstore_prefetch(s, keys, N_KEYS, n_threads, 0, results), N_KEYS);
	cr_assert_leq(n_threads_now(), n_before, "they end with the call");
	for (int i = 0; i < N_KEYS; i++) {
		cr_assert_eq(results[i], 0);
		cr_assert_eq(shmstore_locate(s, KEY(names[i])), SHMSTORE_IN_MEMORY);
		cr_assert_eq(get_pattern(s, names[i], size_of(i), (uint64_t)i), 0);
	}
	cr_assert_eq(shmstore_prefetch(s, keys, N_KEYS, n_threads, 0, NULL), N_KEYS,
		     "and again, with nothing to do");
	finish(s);
}

Test(prefetch, all_by_the_caller)
{
	fetch_all(0);
}

Test(prefetch, all_by_some_threads)
{
	fetch_all(3);
}

Test(prefetch, all_by_more_threads_than_there_are_keys)
{
	fetch_all(1000);
}

Test(prefetch, one_large_object_by_many_threads)
{
	struct shmstore *s;
	uint64_t size = 5 * (uint64_t)SHMS_TIER_FRAME + 17;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	name_keys();
	cr_assert_eq(put_pattern(s, names[0], size, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY(names[0]), 0), 0);
	cr_assert_eq(shmstore_prefetch(s, keys, 1, 4, 0, results), 1);
	cr_assert_eq(shmstore_locate(s, KEY(names[0])), SHMSTORE_IN_MEMORY);
	cr_assert_eq(get_pattern(s, names[0], size, 1), 0);
	finish(s);
}

Test(prefetch, each_key_has_its_own_result)
{
	struct shmstore *s;
	char path[TIERED_PATH + 256];

	TIERED_OR_SKIP();
	s = store_of_demoted();
	cr_assert_eq(shmstore_delete(s, KEY(names[5])), 0);
	cr_assert_eq(shmstore_promote(s, KEY(names[6]), 0), 0);
	tiered_damage("s", names[7], SHMS_TIER_ALIGN);
	snprintf(path, sizeof(path), "%s", tiered_file("s", names[7]));
	for (unsigned n_threads = 0; n_threads < 3; n_threads++) {
		cr_assert_eq(shmstore_prefetch(s, keys, N_KEYS, n_threads, 0, results), N_KEYS - 2);
		for (int i = 0; i < N_KEYS; i++)
			cr_assert_eq(results[i], i == 5 ? -ENOENT : i == 7 ? -EBADMSG : 0, "%d", i);
		cr_assert_str_eq(shmstore_error_path(), path, "of whichever thread met it");
		cr_assert(strstr(shmstore_error_detail(), path));
	}
	finish(s);
}

static void little_room(unsigned flags)
{
	enum {
		SIZE = 4 << 20
	};
	struct shmstore *s;
	int n, n_there = 0;

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	TIERED_OR_SKIP();
	s = scratch_store("s");
	name_keys();
	for (int i = 0; i < N_KEYS; i++) {
		cr_assert_eq(put_pattern(s, names[i], SIZE, (uint64_t)i, 0), 0);
		cr_assert_eq(shmstore_demote(s, KEY(names[i]), 0), 0);
	}
	/* Objects that are in memory now may be evicted. */
	for (int i = 0; i < 3; i++)
		cr_assert_eq(put_pattern(s, "cold", 4 * SIZE, 1000, SHMSTORE_REPLACE), 0);
	n = shmstore_prefetch(s, keys, N_KEYS, 2, flags, results);
	if (flags & SHMSTORE_NO_EVICT)
		cr_assert(n > 8 && n < 12, "%d", n);
	else
		cr_assert(n > 6 && n < 16, "%d", n);
	for (int i = 0; i < N_KEYS; i++) {
		cr_assert_eq(results[i],
			     shmstore_locate(s, KEY(names[i])) == SHMSTORE_IN_MEMORY ? 0 : -ENOSPC);
		n_there += shmstore_locate(s, KEY(names[i])) == SHMSTORE_IN_MEMORY;
	}
	cr_assert_eq(n_there, n);
	for (int i = 0; i < N_KEYS; i++)
		cr_assert_eq(get_pattern(s, names[i], SIZE, (uint64_t)i), 0, "%d: %s", i,
			     shmstore_error_detail());
	finish(s);
}

Test(prefetch, brings_back_no_more_than_there_is_room_for)
{
	little_room(SHMSTORE_NO_EVICT);
}

Test(prefetch, evicts_others_but_not_what_it_brought_back_itself)
{
	little_room(0);
}

Test(prefetch, starts_no_more_threads_than_it_may_and_none_for_signals)
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store_of_demoted();
	for (unsigned allowed = 0; allowed < 5; allowed++) {
		n_started = 0;
		watching = true;
		cr_assert_eq(shmstore_prefetch(s, keys, N_KEYS, allowed, 0, NULL), N_KEYS);
		watching = false;
		cr_assert_eq(n_started, allowed, "%u", allowed);
		for (int i = 0; i < N_KEYS; i++)
			cr_assert_eq(shmstore_demote(s, KEY(names[i]), 0), 0);
	}
	/* One object: what is allowed beyond one thread is the engine's to use, or not. */
	n_started = 0;
	watching = true;
	cr_assert_eq(shmstore_prefetch(s, keys, 1, 3, 0, NULL), 1);
	watching = false;
	cr_assert_leq(n_started, 3);
	finish(s);
}
