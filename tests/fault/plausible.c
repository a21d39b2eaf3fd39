/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plausible.c: see plausible.h. Not here: munmap of a whole mapping (cannot fail), calls
 * that only ask about the process.
 */
#include "plausible.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>

#define ANY -1

static const struct {
	uint64_t nr;
	int command; /* of fcntl() */
	struct plausible failure;
} known[] = {
	{SYS_openat, ANY, {TRACER_FAIL, {EMFILE, ENFILE, ENOMEM, EACCES, EINTR, EIO}}},
	{SYS_openat2,
	 ANY,
	 {TRACER_FAIL, {EMFILE, ENFILE, ENOMEM, EACCES, EINTR, EIO, EAGAIN, ENOSYS}}},
	{SYS_close, ANY, {TRACER_FAIL_DONE, {EINTR, EIO}}},
	{SYS_linkat, ANY, {TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO, EMLINK, EPERM}}},
	{SYS_unlinkat, ANY, {TRACER_FAIL, {EIO, EACCES, ENOMEM, EPERM, EBUSY}}},
	{SYS_renameat2, ANY, {TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO, EPERM}}},
	{SYS_mkdirat, ANY, {TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO}}},
	{SYS_symlinkat, ANY, {TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO}}},
	{SYS_readlinkat, ANY, {TRACER_FAIL, {ENOMEM, EACCES, EIO}}},
	{SYS_pwritev, ANY, {TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}}},
	{SYS_pwritev2, ANY, {TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}}},
	{SYS_pwrite64, ANY, {TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}}},
	{SYS_pwrite64, ANY, {TRACER_SHORT, {ENOSPC}}},
	{SYS_write, ANY, {TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}}},
	{SYS_pread64, ANY, {TRACER_FAIL, {EIO, EINTR, ENOMEM}}},
	{SYS_preadv, ANY, {TRACER_FAIL, {EIO, EINTR, ENOMEM}}},
	{SYS_read, ANY, {TRACER_FAIL, {EIO, EINTR, ENOMEM}}},
	{SYS_fallocate, ANY, {TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM, EOPNOTSUPP}}},
	{SYS_ftruncate, ANY, {TRACER_FAIL, {EIO, EINTR, ENOSPC}}},
	{SYS_fchmod, ANY, {TRACER_FAIL, {EPERM, EIO}}},
	{SYS_fchmodat, ANY, {TRACER_FAIL, {EPERM, EIO, ENOMEM}}},
	{SYS_fstat, ANY, {TRACER_FAIL, {ENOMEM, EIO}}},
	{SYS_newfstatat, ANY, {TRACER_FAIL, {ENOMEM, EIO, EACCES}}},
	{SYS_statx, ANY, {TRACER_FAIL, {ENOMEM, EIO, EACCES}}},
	{SYS_statfs, ANY, {TRACER_FAIL, {ENOMEM, EIO, EINTR}}},
	{SYS_fstatfs, ANY, {TRACER_FAIL, {ENOMEM, EIO, EINTR}}},
	{SYS_flock, ANY, {TRACER_FAIL, {ENOLCK, EINTR, EWOULDBLOCK}}},
	{SYS_mmap, ANY, {TRACER_FAIL, {ENOMEM, EAGAIN, ENFILE}}},
	{SYS_mprotect, ANY, {TRACER_FAIL, {ENOMEM, EACCES}}},
	{SYS_madvise, ANY, {TRACER_FAIL, {ENOMEM, EAGAIN, EINVAL}}},
	{SYS_mremap, ANY, {TRACER_FAIL, {ENOMEM}}},
	{SYS_getdents64, ANY, {TRACER_FAIL, {EIO, ENOMEM}}},
	{SYS_getrandom, ANY, {TRACER_FAIL, {EINTR}}},
	{SYS_fsync, ANY, {TRACER_FAIL, {EIO, ENOSPC, EDQUOT}}},
	{SYS_fdatasync, ANY, {TRACER_FAIL, {EIO, ENOSPC, EDQUOT}}},
	{SYS_utimensat, ANY, {TRACER_FAIL, {EPERM, EIO, ENOMEM}}},
	{SYS_io_uring_setup, ANY, {TRACER_FAIL, {EPERM, ENOSYS, ENOMEM, EMFILE}}},
	{SYS_io_uring_register, ANY, {TRACER_FAIL, {ENOMEM, EPERM, EOPNOTSUPP}}},
	{SYS_io_uring_enter, ANY, {TRACER_FAIL, {EINTR, EAGAIN, EBUSY, ENOMEM}}},

	{SYS_fcntl, F_SETLEASE, {TRACER_FAIL, {EAGAIN, EACCES, ENOMEM, EINVAL}}},
	{SYS_fcntl, F_SETLEASE, {TRACER_FAIL_ALL, {EAGAIN, EINVAL}}},
	{SYS_fcntl, F_DUPFD_CLOEXEC, {TRACER_FAIL, {EMFILE, EINVAL}}},
	{SYS_fcntl, F_SETSIG, {TRACER_FAIL, {EINVAL, EPERM}}},
	{SYS_socket, ANY, {TRACER_FAIL, {EMFILE, ENFILE, ENOMEM, EACCES}}},
	{SYS_connect, ANY, {TRACER_FAIL, {ECONNREFUSED, ENOENT, EAGAIN, EACCES, EINTR}}},
	{SYS_setsockopt, ANY, {TRACER_FAIL, {ENOMEM}}},
	{SYS_sendto, ANY, {TRACER_FAIL, {EAGAIN, EINTR, ENOMEM, EPIPE, ECONNRESET}}},
	{SYS_recvfrom, ANY, {TRACER_FAIL, {EAGAIN, EINTR, ENOMEM, ECONNRESET}}},
	{SYS_ppoll, ANY, {TRACER_FAIL, {EINTR, ENOMEM}}},
	{SYS_epoll_create1, ANY, {TRACER_FAIL, {EMFILE, ENFILE, ENOMEM}}},
	{SYS_epoll_ctl, ANY, {TRACER_FAIL, {ENOMEM, ENOSPC}}},
	{SYS_eventfd2, ANY, {TRACER_FAIL, {EMFILE, ENFILE, ENOMEM}}},
