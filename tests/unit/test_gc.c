/* SPDX-License-Identifier: Apache-2.0 */
/* gc's choice: what goes, what stays and why; and a dry run tells exactly what a run does. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "gcplan.h"
#include "page.h"

static void path_of(char ret[SCRATCH_PATH], const char *below)
{
	snprintf(ret, SCRATCH_PATH, "%.200s/%.250s", scratch_partition_path(), below);
}

static bool exists(const char *below)
{
	char path[SCRATCH_PATH];
	struct stat st;

	path_of(path, below);
	return lstat(path, &st) == 0;
}

static void make_dir(const char *below)
{
	char path[SCRATCH_PATH];

	path_of(path, below);
	cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
}

static void make_file(const char *below)
{
	char path[SCRATCH_PATH];
	int fd;

	path_of(path, below);
	fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
	cr_assert_geq(fd, 0, "%s", path);
	close(fd);
}

/* Opens a store in a child, does things in it, and dies without closing it. */
struct death {
	const char *name, *directory, *address;
	bool keep;
	uint64_t lease_ms; /* hand "x" off for so long; 0 = do not */
	const struct shmstore_ticket *adopt;
};

static int live_and_die(void *arg)
{
	const struct death *d = arg;
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_ticket t;
	struct shmstore *s;

	o.keep = d->keep;
	o.directory = d->directory;
	ENSURE(shmstore_open(p, d->name, &o, &s) == 0);
	ENSURE(put_pattern(s, "x", 100000, 1, 0) == 0);
	ENSURE(put_pattern(s, "y", 5000, 2, 0) == 0);
	ENSURE(put_pattern(s, "z", 200000, 3, 0) == 0);
	ENSURE(shmstore_delete(s, KEY("z")) == 0); /* into the pool */
	if (d->adopt)
		ENSURE(shmstore_adopt(s, KEY("adopted"), d->adopt, 0) == 0);
	if (d->lease_ms)
		ENSURE(shmstore_handoff(s, KEY("x"), d->lease_ms, &t) == 0);
	if (d->address)
		ENSURE(shmstore_set_address(s, d->address) == 0);
	return 0;
}

static void die(struct death d)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(live_and_die, &d), 0);
	if (!d.directory)
		await_dead(d.name);
}

/* Gives the one lease of a store the name of one that ended a millisecond after the boot. */
static void expire_leases(const char *store)
{
	char from[2 * SCRATCH_PATH];
	DIR *dir = opendir(scratch_store_path(store, "handoff"));
	struct dirent *e;
	int n = 0;

	cr_assert_not_null(dir);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(from, sizeof(from), "%.500s/%.200s", scratch_store_path(store, "handoff"),
			 e->d_name);
		n++;
	}
	closedir(dir);
	cr_assert_eq(n, 1);
	cr_assert_eq(rename(from, scratch_store_path(store, "handoff/1-0123456789abcdef")), 0);
}

/* ---- stores ---------------------------------------------------------------------------------- */

Test(gc, a_live_store_is_left_alone)
{
	struct shmstore *s = scratch_store("a");
	struct gcplan plan;

	cr_assert_eq(put_pattern(s, "x", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_set_address(s, "here"), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 0);
	cr_assert_eq(get_pattern(s, "x", 100000, 1), 0);
	shmstore_close(s);
	ensure_nothing_left();
}

Test(gc, a_dead_store_goes_whole)
{
	struct gcplan plan;

	die((struct death){.name = "a"});
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_STORE);
	cr_assert_str_eq(plan.list[0].path, scratch_store_path("a", ""));
	cr_assert_eq(plan.list[0].n_objects, 3);
	cr_assert_eq(plan.report.n_stores, 1);
	cr_assert_eq(plan.report.n_objects, 3);
	cr_assert_not(exists("stores/a"));
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 0, "once is enough");
	ensure_nothing_left();
}

