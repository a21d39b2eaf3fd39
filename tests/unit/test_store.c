/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, taking over and forking of stores. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

static int open_with(const char *name, struct shmstore_options o, struct shmstore **ret)
{
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_open(p, name, &o, ret);

	shmstore_partition_unref(p);
	return r;
}

static const struct shmstore_options OPTIONS = SHMSTORE_OPTIONS_INIT;

static struct shmstore_options with(unsigned flags)
{
	struct shmstore_options o = OPTIONS;

	o.flags = flags;
	return o;
}

Test(store, opened_one_is_a_directory_and_closing_removes_it)
{
	struct shmstore *s = scratch_store("a");

	cr_assert_str_eq(shmstore_name(s), "a");
	cr_assert_str_eq(shmstore_path(s), scratch_store_path("a", ""));
	cr_assert_eq(count_in_store("a", ""), 4);
	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_in_store("a", ""), -ENOENT);
	cr_assert_eq(shmstore_close(NULL), 0);
	ensure_nothing_left();
}

Test(store, names_are_checked)
{
	struct shmstore_partition *p = scratch_partition();
	static const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "/", "/a", "a/", "../x"};
	struct shmstore *s = NULL;
	char name[300];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(shmstore_open(p, bad[i], NULL, &s), -EINVAL, "'%s'", bad[i]);
	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	cr_assert_eq(shmstore_open(p, name, NULL, &s), -EINVAL);
	cr_assert_null(s);
	name[255] = '\0';
	cr_assert_eq(shmstore_open(p, name, NULL, &s), 0);
	cr_assert_str_eq(shmstore_name(s), name);
	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "k", 100, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_open(p, "odd \n\xff name%", NULL, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_open(p, NULL, NULL, &s), -EINVAL);
	cr_assert_eq(shmstore_open(NULL, "a", NULL, &s), -EINVAL);
	cr_assert_eq(shmstore_open(p, "a", NULL, NULL), -EINVAL);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(store, options_are_checked)
{
	struct shmstore *s;
	struct shmstore_options o = OPTIONS;
	char label[200];

	o.size = 3;
	cr_assert_eq(open_with("a", o, &s), -EINVAL);
	cr_assert_eq(open_with("a", with(1u << 30), &s), -EINVAL);
	cr_assert_eq(open_with("a", with(SHMSTORE_OPEN_ADOPT | SHMSTORE_OPEN_FRESH), &s), -EINVAL);
	memset(label, 'l', sizeof(label));
	label[128] = '\0';
	o = OPTIONS;
	o.label = label;
	cr_assert_eq(open_with("a", o, &s), -EINVAL);
	label[127] = '\0';
	cr_assert_eq(open_with("a", o, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	/* A program of an older header, which had keep only. */
	o = OPTIONS;
	o.size = offsetof(struct shmstore_options, label);
	o.keep = true;
	o.flags = 1u << 30;
	cr_assert_eq(open_with("a", o, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_in_store("a", "objects"), 0, "kept");
	cr_assert_eq(open_with("a", OPTIONS, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int find_store(const struct shmstore_store_info *info, void *arg)
{
	struct shmstore_store_info *found = arg;

	if (strcmp(info->name, found->name) != 0)
		return 0;
	cr_assert_str_eq(info->label, "a label");
	*found = *info;
	found->label = NULL;
	return 1;
}

Test(store, page_tells_who_owns_it)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = OPTIONS;
	struct shmstore_store_info info = {.name = "a"};
	struct shmstore *s;

	o.label = "a label";
	cr_assert_eq(open_with("a", o, &s), 0);
	cr_assert_eq(shmstore_partition_stores(p, find_store, &info), 1);
	cr_assert_eq(info.pid, getpid());
	cr_assert_eq(info.uid, geteuid());
	cr_assert_eq(info.alive, SHMSTORE_ALIVE);
	cr_assert_not(info.keep);
	cr_assert(info.readable);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(store, live_owners_name_is_busy)
{
	struct other o = other_start("a");
	struct shmstore *s = NULL, *t;

	cr_assert_eq(open_with("a", OPTIONS, &s), -EBUSY);
	cr_assert_eq(open_with("a", with(SHMSTORE_OPEN_FRESH), &s), -EBUSY);
	cr_assert_eq(open_with("a", with(SHMSTORE_OPEN_ADOPT), &s), -EBUSY);
	cr_assert_null(s);
	cr_assert_eq(other_put(&o, "k", 100, 1), 0, "and the owner does not mind");
	cr_assert_eq(other_get(&o, "k", 100, 1), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(open_with("a", OPTIONS, &s), 0);
	cr_assert_eq(open_with("a", OPTIONS, &t), -EBUSY, "also for ourselves");
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, dead_owners_store_is_reclaimed)
{
	struct other o = other_start("a");
	struct shmstore *s;

	cr_assert_eq(other_put(&o, "k", 100000, 1), 0);
	other_kill(&o);
	cr_assert_eq(open_with("a", OPTIONS, &s), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), -ENOENT);
	cr_assert_eq(count_objects(s), 0);
	cr_assert_eq(put_pattern(s, "k", 100, 2, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, dead_owners_store_is_adopted_if_asked)
{
	struct other o = other_start("a");
	struct shmstore *s;

	cr_assert_eq(other_put(&o, "k", 100000, 1), 0);
	cr_assert_eq(other_put(&o, "d", 100000, 2), 0);
	cr_assert_eq(other_delete(&o, "d"), 0);
	other_kill(&o);
	cr_assert_eq(open_with("a", with(SHMSTORE_OPEN_ADOPT), &s), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(count_objects(s), 1);
	cr_assert_eq(count_in_store("a", "recycle"), 0, "what was pooled is nobody's");
	cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, dead_stores_are_swept_when_another_opens)
{
	struct other o = other_start("dead");
	struct shmstore *s;

	cr_assert_eq(other_put(&o, "k", 100000, 1), 0);
	other_kill(&o);
	s = scratch_store("other");
	cr_assert_eq(count_in_store("dead", ""), -ENOENT);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, kept_store_stays_and_is_taken_over)
{
	struct shmstore_options keep = OPTIONS;
	struct shmstore *s;

	keep.keep = true;
	cr_assert_eq(open_with("a", keep, &s), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "d", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(s, "d", 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_in_store("a", "objects"), 1);
	cr_assert_eq(count_in_store("a", "recycle"), 0, "the pool goes with its owner");
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(count_in_store("a", "objects"), 1, "gc leaves it");
	ensure_books_close();
	cr_assert_eq(open_with("a", keep, &s), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(open_with("a", with(SHMSTORE_OPEN_FRESH), &s), 0);
	cr_assert_eq(count_objects(s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, readonly_handle_looks_at_live_and_dead_stores)
{
	struct shmstore_options keep = OPTIONS;
	struct other o = other_start("live");
	struct shmstore_ticket t;
	struct shmstore *s, *r;

	cr_assert_eq(open_with("none", with(SHMSTORE_OPEN_READONLY), &r), -ENOENT);
	cr_assert_eq(count_in_store("none", ""), -ENOENT, "looking makes nothing");
	cr_assert_eq(other_put(&o, "k", 100000, 1), 0);
	cr_assert_eq(open_with("live", with(SHMSTORE_OPEN_READONLY), &r), 0);
	cr_assert_eq(get_pattern(r, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_contains(r, "k", 1), 1);
	cr_assert_eq(count_objects(r), 1);
	cr_assert_eq(put_pattern(r, "x", 10, 1, 0), -EPERM);
	cr_assert_eq(seal_pattern(r, "x", 10, 1, 0), -EPERM);
	cr_assert_eq(shmstore_delete(r, "k", 1), -EPERM);
	cr_assert_eq(shmstore_handoff(r, "k", 1, 1000, &t), -EPERM);
	cr_assert_eq(shmstore_set_address(r, "tcp://a:1"), -EPERM);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(other_get(&o, "k", 100000, 1), 0, "closing a look takes nothing away");
	cr_assert_eq(other_close(&o), 0);
	keep.keep = true;
	cr_assert_eq(open_with("kept", keep, &s), 0);
	cr_assert_eq(put_pattern(s, "k", 100, 3, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(open_with("kept", with(SHMSTORE_OPEN_READONLY), &r), 0);
	cr_assert_eq(get_pattern(r, "k", 100, 3), 0);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(count_in_store("kept", "objects"), 1);
	cr_assert_eq(open_with("kept", OPTIONS, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, directory_option_places_it_in_the_partition)
{
	struct shmstore_options o = OPTIONS;
	struct shmstore *s;
	char absolute[SCRATCH_PATH + 64], path[SCRATCH_PATH + 64], mine[SCRATCH_PATH + 64];

	shmstore_partition_unref(scratch_partition());
	snprintf(mine, sizeof(mine), "%s/mine", scratch_partition_path());
	cr_assert_eq(mkdir(mine, 0700), 0);
	o.directory = "mine/shm";
	cr_assert_eq(open_with("a", o, &s), 0);
	snprintf(path, sizeof(path), "%s/mine/shm", scratch_partition_path());
	cr_assert_str_eq(shmstore_path(s), path);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(ensure_books_close().n_objects, 1, "it is found there too");
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_dir(path), -ENOENT);
	snprintf(absolute, sizeof(absolute), "%s/mine/shm2/", scratch_partition_path());
	o.directory = absolute;
	cr_assert_eq(open_with("a", o, &s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_dir(mine), 0);
	cr_assert_eq(rmdir(mine), 0);
	ensure_nothing_left();
}

Test(store, directory_outside_the_partition_is_eperm)
{
	char outside[SCRATCH_PATH + 64], link[SCRATCH_PATH + 64], dotdot[SCRATCH_PATH + 64],
		similar[SCRATCH_PATH + 64];
	const char *bad[] = {"/tmp/elsewhere",
			     "../elsewhere",
			     "x/../../elsewhere",
			     "link/elsewhere",
			     dotdot,
			     similar,
			     ".."};
	struct shmstore_options o = OPTIONS;
	struct shmstore *s;

	shmstore_partition_unref(scratch_partition());
	snprintf(outside, sizeof(outside), "%s/outside", scratch_dir(NULL));
	snprintf(link, sizeof(link), "%s/link", scratch_partition_path());
	snprintf(dotdot, sizeof(dotdot), "%s/../elsewhere", scratch_partition_path());
	snprintf(similar, sizeof(similar), "%s-similar/x", scratch_partition_path());
	cr_assert_eq(mkdir(outside, 0700), 0);
	cr_assert_eq(symlink(outside, link), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int r;

		o.directory = bad[i];
		r = open_with("a", o, &s);
		cr_assert(r == -EPERM || (r == -ENOENT && i == 2), "'%s': %d", bad[i], r);
	}
	cr_assert_eq(count_dir(outside), 0);
	o.directory = "none/shm";
	cr_assert_eq(open_with("a", o, &s), -ENOENT, "its parent must exist");
	o.directory = "link";
	cr_assert_eq(open_with("a", o, &s), -EPERM);
	cr_assert_eq(unlink(link), 0);
	ensure_nothing_left();
}

Test(store, foreign_files_in_its_directory_survive)
{
	struct shmstore_options o = OPTIONS;
	struct shmstore *s;
	char mine[SCRATCH_PATH + 64], file[SCRATCH_PATH + 64];
	int fd;

	shmstore_partition_unref(scratch_partition());
	snprintf(mine, sizeof(mine), "%s/worker", scratch_partition_path());
	snprintf(file, sizeof(file), "%s/notes", mine);
	cr_assert_eq(mkdir(mine, 0700), 0);
	fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	close(fd);
	o.directory = "worker";
	cr_assert_eq(open_with("a", o, &s), 0);
	cr_assert_eq(put_pattern(s, "k", 1000, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(count_dir(mine), 1);
	cr_assert_eq(unlink(file), 0);
	cr_assert_eq(rmdir(mine), 0);
	ensure_nothing_left();
}

/* ---- fork ------------------------------------------------------------------------------------ */

struct family {
	struct shmstore *s;
	struct shmstore_view *v;
	int pipe[2];
};

static int child_use(void *arg)
{
	struct family *f = arg;
	struct shmstore_view *v;
	struct shmstore_ticket t = {1, 1, "/x"};
	struct shmstore_store_usage u;

	if (view_pattern(f->v, 100000, 1) != 0)
		return 1;
	if (shmstore_get(f->s, "k", 1, 0, &v) != -EPERM ||
	    put_pattern(f->s, "x", 10, 1, 0) != -EPERM ||
	    seal_pattern(f->s, "x", 10, 1, 0) != -EPERM ||
	    shmstore_delete(f->s, "k", 1) != -EPERM || shmstore_contains(f->s, "k", 1) != -EPERM ||
	    count_objects(f->s) != -EPERM || shmstore_handoff(f->s, "k", 1, 1000, &t) != -EPERM ||
	    shmstore_adopt(f->s, "z", 1, &t, 0) != -EPERM || shmstore_usage(f->s, &u) != -EPERM ||
	    shmstore_set_address(f->s, "a") != -EPERM)
		return 2;
	shmstore_close(f->s);
	if (view_pattern(f->v, 100000, 1) != 0)
		return 3;
	shmstore_view_unref(f->v);
	return 0;
}

Test(store, forked_child_is_refused_and_its_close_touches_nothing)
{
	struct family f = {.s = scratch_store("a")};

	cr_assert_eq(put_pattern(f.s, "k", 100000, 1, 0), 0);
	f.v = get_view(f.s, "k", 0);
	cr_assert_eq(in_child(child_use, &f), 0);
	cr_assert_eq(get_pattern(f.s, "k", 100000, 1), 0);
	cr_assert_eq(count_objects(f.s), 1);
	shmstore_view_unref(f.v);
	cr_assert_eq(shmstore_close(f.s), 0);
	ensure_nothing_left();
}

static int child_own_store(void *arg)
{
	struct shmstore_partition *p = arg;
	struct shmstore *s;

	if (shmstore_open(p, "child", NULL, &s) != 0 || put_pattern(s, "k", 100000, 9, 0) != 0 ||
	    get_pattern(s, "k", 100000, 9) != 0)
		return 1;
	return shmstore_close(s) == 0 ? 0 : 2;
}

Test(store, forked_child_opens_its_own)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("parent");

	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(in_child(child_own_store, p), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

/* A store whose owner forks, then is killed: the grandchild lives on and must not keep the lock. */
static int owner_forks(void *arg)
{
	int *say = arg;
	struct shmstore *s = scratch_store("a");
	pid_t pid;

	if (put_pattern(s, "k", 100000, 1, 0) != 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	if (write(say[1], &pid, sizeof(pid)) != sizeof(pid))
		return 1;
	raise(SIGKILL);
	return 0;
}

Test(store, lock_does_not_outlive_the_owner_in_a_forked_child)
{
	int say[2];
	pid_t grandchild = -1;
	struct shmstore *s = NULL;
	int r;

	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(pipe(say), 0);
	cr_assert_eq(in_child(owner_forks, say), 1000 + SIGKILL);
	cr_assert_eq(read(say[0], &grandchild, sizeof(grandchild)), (ssize_t)sizeof(grandchild));
	r = open_with("a", OPTIONS, &s);
	kill(grandchild, SIGKILL);
	cr_assert_eq(r, 0, "%d", r);
	cr_assert_eq(count_objects(s), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(store, two_who_race_for_one_name_do_not_both_win)
{
	/* Each child tries to open the name, says how it went, and holds it until all have
	 * tried. */
	enum {
		N = 8
	};
	for (int round = 0; round < 10; round++) {
		int say[2], go[2], won = 0, busy = 0;
		pid_t pids[N];

		shmstore_partition_unref(scratch_partition());
		cr_assert_eq(pipe(say), 0);
		cr_assert_eq(pipe(go), 0);
		for (int i = 0; i < N; i++) {
			pids[i] = fork();
			cr_assert_geq(pids[i], 0);
			if (pids[i] == 0) {
				struct shmstore *s = NULL;
				int r = open_with("a", OPTIONS, &s);
				char c;

				close(go[1]);
				if (write(say[1], &r, sizeof(r)) != sizeof(r) ||
				    read(go[0], &c, 1) != 0)
					_exit(1);
				_exit(shmstore_close(s) == 0 ? 0 : 1);
			}
		}
		for (int i = 0; i < N; i++) {
			int r = 12345;

			cr_assert_eq(read(say[0], &r, sizeof(r)), (ssize_t)sizeof(r));
			won += r == 0;
			busy += r == -EBUSY;
		}
		close(go[0]);
		close(go[1]);
		close(say[0]);
		close(say[1]);
		for (int i = 0; i < N; i++) {
			int status;

			waitpid(pids[i], &status, 0);
			cr_assert_eq(status, 0);
		}
		cr_assert_eq(won, 1);
		cr_assert_eq(busy, N - 1);
	}
	ensure_nothing_left();
}
