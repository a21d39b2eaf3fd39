/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that pack: which objects are packed, what is a file all the same,
 * and what others see of them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define MAX (64u << 10)

static struct shmstore *open_store(const char *name, bool keep, unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	int r;

	o.keep = keep;
	o.flags = flags;
	o.pack_max = MAX;
	o.recycle_max = 0;
	r = shmstore_open(scratch_partition(), name, &o, &s);
	cr_assert_eq(r, 0, "open: %s", shmstore_strerror(r));
	return s;
}

static bool shows(const struct shmstore_view *v, size_t size, uint64_t seed)
{
	return view_pattern(v, size, seed) == 0;
}

static bool has(struct shmstore *s, const char *key, size_t size, uint64_t seed)
{
	return get_pattern(s, key, size, seed) == 0;
}

struct listed {
	unsigned n, n_packed;
	uint64_t blocks;
};

static int list(const struct shmstore_object_info *info, void *arg)
{
	struct listed *l = arg;

	l->n++;
	l->n_packed += info->packed;
	l->blocks += info->blocks;
	cr_assert_eq(info->error, 0);
	cr_assert_geq(info->links, 1);
	return 0;
}

static struct listed listed(struct shmstore *s)
{
	struct listed l = {0};

	cr_assert_eq(shmstore_foreach(s, list, &l), 0);
	return l;
}

static unsigned n_packed(struct shmstore *s)
{
	return listed(s).n_packed;
}

static void books_agree(void)
{
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u), 0);
	if (scratch_is_mount())
		cr_assert_eq(u.residual, 0, "residual %lld of %llu", (long long)u.residual,
			     (unsigned long long)u.used);
	cr_assert_eq(u.foreign, 0);
}

Test(packed, small_objects_are_packed_and_large_ones_files)
{
	struct shmstore *s = open_store("a", false, 0);
	struct shmstore_usage u;

	cr_assert_eq(put_pattern(s, "small", 1000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "edge", MAX - PATTERN_HEADER, 2, 0), 0);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(put_pattern(s, "large", MAX - PATTERN_HEADER + 1, 3, 0), 0);
	cr_assert_eq(put_pattern(s, "sum", 1000, 4, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(put_pattern(s, "pin", 1000, 5, SHMSTORE_PIN), 0);
	cr_assert_eq(put_pattern(s, "", 1000, 6, 0), 0);
	cr_assert_eq(count_in_store("a", "objects"), 2);
	cr_assert_eq(listed(s).n, 6);
	cr_assert_eq(n_packed(s), 4);
	cr_assert(has(s, "small", 1000, 1) && has(s, "edge", MAX - PATTERN_HEADER, 2) &&
		  has(s, "large", MAX - PATTERN_HEADER + 1, 3));
	cr_assert(has(s, "sum", 1000, 4) && has(s, "pin", 1000, 5) && has(s, "", 1000, 6));
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.n_objects, 6);
	books_agree();
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_dir(scratch_store_path("a", "")), -ENOENT);
	books_agree();
}

Test(packed, key_is_a_file_or_a_packed_object)
{
	struct shmstore *s = open_store("a", false, 0);

	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "k", 100, 2, 0), -EEXIST);
	cr_assert_eq(put_pattern(s, "k", 200000, 2, 0), -EEXIST);
	cr_assert(has(s, "k", 100, 1));
	cr_assert_eq(put_pattern(s, "k", 200, 3, SHMSTORE_REPLACE), 0);
	cr_assert(has(s, "k", 200, 3));
	cr_assert_eq(n_packed(s), 1);
	cr_assert_eq(put_pattern(s, "k", 200000, 4, SHMSTORE_REPLACE), 0);
	cr_assert(has(s, "k", 200000, 4));
	cr_assert_eq(n_packed(s), 0);
	cr_assert_eq(put_pattern(s, "k", 100, 5, 0), -EEXIST);
	cr_assert_eq(put_pattern(s, "k", 100, 6, SHMSTORE_REPLACE), 0);
	cr_assert(has(s, "k", 100, 6));
	cr_assert_eq(listed(s).n, 1);
	cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	cr_assert_eq(shmstore_delete(s, "k", 1), -ENOENT);
	cr_assert_eq(put_pattern(s, "k", 100, 7, 0), 0);
	cr_assert_eq(n_packed(s), 1);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(packed, view_stays_whatever_becomes_of_the_key)
{
	struct shmstore *s = open_store("a", false, 0);
	struct shmstore_view *v[3], *cow;
	char *bytes;

	cr_assert_eq(put_pattern(s, "a", 3000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "b", 3000, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "c", 3000, 3, 0), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shmstore_get(s, &"abc"[i], 1, 0, &v[i]), 0);
	cr_assert_eq(shmstore_get(s, "a", 1, SHMSTORE_COW, &cow), 0);
	bytes = shmstore_view_buffer(cow, 0, NULL);
	memset(bytes, 0, 3000);
	cr_assert(shows(v[0], 3000, 1));
	shmstore_view_unref(cow);
	cr_assert_eq(shmstore_delete(s, "a", 1), 0);
	cr_assert_eq(put_pattern(s, "b", 3000, 20, SHMSTORE_REPLACE), 0);
	for (unsigned i = 0; i < 500; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%u", i % 50);
		cr_assert_eq(put_pattern(s, key, 3000, 100 + i, SHMSTORE_REPLACE), 0);
	}
	cr_assert(shows(v[0], 3000, 1) && shows(v[1], 3000, 2) && shows(v[2], 3000, 3));
	books_agree();
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert(shows(v[0], 3000, 1) && shows(v[1], 3000, 2) && shows(v[2], 3000, 3));
	books_agree();
	for (int i = 0; i < 3; i++)
		shmstore_view_unref(v[i]);
	books_agree();
}

