/* SPDX-License-Identifier: Apache-2.0 */
/* The walk: every store wherever it lies, every name in its place, no symlink followed, no
 * other file system entered. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "partition.h"
#include "walk.h"

#define SEEN_MAX 64

/* The entries that a walk told, as "place path" lines. */
struct seen {
	char lines[SEEN_MAX][SCRATCH_PATH];
	size_t n;
	uint64_t in_store, ended; /* stores begun and ended */
	uint64_t n_unreadable;
};

static const char *const places[] = {
	[SHMS_PLACE_FOREIGN] = "foreign",     [SHMS_PLACE_MARKER] = "marker",
	[SHMS_PLACE_PEER] = "peer",           [SHMS_PLACE_PAGE] = "page",
	[SHMS_PLACE_OBJECT] = "object",       [SHMS_PLACE_SIDECAR] = "sidecar",
	[SHMS_PLACE_LEASE] = "lease",         [SHMS_PLACE_POOL] = "pool",
	[SHMS_PLACE_DIRECTORY] = "directory", [SHMS_PLACE_STUB] = "stub",
	[SHMS_PLACE_CLEAN] = "clean",         [SHMS_PLACE_MOVING] = "moving",
	[SHMS_PLACE_TIER] = "tier",           [SHMS_PLACE_ANCHOR] = "anchor",
	[SHMS_PLACE_RESIDENT] = "resident",
};

static void line(struct seen *s, const char *what, const char *path)
{
	size_t n = strlen(scratch_partition_path());

	cr_assert_lt(s->n, SEEN_MAX);
	if (strncmp(path, scratch_partition_path(), n) == 0 && path[n] == '/')
		path += n + 1;
	snprintf(s->lines[s->n++], SCRATCH_PATH, "%s %.400s", what, path);
}

static int on_store(const struct shms_walk_store *store, void *arg)
{
	struct seen *s = arg;

	s->in_store = store->number;
	line(s, store->fd < 0 ? "closed" : "store", store->path);
	return 0;
}

static int on_end(const struct shms_walk_store *store, void *arg)
{
	struct seen *s = arg;

	cr_assert_eq(s->in_store, store->number, "the entries of a store come in one run");
	s->in_store = 0;
	s->ended++;
	return 0;
}

static int on_entry(const struct shms_walk_entry *e, void *arg)
{
	struct seen *s = arg;
	char path[SCRATCH_PATH];

	if (e->store)
		cr_assert_eq(e->store->number, s->in_store);
	else
		cr_assert(e->place == SHMS_PLACE_FOREIGN || e->place == SHMS_PLACE_MARKER ||
			  e->place == SHMS_PLACE_PEER || e->place == SHMS_PLACE_TIER ||
			  e->place == SHMS_PLACE_ANCHOR || e->place == SHMS_PLACE_RESIDENT);
	cr_assert_eq(e->stub != NULL,
		     e->place == SHMS_PLACE_STUB || e->place == SHMS_PLACE_CLEAN ||
			     e->place == SHMS_PLACE_ANCHOR ||
			     (e->place == SHMS_PLACE_LEASE && S_ISLNK(e->st->st_mode)));
	snprintf(path, sizeof(path), "%.300s/%.200s", e->dir, e->name);
	line(s, places[e->place], path);
	return 0;
}

static int on_unreadable(const char *path, const struct stat *st, int error, void *arg)
{
	(void)st;
	(void)error;
	line(arg, "unreadable", path);
	return 0;
}

static void walk(struct seen *s, unsigned flags)
{
	struct shmstore_partition *p = scratch_partition();
	struct shms_walk w = {
		.flags = flags,
		.store = on_store,
		.store_end = on_end,
		.entry = on_entry,
		.unreadable = on_unreadable,
		.arg = s,
	};

	memset(s, 0, sizeof(*s));
	cr_assert_eq(shms_walk_run(&w, p), 0);
	s->n_unreadable = w.n_unreadable;
	shmstore_partition_unref(p);
}

/* How often a line starts so. */
static size_t count(const struct seen *s, const char *start)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += strncmp(s->lines[i], start, strlen(start)) == 0;
	return n;
}

static void path_of(char ret[SCRATCH_PATH], const char *below)
{
	snprintf(ret, SCRATCH_PATH, "%.200s/%.250s", scratch_partition_path(), below);
}

static void make_file(const char *below)
{
	char path[SCRATCH_PATH];
	int fd;

	path_of(path, below);
	fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, "x", 1), 1);
	close(fd);
}

static void make_dir(const char *below)
{
	char path[SCRATCH_PATH];

	path_of(path, below);
	cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
}

static struct shmstore *store_in(const char *name, const char *directory)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	o.directory = directory;
	cr_assert_eq(shmstore_open(p, name, &o, &s), 0);
	shmstore_partition_unref(p);
	return s;
}

