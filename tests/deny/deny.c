/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deny ERRNO CALL[,CALL...] -- COMMAND...: runs COMMAND under a seccomp filter that answers these
 * system calls with that errno, a name or a number. O_TMPFILE stands for an openat() that asks for
 * a file without a name. deny --list: the calls that it knows, one a line.
 *
 * Exit status: COMMAND's; 2 wrong usage, 77 no filter can be set, 127 COMMAND cannot be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define ARCHITECTURE AUDIT_ARCH_PPC64LE
#elif defined(__s390x__)
#define ARCHITECTURE AUDIT_ARCH_S390X
#endif

#define FILTER_MAX 256

/* Not of all machines' kernels: x86's have calls that others never had. */
#define CALL(name)                \
	{                         \
#name, SYS_##name \
	}
static const struct {
	const char *name;
	long number;
} calls[] = {
	CALL(accept4),
	CALL(bind),
	CALL(clone3),
	CALL(close_range),
	CALL(connect),
	CALL(copy_file_range),
	CALL(dup3),
	CALL(epoll_create1),
	CALL(epoll_ctl),
	CALL(epoll_pwait),
	CALL(eventfd2),
	CALL(faccessat),
	CALL(faccessat2),
	CALL(fadvise64),
	CALL(fallocate),
	CALL(fchmod),
	CALL(fchmodat),
	CALL(fchown),
	CALL(fchownat),
	CALL(fcntl),
	CALL(fdatasync),
	CALL(fgetxattr),
	CALL(flock),
	CALL(fsetxattr),
	CALL(fstatfs),
	CALL(fsync),
	CALL(ftruncate),
	CALL(getdents64),
	CALL(getpriority),
	CALL(getrandom),
	CALL(getsockname),
	CALL(getsockopt),
	CALL(inotify_add_watch),
	CALL(inotify_init1),
	CALL(io_uring_enter),
	CALL(io_uring_register),
	CALL(io_uring_setup),
	CALL(ioctl),
	CALL(ioprio_set),
	CALL(kcmp),
	CALL(linkat),
	CALL(listen),
	CALL(lseek),
	CALL(madvise),
	CALL(membarrier),
	CALL(memfd_create),
	CALL(mincore),
	CALL(mkdirat),
	CALL(mlock),
	CALL(mlock2),
	CALL(mremap),
	CALL(name_to_handle_at),
	CALL(open_tree),
	CALL(openat2),
	CALL(pidfd_getfd),
	CALL(pidfd_open),
	CALL(pidfd_send_signal),
	CALL(ppoll),
	CALL(preadv),
	CALL(preadv2),
	CALL(prlimit64),
	CALL(process_madvise),
	CALL(process_vm_readv),
	CALL(pwrite64),
	CALL(pwritev),
	CALL(pwritev2),
	CALL(readlinkat),
	CALL(readv),
	CALL(recvfrom),
	CALL(recvmsg),
	CALL(renameat2),
	CALL(sched_getaffinity),
	CALL(sched_setaffinity),
	CALL(sched_setattr),
	CALL(sched_setscheduler),
	CALL(sendmsg),
	CALL(sendto),
	CALL(setpriority),
	CALL(setsockopt),
	CALL(setxattr),
	CALL(shutdown),
	CALL(signalfd4),
	CALL(socket),
	CALL(socketpair),
	CALL(statfs),
	CALL(statx),
	CALL(symlinkat),
	CALL(sync_file_range),
	CALL(timerfd_create),
	CALL(timerfd_settime),
	CALL(unlinkat),
	CALL(userfaultfd),
	CALL(utimensat),
	CALL(writev),
#ifdef SYS_renameat
	CALL(renameat),
#endif
#ifdef __x86_64__
	CALL(access),
	CALL(chmod),
	CALL(epoll_wait),
	CALL(lchown),
	CALL(mkdir),
	CALL(poll),
	CALL(readlink),
	CALL(rename),
	CALL(rmdir),
	CALL(unlink),
#endif
	{"O_TMPFILE", -1},
};
#define N_CALLS (sizeof(calls) / sizeof(*calls))

static const struct {
	const char *name;
	int number;
} errors[] = {{"ENOSYS", ENOSYS},         {"EPERM", EPERM},   {"EACCES", EACCES},
	      {"EOPNOTSUPP", EOPNOTSUPP}, {"EISDIR", EISDIR}, {"ENODEV", ENODEV}};

struct filter {
	struct sock_filter steps[FILTER_MAX];
	unsigned short n;
};

static void add(struct filter *f, struct sock_filter step)
{
	if (f->n == FILTER_MAX) {
		fputs("deny: too many calls\n", stderr);
		exit(2);
	}
	f->steps[f->n++] = step;
}

static void load(struct filter *f, size_t offset)
{
	add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

/* The next n steps are left out unless what was loaded is value. */
static void unless(struct filter *f, unsigned value, unsigned char n)
{
	add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n));
}

static void answer(struct filter *f, unsigned what)
{
	add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static void refuse(struct filter *f, const char *name, int error)
{
	unsigned what = SECCOMP_RET_ERRNO | (unsigned)error;

	for (size_t i = 0; i < N_CALLS; i++) {
		if (strcmp(calls[i].name, name) != 0)
			continue;
		load(f, offsetof(struct seccomp_data, nr));
		if (calls[i].number >= 0) {
			unless(f, (unsigned)calls[i].number, 1);
			answer(f, what);
			return;
		}
		unless(f, SYS_openat, 4);
		load(f, offsetof(struct seccomp_data, args[2]));
		add(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_TMPFILE));
		unless(f, O_TMPFILE, 1);
		answer(f, what);
		return;
	}
	fprintf(stderr, "deny: unknown call %s\n", name);
	exit(2);
}

static int error_of(const char *text)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		if (strcmp(errors[i].name, text) == 0)
			return errors[i].number;
	}
	return atoi(text);
}

int main(int argc, char **argv)
{
	struct filter f = {.n = 0};
	struct sock_fprog program;
	int error;

	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < N_CALLS; i++)
			puts(calls[i].name);
		return 0;
	}
	error = argc > 4 && strcmp(argv[3], "--") == 0 ? error_of(argv[1]) : 0;
	if (error <= 0) {
		fputs("usage: deny ERRNO CALL[,CALL...] -- COMMAND...\n", stderr);
		return 2;
	}
#ifdef ARCHITECTURE
	/* A program with another machine's numbers is let pass. */
	load(&f, offsetof(struct seccomp_data, arch));
	add(&f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
	answer(&f, SECCOMP_RET_ALLOW);
#endif
	for (char *name = strtok(argv[2], ","); name; name = strtok(NULL, ","))
		refuse(&f, name, error);
	answer(&f, SECCOMP_RET_ALLOW);
	program = (struct sock_fprog){f.n, f.steps};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
		perror("deny: no filter can be set");
		return 77;
	}
	execvp(argv[4], argv + 4);
	perror(argv[4]);
	return 127;
}
