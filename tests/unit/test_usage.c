/* SPDX-License-Identifier: Apache-2.0 */
/* The df equation, the books of stores, and gc. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

enum {
	MB = 1 << 20
};

static void own_mount(void)
{
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
}

TestSuite(usage, .init = own_mount);

static uint64_t statfs_used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_partition_path(), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

Test(usage, every_term_is_told_apart)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w;
	struct shmstore_usage u, empty = ensure_books_close();
	struct shmstore_view *v;
	struct shmstore_ticket t;
	uint64_t size = 3 * MB;
	char foreign[SCRATCH_PATH + 50];
	static char block[MB];
	int fd;

	cr_assert_eq(empty.size, 512u * MB);
	cr_assert_eq(empty.n_stores, 1);
	cr_assert_eq(put_pattern(s, "k", 8 * MB, 1, 0), 0);
	u = ensure_books_close();
	cr_assert_eq(u.linked - empty.linked, 8 * MB + 4096, "the object and its header's page");
	cr_assert_eq(u.n_objects, 1);
	cr_assert_eq(u.ghosts + u.pool + u.inflight, 0);
	/* A lease is linked and takes nothing. */
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 3600000, &t), 0);
	u = ensure_books_close();
	cr_assert_eq(u.linked - empty.linked, 8 * MB + 4096);
	cr_assert_eq(u.n_leases, 1);
	/* An object that only a view holds. */
	cr_assert_eq(put_pattern(s, "g", 5 * MB, 2, 0), 0);
	v = get_view(s, "g", 0);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/g")), 0);
	u = ensure_books_close();
	cr_assert_eq(u.ghosts, 5 * MB + 4096);
	/* A writer. */
	cr_assert_eq(shmstore_create(s, KEY("w"), 0, &size, 1, 0, &w), 0);
	u = ensure_books_close();
	cr_assert_eq(u.inflight, 3 * MB + 4096);
	cr_assert_eq(u.ghosts, 5 * MB + 4096);
	/* The pool. */
	cr_assert_eq(put_pattern(s, "p", 2 * MB, 3, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("p")), 0);
	u = ensure_books_close();
	cr_assert_eq(u.pool, 2 * MB + 4096);
	/* A file that is not ours. */
	snprintf(foreign, sizeof(foreign), "%s/foreign", scratch_dir(NULL));
	fd = open(foreign, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_eq(write(fd, block, MB), MB);
	close(fd);
	u = ensure_books_close();
	cr_assert_eq(u.foreign - empty.foreign, MB);
	cr_assert_eq(u.used, statfs_used());
	cr_assert_eq(u.used, u.linked + u.ghosts + u.pool + u.inflight + u.foreign);
	/* And all of it gone. */
	cr_assert_eq(unlink(foreign), 0);
	shmstore_abort(w);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(usage, without_full_what_only_processes_hold_is_residual)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "g", 5 * MB, 2, 0), 0);
	v = get_view(s, "g", 0);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/g")), 0);
	cr_assert_eq(shmstore_partition_usage(p, 0, &u), 0);
	cr_assert_eq(u.ghosts, 0);
	cr_assert_eq(u.residual, 5 * MB + 4096);
	cr_assert_eq(shmstore_partition_usage(p, 1u << 20, &u), -EINVAL);
	cr_assert_eq(shmstore_partition_usage(NULL, 0, &u), -EINVAL);
	cr_assert_eq(shmstore_partition_usage(p, 0, NULL), -EINVAL);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

struct found {
	pid_t pid;
	uint64_t ghosts, inflight, n;
	char key[64];
};

static int one_holder(const struct shmstore_holder *h, void *arg)
{
	struct found *f = arg;

	f->n++;
	if (h->pid == f->pid && h->kind == SHMSTORE_HOLD_GHOST && h->key)
		snprintf(f->key, sizeof(f->key), "%.*s", (int)h->key_size, (const char *)h->key);
	if (h->first && h->kind == SHMSTORE_HOLD_GHOST)
		f->ghosts += h->bytes;
	if (h->first && h->kind == SHMSTORE_HOLD_INFLIGHT)
		f->inflight += h->bytes;
	return 0;
}

