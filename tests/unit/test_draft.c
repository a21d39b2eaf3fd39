/* SPDX-License-Identifier: Apache-2.0 */
/* shmstore_alloc(), shmstore_free(), and a put of what was made there. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define SIZE ((uint64_t)3 << 20)
#define PAGE 4096u

static unsigned char *draft(struct shmstore *s, uint64_t size)
{
	void *p = NULL;

	ENSURE(shmstore_alloc(s, size, 0, &p) == 0);
	ENSURE((uintptr_t)p % PAGE == 0 && shmstore_alloc_size(p) == size);
	return p;
}

static int put_whole(struct shmstore *s, const char *key, void *p, uint64_t size, unsigned flags)
{
	struct iovec buffer = {p, size};
	unsigned char header[24];

	pattern_fill(header, sizeof(header), 5);
	return shmstore_put(s, KEY(key), header, sizeof(header), &buffer, 1, flags);
}

static void check(struct shmstore *s, const char *key, uint64_t size, uint64_t seed)
{
	struct shmstore_view *v;
	uint64_t got;

	ENSURE(shmstore_get(s, KEY(key), 0, &v) == 0);
	ENSURE(pattern_check(shmstore_view_header(v, NULL), 24, 5) == 24);
	ENSURE(pattern_check(shmstore_view_buffer(v, 0, &got), size, seed) == size && got == size);
	shmstore_view_unref(v);
}

Test(draft, a_put_takes_no_memory)
{
	struct shmstore *s = scratch_store("a");
	unsigned char *p = draft(s, SIZE);
	struct shmstore_usage before, after;

	pattern_fill(p, SIZE, 1);
	before = ensure_books_close();
	cr_assert_eq(before.inflight, SIZE + PAGE);
	cr_assert_eq(put_whole(s, "k", p, SIZE, 0), 0);
	after = ensure_books_close();
	cr_assert_eq(after.used, before.used);
	cr_assert_eq(after.inflight, 0);
	cr_assert_eq(after.linked, before.linked + SIZE + PAGE);
	memset(p, 0, SIZE);
	check(s, "k", SIZE, 1);
	cr_assert_eq(shmstore_free(p), SIZE);
	check(s, "k", SIZE, 1);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(draft, the_second_put_is_a_copy)
{
	struct shmstore *s = scratch_store("a");
	unsigned char *p = draft(s, SIZE);

	pattern_fill(p, SIZE, 1);
	cr_assert_eq(put_whole(s, "k", p, SIZE, 0), 0);
	pattern_fill(p, SIZE, 2);
	cr_assert_eq(put_whole(s, "l", p, SIZE, 0), 0);
	pattern_fill(p, SIZE, 3);
	cr_assert_eq(put_whole(s, "k", p, SIZE, SHMSTORE_REPLACE), 0);
	check(s, "k", SIZE, 3);
	check(s, "l", SIZE, 2);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* pack_max: of the store that has the key. */
static void put_on_held(uint64_t pack_max)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	unsigned char *p;

	o.pack_max = pack_max;
	cr_assert_eq(shmstore_open(scratch_partition(), "a", &o, &s), 0);
	p = draft(s, SIZE);
	cr_assert_eq(put_pattern(s, "k", 100, 9, 0), 0);
	pattern_fill(p, SIZE, 1);
	cr_assert_eq(put_whole(s, "k", p, SIZE, 0), -EEXIST);
	cr_assert_eq(get_pattern(s, "k", 100, 9), 0);
	cr_assert_eq(ensure_books_close().inflight, SIZE + PAGE);
	cr_assert_eq(put_whole(s, "k", p, SIZE, SHMSTORE_REPLACE | SHMSTORE_CHECKSUM), 0);
	memset(p, 0, SIZE);
	check(s, "k", SIZE, 1);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(draft, a_held_key_is_an_error_and_changes_nothing)
{
	put_on_held(0);
}

Test(draft, a_packed_key_is_held_as_well)
{
	put_on_held(1u << 20);
}

