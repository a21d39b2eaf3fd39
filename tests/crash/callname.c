/* SPDX-License-Identifier: Apache-2.0 */
/* callname.c: the names of system calls, for people. See tracer.h. */
#include <stdio.h>
#include <sys/syscall.h>

#include "tracer.h"

const char *tracer_call_name(uint64_t nr)
{
	static const struct {
		uint64_t nr;
		const char *name;
	} names[] = {
#define N(x) {SYS_##x, #x}
		N(openat),
		N(openat2),
		N(close),
		N(linkat),
		N(unlinkat),
		N(renameat2),
		N(pwritev),
		N(pwritev2),
		N(pwrite64),
		N(pread64),
		N(preadv),
		N(fallocate),
		N(ftruncate),
		N(fchmod),
		N(fchmodat),
		N(mkdirat),
		N(symlinkat),
		N(readlinkat),
		N(fstat),
		N(newfstatat),
		N(statx),
		N(flock),
		N(fcntl),
		N(mmap),
		N(munmap),
		N(mprotect),
		N(madvise),
		N(mremap),
		N(getdents64),
		N(fstatfs),
		N(statfs),
		N(lseek),
		N(getrandom),
		N(brk),
		N(read),
		N(write),
		N(faccessat2),
		N(utimensat),
		N(fchown),
		N(getpid),
		N(getuid),
		N(geteuid),
		N(rt_sigprocmask),
		N(futex),
		N(renameat),
		N(fadvise64),
		N(dup),
		N(dup3),
		N(clock_gettime),
		N(socket),
		N(connect),
		N(setsockopt),
		N(sendto),
		N(recvfrom),
		N(sendmsg),
		N(recvmsg),
		N(ppoll),
		N(epoll_create1),
		N(epoll_ctl),
		N(epoll_pwait),
		N(eventfd2),
		N(timerfd_settime),
		N(accept4),
		N(shutdown),
#if defined(__x86_64__)
		N(open),
		N(stat),
		N(lstat),
		N(mkdir),
		N(rmdir),
		N(unlink),
		N(rename),
		N(link),
		N(symlink),
		N(readlink),
		N(chmod),
		N(access),
		N(poll),
		N(epoll_wait),
#endif
#undef N
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].nr == nr)
			return names[i].name;
	static char text[32];
	snprintf(text, sizeof(text), "syscall-%llu", (unsigned long long)nr);
	return text;
}