Test(walk, a_store_is_found_wherever_it_lies)
{
	struct shmstore *a = scratch_store("a"), *b, *c;
	struct seen seen;

	make_dir("dask");
	make_dir("dask/deep");
	b = store_in("b", "dask/deep/worker-b");
	c = store_in("c", "dask/deep/worker-b/nested");
	walk(&seen, 0);
	cr_assert_eq(seen.n, 3);
	cr_assert_eq(count(&seen, "store stores/a"), 1);
	cr_assert_eq(count(&seen, "store dask/deep/worker-b"), 2);
	cr_assert_eq(count(&seen, "store dask/deep/worker-b/nested"), 1);
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(seen.ended, 3);
	cr_assert_eq(count(&seen, "page "), 3);
	shmstore_close(c);
	shmstore_close(b);
	shmstore_close(a);
}

Test(walk, every_name_has_its_place)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_ticket t;
	char key[300], path[SCRATCH_PATH];
	struct seen seen;

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(put_pattern(s, "x", 100000, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "y", 100000, 2, 0), 0);
	cr_assert_eq(put_pattern(s, key, 10, 3, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 60000, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("y")), 0);
	cr_assert_eq(shmstore_set_address(s, "tcp://here:1"), 0);
	make_file("stores/a/objects/not ours");
	make_file("stores/a/objects/%k00000000000000000000000000000000");
	make_file("stores/a/handoff/not-a-lease");
	make_file("stores/a/notes");
	make_dir("stores/a/objects/d");
	make_file("stores/a/objects/d/e");
	make_file("note");
	make_file("stores/note");
	make_file("peers/note");
	path_of(path, "stores/a/objects/link");
	cr_assert_eq(symlink("x", path), 0);
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "marker .shmstore"), 1);
	cr_assert_eq(count(&seen, "page stores/a/.store"), 1);
	cr_assert_eq(count(&seen, "object "), 2);
	cr_assert_eq(count(&seen, "object stores/a/objects/x"), 1);
	cr_assert_eq(count(&seen, "object stores/a/objects/%h"), 1);
	cr_assert_eq(count(&seen, "sidecar stores/a/objects/%k000"), 1);
	cr_assert_eq(count(&seen, "lease stores/a/handoff/"), 1);
	cr_assert_eq(count(&seen, "pool stores/a/recycle/"), 1);
	cr_assert_eq(count(&seen, "peer peers/"), 1);
	cr_assert_eq(count(&seen, "foreign "), 8);
	cr_assert_eq(count(&seen, "foreign stores/a/objects/link"), 1, "a symlink is no object");
	cr_assert_eq(count(&seen, "foreign stores/a/objects/d/e"), 1);
	cr_assert_eq(count(&seen, "foreign stores/a/notes"), 1);
	shmstore_close(s);
}

Test(walk, symlinks_are_not_followed)
{
	struct shmstore *s = scratch_store("a");
	char path[SCRATCH_PATH];
	struct seen seen;

	path_of(path, "stores/alias");
	cr_assert_eq(symlink("a", path), 0);
	path_of(path, "loop");
	cr_assert_eq(symlink(".", path), 0);
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "store "), 1);
	cr_assert_eq(count(&seen, "foreign "), 2);
	shmstore_close(s);
}

Test(walk, a_store_file_that_is_no_file_makes_no_store)
{
	struct seen seen;
	char path[SCRATCH_PATH];

	shmstore_partition_unref(scratch_partition());
	make_dir("stores/d");
	make_dir("stores/d/.store");
	make_dir("stores/l");
	path_of(path, "stores/l/.store");
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "store "), 0);
}

Test(walk, a_part_of_a_store_is_not_searched_for_stores)
{
	struct shmstore *s = scratch_store("a");
	struct seen seen;

	make_dir("stores/a/objects/trap");
	make_file("stores/a/objects/trap/.store");
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "store "), 1);
	cr_assert_eq(count(&seen, "foreign stores/a/objects/trap/.store"), 1);
	unlink(scratch_store_path("a", "objects/trap/.store"));
	rmdir(scratch_store_path("a", "objects/trap"));
	shmstore_close(s);
}

Test(walk, the_rest_of_the_file_system_is_seen_once_also_what_mounts_hide)
{
	struct shmstore *s = scratch_store("a");
	char path[SCRATCH_PATH], part[SCRATCH_PATH];
	struct seen seen;

	if (!scratch_is_mount())
		cr_skip_test("needs to mount (root)");
	make_dir("d");
	make_file("d/hidden");
	make_dir("again");
	snprintf(path, sizeof(path), "%.200s/outside", scratch_dir(NULL));
	close(open(path, O_CREAT | O_WRONLY, 0600));
	path_of(path, "d");
	cr_assert_eq(mount("tmpfs", path, "tmpfs", 0, "size=1m"), 0);
	make_file("d/over");
	path_of(path, "again");
	path_of(part, "stores");
	cr_assert_eq(mount(part, path, NULL, MS_BIND, NULL), 0);

	walk(&seen, SHMS_WALK_REST);
	cr_assert_eq(count(&seen, "store "), 1);
	cr_assert_eq(count(&seen, "foreign d/hidden"), 1);
	cr_assert_eq(count(&seen, "foreign d/over"), 0);
	cr_assert_eq(count(&seen, "foreign /outside"), 1);
	cr_assert_eq(seen.n_unreadable, 0);

	/* Without the private clone neither the bound directory nor the other file system is
	 * entered, and that is said. */
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "store "), 1);
	cr_assert_eq(count(&seen, "foreign d/"), 0);
	cr_assert_eq(seen.n_unreadable, 2);
	shmstore_close(s);
}

