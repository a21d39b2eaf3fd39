/* SPDX-License-Identifier: Apache-2.0 */
/* The df equation, each term against a sum of our own, and the books of every store. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "api.h"

/* ---- du of our own --------------------------------------------------------------------------- */

static struct {
	ino_t inos[4096];
	size_t n;
	uint64_t bytes;
} du_seen;

static int du_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)path;
	(void)flag;
	(void)ftw;
	for (size_t i = 0; i < du_seen.n; i++) {
		if (du_seen.inos[i] == st->st_ino)
			return 0;
	}
	cr_assert_lt(du_seen.n, 4096);
	du_seen.inos[du_seen.n++] = st->st_ino;
	du_seen.bytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

/* Bytes of all names below path, each inode once. */
static uint64_t du(const char *path)
{
	du_seen.n = 0;
	du_seen.bytes = 0;
	cr_assert_eq(nftw(path, du_one, 16, FTW_PHYS | FTW_MOUNT), 0, "%s", path);
	return du_seen.bytes;
}

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_dir(NULL), &fs), 0);
	return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static void need_mount(void)
{
	if (!scratch_is_mount())
		cr_skip_test("needs a file system of its own (root)");
}

static void file_of(const char *path, size_t size)
{
	char *bytes = calloc(1, size);
	int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
	free(bytes);
}

static void in_mount(char ret[SCRATCH_PATH], const char *name)
{
	snprintf(ret, SCRATCH_PATH, "%.200s/%.200s", scratch_dir(NULL), name);
}

static struct shmstore_usage usage_of(unsigned flags)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(p, flags, &u), 0);
	shmstore_partition_unref(p);
	cr_assert_eq((int64_t)(u.linked + u.ghosts + u.pool + u.inflight + u.foreign) + u.residual,
		     (int64_t)u.used);
	return u;
}

/* ---- the equation ---------------------------------------------------------------------------- */

Test(reconcile, an_empty_partition_is_its_marker)
{
	struct shmstore_usage u;

	need_mount();
	shmstore_partition_unref(scratch_partition());
	u = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(u.used, 4096);
	cr_assert_eq(u.linked, 4096);
	cr_assert_eq(u.metadata, 4096);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(u.n_stores + u.n_objects + u.n_leases, 0);
	cr_assert_eq(usage_of(0).n_unreadable, 0);
	cr_assert_eq(u.size, 512u << 20);
}

Test(reconcile, objects_aliases_and_leases_count_once)
{
	struct shmstore *a = scratch_plain_store("a"), *b = scratch_plain_store("b");
	struct shmstore_ticket t;
	struct shmstore_usage u;
	uint64_t before;

	need_mount();
	before = usage_of(0).linked;
	cr_assert_eq(before, 3 * 4096, "marker and two pages");
	cr_assert_eq(put_pattern(a, "x", 1000000, 1, 0), 0);
	cr_assert_eq(put_pattern(a, "y", 10, 2, 0), 0);
	for (int i = 0; i < 3; i++) {
		char key[8];

		snprintf(key, sizeof(key), "x%d", i);
		cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
		cr_assert_eq(shmstore_adopt(b, KEY(key), &t, 0), 0);
	}
	cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("y"), 60000, &t), 0);
	cr_assert_eq(shmstore_delete(a, KEY("y")), 0);
	u = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(u.linked, du(scratch_dir(NULL)));
	cr_assert_eq(u.linked, u.used);
	cr_assert_eq(u.n_stores, 2);
	cr_assert_eq(u.n_objects, 4);
	cr_assert_eq(u.n_leases, 2);
	cr_assert_eq(u.metadata, before);
	shmstore_close(a);
	shmstore_close(b);
}

