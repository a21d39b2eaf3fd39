/* SPDX-License-Identifier: Apache-2.0 */
/* Holders of memory without a name: views of deleted objects, open descriptors,
 * writers; and those that only seem to hold it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "holders.h"

#define HELD_MAX 16

struct held {
	struct shmstore_holder list[HELD_MAX];
	char keys[HELD_MAX][64], commands[HELD_MAX][64], paths[HELD_MAX][SCRATCH_PATH];
	size_t n;
	uint64_t ghosts, inflight, n_unreadable;
};

static int on_holder(const struct shmstore_holder *h, void *arg)
{
	struct held *held = arg;
	size_t i = held->n;

	/* Without a file system of our own others hold things on it too. */
	if (strncmp(h->path, scratch_dir(NULL), strlen(scratch_dir(NULL))) != 0)
		return 0;
	held->n++;
	cr_assert_lt(i, HELD_MAX);
	if (h->first && h->kind == SHMSTORE_HOLD_GHOST)
		held->ghosts += h->bytes;
	else if (h->first)
		held->inflight += h->bytes;
	held->list[i] = *h;
	snprintf(held->keys[i], sizeof(held->keys[i]), "%.*s", (int)h->key_size,
		 h->key ? (const char *)h->key : "");
	snprintf(held->commands[i], sizeof(held->commands[i]), "%s", h->command);
	snprintf(held->paths[i], sizeof(held->paths[i]), "%s", h->path);
	return 0;
}

/* The scan with the walk that tells it which of the unsure inodes have a name. */
static struct shmstore_usage scan(struct held *held)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;

	memset(held, 0, sizeof(*held));
	cr_assert_eq(shmstore_partition_reconcile(p, on_holder, held, &u), 0);
	held->n_unreadable = u.n_unreadable;
	if (scratch_is_mount()) {
		cr_assert_eq(held->ghosts, u.ghosts, "the holders' bytes add up to the sum");
		cr_assert_eq(held->inflight, u.inflight);
	}
	shmstore_partition_unref(p);
	return u;
}

/* The scan alone; named: an inode that a walk would find, 0 = none. */
static void scan_alone(struct held *held, uint64_t named)
{
	struct shmstore_partition *p = scratch_partition();
	struct shms_holders *h = NULL;

	memset(held, 0, sizeof(*held));
	cr_assert_eq(shms_holders_new(p, true, &h), 0);
	if (named)
		shms_holders_named(h, named);
	cr_assert_eq(shms_holders_each(h, on_holder, held), 0);
	shms_holders_free(h);
	shmstore_partition_unref(p);
}