static int as_nobody(void *arg)
{
	struct seen *seen = malloc(sizeof(*seen));

	(void)arg;
	if (setegid(65534) < 0 || seteuid(65534) < 0)
		return 1;
	walk(seen, SHMS_WALK_ENTRIES);
	if (count(seen, "closed stores/private") != 1 || count(seen, "store stores/open") != 1)
		return 2;
	if (count(seen, "unreadable stores/open/objects") != 1 ||
	    count(seen, "unreadable closed-to-us") != 1)
		return 3;
	if (seen->n_unreadable < 3)
		return 4;
	free(seen);
	return 0;
}

Test(walk, what_may_not_be_read_is_counted_and_told)
{
	struct shmstore *a = scratch_store("private"), *b = scratch_store("open");

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	cr_assert_eq(chmod(scratch_partition_path(), 0755), 0);
	cr_assert_eq(chmod(scratch_store_path("", ""), 0755), 0);
	cr_assert_eq(chmod(scratch_store_path("open", ""), 0755), 0);
	make_dir("closed-to-us");
	cr_assert_eq(in_child(as_nobody, NULL), 0);
	shmstore_close(a);
	shmstore_close(b);
}

static void make_stub(const char *below, const char *text)
{
	char path[SCRATCH_PATH];

	path_of(path, below);
	cr_assert_eq(symlink(text, path), 0, "%s", path);
}

#define STUB "shmstore-tier:1:00000000000000ab:0000000000000001:4096:0"

Test(walk, the_disk_tiers_names_have_their_places_and_come_before_all_stores)
{
	struct shmstore *s = scratch_store("a");
	struct seen seen;

	make_dir("stores/a/clean"); /* the store was opened without a tier */
	make_dir("tier");
	make_dir("tier/7");
	make_dir("tier/not-a-user");
	make_file("tier/config");
	make_file("tier/config.new");
	make_file("tier/notes");
	make_file("tier/7/lock");
	make_file("tier/7/00000000000000ab.object");
	make_stub("tier/7/00000000000000ab.stub", STUB);
	make_stub("tier/7/00000000000000ac.stub", STUB); /* of another id than its text says */
	make_stub("tier/not-a-user/00000000000000ab.stub", STUB);
	make_stub("stores/a/objects/demoted", STUB);
	make_stub("stores/a/objects/no-stub", "shmstore-tier:1:ab");
	make_stub("stores/a/objects/%zz", STUB); /* no key's name */
	make_stub("stores/a/clean/copy", STUB);
	make_file("stores/a/clean/moving");
	make_stub("stores/a/handoff/1-0123456789abcdef", STUB);
	make_stub("stores/a/handoff/no-lease", STUB);
	make_stub("stores/a/recycle/1", STUB);
	walk(&seen, SHMS_WALK_ENTRIES);
	cr_assert_eq(count(&seen, "tier tier/config"), 2);
	cr_assert_eq(count(&seen, "tier tier/7/lock"), 1);
	cr_assert_eq(count(&seen, "anchor tier/7/00000000000000ab.stub"), 1);
	cr_assert_eq(count(&seen, "anchor "), 1);
	cr_assert_eq(count(&seen, "resident tier/7/00000000000000ab.object"), 1);
	cr_assert_eq(count(&seen, "stub stores/a/objects/demoted"), 1);
	cr_assert_eq(count(&seen, "stub "), 1);
	cr_assert_eq(count(&seen, "clean stores/a/clean/copy"), 1);
	cr_assert_eq(count(&seen, "moving stores/a/clean/moving"), 1);
	cr_assert_eq(count(&seen, "lease stores/a/handoff/1-0123456789abcdef"), 1);
	cr_assert_eq(count(&seen, "lease "), 1);
	cr_assert_eq(count(&seen, "foreign "), 7);
	for (size_t i = 0, stores = 0; i < seen.n; i++) {
		stores += strncmp(seen.lines[i], "store ", 6) == 0;
		cr_assert(!stores || !strstr(seen.lines[i], " tier/"), "%s", seen.lines[i]);
	}
	/* A caller that asks for stores only is not led through the tier. */
	walk(&seen, 0);
	cr_assert_eq(seen.n, 1);
	shmstore_close(s);
}

static int stop(const struct shms_walk_store *store, void *arg)
{
	(void)store;
	++*(int *)arg;
	return 42;
}

Test(walk, a_callbacks_value_ends_it_and_is_returned)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_partition *p = scratch_partition();
	int n = 0;
	struct shms_walk w = {.store = stop, .arg = &n};

	cr_assert_eq(shms_walk_run(&w, p), 42);
	cr_assert_eq(n, 1);
	shmstore_partition_unref(p);
	shmstore_close(a);
	shmstore_close(b);
}