Test(reconcile, every_term_is_exact_and_nothing_is_left_over)
{
	struct shmstore *a = scratch_store("a"), *p = scratch_plain_store("plain"), *c;
	struct other b = other_start("b");
	struct shmstore_partition *second;
	struct shmstore_writer *w;
	struct shmstore_ticket t;
	struct shmstore_usage u;
	struct stat st;
	uint64_t pool, ghost, inflight, foreign = 0, writer_size = 3000000;
	char path[SCRATCH_PATH], path2[SCRATCH_PATH], key[2000];

	need_mount();
	/* linked: shared objects, a long key, an adopted long key with its sidecar,
	 * leases, a long symlink in peers/ */
	memset(key, 'k', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(put_pattern(a, "x", 1000000, 1, 0), 0);
	cr_assert_eq(put_pattern(a, key, 100, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
	key[0] = 'l';
	cr_assert_eq(shmstore_adopt(p, KEY(key), &t, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_set_address(a, "tcp://1.2.3.4:5"), 0);

	/* pool */
	cr_assert_eq(put_pattern(a, "p", 200000, 1, 0), 0);
	cr_assert_eq(stat(scratch_store_path("a", "objects/p"), &st), 0);
	pool = (uint64_t)st.st_blocks * 512;
	cr_assert_eq(shmstore_delete(a, KEY("p")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);

	/* ghost: a view in another process of what is deleted */
	cr_assert_eq(put_pattern(p, "g", 700000, 5, 0), 0);
	cr_assert_eq(stat(scratch_store_path("plain", "objects/g"), &st), 0);
	ghost = (uint64_t)st.st_blocks * 512;
	cr_assert_eq(shmstore_handoff(p, KEY("g"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&b, "g", &t), 0);
	cr_assert_eq(other_view(&b, "g", 0), 0);
	cr_assert_eq(shmstore_delete(p, KEY("g")), 0);
	cr_assert_eq(unlink(scratch_store_path("b", "objects/g")), 0);

	/* in flight */
	inflight = used();
	cr_assert_eq(shmstore_create(p, KEY("w"), 10, &writer_size, 1, 0, &w), 0);
	inflight = used() - inflight;
	cr_assert_geq(inflight, writer_size);

	/* foreign: beside the partition, in it, hard-linked, a second partition,
	 * directories, symlinks short and long */
	in_mount(path, "beside");
	file_of(path, 10000);
	in_mount(path2, "linked");
	cr_assert_eq(link(path, path2), 0);
	foreign += 12288;
	snprintf(path, sizeof(path), "%.200s/inside", scratch_partition_path());
	file_of(path, 5000);
	foreign += 8192;
	file_of(scratch_store_path("a", "notes"), 1);
	foreign += 4096;
	file_of(scratch_store_path("a", "objects/not ours"), 1);
	foreign += 4096;
	in_mount(path, "dir");
	cr_assert_eq(mkdir(path, 0700), 0);
	in_mount(path, "short");
	cr_assert_eq(symlink("x", path), 0);
	in_mount(path, "long");
	memset(key, 'y', 1000);
	key[1000] = '\0';
	cr_assert_eq(symlink(key, path), 0);
	foreign += 4096;
	in_mount(path, "second");
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE, &second), 0);
	cr_assert_eq(shmstore_open(second, "c", NULL, &c), 0);
	cr_assert_eq(put_pattern(c, "x", 50000, 1, 0), 0);
	foreign += du(path);
	/* an object with a name outside is ours all the same */
	in_mount(path, "stolen");
	cr_assert_eq(link(scratch_store_path("a", "objects/x"), path), 0);

	u = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(u.pool, pool, "%llu", (unsigned long long)u.pool);
	cr_assert_eq(u.ghosts, ghost, "%llu", (unsigned long long)u.ghosts);
	cr_assert_eq(u.inflight, inflight, "%llu", (unsigned long long)u.inflight);
	cr_assert_eq(u.foreign, foreign, "%llu, not %llu", (unsigned long long)u.foreign,
		     (unsigned long long)foreign);
	cr_assert_eq(u.linked, du(scratch_dir(NULL)) - pool - foreign);
	cr_assert_eq(u.residual, 0);

	/* Without /proc what has no name is in the residual. */
	u = usage_of(0);
	cr_assert_eq(u.n_unreadable, 0);
	cr_assert_eq(u.ghosts + u.inflight, 0);
	cr_assert_eq(u.residual, (int64_t)(ghost + inflight));

	shmstore_abort(w);
	shmstore_close(c);
	shmstore_partition_unref(second);
	other_kill(&b);
	shmstore_close(p);
	shmstore_close(a);
}

Test(reconcile, what_is_in_the_pool_and_an_object_too_is_linked)
{
	struct shmstore *a = scratch_store("a");
	struct shmstore_usage u, v;

	need_mount();
	cr_assert_eq(put_pattern(a, "x", 100000, 1, 0), 0);
	u = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(
		link(scratch_store_path("a", "objects/x"), scratch_store_path("a", "recycle/99")),
		0);
	v = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(v.linked, u.linked);
	cr_assert_eq(v.pool, 0);
	cr_assert_eq(v.residual, 0);
	shmstore_close(a);
}

Test(reconcile, a_file_system_without_a_limit_has_no_residual)
{
	struct shmstore *s;
	struct shmstore_usage u;

	scratch_dir("size=0");
	need_mount();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "x", 100000, 1, 0), 0);
	u = usage_of(SHMSTORE_USAGE_FULL);
	cr_assert_eq(u.size, 0);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(u.used, u.linked);
	shmstore_close(s);
}

Test(reconcile, on_disk_the_rest_is_foreign)
{
	char path[] = "/var/tmp/shmstore-test-XXXXXX";
	struct shmstore_partition *p;
	struct shmstore_usage u, v;
	struct shmstore *s;
	struct statfs fs;
	char command[64];

	if (statfs("/var/tmp", &fs) < 0 || fs.f_type == TMPFS_MAGIC)
		cr_skip_test("needs a disk at /var/tmp");
	cr_assert_not_null(mkdtemp(path));
	snprintf(command, sizeof(command), "rm -r %s", path);
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK, &p), 0);
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(shmstore_open(p, "a", NULL, &s), 0);
	cr_assert_eq(put_pattern(s, "x", 1000000, 1, 0), 0);
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &v), 0);
	cr_assert_eq(v.residual, 0);
	cr_assert_geq(v.linked, u.linked + 1000000);
	cr_assert_eq(v.n_objects, 1);
	cr_assert_gt(v.foreign, 0);
	cr_assert_eq(v.linked + v.pool + v.ghosts + v.inflight + v.foreign, v.used);
	shmstore_close(s);
	shmstore_partition_unref(p);
	cr_assert_eq(system(command), 0);
}

