/* SPDX-License-Identifier: Apache-2.0 */
/* Copy-on-write views of packed objects: private maps of the segment, which keep the
 * object, where they are large. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define MAX     (1u << 20)
#define SIZE    100000u /* begins and ends within pages that it shares with its neighbours */
#define N_KEYS  8u
#define N_AFTER 40u /* replacements after a view was taken: each slot that is free is used again */

static const char *const keys[N_KEYS] = {"a", "b", "c", "d", "e", "f", "g", "h"};

/* A store with a value of its number under each key. */
static struct shmstore *open_full(void)
{
	struct shmstore *s = packing_store("s", MAX, false);

	for (unsigned i = 0; i < N_KEYS; i++)
		cr_assert_eq(put_pattern(s, keys[i], SIZE, i, 0), 0);
	cr_assert_eq(count_packed_objects(s), N_KEYS);
	return s;
}

static struct shmstore *open_reader(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;

	o.flags = SHMSTORE_OPEN_READONLY;
	cr_assert_eq(shmstore_open(scratch_partition(), "s", &o, &s), 0);
	return s;
}

static bool all_are_right(struct shmstore *s)
{
	for (unsigned i = 0; i < N_KEYS; i++) {
		if (get_pattern(s, keys[i], SIZE, i) != 0)
			return false;
	}
	return true;
}

/* Are the view's bytes a private map of a segment? */
static bool is_map(const struct shmstore_view *v)
{
	uintptr_t at = (uintptr_t)shmstore_view_buffer(v, 0, NULL);
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024], kind[5];
	unsigned long begin, end;
	bool is = false;

	cr_assert(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s", &begin, &end, kind) == 3 && at >= begin && at < end)
			is = kind[3] == 'p' && strstr(line, "/segments/");
	}
	fclose(maps);
	return is;
}

static void scribble(const struct shmstore_view *v, uint64_t seed)
{
	uint64_t size;
	void *bytes = shmstore_view_buffer(v, 0, &size);

	pattern_fill(bytes, size, seed);
}

static void churn(struct shmstore *s)
{
	for (uint64_t i = 0; i < N_AFTER; i++)
		cr_assert_eq(put_pattern(s, "z", SIZE, 1000 + i, SHMSTORE_REPLACE), 0);
}

static void writes_stay_private(struct shmstore *owner, struct shmstore *s)
{
	struct shmstore_view *v[N_KEYS], *again;

	for (unsigned i = 0; i < N_KEYS; i++) {
		v[i] = get_view(s, keys[i], SHMSTORE_COW);
		cr_assert(is_map(v[i]));
		cr_assert_eq(view_pattern(v[i], SIZE, i), 0);
	}
	again = get_view(s, keys[3], SHMSTORE_COW | SHMSTORE_VERIFY);
	/* Each writes into pages that it shares with the next one. */
	for (unsigned i = 0; i < N_KEYS; i++)
		scribble(v[i], 100 + i);
	for (unsigned i = 0; i < N_KEYS; i++)
		cr_assert_neq(view_pattern(v[i], SIZE, i), 0);
	cr_assert_eq(view_pattern(again, SIZE, 3), 0);
	cr_assert(all_are_right(s) && all_are_right(owner));
	for (unsigned i = 0; i < N_KEYS; i++)
		shmstore_view_unref(v[i]);
	shmstore_view_unref(again);
	ensure_books_close();
}