#if defined(__x86_64__)
	{SYS_poll, ANY, {TRACER_FAIL, {EINTR, ENOMEM}}},
#endif
	/* what lasts */
	{SYS_openat, ANY, {TRACER_FAIL_ALL, {EMFILE, ENOMEM}}},
	{SYS_openat2, ANY, {TRACER_FAIL_ALL, {EMFILE, ENOMEM}}},
	{SYS_linkat, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_unlinkat, ANY, {TRACER_FAIL_ALL, {EIO}}},
	{SYS_renameat2, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_pwritev, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_pwrite64, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_fallocate, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_mmap, ANY, {TRACER_FAIL_ALL, {ENOMEM}}},
	{SYS_flock, ANY, {TRACER_FAIL_ALL, {ENOLCK}}},
	{SYS_mkdirat, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_symlinkat, ANY, {TRACER_FAIL_ALL, {ENOSPC}}},
	{SYS_pread64, ANY, {TRACER_FAIL_ALL, {EIO}}},
	{SYS_fsync, ANY, {TRACER_FAIL_ALL, {EIO}}},
	{SYS_io_uring_register, ANY, {TRACER_FAIL_ALL, {ENOMEM}}},
	{SYS_socket, ANY, {TRACER_FAIL_ALL, {EMFILE}}},
	{SYS_sendto, ANY, {TRACER_FAIL_ALL, {EPIPE}}},
	{SYS_recvfrom, ANY, {TRACER_FAIL_ALL, {ENOMEM}}},
	{SYS_ppoll, ANY, {TRACER_FAIL_ALL, {ENOMEM}}},
};

const struct plausible *plausible_failure(const struct tracer_call *call, size_t i)
{
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
		if (known[k].nr == call->nr &&
		    (known[k].command == ANY || known[k].command == (int)call->args[1]) && i-- == 0)
			return &known[k].failure;
	return NULL;
}

bool plausible_return(int rc)
{
	static const int list[] = {EINVAL,  ENOENT, EEXIST,    EBUSY,    ENOSPC, EDQUOT,
				   EBADMSG, EPERM,  ESTALE,    EXDEV,    EMFILE, ENOMEM,
				   ENOTSUP, EIO,    ETIMEDOUT, ECANCELED};
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (rc == -list[i])
			return true;
	return rc >= 0;
}
