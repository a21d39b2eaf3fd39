/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recycling: a deleted object's file is written again only if nobody else can still see it. For
 * each way of still seeing it there is a test that holds it so, puts like sizes over and over,
 * and looks. That files are recycled at all where nobody looks is tested first: without that
 * the others would prove nothing.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

enum {
	SIZE = 200000,
	OTHER = 500
};

static uint64_t counter(const char *store, size_t offset);

static int find_counters(const struct shmstore_store_info *info, void *arg)
{
	struct shmstore_store_info *found = arg;

	if (strcmp(info->name, found->name) == 0)
		found->counters = info->counters;
	return 0;
}

static uint64_t counter(const char *store, size_t offset)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_store_info info = {.name = store};
	uint64_t n;

	cr_assert_eq(shmstore_partition_stores(p, find_counters, &info), 0);
	shmstore_partition_unref(p);
	memcpy(&n, (char *)&info.counters + offset, sizeof(n));
	return n;
}

#define COUNTER(store, field) counter(store, offsetof(struct shmstore_counters, field))

/* Puts and deletes objects of like sizes; every pooled file that may be taken is.
 * Returns how many were recycled. */
static uint64_t churn(struct shmstore *s)
{
	uint64_t before = COUNTER(shmstore_name(s), recycled_n);

	for (uint64_t i = 0; i < 30; i++) {
		uint64_t size = SIZE - i * 1000;

		cr_assert_eq(put_pattern(s, "churn", size, OTHER + i, 0), 0);
		cr_assert_eq(get_pattern(s, "churn", size, OTHER + i), 0);
		cr_assert_eq(shmstore_delete(s, KEY("churn")), 0);
	}
	return COUNTER(shmstore_name(s), recycled_n) - before;
}

