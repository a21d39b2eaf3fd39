/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root that looked at a user's segment mapped its file: a process of that user which cut the file
 * meanwhile ended the daemon in its survey (SIGBUS), and the tool that listed or read the objects.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define N_OBJECTS 300u
#define SIZE      3000
#define ROUNDS    400u
#define USER      54321

/* Keys of every third object do not fit into their slots. */
static void name_of(unsigned i, char *ret, size_t size)
{
	snprintf(ret, size, i % 3 ? "%u" : "a key that is longer than a slot has room for, %u", i);
}

static void leave_store(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	char key[80];

	o.keep = true;
	o.pack_max = 64u << 10;
	cr_assert_eq(shmstore_open(scratch_partition(), "kept", &o, &s), 0);
	for (unsigned i = 0; i < N_OBJECTS; i++) {
		name_of(i, key, sizeof(key));
		cr_assert_eq(put_pattern(s, key, SIZE, i, 0), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
}

/* Of the one segment there is. */
static void path_of_segment(char *ret, size_t size)
{
	FILE *list;
	char command[600];

	snprintf(command, sizeof(command), "ls %s/*", scratch_store_path("kept", "segments"));
	list = popen(command, "r");
	ENSURE(list && fgets(ret, (int)size, list));
	pclose(list);
	ret[strcspn(ret, "\n")] = '\0';
}

/* Cuts the file, where it is told, and makes it as long again, for ever. */
static void cut(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	ENSURE(fd >= 0 && fstat(fd, &st) == 0);
	for (unsigned i = 0;; i++) {
		char *books = malloc(1 << 20);
		ssize_t n = pread(fd, books, 1 << 20, 0);

		ENSURE(ftruncate(fd, i % 2 ? 4096 : 70000) == 0);
		ENSURE(ftruncate(fd, st.st_size) == 0);
		ENSURE(pwrite(fd, books, (size_t)n, 0) == n);
		free(books);
		usleep(i % 3 * 50);
	}
}

static int each(const struct shmstore_object_info *info, void *arg)
{
	*(unsigned *)arg += info->packed;
	return 0;
}

static int finding(const struct shmstore_verify_finding *f, void *arg)
{
	(void)f;
	(void)arg;
	return 0;
}

static int look(void *arg)
{
	struct shmstore_options only = SHMSTORE_OPTIONS_INIT;
	unsigned *n_seen = arg, n = 0;
	struct shmstore_view *v;
	struct shmstore_usage u;
	struct shmstore *s;
	char key[80];

	only.flags = SHMSTORE_OPEN_READONLY | SHMSTORE_OPEN_ANY_USER;
	for (unsigned i = 0; i < ROUNDS; i++) {
		ENSURE(shmstore_partition_usage(scratch_partition(), 0, &u) == 0);
		ENSURE(shmstore_open(scratch_partition(), "kept", &only, &s) == 0);
		(void)shmstore_foreach(s, each, &n);
		name_of(i % N_OBJECTS, key, sizeof(key));
		if (shmstore_get(s, KEY(key), 0, &v) == 0)
			shmstore_view_unref(v);
		ENSURE(shmstore_close(s) == 0);
		if (i % 10 == 0)
			(void)shmstore_partition_verify(scratch_partition(), finding, NULL);
	}
	*n_seen = n;
	return n ? 0 : 1;
}

Test(segment_cut, nobody_who_looks_ends)
{
	char path[600];
	unsigned n = 0;
	pid_t pid;

	if (geteuid() != 0)
		cr_skip_test("needs root\n");
	leave_store();
	snprintf(path, sizeof(path), "chown -R %u %s", USER, scratch_store_path("kept", ""));
	ENSURE(system(path) == 0);
	path_of_segment(path, sizeof(path));
	cr_assert_eq(look(&n), 0);
	cr_assert_eq(n, N_OBJECTS * ROUNDS);
	pid = fork_bound(60);
	if (pid == 0)
		cut(path);
	cr_assert_eq(in_child(look, &n), 0);
	kill(pid, SIGKILL);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}