Test(packed, what_only_files_can_do_is_done_by_a_file)
{
	struct shmstore *s = open_store("a", false, 0);
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "p", 5000, 2, 0), 0);
	cr_assert_eq(shmstore_get(s, "p", 1, 0, &v), 0);
	cr_assert_eq(shmstore_locate(s, "p", 1), SHMSTORE_IN_MEMORY);
	cr_assert_eq(shmstore_demote(s, "p", 1, 0), -ENOENT, "there is no tier");
	cr_assert_eq(n_packed(s), 0);
	cr_assert_eq(listed(s).n, 1);
	cr_assert(has(s, "p", 5000, 2) && shows(v, 5000, 2));
	shmstore_view_unref(v);
	books_agree();
	cr_assert_eq(shmstore_close(s), 0);
}

/* ---- tickets --------------------------------------------------------------------------------- */

static struct shmstore_ticket handoff(struct shmstore *s, const char *key)
{
	struct shmstore_ticket t;
	int r = shmstore_handoff(s, key, strlen(key), 60000, &t);

	cr_assert_eq(r, 0, "handoff: %s", shmstore_strerror(r));
	return t;
}

static int adopt(struct shmstore *s, const char *key, const struct shmstore_ticket *t,
		 unsigned flags)
{
	return shmstore_adopt(s, key, strlen(key), t, flags);
}

Test(packed, ticket_brings_the_slot_and_no_copy)
{
	struct shmstore *a = open_store("a", false, 0), *b = open_store("b", false, 0), *c;
	struct shmstore_options files = SHMSTORE_OPTIONS_INIT;
	struct shmstore_usage u;
	struct shmstore_ticket t, again;

	cr_assert_eq(put_pattern(a, "k", 5000, 1, 0), 0);
	t = handoff(a, "k");
	cr_assert_eq(t.buffer_size, 5000);
	cr_assert_eq(adopt(b, "k", &t, 0), 0);
	cr_assert_eq(adopt(b, "k", &t, 0), -ESTALE);
	cr_assert(has(b, "k", 5000, 1));
	cr_assert_eq(n_packed(a), 1);
	cr_assert_eq(n_packed(b), 1);
	cr_assert_eq(count_in_store("b", "objects"), 0);
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), 0, &u), 0);
	cr_assert_eq(u.n_objects, 2);
	cr_assert_eq(shmstore_delete(a, "k", 1), 0);
	again = handoff(b, "k");
	/* A store that makes no packed object takes one. */
	cr_assert_eq(shmstore_open(scratch_partition(), "c", &files, &c), 0);
	cr_assert_eq(adopt(c, "k", &again, 0), 0);
	cr_assert(has(c, "k", 5000, 1));
	books_agree();
	cr_assert_eq(shmstore_close(b), 0);
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(put_pattern(a, "n", 5000, i, SHMSTORE_REPLACE), 0);
	cr_assert(has(c, "k", 5000, 1));
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert(has(c, "k", 5000, 1));
	books_agree();
	cr_assert_eq(shmstore_close(c), 0);
	books_agree();
}

