/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scratch.h: a file system of its own for one test process, patterns to fill buffers with, and
 * processes to do things in. Everything here aborts with a message where it cannot do its work: a
 * test never runs on something else than it thinks.
 */
#ifndef SHMSTORE_TEST_SCRATCH_H
#define SHMSTORE_TEST_SCRATCH_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define SCRATCH_PATH 512

/*
 * The directory of this process's own tmpfs. Root gets a real mount in a private mount namespace,
 * which goes with the process however it dies; others get a directory in /dev/shm that is removed
 * at exit. options: of mount(8), NULL = "size=512m".
 */
const char *scratch_dir(const char *options);
/* A second file system below the first. NULL where mounting is not allowed to us. type: "tmpfs". */
const char *scratch_second_mount(const char *name);
/* True where scratch_dir() is a mount of its own: sizes can be limited and
 * the books are ours alone. */
bool scratch_is_mount(void);
/* A partition in scratch_dir(), made on first use; with a reference for the caller. */
struct shmstore_partition *scratch_partition(void);
const char *scratch_partition_path(void);
/* Opens a store in scratch_partition(). */
struct shmstore *scratch_store(const char *name);
/* The same; it keeps no deleted file: what is deleted is gone, but for its holders. */
struct shmstore *scratch_plain_store(const char *name);
/* "<partition>/stores/<store>/<rest>", static, overwritten by the eighth next call. */
const char *scratch_store_path(const char *store, const char *rest);

/* Bytes that depend on seed and position. */
void pattern_fill(void *buf, size_t size, uint64_t seed);
/* Offset of the first wrong byte, or size. */
size_t pattern_check(const void *buf, size_t size, uint64_t seed);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/*
 * AddressSanitizer's and ThreadSanitizer's runtimes (GCC's; clang's before 18) do not release their
 * allocator's locks in a forked child. A child of a process with several threads that allocates may
 * therefore wait for ever for a thread that it does not have.
 */
#define CHILD_OF_THREADS_MAY_ALLOCATE (!SANITIZED)

/*
 * How many of a test's n random rounds are played: all; by a sanitizer, which is slow and looks for
 * what shows itself in few rounds, the first tenth, unless SHMSTORE_TEST_ROUNDS is in the
 * environment (tests/run --long).
 */
unsigned n_rounds(unsigned n);

/*
 * fork(2) of a child that is killed with the calling thread, and by SIGALRM after seconds
 * (0: never). A test that is ended leaves no child then that holds the pipes by which the
 * test's program waits for its end.
 */
pid_t fork_bound(unsigned seconds);
/* Runs fn(arg) in such a child: its exit status, or 1000 + the signal that ended it. */
int in_child(int (*fn)(void *arg), void *arg);
/* For in_child(): fn in a time namespace whose clocks run a day ahead. 77:
 * there are none, or not for us. */
struct day_ahead {
	int (*fn)(void *arg);
	void *arg;
};
int day_ahead(void *a);
/* A child that has run fn, and stays as it is until it is killed, for a minute at most. */
pid_t child_that_stays(void (*fn)(void));
/* Waits until fn(arg) is true; false after deadline_ms. Polls. */
bool wait_until(bool (*fn)(void *arg), void *arg, unsigned deadline_ms);

/* Names in a directory, "." and ".." not counted; -errno where it cannot be read. */
int count_dir(const char *path);
/* Names in a store's objects/, recycle/ or handoff/. */
int count_in_store(const char *store, const char *part);

#define ENSURE(cond)                                                                             \
	do {                                                                                     \
		if (!(cond)) {                                                                   \
			fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, \
				#cond);                                                          \
			abort();                                                                 \
		}                                                                                \
	} while (0)

#endif
