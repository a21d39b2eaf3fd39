/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unnamed.c: O_TMPFILE, or a name aside.
 *
 * The files that have a name aside are a list by descriptor, with a descriptor of the directory
 * each; it is empty where O_TMPFILE works, and then a close looks at one number. That the name goes
 * when the descriptor does is why none of those who make such files knows of this.
 *
 * A process finds out once which way works, and stays with it: a filter is never
 * taken off. A link cannot be tried without a file, so that it is asked for
 * beforehand whether linkat is refused.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "cleanup.h"
#include "refused.h"
#include "sys.h"

#define PREFIX    "new-"
#define NAME_SIZE (sizeof(PREFIX) + 16)

enum way {
	NOT_KNOWN,
	UNNAMED,
	ASIDE
};

struct named {
	struct named *next;
	int fd, dir_fd;
	char name[NAME_SIZE];
};

atomic_uint shms_unnamed_n;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list */
static struct named *list;
static atomic_int known; /* enum way */

bool shms_unnamed_is(const char *name)
{
	return strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0 && strlen(name) == NAME_SIZE - 1 &&
	       strspn(name + sizeof(PREFIX) - 1, "0123456789abcdef") == 16;
}

static void put_in(struct named *n)
{
	SHMS_HELD(&lock);
	LL_PREPEND(list, n);
	atomic_fetch_add_explicit(&shms_unnamed_n, 1, memory_order_relaxed);
}

static int open_aside(const struct shms_unnamed *u, int flags, mode_t mode)
{
	_free_ struct named *n = malloc(sizeof(*n));
	_fd_ int dir_fd = shms_openat(u->aside_fd, u->aside,
				      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	_fd_ int fd = -1;

	if (!n || dir_fd < 0) {
		errno = n ? errno : ENOMEM;
		return -1;
	}
	snprintf(n->name, sizeof(n->name), PREFIX "%016" PRIx64, shms_nonce());
	fd = shms_openat(dir_fd, n->name, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -1;
	n->fd = fd;
	n->dir_fd = shms_take_fd(&dir_fd);
	shms_transient_hold(n->dir_fd);
	put_in(n);
	n = NULL;
	return shms_take_fd(&fd);
}

/* Takes the entry out of the list. NULL: there is none. */
static struct named *take(int fd)
{
	struct named *n;

	if (!atomic_load_explicit(&shms_unnamed_n, memory_order_relaxed))
		return NULL;
	SHMS_HELD(&lock);
	LL_SEARCH_SCALAR(list, n, fd, fd);
	if (n) {
		LL_DELETE(list, n);
		atomic_fetch_sub_explicit(&shms_unnamed_n, 1, memory_order_relaxed);
	}
	return n;
}

static void forget(struct named *n)
{
	shms_close_fd(n->dir_fd);
	free(n);
}

static int open_new(const struct shms_unnamed *u, int flags, mode_t mode)
{
	int fd, way = atomic_load_explicit(&known, memory_order_relaxed);

	if (way == NOT_KNOWN && shms_refused(SYS_linkat))
		way = ASIDE;
	if (way != ASIDE) {
		fd = shms_openat(u->dir_fd, ".", O_TMPFILE | O_CLOEXEC | flags, mode);
		if (fd < 0 && errno != EISDIR && errno != EOPNOTSUPP && errno != ENOSYS &&
		    errno != EPERM)
			return fd;
		if (fd >= 0 && way == NOT_KNOWN)
			atomic_store_explicit(&known, UNNAMED, memory_order_relaxed);
		if (fd >= 0)
			return fd;
	}
	fd = open_aside(u, flags, mode);
	if (fd >= 0)
		atomic_store_explicit(&known, ASIDE, memory_order_relaxed);
	return fd;
}

int shms_unnamed_open(const struct shms_unnamed *u, int flags, mode_t mode)
{
	_fd_ int fd = open_new(u, flags, mode);

	return fd >= 0 && (mode & 070) && fchmod(fd, mode) < 0 ? -1 : shms_take_fd(&fd);
}

int shms_unnamed_part(int part_fd, int flags, mode_t mode)
{
	return shms_unnamed_open(&(struct shms_unnamed){part_fd, part_fd, SHMS_ASIDE_STORE}, flags,
				 mode);
}

int shms_unnamed_move(int fd, int dir_fd, const char *name)
{
	struct named *n = take(fd);
	int r;

	if (!n)
		return 0;
	r = shms_rename_noreplace(n->dir_fd, n->name, dir_fd, name);
	if (r < 0)
		put_in(n);
	else
		forget(n);
	return r < 0 ? r : 1;
}

void shms_unnamed_not_linked(void)
{
	atomic_store_explicit(&known, ASIDE, memory_order_relaxed);
}

void shms_unnamed_closed(int fd)
{
	struct named *n = take(fd);

	if (!n)
		return;
	unlinkat(n->dir_fd, n->name, 0);
	forget(n);
}

void shms_unnamed_fork_prepare(void)
{
	pthread_mutex_lock(&lock);
}

void shms_unnamed_fork_parent(void)
{
	pthread_mutex_unlock(&lock);
}

void shms_unnamed_fork_child(void)
{
	struct named *next;

	/* Their descriptors were noted, and are closed with the others. */
	for (; list; list = next) {
		next = list->next;
		free(list);
	}
	atomic_store_explicit(&shms_unnamed_n, 0, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
}