Test(packed, ticket_meets_a_key_that_is_held)
{
	struct shmstore *a = open_store("a", false, 0), *b = open_store("b", false, 0);
	struct shmstore_ticket t, u;

	cr_assert_eq(put_pattern(a, "k", 5000, 1, 0), 0);
	cr_assert_eq(put_pattern(b, "k", 10, 2, 0), 0);
	cr_assert_eq(put_pattern(b, "f", 200000, 3, 0), 0);
	t = handoff(a, "k");
	cr_assert_eq(adopt(b, "k", &t, 0), -EEXIST);
	cr_assert_eq(adopt(b, "f", &t, 0), -EEXIST);
	cr_assert(has(b, "k", 10, 2) && has(b, "f", 200000, 3));
	cr_assert_eq(adopt(b, "k", &t, SHMSTORE_REPLACE), 0);
	cr_assert(has(b, "k", 5000, 1));
	/* Under another key: one more name. Over a file: a copy. */
	t = handoff(a, "k");
	cr_assert_eq(adopt(b, "other", &t, 0), 0);
	cr_assert_eq(adopt(b, "another", &t, 0), -ESTALE);
	u = handoff(a, "k");
	cr_assert_eq(adopt(b, "f", &u, SHMSTORE_REPLACE), 0);
	cr_assert(has(b, "other", 5000, 1) && has(b, "f", 5000, 1));
	cr_assert_eq(adopt(b, "another", &u, 0), -ESTALE);
	/* The same key, where it is a file. */
	cr_assert_eq(put_pattern(a, "f", 5000, 4, 0), 0);
	cr_assert_eq(put_pattern(b, "f", 200000, 3, SHMSTORE_REPLACE), 0);
	u = handoff(a, "f");
	cr_assert_eq(adopt(b, "f", &u, 0), -EEXIST);
	cr_assert(has(b, "f", 200000, 3));
	cr_assert_eq(adopt(b, "f", &u, SHMSTORE_REPLACE), 0);
	cr_assert(has(b, "f", 5000, 4));
	cr_assert_eq(listed(b).n, 3);
	cr_assert_eq(shmstore_handoff(a, "k", 1, 1, &u), 0);
	cr_assert_eq(put_pattern(b, "f", 200000, 3, SHMSTORE_REPLACE), 0);
	for (uint64_t end = shmstore_lease_clock_ms() + 2; shmstore_lease_clock_ms() < end;)
		continue;
	cr_assert_eq(adopt(b, "f", &u, SHMSTORE_REPLACE), -ESTALE);
	/* A ticket that lies. */
	t = handoff(a, "k");
	t.buffer_size--;
	cr_assert_eq(adopt(b, "lie", &t, 0), -EBADMSG);
	t.buffer_size++;
	t.path[strlen(t.path) - 20] ^= 1; /* the generation */
	cr_assert_eq(adopt(b, "lie", &t, 0), -ESTALE);
	t.path[strlen(t.path) - 32] = 'f'; /* the slot */
	cr_assert_lt(adopt(b, "lie", &t, 0), 0);
	cr_assert_eq(shmstore_contains(b, "lie", 3), 0);
	/* An object of which all leases are out is handed off as a file. */
	for (unsigned i = 0; i < 20; i++) {
		char key[16];

		t = handoff(a, "k");
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(i % 2 ? adopt(b, key, &t, 0) : 0, 0);
	}
	cr_assert(has(a, "k", 5000, 1) && has(b, "k19", 5000, 1));
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

static struct shmstore_ticket *shared; /* with children */

static int donate_and_die(void *arg)
{
	struct shmstore *s = open_store("a", false, 0);

	(void)arg;
	if (put_pattern(s, "k", 5000, 1, 0) < 0)
		return 1;
	*shared = handoff(s, "k");
	kill(getpid(), SIGKILL);
	return 0;
}

static int adopt_and_die(void *arg)
{
	struct shmstore *s = open_store("b", false, 0);

	(void)arg;
	if (adopt(s, "k", shared, 0) < 0 || !has(s, "k", 5000, 1))
		return 1;
	kill(getpid(), SIGKILL);
	return 0;
}

Test(packed, killed_donor_and_killed_receiver)
{
	struct shmstore_usage before, after;
	struct shmstore *s;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	cr_assert_neq(shared, MAP_FAILED);
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &before),
		     0);
	cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	/* The lease keeps the object, whatever becomes of the donor. */
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	s = open_store("c", false, 0);
	cr_assert_eq(adopt(s, "k", shared, 0), 0);
	cr_assert(has(s, "k", 5000, 1));
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(count_dir(scratch_store_path("a", "")), -ENOENT);
	cr_assert(has(s, "k", 5000, 1));
	books_agree();
	cr_assert_eq(shmstore_close(s), 0);
	s = open_store("c", false, 0);
	cr_assert_eq(put_pattern(s, "k", 5000, 1, 0), 0);
	*shared = handoff(s, "k");
	cr_assert_eq(in_child(adopt_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(count_dir(scratch_store_path("b", "")), -ENOENT);
	cr_assert(has(s, "k", 5000, 1));
	cr_assert_eq(listed(s).n, 1);
	books_agree();
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &after), 0);
	if (scratch_is_mount())
		cr_assert_eq(after.used, before.used);
	munmap(shared, sizeof(*shared));
}