Test(reconcile, bytes_are_exact_with_huge_pages_too)
{
	struct shmstore_view *v;
	struct shmstore *s;
	struct shmstore_usage u;

	scratch_dir("size=512m,huge=within_size");
	need_mount();
	s = scratch_plain_store("a");
	for (uint64_t size = 1; size < 6000000; size = size * 3 + 1) {
		cr_assert_eq(put_pattern(s, "x", size, 1, SHMSTORE_REPLACE), 0);
		v = get_view(s, "x", 0);
		cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
		u = usage_of(SHMSTORE_USAGE_FULL);
		cr_assert_eq(u.residual, 0, "size %llu", (unsigned long long)size);
		cr_assert_geq(u.ghosts, size);
		shmstore_view_unref(v);
	}
	shmstore_close(s);
}

Test(reconcile, bad_arguments_are_refused)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(NULL, 0, &u), -EINVAL);
	cr_assert_eq(shmstore_partition_usage(p, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_usage(p, 0x8000, &u), -EINVAL);
	cr_assert_eq(shmstore_partition_reconcile(NULL, NULL, NULL, &u), -EINVAL);
	cr_assert_eq(shmstore_partition_reconcile(p, NULL, NULL, NULL), 0);
	shmstore_partition_unref(p);
}

/* ---- the books of stores --------------------------------------------------------------------- */

struct books {
	struct shmstore_store_books list[8];
	char names[8][64];
	enum shmstore_alive alive[8];
	pid_t pids[8];
	size_t n;
	struct shmstore_books_total total;
};

static int on_books(const struct shmstore_store_books *b, void *arg)
{
	struct books *books = arg;

	cr_assert_lt(books->n, 8);
	books->list[books->n] = *b;
	books->alive[books->n] = b->store->alive;
	books->pids[books->n] = b->store->pid;
	snprintf(books->names[books->n++], 64, "%.63s", b->store->name);
	return 0;
}

static const struct shmstore_store_books *books_of(struct books *books, const char *name)
{
	for (size_t i = 0; i < books->n; i++) {
		if (strcmp(books->names[i], name) == 0)
			return &books->list[i];
	}
	cr_assert_fail("no store %s", name);
	return NULL;
}

static void take_books(struct books *books)
{
	struct shmstore_partition *p = scratch_partition();

	memset(books, 0, sizeof(*books));
	cr_assert_eq(shmstore_partition_books(p, on_books, books, &books->total), 0);
	shmstore_partition_unref(p);
}

static void hand_over(struct shmstore *from, const char *key, struct shmstore *to, const char *as)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff(from, KEY(key), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(to, KEY(as), &t, 0), 0);
}