Test(gc, what_dead_stores_share_is_freed_once_and_what_a_live_one_shares_stays)
{
	struct shmstore *live = scratch_store("live");
	struct shmstore_ticket t[3];
	struct gcplan plan;

	cr_assert_eq(put_pattern(live, "shared", 1000000, 7, 0), 0);
	cr_assert_eq(put_pattern(live, "let-go", 2000000, 8, 0), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(
			shmstore_handoff(live, KEY(i == 0 ? "shared" : "let-go"), 60000, &t[i]), 0);
	/* Kept until now, so that one's opening does not sweep the other. */
	die((struct death){.name = "a", .keep = true, .adopt = &t[0]});
	die((struct death){.name = "b", .keep = true, .adopt = &t[1]});
	die((struct death){.name = "c", .keep = true, .adopt = &t[2]});
	for (const char *name = "abc"; *name; name++) {
		const char path[] = {*name, '\0'};
		uint64_t flags = 0;
		int fd = open(scratch_store_path(path, SHMS_PAGE_FILE), O_WRONLY);

		cr_assert_eq(pwrite(fd, &flags, sizeof(flags), offsetof(struct shms_page, flags)),
			     sizeof(flags));
		close(fd);
	}
	cr_assert_eq(unlink(scratch_store_path("live", "objects/let-go")), 0);
	shmstore_close(live); /* drops the descriptor that it keeps of it */
	live = NULL;
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 3);
	cr_assert_eq(plan.report.n_objects, 12);
	cr_assert_gt(plan.report.freed, 3000000 + 3 * 300000);
	ensure_nothing_left();
}

Test(gc, an_object_that_a_live_store_links_too_is_not_freed)
{
	struct shmstore *live = scratch_store("live");
	struct shmstore_ticket t;
	struct gcplan plan;

	cr_assert_eq(put_pattern(live, "shared", 1000000, 7, 0), 0);
	cr_assert_eq(shmstore_handoff(live, KEY("shared"), 60000, &t), 0);
	die((struct death){.name = "a", .adopt = &t});
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
	cr_assert_lt(plan.report.freed, 1000000);
	cr_assert_eq(get_pattern(live, "shared", 1000000, 7), 0);
	cr_assert_eq(links_of("live", "shared"), 1);
	shmstore_close(live);
}

Test(gc, leases_that_have_not_ended_outlive_their_donor)
{
	struct gcplan plan;

	die((struct death){.name = "a", .lease_ms = 3600000});
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_STORE);
	cr_assert_eq(plan.report.n_stores, 0, "the directory stays with them");
	cr_assert_eq(plan.report.n_leases, 0);
	cr_assert_eq(plan.report.n_objects, 3);
	cr_assert_eq(count_in_store("a", "handoff"), 1);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_KEPT);
	expire_leases("a");
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
	cr_assert_eq(plan.report.n_leases, 1);
	ensure_nothing_left();
}

/* A tmpfs does not outlive its boot: another id is a container's
 * (tests/regress/test_lease_other_host.c has the disk's). */
Test(gc, leases_of_another_boot_id_stay_on_tmpfs)
{
	struct gcplan plan;
	uint8_t id[16] = {1};
	int fd;

	die((struct death){.name = "a", .lease_ms = 3600000});
	fd = open(scratch_store_path("a", SHMS_PAGE_FILE), O_WRONLY);
	cr_assert_eq(pwrite(fd, id, sizeof(id), offsetof(struct shms_page, boot_id)), 16);
	close(fd);
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 0);
	cr_assert_eq(plan.report.n_leases, 0);
	cr_assert_eq(count_in_store("a", "handoff"), 1);
	expire_leases("a");
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
	ensure_nothing_left();
}

Test(gc, an_expired_lease_of_a_live_store_goes_alone)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_ticket t;
	struct gcplan plan;

	cr_assert_eq(put_pattern(s, "x", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 3600000, &t), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 0);
	expire_leases("a");
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 3600000, &t), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_LEASE);
	cr_assert_eq(plan.list[0].bytes, 0, "the object has its key yet");
	cr_assert_eq(plan.report.n_leases, 1);
	cr_assert_eq(count_in_store("a", "handoff"), 1);
	cr_assert_eq(get_pattern(s, "x", 100000, 1), 0);
	shmstore_close(s);
}

