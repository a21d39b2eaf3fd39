/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c: which system calls are refused.
 *
 * A filter answers before the kernel looks at the arguments. So a call with a descriptor that
 * cannot be one, or of no bytes, tells a filter (EPERM, ENOSYS, or whatever else it was told to
 * say) from the kernel (EBADF, EINVAL, EFAULT). This is asked for when somebody is to be told an
 * error, which is seldom, and never before some call was answered as filters answer: one that ends
 * the process for a call would have ended it for that one.
 */
#include "refused.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO ((long)-1) /* no descriptor, and no valid flags */

struct call {
	const char *name;
	long number;
	long arguments[6];
	bool spared; /* there is another way */
	const char *without;
};

/* says: what that costs, or what cannot be done. Then the call's arguments. */
#define CALL(call, is_spared, says, ...)                                         \
	{                                                                        \
		.name = #call, .number = SYS_##call, .arguments = {__VA_ARGS__}, \
		.spared = (is_spared), .without = (says)                         \
	}
#define SPARED(call, says, ...) CALL(call, true, says, __VA_ARGS__)
#define NEEDED(call, says, ...) CALL(call, false, says, __VA_ARGS__)

static const struct call calls[] = {
	SPARED(openat2, "directories are opened step by step, by more calls", NO, 0, 0, 0),
	SPARED(io_uring_setup, "plain calls read and write, the daemon waits by epoll", 0),
	SPARED(io_uring_enter, "plain calls read and write, the daemon waits by epoll", NO),
	SPARED(fallocate, "zeros take memory, only whole files give it back", NO),
	NEEDED(madvise, "no store can be opened: forked children would keep its memory", 0),
	NEEDED(linkat, "objects that are files cannot be handed over", NO, 0, NO, 0, NO),
	NEEDED(lseek, "the size and the memory of a file cannot be told", NO),
	NEEDED(renameat2, "nothing can be moved to the disk tier", NO, 0, NO, 0, NO),
	NEEDED(flock, "no store can be opened: the lock is its life", NO),
	NEEDED(fcntl, "deleted objects are not recycled, and directories cannot be read", NO),
	NEEDED(fstatfs, "no partition can be opened: what is free there is not known", NO),
	NEEDED(mmap, "no object can be mapped", 0),
	NEEDED(mremap, "large mappings cannot be moved", 0),
	NEEDED(mprotect, "mappings cannot be made read-only", 0),
	NEEDED(ftruncate, "files cannot get their size", NO),
	NEEDED(fchmod, "no partition can be shared, no object pinned", NO),
	NEEDED(fchown, "root cannot act for users", NO),
	NEEDED(pread64, "nothing can be read", NO),
	NEEDED(preadv, "nothing can be brought back from the disk tier", NO),
	NEEDED(pwrite64, "nothing can be written", NO),
	NEEDED(pwritev, "nothing can be written", NO),
	NEEDED(getdents64, "no directory can be listed", NO),
	NEEDED(readlinkat, "addresses and the disk tier's stubs cannot be read", NO),
	NEEDED(mkdirat, "no store can be made", NO),
	NEEDED(symlinkat, "no address can be set, nothing be moved to the disk tier", 0, NO),
	NEEDED(unlinkat, "nothing can be deleted", NO),
	NEEDED(fsync, "nothing can be moved to the disk tier", NO),
	NEEDED(eventfd2, "no event loop can be woken", 0, NO),
	NEEDED(epoll_create1, "no event loop can wait", NO),
	NEEDED(signalfd4, "the daemon cannot be told to end", NO),
	NEEDED(accept4, "the daemon's page and metrics answer nobody", NO),
	NEEDED(sendmsg, "the daemon's page and metrics answer nobody", NO),
	NEEDED(utimensat, "nothing can be moved to the disk tier", NO),
	NEEDED(recvfrom, "the daemon's page and metrics answer nobody", NO),
#ifdef SYS_renameat /* newer machines' kernels never had it */
	NEEDED(renameat, "no address can be set, no disk tier be made", NO, 0, NO),
#endif
#ifdef SYS_epoll_wait
	NEEDED(epoll_wait, "the daemon's page and metrics answer nobody", NO),
#endif
#ifdef SYS_readlink
	NEEDED(readlink, "no path can be resolved: no partition can be opened", 0),
#endif
	NEEDED(getsockopt, "the daemon does not know who its clients are", NO),
};

#define N_CALLS (sizeof(calls) / sizeof(*calls))

_Static_assert(N_CALLS <= SHMS_REFUSED_MAX, "a list has room for all");
static atomic_bool suspected;

/* The errno that the filter answers with; 0: it lets the call pass. */
static int answer(const struct call *c)
{
	const long *a = c->arguments;
	int saved = errno, error = 0;

	if (syscall(c->number, a[0], a[1], a[2], a[3], a[4], a[5]) < 0)
		error = errno;
	errno = saved;
	return error == ENOSYS || error == EPERM || error == EACCES ? error : 0;
}

bool shms_refused(long call)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		if (calls[i].number == call)
			return answer(&calls[i]) != 0;
	}
	return false;
}

void shms_refused_suspect(void)
{
	atomic_store_explicit(&suspected, true, memory_order_relaxed);
}

size_t shms_refused_list(struct shms_refusal ret[SHMS_REFUSED_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < N_CALLS; i++) {
		int error = answer(&calls[i]);

		if (error)
			ret[n++] = (struct shms_refusal){calls[i].name, error, calls[i].spared,
							 calls[i].without};
	}
	return n;
}

const char *shms_refused_names(char ret[SHMS_REFUSED_TEXT])
{
	struct shms_refusal refused[SHMS_REFUSED_MAX];
	size_t n_refused, n = 0;

	if (!atomic_load_explicit(&suspected, memory_order_relaxed))
		return NULL;
	n_refused = shms_refused_list(refused);
	for (size_t i = 0; i < n_refused && n < SHMS_REFUSED_TEXT; i++) {
		if (!refused[i].spared)
			n += (size_t)snprintf(ret + n, SHMS_REFUSED_TEXT - n, "%s%s (%s)",
					      n ? ", " : "", refused[i].call,
					      strerror(refused[i].error));
	}
	return n ? ret : NULL;
}