Test(reconcile, books_share_out_what_several_stores_link)
{
	struct shmstore *a = scratch_plain_store("a"), *b = scratch_plain_store("b"),
			*c = scratch_plain_store("c");
	const struct shmstore_store_books *of_a, *of_b, *of_c;
	struct shmstore_store_usage own;
	struct shmstore_ticket t;
	struct books books;
	/* blocks of 1,000,000 and 5,000 bytes of buffers with their headers */
	const uint64_t x = 1007616, y = 8192;

	cr_assert_eq(put_pattern(a, "x", 1000000, 1, 0), 0);
	cr_assert_eq(put_pattern(a, "y", 5000, 2, 0), 0);
	hand_over(a, "x", b, "x");
	hand_over(a, "x", b, "x-again");
	hand_over(a, "x", c, "x");
	cr_assert_eq(shmstore_handoff(a, KEY("y"), 60000, &t), 0);
	cr_assert_eq(links_of("a", "x"), 4);
	take_books(&books);
	cr_assert_eq(books.n, 3);
	of_a = books_of(&books, "a");
	of_b = books_of(&books, "b");
	of_c = books_of(&books, "c");
	cr_assert_eq(of_a->linked, x + y, "%llu", (unsigned long long)of_a->linked);
	cr_assert_eq(of_b->linked, x, "each inode once");
	cr_assert_eq(of_c->linked, x);
	cr_assert_eq(of_a->pss, x / 4 + y);
	cr_assert_eq(of_b->pss, x / 2);
	cr_assert_eq(of_c->pss, x / 4);
	cr_assert_eq(of_a->uss, y, "its own lease is not outside");
	cr_assert_eq(of_b->uss, 0);
	cr_assert_eq(of_a->n_objects, 2);
	cr_assert_eq(of_a->n_leases, 1);
	cr_assert_eq(of_b->n_objects, 2);
	cr_assert_eq(of_a->leased, 0);
	cr_assert_eq(of_a->metadata, 4096);
	cr_assert_eq(of_a->pss + of_b->pss + of_c->pss, x + y);
	cr_assert_eq(books.total.linked, x + y + 4 * 4096);
	cr_assert_eq(books.total.n_stores, 3);
	cr_assert_eq(books.total.n_objects, 5);
	cr_assert_eq(books.pids[0], getpid());
	cr_assert_eq(books.alive[0], SHMSTORE_ALIVE);

	cr_assert_eq(shmstore_usage(a, &own), 0);
	cr_assert_eq(own.linked, of_a->linked);
	cr_assert_eq(own.pss, of_a->pss);
	cr_assert_eq(own.uss, of_a->uss);
	cr_assert_eq(own.n_objects, 2);

	/* The lease is all that is left of y: leased, and still in the share.
	 * Then b alone has x, twice. */
	cr_assert_eq(shmstore_delete(a, KEY("y")), 0);
	cr_assert_eq(shmstore_delete(a, KEY("x")), 0);
	cr_assert_eq(shmstore_delete(c, KEY("x")), 0);
	take_books(&books);
	of_a = books_of(&books, "a");
	of_b = books_of(&books, "b");
	cr_assert_eq(of_a->linked, 0);
	cr_assert_eq(of_a->leased, y);
	cr_assert_eq(of_a->pss, y);
	cr_assert_eq(of_a->uss, y);
	cr_assert_eq(of_b->linked, x);
	cr_assert_eq(of_b->uss, x);
	cr_assert_eq(of_b->pss, x);
	shmstore_close(a);
	shmstore_close(b);
	shmstore_close(c);
}

Test(reconcile, shares_that_do_not_divide_add_up)
{
	struct shmstore *s[7];
	struct books books;
	uint64_t sum = 0;

	for (size_t i = 0; i < 7; i++) {
		char name[8];

		snprintf(name, sizeof(name), "s%zu", i);
		s[i] = scratch_plain_store(name);
		if (i == 0)
			cr_assert_eq(put_pattern(s[0], "x", 1, 1, 0), 0);
		else
			hand_over(s[0], "x", s[i], "x");
	}
	take_books(&books);
	for (size_t i = 0; i < books.n; i++)
		sum += books.list[i].pss;
	cr_assert(sum <= 4096 && sum + books.n > 4096, "%llu", (unsigned long long)sum);
	for (size_t i = 0; i < 7; i++)
		shmstore_close(s[i]);
}

Test(reconcile, a_dead_owner_is_told_from_a_live_one)
{
	struct shmstore *a = scratch_store("a");
	struct other b = other_start("b");
	struct books books;

	other_kill(&b);
	take_books(&books);
	cr_assert_eq(books.n, 2);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(books.alive[i],
			     strcmp(books.names[i], "a") == 0 ? SHMSTORE_ALIVE : SHMSTORE_DEAD);
	shmstore_close(a);
}