Test(gc, a_kept_store_stays_and_loses_what_only_its_owner_could_use)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	struct gcplan plan;

	die((struct death){.name = "a", .keep = true, .lease_ms = 1000});
	expire_leases("a");
	make_file("stores/a/objects/%k0123456789abcdef0123456789abcdef");
	make_file("stores/a/objects/no name of ours");
	gcplan_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_LEASE), 1);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_POOL), 1);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 1);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_KEPT), 2);
	cr_assert_eq(gcplan_find(&plan, scratch_store_path("a", ""))->what, SHMSTORE_GC_KEPT);
	cr_assert_eq(gcplan_find(&plan, scratch_store_path("a", "objects/no name of ours"))->what,
		     SHMSTORE_GC_KEPT);
	cr_assert_eq(plan.report.n_stores, 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	cr_assert_eq(count_in_store("a", "objects"), 3);
	o.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	cr_assert_eq(get_pattern(s, "x", 100000, 1), 0);
	cr_assert_eq(get_pattern(s, "y", 5000, 2), 0);
	shmstore_close(s);
	shmstore_partition_unref(p);
}

Test(gc, a_live_pool_is_kept_and_said)
{
	struct shmstore *s = scratch_store("a");
	struct gcplan plan;

	cr_assert_eq(put_pattern(s, "x", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_KEPT);
	cr_assert_str_eq(plan.list[0].path, scratch_store_path("a", "recycle"));
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	shmstore_close(s);
}

Test(gc, a_page_that_cannot_be_read_keeps_its_store)
{
	struct gcplan plan;
	int fd;

	die((struct death){.name = "a"});
	fd = open(scratch_store_path("a", SHMS_PAGE_FILE), O_WRONLY);
	cr_assert_eq(pwrite(fd, "nonsense", 8, 0), 8);
	close(fd);
	gcplan_gc(&plan);
	cr_assert_eq(plan.n, 1);
	cr_assert_eq(plan.list[0].what, SHMSTORE_GC_KEPT);
	cr_assert_eq(count_in_store("a", "objects"), 2);
}

Test(gc, a_store_in_somebodys_directory_leaves_the_rest_of_it)
{
	struct gcplan plan;

	shmstore_partition_unref(scratch_partition());
	make_dir("dask");
	make_dir("dask/worker");
	die((struct death){.name = "a", .directory = "dask/worker"});
	die((struct death){.name = "b", .directory = "dask/worker/inner"});
	make_file("dask/worker/notes");
	make_dir("dask/worker/storage");
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 2);
	cr_assert_not(exists("dask/worker/.store"));
	cr_assert_not(exists("dask/worker/objects"));
	cr_assert_not(exists("dask/worker/inner"));
	cr_assert(exists("dask/worker/notes"));
	cr_assert(exists("dask/worker/storage"));
}

Test(gc, a_lock_that_is_held_means_life_whatever_the_pid)
{
	struct gcplan plan;
	int dir, lock;

	die((struct death){.name = "a"});
	dir = open(scratch_store_path("a", ""), O_RDONLY | O_DIRECTORY);
	lock = shms_page_lock(dir);
	cr_assert_geq(lock, 0);
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 0);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_STORE), 0);
	close(lock);
	close(dir);
	gcplan_gc(&plan);
	cr_assert_eq(plan.report.n_stores, 1);
}

/* ---- half-made things ------------------------------------------------------------------------ */

Test(gc, half_made_stores_are_empty_directories_in_stores)
{
	struct gcplan plan;

	shmstore_partition_unref(scratch_partition());
	make_dir("stores/bare");
	make_dir("stores/parts");
	make_dir("stores/parts/objects");
	make_dir("stores/strange");
	make_dir("stores/strange/objects");
	make_file("stores/strange/objects/x");
	make_dir("stores/other");
	make_file("stores/other/file");
	make_dir("theirs");
	make_dir("theirs-too");
	make_dir("theirs-too/objects");
	gcplan_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 1);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_KEPT), 3);
	cr_assert_not(exists("stores/bare"));
	cr_assert(exists("stores/parts/objects"), "the parts of a store exist only under its page");
	cr_assert(exists("stores/strange/objects/x"));
	cr_assert(exists("stores/other/file"));
	cr_assert(exists("theirs"));
	cr_assert(exists("theirs-too/objects"));
}