Test(packed_cow, writes_stay_private)
{
	struct shmstore *s = open_full(), *r = open_reader();

	writes_stay_private(s, s);
	writes_stay_private(s, r);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_cow, small_values_are_copied)
{
	struct shmstore *s = packing_store("s", MAX, false);
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "k", 1000, 1, 0), 0);
	v = get_view(s, "k", SHMSTORE_COW);
	cr_assert_not(is_map(v));
	cr_assert_eq(put_pattern(s, "k", 1000, 2, SHMSTORE_REPLACE), 0);
	cr_assert_eq(view_pattern(v, 1000, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Pages of a view that nobody has touched yet are read out of the segment when they are touched. */
static void keeps_its_object(struct shmstore *owner, struct shmstore *s)
{
	struct shmstore_view *v = get_view(s, "b", SHMSTORE_COW),
			     *w = get_view(s, "c", SHMSTORE_COW);

	cr_assert_eq(shmstore_delete(owner, "b", 1), 0);
	cr_assert_eq(put_pattern(owner, "c", SIZE, 77, SHMSTORE_REPLACE), 0);
	churn(owner);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	cr_assert_eq(view_pattern(w, SIZE, 2), 0);
	scribble(v, 5);
	churn(owner);
	cr_assert_eq(view_pattern(w, SIZE, 2), 0);
	shmstore_view_unref(v);
	shmstore_view_unref(w);
	cr_assert_eq(put_pattern(owner, "b", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(owner, "c", SIZE, 2, SHMSTORE_REPLACE), 0);
	cr_assert(all_are_right(s));
	ensure_books_close();
}

Test(packed_cow, keeps_its_object)
{
	struct shmstore *s = open_full(), *r = open_reader();
	struct shmstore_view *v, *w;

	keeps_its_object(s, s);
	keeps_its_object(s, r);
	v = get_view(s, "a", SHMSTORE_COW);
	w = get_view(r, "a", SHMSTORE_COW);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(view_pattern(v, SIZE, 0), 0);
	cr_assert_eq(view_pattern(w, SIZE, 0), 0);
	shmstore_view_unref(v);
	cr_assert_eq(view_pattern(w, SIZE, 0), 0);
	cr_assert_eq(shmstore_close(r), 0);
	scribble(w, 9);
	shmstore_view_unref(w);
	ensure_nothing_left();
}

struct child {
	struct shmstore_view *v;
	int go;
};

/* Waits until its parent has no view any more, and has put over all that is free. */
static int look(void *arg)
{
	struct child *c = arg;
	char byte;

	if (read(c->go, &byte, 1) != 1 || view_pattern(c->v, SIZE, 1) != 0)
		return 1;
	scribble(c->v, 5);
	shmstore_view_unref(c->v);
	return 0;
}

static int parent(struct shmstore *owner, struct shmstore *s)
{
	struct child c = {.v = get_view(s, "b", SHMSTORE_COW)};
	int to[2], status;
	pid_t pid;

	cr_assert_eq(pipe(to), 0);
	c.go = to[0];
	pid = fork_bound(20);
	if (pid == 0)
		_exit(look(&c));
	scribble(c.v, 6);
	shmstore_view_unref(c.v);
	cr_assert_eq(put_pattern(owner, "b", SIZE, 77, SHMSTORE_REPLACE), 0);
	churn(owner);
	cr_assert_eq(write(to[1], "x", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	close(to[0]);
	close(to[1]);
	cr_assert_eq(put_pattern(owner, "b", SIZE, 1, SHMSTORE_REPLACE), 0);
	return status;
}

Test(packed_cow, children_inherit_it)
{
	struct shmstore *s = open_full(), *r = open_reader();

	cr_assert_eq(parent(s, s), 0);
	cr_assert_eq(parent(s, r), 0);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_cow, full_partition_does_not_matter)
{
	struct shmstore *s, *r;
	struct shmstore_view *v[2];
	char key[16];

	scratch_dir("size=16m,mode=700");
	if (!scratch_is_mount())
		cr_skip_test("needs a file system of its own");
	s = open_full();
	r = open_reader();
	for (unsigned i = 0; put_pattern(s, (sprintf(key, "%u", i), key), SIZE, i, 0) == 0; i++)
		;
	for (unsigned i = 0; put_pattern(s, (sprintf(key, "small %u", i), key), 10, i, 0) == 0; i++)
		;
	v[0] = get_view(s, "a", SHMSTORE_COW);
	v[1] = get_view(r, "b", SHMSTORE_COW);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert(is_map(v[i]));
		cr_assert_eq(view_pattern(v[i], SIZE, i), 0);
		scribble(v[i], 5);
	}
	cr_assert(all_are_right(s) && all_are_right(r));
	for (unsigned i = 0; i < 2; i++)
		shmstore_view_unref(v[i]);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* The kernel refuses more address space than there is in use. */
static int no_address_space(void *arg)
{
	struct shmstore *s = packing_store("t", MAX, false), *r = arg;
	struct rlimit limit = {0, RLIM_INFINITY};
	struct shmstore_view *v;

	if (put_pattern(s, "k", SIZE, 1, 0) != 0 || get_pattern(r, "a", SIZE, 0) != 0)
		return 1;
	setrlimit(RLIMIT_AS, &limit);
	if (shmstore_get(s, "k", 1, SHMSTORE_COW, &v) != -ENOMEM ||
	    shmstore_get(r, "a", 1, SHMSTORE_COW, &v) != -ENOMEM)
		return 2;
	/* Other views need none, and nothing is kept by those that there are not. */
	if (get_pattern(s, "k", SIZE, 1) != 0 || get_pattern(r, "a", SIZE, 0) != 0)
		return 3;
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_AS, &limit);
	v = get_view(r, "a", SHMSTORE_COW);
	if (!is_map(v) || view_pattern(v, SIZE, 0) != 0)
		return 4;
	shmstore_view_unref(v);
	return shmstore_delete(s, "k", 1) == 0 && shmstore_close(s) == 0 ? 0 : 5;
}

Test(packed_cow, without_address_space_it_is_an_error)
{
	struct shmstore *s, *r;

	if (SANITIZED)
		cr_skip_test("sanitizers take address space of their own");
	s = open_full();
	r = open_reader();
	cr_assert_eq(in_child(no_address_space, r), 0);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

#define N_SEGMENTS 4u

struct segments {
	unsigned n;
	char path[N_SEGMENTS][600], away[N_SEGMENTS][600];
};

static struct segments segments_of_store(void)
{
	DIR *dir = opendir(scratch_store_path("s", "segments"));
	struct segments x = {0};
	struct dirent *e;

	cr_assert(dir);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		cr_assert_lt(x.n, N_SEGMENTS);
		snprintf(x.path[x.n], sizeof(x.path[0]), "%s",
			 scratch_store_path("s", "segments/"));
		strcat(x.path[x.n], e->d_name);
		snprintf(x.away[x.n], sizeof(x.away[0]), "%s/away%u", scratch_dir(NULL), x.n);
		x.n++;
	}
	closedir(dir);
	cr_assert_gt(x.n, 0);
	return x;
}

/* Other files have the segments' names. */
static void put_away(const struct segments *x)
{
	for (unsigned i = 0; i < x->n; i++) {
		int fd;

		cr_assert_eq(rename(x->path[i], x->away[i]), 0);
		fd = open(x->path[i], O_CREAT | O_RDWR | O_CLOEXEC, 0600);
		cr_assert(fd >= 0 && ftruncate(fd, 1 << 26) == 0);
		close(fd);
	}
}

static void is_copied(struct shmstore *s)
{
	struct shmstore_view *v = get_view(s, "a", SHMSTORE_COW);

	cr_assert_not(is_map(v));
	cr_assert_eq(view_pattern(v, SIZE, 0), 0);
	scribble(v, 1);
	shmstore_view_unref(v);
	cr_assert(all_are_right(s));
}

Test(packed_cow, where_no_map_is_to_be_had_it_is_a_copy)
{
	struct shmstore *s = open_full(), *r = open_reader();
	struct segments segments = segments_of_store();
	struct rlimit old, none = {0};

	cr_assert(all_are_right(r)); /* it has its places */
	put_away(&segments);
	is_copied(s);
	is_copied(r);
	for (unsigned i = 0; i < segments.n; i++)
		cr_assert_eq(rename(segments.away[i], segments.path[i]), 0);
	/* No descriptor is to be had. */
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none.rlim_max = old.rlim_max;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct shmstore_view *v = get_view(i ? r : s, "a", SHMSTORE_COW);

		cr_assert_eq(view_pattern(v, SIZE, 0), 0);
		shmstore_view_unref(v);
	}
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