Test(draft, what_was_freed_comes_again_without_its_old_end)
{
	struct shmstore *s = scratch_store("a");
	unsigned char *p = draft(s, SIZE);
	struct shmstore_view *v;
	void *again, *none;

	cr_assert_eq(shmstore_alloc(s, SIZE, SHMSTORE_ALLOC_KEPT, &none), -ENOSPC);
	memset(p, 0xee, SIZE);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_free(p), 0, "once");
	cr_assert_eq(shmstore_alloc(s, SIZE - 5000, SHMSTORE_ALLOC_KEPT, &again), 0);
	cr_assert_eq(again, p);
	pattern_fill(again, SIZE - 5000, 4);
	cr_assert_eq(put_whole(s, "k", again, SIZE - 5000, 0), 0);
	check(s, "k", SIZE - 5000, 4);
	cr_assert_eq(shmstore_get(s, "k", 1, 0, &v), 0);
	shmstore_view_unref(v);
	cr_assert_eq(ensure_books_close().inflight, 0, "what it was larger by went back");
	cr_assert_eq(shmstore_free(again), SIZE - 5000);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(draft, what_is_kept_goes_with_the_handle)
{
	struct shmstore *s = scratch_store("a");
	unsigned char *p = draft(s, SIZE), *live = draft(s, 2 * SIZE);

	memset(live, 1, 2 * SIZE);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(ensure_books_close().inflight, 2 * SIZE + PAGE);
	cr_assert_eq(live[2 * SIZE - 1], 1);
	cr_assert_eq(shmstore_free(live), 2 * SIZE);
	ensure_nothing_left();
}

Test(draft, of_strangers_nothing_is_done)
{
	struct shmstore *s = scratch_store("a"), *other = scratch_store("b");
	unsigned char *p = draft(s, SIZE);
	void *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	     *ret;

	cr_assert_eq(shmstore_free(NULL), 0);
	cr_assert_eq(shmstore_free(map), 0);
	cr_assert_eq(shmstore_free(p + 1), 0);
	cr_assert_eq(shmstore_free(p + PAGE), 0);
	cr_assert_eq(shmstore_alloc_size(p + PAGE), 0);
	cr_assert_eq(shmstore_alloc(s, 0, 0, &ret), -EINVAL);
	cr_assert_eq(shmstore_alloc(s, UINT64_MAX, 0, &ret), -EINVAL);
	cr_assert_eq(shmstore_alloc(s, SIZE, 2, &ret), -EINVAL);
	cr_assert_eq(shmstore_alloc(s, SIZE, 0, NULL), -EINVAL);
	pattern_fill(p, SIZE, 1);
	cr_assert_eq(put_whole(other, "k", p, SIZE, 0), 0);
	cr_assert_eq(ensure_books_close().inflight, SIZE + PAGE, "of another store: a copy");
	cr_assert_eq(put_whole(s, "k", p, SIZE - 1, 0), 0);
	cr_assert_eq(ensure_books_close().inflight, SIZE + PAGE, "a part: a copy");
	munmap(map, SIZE);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(other), 0);
	ensure_nothing_left();
}

Test(draft, a_child_has_copies_and_publishes_nothing)
{
	struct shmstore *s = scratch_store("a");
	unsigned char *p = draft(s, SIZE), *published = draft(s, SIZE), *kept = draft(s, SIZE);
	int status;
	pid_t child;

	pattern_fill(p, SIZE, 1);
	pattern_fill(published, SIZE, 2);
	cr_assert_eq(shmstore_free(kept), SIZE);
	cr_assert_eq(put_whole(s, "k", published, SIZE, 0), 0);
	child = fork();
	if (child == 0) {
		bool ok = pattern_check(p, SIZE, 1) == SIZE &&
			  pattern_check(published, SIZE, 2) == SIZE;

		memset(p, 0, SIZE);
		memset(published, 0, SIZE);
		ok = ok && put_whole(s, "c", p, SIZE, 0) == -EPERM;
		ok = ok && shmstore_free(p) == SIZE && shmstore_free(published) == SIZE &&
		     shmstore_free(kept) == 0;
		_exit(ok ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	cr_assert_eq(pattern_check(p, SIZE, 1), SIZE);
	cr_assert_eq(pattern_check(published, SIZE, 2), SIZE);
	cr_assert_eq(put_whole(s, "after", p, SIZE, 0), 0);
	memset(p, 0, SIZE);
	check(s, "after", SIZE, 1);
	check(s, "k", SIZE, 2);
	cr_assert_eq(shmstore_free(p), SIZE);
	cr_assert_eq(shmstore_free(published), SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(draft, descriptors_and_room_are_left_to_others)
{
	struct shmstore *s = scratch_store("a");
	struct rlimit limit, few;
	void *drafts[64];
	int n = 0, r;

	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 80;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((r = shmstore_alloc(s, 5000, 0, &drafts[n])) == 0)
		n++;
	cr_assert_eq(r, -EMFILE);
	cr_assert_eq(n, 20);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	while (n)
		cr_assert_eq(shmstore_free(drafts[--n]), 5000);
	if (scratch_is_mount()) {
		struct shmstore_usage u = ensure_books_close();

		cr_assert_eq(shmstore_alloc(s, u.size - u.used - u.size / 4, 0, drafts), -ENOSPC);
		cr_assert_eq(ensure_books_close().used, u.used);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