static void make_link(const char *below, const char *target, time_t age)
{
	struct timespec times[2];
	char path[SCRATCH_PATH];

	path_of(path, below);
	cr_assert_eq(symlink(target, path), 0);
	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= age;
	times[1] = times[0];
	cr_assert_eq(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

Test(gc, addresses_of_the_dead_and_the_gone_go)
{
	struct shmstore *s = scratch_store("live");
	struct gcplan plan;
	char name[SHMSTORE_NAME_MAX + 1], path[SCRATCH_PATH];
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(shmstore_set_address(s, "live:1"), 0);
	die((struct death){.name = "kept", .address = "kept:1", .keep = true});
	die((struct death){.name = "dead", .address = "dead:1"}); /* last: opening a store sweeps */
	make_link("peers/00000000000000000000000000000000", "../stores/never-was", 0);
	make_link("peers/.tmp-0123456789abcdef", "../stores/live", 3600);
	make_link("peers/.tmp-0123456789abcde0", "../stores/live", 0);
	make_link("peers/.tmp-0123456789abcde1", "../stores/never-was", 0);
	make_link("peers/stray", "/etc/passwd", 0);
	make_file("peers/file");
	gcplan_gc(&plan);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_PEER), 3);
	cr_assert_eq(gcplan_count(&plan, SHMSTORE_GC_TORN), 2);
	cr_assert_not(exists("peers/.tmp-0123456789abcde1"));
	cr_assert_not(exists("peers/00000000000000000000000000000000"));
	cr_assert_not(exists("peers/.tmp-0123456789abcdef"));
	cr_assert(exists("peers/.tmp-0123456789abcde0"));
	cr_assert(exists("peers/stray"));
	cr_assert(exists("peers/file"));
	cr_assert_eq(shmstore_peer_find(p, "live:1", name, sizeof(name)), 0);
	cr_assert_eq(shmstore_peer_find(p, "dead:1", name, sizeof(name)), -ENOENT);
	path_of(path, "peers");
	cr_assert_eq(count_dir(path), 4);
	shmstore_partition_unref(p);
	shmstore_close(s);
}

/* ---- others ---------------------------------------------------------------------------------- */

static int gc_as_nobody(void *arg)
{
	struct gcplan *plan = calloc(1, sizeof(*plan));
	size_t kept = 0;

	(void)arg;
	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	gcplan_run(plan, 0);
	for (size_t i = 0; i < plan->n; i++) {
		if (plan->list[i].what != SHMSTORE_GC_KEPT ||
		    !strstr(plan->list[i].evidence, "user 0"))
			return 2;
		kept++;
	}
	free(plan);
	return kept == 3 ? 0 : 3; /* the two, and peers/ */
}

Test(gc, another_users_stores_are_kept_and_said)
{
	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	die((struct death){.name = "private", .keep = true});
	die((struct death){.name = "open", .keep = true});
	cr_assert_eq(chmod(scratch_partition_path(), 0755), 0);
	cr_assert_eq(chmod(scratch_store_path("", ""), 0755), 0);
	cr_assert_eq(chmod(scratch_store_path("open", ""), 0755), 0);
	cr_assert_eq(in_child(gc_as_nobody, NULL), 0);
	cr_assert_eq(count_in_store("private", "objects"), 2);
	cr_assert_eq(count_in_store("open", "objects"), 2);
}

/* ---- the frame ------------------------------------------------------------------------------- */

Test(gc, opening_a_store_sweeps_dead_ones_and_leaves_kept_ones)
{
	struct shmstore *s;

	die((struct death){.name = "kept", .keep = true});
	die((struct death){.name = "dead"});
	cr_assert(exists("stores/dead"));
	s = scratch_store("new");
	cr_assert_not(exists("stores/dead"));
	cr_assert(exists("stores/kept/objects/x"));
	shmstore_close(s);
}

static int stop(const struct shmstore_gc_action *a, void *arg)
{
	(void)a;
	++*(int *)arg;
	return 42;
}

Test(gc, a_callbacks_value_ends_it_and_is_returned)
{
	struct shmstore_partition *p = scratch_partition();
	int n = 0;

	make_dir("stores/a");
	make_dir("stores/b");
	cr_assert_eq(shmstore_partition_gc_plan(p, 0, stop, &n, NULL), 42);
	cr_assert_eq(n, 1);
	cr_assert(exists("stores/a") != exists("stores/b"));
	shmstore_partition_unref(p);
}

Test(gc, bad_arguments_are_refused)
{
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(shmstore_partition_gc(NULL, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_gc(p, 0x100, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	shmstore_partition_unref(p);
}