static uint64_t blocks_of(const char *store, const char *key)
{
	char path[SCRATCH_PATH];
	struct stat st;

	snprintf(path, sizeof(path), "objects/%.100s", key);
	cr_assert_eq(stat(scratch_store_path(store, path), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

Test(holders, a_view_of_a_deleted_object_is_a_ghost_with_its_key)
{
	struct shmstore *s = scratch_plain_store("a");
	struct shmstore_view *v;
	struct held held;
	uint64_t blocks, ino;

	cr_assert_eq(put_pattern(s, "x", 1000000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	ino = inode_of("a", "x");
	v = get_view(s, "x", 0);
	scan(&held);
	cr_assert_eq(held.n, 0, "a named file is no ghost");
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].kind, SHMSTORE_HOLD_GHOST);
	cr_assert_eq(held.list[0].pid, getpid());
	cr_assert_eq(held.list[0].uid, geteuid());
	cr_assert_eq(held.list[0].inode, ino);
	cr_assert_eq(held.list[0].bytes, blocks);
	cr_assert_eq(held.list[0].mapped, blocks);
	cr_assert_eq(held.list[0].n_fds, 0);
	cr_assert(held.list[0].first);
	cr_assert_str_eq(held.keys[0], "x");
	cr_assert_str_eq(held.paths[0], scratch_store_path("a", "objects/x"));
	cr_assert_neq(held.commands[0][0], '\0');
	cr_assert_eq(held.ghosts, blocks);
	cr_assert_eq(held.inflight, 0);
	shmstore_view_unref(v);
	scan(&held);
	cr_assert_eq(held.n, 0);
	shmstore_close(s);
}

Test(holders, each_process_is_named_and_the_inode_counted_once)
{
	struct shmstore *s = scratch_plain_store("a");
	struct other b = other_start("b");
	struct shmstore_ticket t;
	struct shmstore_view *v;
	struct held held;
	uint64_t blocks;

	cr_assert_eq(put_pattern(s, "x", 300000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	v = get_view(s, "x", 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&b, "mine", &t), 0);
	cr_assert_eq(other_view(&b, "mine", 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	scan(&held);
	cr_assert_eq(held.n, 0, "the other store has a name for it");
	unlink(scratch_store_path("b", "objects/mine"));
	scan(&held);
	cr_assert_eq(held.n, 2);
	cr_assert_eq(held.ghosts, blocks);
	cr_assert_eq(held.list[0].first + held.list[1].first, 1);
	cr_assert_neq(held.list[0].pid, held.list[1].pid);
	for (size_t i = 0; i < 2; i++) {
		cr_assert(held.list[i].pid == getpid() || held.list[i].pid == b.pid);
		cr_assert_str_eq(held.keys[i], held.keys[0],
				 "one inode, one key: that of the first who is met");
	}
	shmstore_view_unref(v);
	other_kill(&b);
	shmstore_close(s);
}

Test(holders, an_open_descriptor_is_a_ghost_too)
{
	struct shmstore *s = scratch_plain_store("a");
	struct held held;
	uint64_t blocks;
	int fd;

	cr_assert_eq(put_pattern(s, "x", 5000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	fd = open(scratch_store_path("a", "objects/x"), O_RDONLY);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].n_fds, 1);
	cr_assert_eq(held.list[0].mapped, 0);
	cr_assert_eq(held.ghosts, blocks);
	close(fd);
	shmstore_close(s);
}

Test(holders, a_writer_is_in_flight_until_it_is_sealed)
{
	struct shmstore *s = scratch_plain_store("a");
	struct shmstore_writer *w;
	uint64_t size = 500000;
	struct held held;

	cr_assert_eq(shmstore_create(s, KEY("x"), 10, &size, 1, 0, &w), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].kind, SHMSTORE_HOLD_INFLIGHT);
	cr_assert_eq(held.list[0].pid, getpid());
	cr_assert_null(held.list[0].key);
	cr_assert_geq(held.inflight, size);
	cr_assert_eq(held.inflight % 4096, 0);
	cr_assert_eq(held.ghosts, 0);
	cr_assert_eq(shmstore_seal(w), 0);
	scan(&held);
	cr_assert_eq(held.n, 0);
	shmstore_close(s);
}

Test(holders, what_was_published_and_removed_by_hand_is_a_ghost_of_its_maker)
{
	/* keeps the descriptor, under the name of a file made by O_TMPFILE */
	struct shmstore *s = scratch_store("a");
	struct held held;
	uint64_t blocks;

	cr_assert_eq(put_pattern(s, "x", 1000000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	cr_assert_eq(unlink(scratch_store_path("a", "objects/x")), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].kind, SHMSTORE_HOLD_GHOST);
	cr_assert_str_eq(held.keys[0], "x");
	cr_assert_eq(held.ghosts, blocks);
	shmstore_close(s);
}

Test(holders, the_key_of_a_long_name_comes_out_of_the_object)
{
	struct shmstore *s = scratch_plain_store("a");
	struct shmstore_view *v;
	struct held held;
	char key[1000];

	memset(key, '/', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(put_pattern(s, key, 1000, 1, 0), 0);
	v = get_view(s, key, 0);
	cr_assert_eq(shmstore_delete(s, KEY(key)), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	if (geteuid() == 0) {
		cr_assert_eq(held.list[0].key_size, 999);
		cr_assert_eq(strspn(held.keys[0], "/"), 63);
	} else {
		cr_assert_eq(held.list[0].key_size, 0,
			     "what is only mapped cannot be opened without privilege");
	}
	shmstore_view_unref(v);
	shmstore_close(s);
}

Test(holders, a_viewed_file_in_the_pool_is_a_ghost)
{
	struct shmstore *s = scratch_store("a"); /* recycles */
	struct shmstore_view *v;
	struct shmstore_usage u;
	struct held held;
	uint64_t blocks;

	cr_assert_eq(put_pattern(s, "x", 1000000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	v = get_view(s, "x", 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	u = scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].kind, SHMSTORE_HOLD_GHOST);
	cr_assert_eq(held.list[0].pid, getpid());
	cr_assert_eq(held.list[0].bytes, blocks);
	cr_assert_eq(held.ghosts, blocks);
	cr_assert_eq(u.pool, 0, "it cannot be had back");
	if (geteuid() == 0)
		cr_assert_str_eq(held.keys[0], "x");
	shmstore_view_unref(v);
	u = scan(&held);
	cr_assert_eq(held.n, 0, "the pool's own descriptor and mapping do not count");
	cr_assert_eq(u.pool, blocks);
	shmstore_close(s);
}

Test(holders, a_file_in_the_pool_that_another_store_had_is_its_viewers_ghost)
{
	struct shmstore *s = scratch_store("a");
	struct other b = other_start("b");
	struct shmstore_ticket t;
	struct shmstore_usage u;
	struct held held;
	uint64_t blocks;

	cr_assert_eq(put_pattern(s, "x", 300000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&b, "mine", &t), 0);
	cr_assert_eq(other_view(&b, "mine", SHMSTORE_COW), 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	u = scan(&held);
	cr_assert_eq(held.n, 0, "b links it");
	cr_assert_eq(u.pool, 0);
	cr_assert_eq(other_delete(&b, "mine"), 0);
	u = scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].pid, b.pid);
	cr_assert_eq(held.ghosts, blocks);
	cr_assert_eq(u.pool, 0);
	cr_assert_eq(other_unview(&b), 0);
	u = scan(&held);
	cr_assert_eq(held.n, 0);
	cr_assert(u.pool == blocks || u.pool == 0);
	other_kill(&b);
	shmstore_close(s);
}

/* A child that gave up all privilege maps a deleted file, and looks. */
static int estimate(void *arg)
{
	uint64_t *blocks = arg;
	struct held held;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	scan(&held);
	if (held.n != 1 || held.list[0].pid != getpid())
		return 2;
	if (held.ghosts != *blocks || held.n_unreadable == 0)
		return 3;
	if (strcmp(held.keys[0], "x") != 0)
		return 4;
	/* Without the link count, a name that the walk meets says that it is none. */
	scan_alone(&held, held.list[0].inode);
	return held.n == 0 && held.ghosts == 0 ? 0 : 5;
}

Test(holders, without_privilege_the_mapping_tells_the_size)
{
	struct shmstore *s = scratch_plain_store("a");
	struct shmstore_view *v;
	uint64_t blocks;

	if (geteuid() != 0)
		cr_skip_test("needs another user (root)");
	cr_assert_eq(put_pattern(s, "x", 1000000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	v = get_view(s, "x", 0);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	cr_assert_eq(in_child(estimate, &blocks), 0);
	shmstore_view_unref(v);
	shmstore_close(s);
}

/* The last thread of a process: says that it is, then waits for the test to end it. */
static int ready[2];

static void *outlive(void *arg)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getpid());
	while (state != 'Z') { /* the first thread */
		f = fopen(path, "re");
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			_exit(1);
		fclose(f);
	}
	if (write(ready[1], "r", 1) != 1)
		_exit(1);
	for (;;)
		pause();
	return arg;
}

Test(holders, a_process_whose_first_thread_has_ended_is_asked_through_another, .timeout = 60)
{
	struct shmstore *s = scratch_plain_store("a");
	pthread_t thread;
	struct held held;
	uint64_t blocks;
	char byte;
	pid_t pid;

	cr_assert_eq(put_pattern(s, "x", 300000, 1, 0), 0);
	blocks = blocks_of("a", "x");
	cr_assert_eq(pipe(ready), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		int fd = open(scratch_store_path("a", "objects/x"), O_RDONLY);

		if (fd < 0 || pthread_create(&thread, NULL, outlive, NULL) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	close(ready[1]);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(shmstore_delete(s, KEY("x")), 0);
	scan(&held);
	cr_assert_eq(held.n, 1);
	cr_assert_eq(held.list[0].pid, pid);
	cr_assert_eq(held.list[0].n_fds, 1);
	cr_assert_eq(held.ghosts, blocks);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	shmstore_close(s);
}

Test(holders, files_of_other_file_systems_do_not_count)
{
	const char *other = scratch_second_mount("other");
	char path[SCRATCH_PATH];
	struct held held;
	void *map;
	int fd;

	if (!other)
		cr_skip_test("needs to mount (root)");
	snprintf(path, sizeof(path), "%.300s/x", other);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	cr_assert_eq(ftruncate(fd, 8192), 0);
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	unlink(path);
	scan(&held);
	cr_assert_eq(held.n, 0);
	munmap(map, 8192);
	close(fd);
}

static int refuse(const struct shmstore_holder *h, void *arg)
{
	(void)h;
	++*(int *)arg;
	return 7;
}

Test(holders, a_callbacks_value_is_returned)
{
	struct shmstore *s = scratch_plain_store("a");
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_view *v, *w;
	int n = 0;

	cr_assert_eq(put_pattern(s, "x", 10, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "y", 10, 1, 0), 0);
	v = get_view(s, "x", 0);
	w = get_view(s, "y", 0);
	shmstore_delete(s, KEY("x"));
	shmstore_delete(s, KEY("y"));
	cr_assert_eq(shmstore_partition_reconcile(p, refuse, &n, NULL), 7);
	cr_assert_eq(n, 1);
	shmstore_view_unref(v);
	shmstore_view_unref(w);
	shmstore_partition_unref(p);
	shmstore_close(s);
}