Test(packed, kept_receiver_finds_what_it_adopted)
{
	struct shmstore *a = open_store("a", false, 0), *b = open_store("b", true, 0);
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", 5000, 1, 0), 0);
	t = handoff(a, "k");
	cr_assert_eq(adopt(b, "k", &t, 0), 0);
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_eq(shmstore_delete(a, "k", 1), 0);
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(put_pattern(a, "n", 5000, i, SHMSTORE_REPLACE), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	b = open_store("b", false, 0);
	cr_assert(has(b, "k", 5000, 1));
	cr_assert_eq(n_packed(b), 1);
	books_agree();
	cr_assert_eq(shmstore_close(b), 0);
	books_agree();
}

Test(packed, kept_store_and_its_readers_have_all)
{
	struct shmstore_options only = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = open_store("a", true, 0), *reader;
	struct shmstore_view *v;
	char key[4000];

	memset(key, 'x', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(put_pattern(s, "small", 10, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "middle", 30000, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "file", 300000, 3, 0), 0);
	cr_assert_eq(put_pattern(s, key, 100, 4, 0), 0);
	for (int i = 0; i < 2; i++) {
		only.flags = SHMSTORE_OPEN_READONLY;
		cr_assert_eq(shmstore_open(scratch_partition(), "a", &only, &reader), 0);
		cr_assert(has(reader, "small", 10, 1) && has(reader, "middle", 30000, 2));
		cr_assert(has(reader, "file", 300000, 3) && has(reader, key, 100, 4));
		cr_assert_eq(shmstore_contains(reader, "small", 5), 1);
		cr_assert_eq(shmstore_contains(reader, "smal", 4), 0);
		cr_assert_eq(shmstore_get(reader, "smal", 4, 0, &v), -ENOENT);
		cr_assert_eq(listed(reader).n_packed, 3);
		cr_assert_eq(shmstore_close(reader), 0);
		if (i == 0)
			cr_assert_eq(shmstore_close(s), 0);
	}
	books_agree();
	s = open_store("a", false, 0);
	cr_assert(has(s, "small", 10, 1) && has(s, "middle", 30000, 2) &&
		  has(s, "file", 300000, 3));
	cr_assert(has(s, key, 100, 4));
	cr_assert_eq(put_pattern(s, "small", 10, 5, 0), -EEXIST);
	cr_assert_eq(listed(s).n, 4);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_dir(scratch_store_path("a", "")), -ENOENT);
	books_agree();
}

static int be_killed(void *arg)
{
	struct shmstore *s = open_store("a", *(bool *)arg, 0);

	for (unsigned i = 0; i < 100; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%u", i);
		if (put_pattern(s, key, 10 * i, i, 0) < 0)
			return 1;
	}
	kill(getpid(), SIGKILL);
	return 0;
}

static bool has_all(struct shmstore *s)
{
	for (unsigned i = 0; i < 100; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%u", i);
		if (!has(s, key, 10 * i, i))
			return false;
	}
	return listed(s).n_packed == 100;
}

Test(packed, killed_owner_leaves_what_a_store_of_files_leaves)
{
	struct shmstore_usage before, after;
	struct shmstore_gc_report report;
	bool keep = false;
	struct shmstore *s;

	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &before),
		     0);
	cr_assert_eq(in_child(be_killed, &keep), 1000 + SIGKILL);
	books_agree();
	s = open_store("a", false, SHMSTORE_OPEN_ADOPT);
	cr_assert(has_all(s));
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(in_child(be_killed, &keep), 1000 + SIGKILL);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	cr_assert_eq(report.n_stores, 1);
	cr_assert_eq(count_dir(scratch_store_path("a", "")), -ENOENT);
	cr_assert_eq(shmstore_partition_usage(scratch_partition(), SHMSTORE_USAGE_FULL, &after), 0);
	if (scratch_is_mount())
		cr_assert_eq(after.used, before.used);
	keep = true;
	cr_assert_eq(in_child(be_killed, &keep), 1000 + SIGKILL);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	s = open_store("a", true, 0);
	cr_assert(has_all(s));
	cr_assert_eq(shmstore_close(s), 0);
	s = open_store("a", false, SHMSTORE_OPEN_FRESH);
	cr_assert_eq(listed(s).n, 0);
	cr_assert_eq(put_pattern(s, "k", 10, 1, 0), 0);
	cr_assert_eq(listed(s).n, 1);
	cr_assert_eq(shmstore_close(s), 0);
	books_agree();
}