Test(recycle, deleted_files_are_used_again)
{
	struct shmstore *s = scratch_store("a");
	uint64_t inode;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	inode = inode_of("a", "k");
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	cr_assert_geq(ensure_books_close().pool, SIZE);
	cr_assert_eq(put_pattern(s, "l", SIZE - 5000, 2, 0), 0);
	cr_assert_eq(inode_of("a", "l"), inode, "the same file");
	cr_assert_eq(get_pattern(s, "l", SIZE - 5000, 2), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	cr_assert_eq(ensure_books_close().pool, 0);
	cr_assert_eq(shmstore_delete(s, KEY("l")), 0);
	cr_assert_gt(churn(s), 20);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, every_size_comes_out_right)
{
	struct shmstore *s = scratch_store("a");
	uint64_t seed = 1;

	for (int i = 0; i < 2000; i++) {
		uint64_t size;

		pattern_fill(&seed, sizeof(seed), seed);
		size = seed % (i % 3 ? 20000 : 300000);
		cr_assert_eq(put_pattern(s, "k", size, (uint64_t)i,
					 seed & (1u << 30) ? SHMSTORE_CHECKSUM : 0),
			     0);
		cr_assert_eq(get_pattern(s, "k", size, (uint64_t)i), 0, "round %d of %llu bytes", i,
			     (unsigned long long)size);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	}
	cr_assert_gt(COUNTER("a", recycled_n), 500);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, padding_and_tail_of_a_recycled_file_are_zero)
{
	struct shmstore *s = scratch_store("a");
	char *old = malloc(SIZE);
	struct iovec iov[2];
	struct stat st;
	unsigned char *file;
	int fd;

	memset(old, 0xee, SIZE);
	iov[0] = (struct iovec){old, SIZE};
	cr_assert_eq(shmstore_put(s, KEY("k"), NULL, 0, iov, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	memset(old, 0x11, SIZE);
	iov[0] = (struct iovec){old, 100001};
	iov[1] = (struct iovec){old, 90001};
	cr_assert_eq(shmstore_put(s, KEY("k"), "hhh", 3, iov, 2, 0), 0);
	cr_assert_eq(COUNTER("a", recycled_n), 1);
	fd = open(scratch_store_path("a", "objects/k"), O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fstat(fd, &st), 0);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq(file, MAP_FAILED);
	for (off_t i = 100001; i < (off_t)(100001 + 63) / 64 * 64; i++)
		cr_assert_eq(file[st.st_size - 90001 - (100001 + 63) / 64 * 64 + i], 0,
			     "the gap between two buffers");
	munmap(file, (size_t)st.st_size);
	close(fd);
	free(old);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- ways of still seeing it ----------------------------------------------------------------- */

Test(recycle, view_keeps_its_file)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, copy_on_write_view_keeps_its_file)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	v = get_view(s, "k", SHMSTORE_COW);
	*(char *)shmstore_view_buffer(v, 0, NULL) =
		*(char *)shmstore_view_buffer(v, 0, NULL); /* its first page is private now */
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, other_processs_view_keeps_its_file)
{
	struct shmstore *s = scratch_store("a");
	struct other o = other_start("b");
	struct shmstore_ticket t;

	for (unsigned flags = 0; flags <= SHMSTORE_COW; flags += SHMSTORE_COW) {
		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
		cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
		cr_assert_eq(other_adopt(&o, "k", &t), 0);
		cr_assert_eq(other_view(&o, "k", flags), 0);
		cr_assert_eq(other_delete(&o, "k"), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		churn(s);
		cr_assert_eq(other_put(&o, "x", SIZE, 77), 0);
		cr_assert_eq(other_delete(&o, "x"), 0);
		cr_assert_eq(other_put(&o, "x", SIZE, 78), 0);
		cr_assert_eq(other_delete(&o, "x"), 0);
		cr_assert_eq(other_check_view(&o, SIZE, 1), 0);
		cr_assert_eq(other_unview(&o), 0);
	}
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, other_stores_link_keeps_its_file)
{
	struct shmstore *s = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	cr_assert_eq(get_pattern(b, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(b, KEY("k")), 0);
	churn(s);
	churn(b);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(recycle, lease_keeps_its_file)
{
	struct shmstore *s = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	churn(s);
	cr_assert_eq(get_pattern(b, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

/* A child that holds something of ours: it says ready, waits for a word, checks, and
 * exits with 0 if all is as it was. */
struct holder {
	int ready[2], go[2];
	struct shmstore_view *v;
	char path[SCRATCH_PATH + 100];
	bool map;
};

static pid_t start_holder(struct holder *h, int (*fn)(struct holder *h))
{
	pid_t pid;
	char c;

	cr_assert_eq(pipe(h->ready), 0);
	cr_assert_eq(pipe(h->go), 0);
	fflush(NULL);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		close(h->go[1]);
		_exit(fn(h));
	}
	close(h->go[0]);
	cr_assert_eq(read(h->ready[0], &c, 1), 1);
	return pid;
}

static bool wait_for_word(struct holder *h)
{
	char c;

	return write(h->ready[1], "", 1) == 1 && read(h->go[0], &c, 1) == 0;
}

static int end_holder(struct holder *h, pid_t pid)
{
	int status;

	close(h->go[1]);
	close(h->ready[0]);
	close(h->ready[1]);
	waitpid(pid, &status, 0);
	return status;
}

static int hold_inherited_view(struct holder *h)
{
	if (!wait_for_word(h))
		return 1;
	return view_pattern(h->v, SIZE, 1) == 0 ? 0 : 2;
}

Test(recycle, view_that_a_forked_child_inherited_keeps_its_file)
{
	struct shmstore *s = scratch_store("a");

	for (unsigned flags = 0; flags <= SHMSTORE_COW; flags += SHMSTORE_COW) {
		struct holder h;
		pid_t pid;

		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
		h.v = get_view(s, "k", flags);
		pid = start_holder(&h, hold_inherited_view);
		shmstore_view_unref(h.v); /* ours is gone, the child's is not */
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		churn(s);
		cr_assert_eq(end_holder(&h, pid), 0);
		cr_assert_gt(churn(s), 20);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Somebody who opened the file by hand: read(2) on the descriptor, or a mapping
 * with the descriptor closed. */
static int hold_by_hand(struct holder *h)
{
	int fd = open(h->path, O_RDONLY | O_CLOEXEC);
	unsigned char *before = malloc(SIZE * 2), *after = malloc(SIZE * 2), *map = NULL;
	ssize_t n;

	if (fd < 0 || !before || !after || (n = pread(fd, before, SIZE * 2, 0)) < SIZE)
		return 1;
	if (h->map) {
		map = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (map == MAP_FAILED)
			return 1;
	}
	if (!wait_for_word(h))
		return 1;
	if (map)
		memcpy(after, map, (size_t)n);
	else if (pread(fd, after, SIZE * 2, 0) != n)
		return 2;
	return memcmp(before, after, (size_t)n) == 0 ? 0 : 3;
}

Test(recycle, file_opened_or_mapped_by_hand_keeps_its_bytes)
{
	struct shmstore *s = scratch_store("a");

	for (int map = 0; map < 2; map++) {
		struct holder h = {.map = map};
		pid_t pid;

		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
		snprintf(h.path, sizeof(h.path), "%s", scratch_store_path("a", "objects/k"));
		pid = start_holder(&h, hold_by_hand);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		churn(s);
		cr_assert_eq(end_holder(&h, pid), 0);
		cr_assert_gt(churn(s), 20);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, link_made_by_hand_keeps_its_bytes)
{
	struct shmstore *s = scratch_store("a");
	char copy[SCRATCH_PATH + 50], back[SCRATCH_PATH + 600];

	snprintf(copy, sizeof(copy), "%s/by-hand", scratch_dir(NULL));
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(link(scratch_store_path("a", "objects/k"), copy), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	snprintf(back, sizeof(back), "%s", scratch_store_path("a", "objects/back"));
	cr_assert_eq(link(copy, back), 0);
	cr_assert_eq(unlink(copy), 0);
	cr_assert_eq(get_pattern(s, "back", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, readonly_handles_view_keeps_its_file)
{
	struct shmstore *s = scratch_store("a"), *r;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_view *v;

	options.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_open(p, "a", &options, &r), 0);
	v = get_view(r, "k", 0);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	churn(s);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(recycle, opener_during_the_lease_test_is_not_killed, .timeout = 60)
{
	/* One process opens and reads the files in objects/ and recycle/ as fast as it can; the
	 * owner recycles. Nobody dies, nobody hangs. */
	struct shmstore *s = scratch_store("a");
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		char path[SCRATCH_PATH + 600], byte;

		/* Should the test die it must not open for ever. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned i = 0;; i++) {
			int fd;

			snprintf(path, sizeof(path), "%s/%u", scratch_store_path("a", "recycle"),
				 i % 400);
			fd = open(i % 2 ? path : scratch_store_path("a", "objects/churn"),
				  O_RDONLY | O_CLOEXEC);
			if (fd >= 0 && pread(fd, &byte, 1, 0) < 0)
				_exit(1);
			if (fd >= 0)
				close(fd);
		}
	}
	for (int i = 0; i < 20; i++)
		churn(s);
	cr_assert_eq(waitpid(pid, &status, WNOHANG), 0, "the opener lives");
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- bounds ---------------------------------------------------------------------------------- */

Test(recycle, pool_is_bounded_in_bytes_and_files)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;
	char key[32];

	options.recycle_max = 3 << 20;
	cr_assert_eq(shmstore_open(p, "a", &options, &s), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, 1 << 19, 1, 0), 0);
	}
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
		cr_assert_leq(ensure_books_close().pool, 3u << 20);
	}
	cr_assert_geq(ensure_books_close().pool, 2u << 20, "and used");
	cr_assert_eq(COUNTER("a", pool_bytes), ensure_books_close().pool,
		     "the ledger says what the kernel says");
	cr_assert_eq(put_pattern(s, "big", 4 << 20, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("big")), 0);
	cr_assert_leq(ensure_books_close().pool, 3u << 20,
		      "what is over the bound alone is never kept");
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(recycle, zero_turns_it_off)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	options.recycle_max = 0;
	cr_assert_eq(shmstore_open(p, "a", &options, &s), 0);
	cr_assert_eq(churn(s), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 2, SHMSTORE_REPLACE), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	cr_assert_eq(ensure_books_close().pool, 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(recycle, default_bound_is_a_sixteenth_of_the_partition)
{
	struct shmstore *s;
	char key[32];

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
	s = scratch_store("a");
	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, 1 << 20, 1, 0), 0);
	}
	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
	}
	cr_assert_leq(ensure_books_close().pool, 4u << 20);
	cr_assert_gt(ensure_books_close().pool, 2u << 20);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(recycle, dead_stores_pool_is_gcs)
{
	struct other o = other_start("a");
	struct shmstore_gc_report report;

	cr_assert_eq(other_put(&o, "k", SIZE, 1), 0);
	cr_assert_eq(other_delete(&o, "k"), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	other_kill(&o);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	cr_assert_eq(report.n_stores, 1);
	cr_assert_geq(report.freed, SIZE);
	ensure_nothing_left();
}

Test(recycle, pooled_file_removed_by_hand_does_no_harm)
{
	struct shmstore *s = scratch_store("a");
	char command[SCRATCH_PATH + 700];

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		cr_assert_eq(count_in_store("a", "recycle"), 1);
		snprintf(command, sizeof(command), "rm -f '%s'/*",
			 scratch_store_path("a", "recycle"));
		cr_assert_eq(system(command), 0); /* NOLINT(concurrency-mt-unsafe) */
		cr_assert_eq(put_pattern(s, "k", SIZE, 2, 0), 0);
		cr_assert_eq(get_pattern(s, "k", SIZE, 2), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
		churn(s);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
