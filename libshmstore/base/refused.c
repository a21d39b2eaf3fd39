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

static const struct call {
	const char *name;
	long number;
	long arguments[6];
	bool spared; /* there is another way */
	const char *without;
} calls[] = {
	{"openat2",
	 SYS_openat2,
	 {NO, 0, 0, 0},
	 true,
	 "directories are opened step by step, by more calls"},
	{"io_uring_setup",
	 SYS_io_uring_setup,
	 {0},
	 true,
	 "plain calls read and write, the daemon waits by epoll"},
	{"io_uring_enter",
	 SYS_io_uring_enter,
	 {NO},
	 true,
	 "plain calls read and write, the daemon waits by epoll"},
	{"fallocate",
	 SYS_fallocate,
	 {NO},
	 true,
	 "zeros take memory, only whole files give it back"},
	{"madvise",
	 SYS_madvise,
	 {0},
	 false,
	 "no store can be opened: forked children would keep its memory"},
	{"linkat",
	 SYS_linkat,
	 {NO, 0, NO, 0, NO},
	 false,
	 "objects that are files cannot be handed over"},
	{"lseek", SYS_lseek, {NO}, false, "the size and the memory of a file cannot be told"},
	{"renameat2",
	 SYS_renameat2,
	 {NO, 0, NO, 0, NO},
	 false,
	 "nothing can be moved to the disk tier"},
	{"flock", SYS_flock, {NO}, false, "no store can be opened: the lock is its life"},
	{"fcntl",
	 SYS_fcntl,
	 {NO},
	 false,
	 "deleted objects are not recycled, and directories cannot be read"},
	{"fstatfs",
	 SYS_fstatfs,
	 {NO},
	 false,
	 "no partition can be opened: what is free there is not known"},
	{"mmap", SYS_mmap, {0}, false, "no object can be mapped"},
	{"mremap", SYS_mremap, {0}, false, "large mappings cannot be moved"},
	{"mprotect", SYS_mprotect, {0}, false, "mappings cannot be made read-only"},
	{"ftruncate", SYS_ftruncate, {NO}, false, "files cannot get their size"},
	{"fchmod", SYS_fchmod, {NO}, false, "no partition can be shared, no object pinned"},
	{"fchown", SYS_fchown, {NO}, false, "root cannot act for users"},
	{"pread64", SYS_pread64, {NO}, false, "nothing can be read"},
	{"preadv", SYS_preadv, {NO}, false, "nothing can be brought back from the disk tier"},
	{"pwrite64", SYS_pwrite64, {NO}, false, "nothing can be written"},
	{"pwritev", SYS_pwritev, {NO}, false, "nothing can be written"},
	{"getdents64", SYS_getdents64, {NO}, false, "no directory can be listed"},
	{"readlinkat",
	 SYS_readlinkat,
	 {NO},
	 false,
	 "addresses and the disk tier's stubs cannot be read"},
	{"mkdirat", SYS_mkdirat, {NO}, false, "no store can be made"},
	{"symlinkat",
	 SYS_symlinkat,
	 {0, NO},
	 false,
	 "no address can be set, nothing be moved to the disk tier"},
	{"unlinkat", SYS_unlinkat, {NO}, false, "nothing can be deleted"},
	{"fsync", SYS_fsync, {NO}, false, "nothing can be moved to the disk tier"},
	{"eventfd2", SYS_eventfd2, {0, NO}, false, "no event loop can be woken"},
	{"epoll_create1", SYS_epoll_create1, {NO}, false, "no event loop can wait"},
	{"signalfd4", SYS_signalfd4, {NO}, false, "the daemon cannot be told to end"},
	{"accept4", SYS_accept4, {NO}, false, "the daemon's page and metrics answer nobody"},
	{"sendmsg", SYS_sendmsg, {NO}, false, "the daemon's page and metrics answer nobody"},
	{"utimensat", SYS_utimensat, {NO}, false, "nothing can be moved to the disk tier"},
	{"recvfrom", SYS_recvfrom, {NO}, false, "the daemon's page and metrics answer nobody"},
#ifdef SYS_renameat /* newer machines' kernels never had it */
	{"renameat",
	 SYS_renameat,
	 {NO, 0, NO},
	 false,
	 "no address can be set, no disk tier be made"},
#endif
#ifdef SYS_epoll_wait
	{"epoll_wait", SYS_epoll_wait, {NO}, false, "the daemon's page and metrics answer nobody"},
#endif
#ifdef SYS_readlink
	{"readlink",
	 SYS_readlink,
	 {0},
	 false,
	 "no path can be resolved: no partition can be opened"},
#endif
	{"getsockopt", SYS_getsockopt, {NO}, false, "the daemon does not know who its clients are"},
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