static int view_in_child(void *arg)
{
	struct shmstore_view *v = arg;
	bool right = shows(v, 3000, 1);

	usleep(200000);
	right = right && shows(v, 3000, 1);
	shmstore_view_unref(v);
	return right ? 0 : 1;
}

Test(packed, child_of_a_fork_keeps_its_views)
{
	struct shmstore *s = open_store("a", false, 0);
	struct shmstore_view *v;
	int status;
	pid_t pid;

	cr_assert_eq(put_pattern(s, "k", 3000, 1, 0), 0);
	cr_assert_eq(shmstore_get(s, "k", 1, 0, &v), 0);
	pid = fork_bound(10);
	if (pid == 0)
		_exit(view_in_child(v));
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	for (unsigned i = 0; i < 2000; i++)
		cr_assert_eq(put_pattern(s, "n", 3000, i, SHMSTORE_REPLACE), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	books_agree();
}

/* ---- kills ----------------------------------------------------------------------------------- */

#define N_KEYS 12u

/* The progress of a process that is killed: of each key the version that is there, and
 * the one that may be; 0: none. */
static struct told {
	_Atomic uint64_t done[N_KEYS], begun[N_KEYS];
} * told;

static size_t size_of_version(uint64_t version)
{
	return version % 5 ? version * 37 % 3000 : MAX + version % 1000;
}

static int work_until_killed(void *arg)
{
	struct shmstore *s = open_store("a", true, 0);
	uint64_t version = *(uint64_t *)arg;

	for (;;) {
		uint64_t random = version * 0x9e3779b97f4a7c15ull >> 40;
		unsigned key = (unsigned)(random % N_KEYS);
		char name[16];
		int r;

		snprintf(name, sizeof(name), "%u", key);
		version++;
		told->begun[key] = random % 4096 < 1024 ? 0 : version;
		if (!told->begun[key])
			r = shmstore_delete(s, name, strlen(name));
		else if (random % 4096 < 1200)
			/* There is no tier; it is a file now. */
			r = shmstore_demote(s, name, strlen(name), 0),
			told->begun[key] = told->done[key];
		else
			r = put_pattern(s, name, size_of_version(version), version,
					SHMSTORE_REPLACE);
		if (r < 0 && r != -ENOENT)
			_exit(1);
		told->done[key] = told->begun[key];
	}
}

static bool is_version(struct shmstore *s, const char *name, uint64_t version)
{
	if (!version)
		return shmstore_contains(s, name, strlen(name)) == 0;
	return has(s, name, size_of_version(version), version);
}

Test(packed, kept_store_of_a_process_killed_at_any_time)
{
	unsigned n = n_rounds(150);

	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(told, MAP_FAILED);
	scratch_partition();
	for (unsigned i = 0; i < n; i++) {
		uint64_t from = 1000000ull * (i + 1);
		struct shmstore *s;
		unsigned n_keys = 0;
		int status;
		pid_t pid = fork_bound(20);

		if (pid == 0)
			_exit(work_until_killed(&from));
		usleep(2000 + i * 7919 % 9000);
		kill(pid, SIGKILL);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert(WIFSIGNALED(status), "round %u: an operation failed", i);
		if (i % 4 == 0)
			cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
		s = open_store("a", true, 0);
		for (unsigned k = 0; k < N_KEYS; k++) {
			char name[16];

			snprintf(name, sizeof(name), "%u", k);
			if (!is_version(s, name, told->begun[k])) {
				cr_assert(is_version(s, name, told->done[k]), "round %u: key %u", i,
					  k);
				told->begun[k] = told->done[k];
			}
			told->done[k] = (uint64_t)told->begun[k];
			n_keys += told->done[k] != 0;
		}
		cr_assert_eq(listed(s).n, n_keys, "round %u", i);
		cr_assert_eq(shmstore_close(s), 0);
		books_agree();
	}
	munmap(told, sizeof(*told));
}