Test(usage, holders_are_named_with_pid_and_key)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_partition *p = scratch_partition();
	struct other o = other_start("b");
	struct found f = {.pid = o.pid};
	struct shmstore_usage u;
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "the key", 5 * MB, 2, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("the key"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "the key", &t), 0);
	cr_assert_eq(other_view(&o, "the key", 0), 0);
	cr_assert_eq(other_delete(&o, "the key"), 0);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/the%20key")), 0);
	cr_assert_eq(shmstore_partition_reconcile(p, one_holder, &f, &u), 0);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(u.ghosts, 5 * MB + 4096);
	cr_assert_eq(f.ghosts, u.ghosts);
	cr_assert_str_eq(f.key, "the key");
	cr_assert_eq(other_unview(&o), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

struct totals {
	uint64_t linked, pss, n;
};

static int add_books(const struct shmstore_store_books *b, void *arg)
{
	struct totals *t = arg;

	t->linked += b->linked;
	t->pss += b->pss;
	t->n += b->n_objects;
	return 0;
}

Test(usage, stores_share_what_they_link)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b"), *c = scratch_store("c");
	struct shmstore *all[] = {a, b, c};
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_store_usage u[3];
	struct shmstore_books_total total = {.size = sizeof(total)};
	struct totals t = {0};
	struct shmstore_ticket ticket;
	uint64_t blocks = 3 * MB + 4096;

	cr_assert_eq(put_pattern(a, "shared", 3 * MB, 1, 0), 0);
	for (int i = 1; i < 3; i++) {
		cr_assert_eq(shmstore_handoff(a, KEY("shared"), 60000, &ticket), 0);
		cr_assert_eq(shmstore_adopt(all[i], KEY("shared"), &ticket, 0), 0);
	}
	cr_assert_eq(put_pattern(b, "own", 3 * MB, 2, 0), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shmstore_usage(all[i], &u[i]), 0);
	cr_assert_eq(u[0].linked, blocks);
	cr_assert_eq(u[1].linked, 2 * blocks);
	cr_assert_eq(u[0].uss, 0);
	cr_assert_eq(u[1].uss, blocks);
	cr_assert_eq(u[2].uss, 0);
	cr_assert_eq(u[0].pss, blocks / 3);
	cr_assert_leq(u[0].pss + u[1].pss + u[2].pss, 2 * blocks);
	cr_assert_geq(u[0].pss + u[1].pss + u[2].pss, 2 * blocks - 3);
	cr_assert_eq(u[1].n_objects, 2);
	cr_assert_eq(shmstore_partition_books(p, add_books, &t, &total), 0);
	cr_assert_eq(t.linked, 4 * blocks);
	cr_assert_eq(t.n, 4);
	cr_assert_eq(total.n_stores, 3);
	cr_assert_eq(total.linked, ensure_books_close().linked);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shmstore_close(all[i]), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(usage, alias_in_one_store_counts_once)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	struct shmstore_store_usage u;
	struct iovec iov;

	cr_assert_eq(put_pattern(s, "k", 3 * MB, 1, 0), 0);
	v = get_view(s, "k", 0);
	iov = (struct iovec){shmstore_view_buffer(v, 0, NULL), 3 * MB};
	cr_assert_eq(shmstore_put(s, KEY("alias"), shmstore_view_header(v, NULL), 24, &iov, 1, 0),
		     0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_usage(s, &u), 0);
	cr_assert_eq(u.linked, 3 * MB + 4096);
	cr_assert_eq(u.uss, 3 * MB + 4096);
	cr_assert_eq(u.pss, 3 * MB + 4096);
	cr_assert_eq(u.n_objects, 2);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* ---- gc -------------------------------------------------------------------------------------- */

struct plan {
	unsigned n[16];
	uint64_t bytes;
	bool evidence;
};

static int note_action(const struct shmstore_gc_action *a, void *arg)
{
	struct plan *plan = arg;

	cr_assert_lt(a->what, 16);
	plan->n[a->what]++;
	if (a->what != SHMSTORE_GC_KEPT)
		plan->bytes += a->bytes;
	plan->evidence &= a->evidence && *a->evidence && a->path[0] == '/';
	cr_assert_eq(a->error, 0);
	return 0;
}

Test(usage, gc_plan_is_what_gc_does)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *live = scratch_store("live");
	struct other o[3];
	struct plan dry = {.evidence = true}, wet = {.evidence = true};
	struct shmstore_gc_report would, did;
	struct shmstore_ticket t;
	uint64_t before;
	const char *names[] = {"d0", "d1", "d2"};

	for (int i = 0; i < 3; i++) {
		o[i] = other_start(names[i]);
		cr_assert_eq(other_put(&o[i], "k", 2 * MB, (uint64_t)i), 0);
	}
	/* Two dead stores share an object; a third one's is also the living one's. */
	cr_assert_eq(other_handoff(&o[0], "k", 60000, &t), 0);
	cr_assert_eq(other_adopt(&o[1], "k0", &t), 0);
	cr_assert_eq(other_handoff(&o[2], "k", 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(live, KEY("k2"), &t, 0), 0);
	for (int i = 0; i < 3; i++)
		other_kill(&o[i]);
	before = statfs_used();
	cr_assert_eq(shmstore_partition_gc_plan(p, SHMSTORE_GC_DRY_RUN, note_action, &dry, &would),
		     0);
	cr_assert_eq(statfs_used(), before, "a dry run changes nothing");
	cr_assert_eq(would.n_stores, 3);
	cr_assert(dry.evidence);
	cr_assert_eq(shmstore_partition_gc_plan(p, 0, note_action, &wet, &did), 0);
	cr_assert_eq(did.n_stores, 3);
	cr_assert_eq(did.freed, would.freed, "%llu planned, %llu freed",
		     (unsigned long long)would.freed, (unsigned long long)did.freed);
	cr_assert_eq(before - statfs_used(), did.freed, "what it says it freed is what is free");
	cr_assert_eq(wet.bytes, did.freed);
	cr_assert_eq(dry.bytes, would.freed);
	cr_assert_geq(did.freed, 4u * MB);
	cr_assert_eq(get_pattern(live, "k2", 2 * MB, 2), 0);
	cr_assert_eq(shmstore_partition_gc(p, 1u << 20, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_gc(NULL, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_close(live), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(usage, gc_leaves_what_it_does_not_know)
{
	struct shmstore_partition *p = scratch_partition();
	char path[SCRATCH_PATH + 100], file[SCRATCH_PATH + 200];
	int fd;

	snprintf(path, sizeof(path), "%s/stores/unknown", scratch_partition_path());
	snprintf(file, sizeof(file), "%s/thesis.txt", path);
	cr_assert_eq(mkdir(path, 0700), 0);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_eq(count_dir(path), 1);
	cr_assert_eq(unlink(file), 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	rmdir(path);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(usage, several_gc_at_once_do_no_harm, .timeout = 60)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *live = scratch_store("live");

	cr_assert_eq(put_pattern(live, "k", MB, 1, 0), 0);
	for (int round = 0; round < 5; round++) {
		struct other o[8];
		pid_t pids[4];
		char name[32];

		for (int i = 0; i < 8; i++) {
			snprintf(name, sizeof(name), "d%d", i);
			o[i] = other_start(name);
			cr_assert_eq(other_put(&o[i], "k", 100000, 1), 0);
		}
		for (int i = 0; i < 8; i++)
			other_kill(&o[i]);
		for (int i = 0; i < 4; i++) {
			pids[i] = fork();
			if (pids[i] == 0)
				_exit(shmstore_partition_gc(p, 0, NULL) == 0 ? 0 : 1);
		}
		for (int i = 0; i < 4; i++) {
			int status;

			waitpid(pids[i], &status, 0);
			cr_assert_eq(status, 0);
		}
		cr_assert_eq(ensure_books_close().n_stores, 1);
		cr_assert_eq(get_pattern(live, "k", MB, 1), 0);
	}
	cr_assert_eq(shmstore_close(live), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}
