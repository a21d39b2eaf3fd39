/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer.c: see tracer.h.
 *
 * The model: the child is a tracee from its first instruction, but runs at full speed until the
 * begin mark, a SIGUSR2 to itself that the tracer swallows. From there on every entry and every
 * return of a system call is a stop, until the entry of the end mark, a prctl() with an option that
 * no kernel has (so it does nothing where nobody traces).
 *
 * Where it is known which call is meant, the turn-th of its number, the child puts a filter on
 * itself at the begin mark that stops at calls of this number alone, and at the end mark: thousands
 * of stops are spared. A filter cannot be taken away; it is suspended where that is allowed (else a
 * stop is let go at once). Threads and children would inherit it, and nobody answers their stops:
 * who starts some is followed call by call.
 *
 * SIGKILL at an entry stop: the kernel looks for a fatal signal after the tracer lets go and skips
 * the call, so "killed before" means that the call never happened. A call is skipped by giving it
 * the number -1; its result is put in at the return stop.
 *
 * One tracer follows one child of one thread at a time: the library starts no threads.
 */
#include "tracer.h"

#include <elf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACER_END    0x53484d54 /* prctl option of the end mark */
#define NO_FILTER     97         /* exit status of a child that could not put its filter */
#define STACK_WORDS   512u       /* looked at for callers */
#define STACK_CALLERS 5u         /* that make a place */

/* Of the child: tracer_child() worked; the one call to stop at, or NULL. */
static bool traced;
static const struct tracer_plan *aimed;

int tracer_child(const struct tracer_plan *plan)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		return -errno;
	traced = true;
	aimed = plan && plan->turn ? plan : NULL;
	return 0;
}

/* Calls of the plan's number stop, and the end mark. */
static int put_filter(const struct tracer_plan *plan)
{
	/* Both numbers and the option are small: the low half of an argument says all, and comes
	 * first or not by the byte order. */
	const unsigned low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)plan->nr, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 (unsigned)offsetof(struct seccomp_data, args[0]) + low),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TRACER_END, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(lines) / sizeof(lines[0]),
					   .filter = lines};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
		return 0;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
}

/* Not where a container forbids the call. */
static bool has_filters(void)
{
	const uint32_t action = SECCOMP_RET_TRACE;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

void tracer_begin(void)
{
	if (!traced)
		return;
	/* Before the first stop nobody answers the filter's: between it and the
	 * mark there is no other call. */
	const long pid = getpid(), thread = syscall(SYS_gettid);
	if (aimed && put_filter(aimed) < 0)
		_exit(NO_FILTER);
	syscall(SYS_tgkill, pid, thread, SIGUSR2);
}

void tracer_end(void)
{
	if (traced)
		syscall(SYS_prctl, TRACER_END, 0, 0, 0, 0);
}

void tracer_aim(struct tracer_plan *plan, const struct tracer_call *calls, unsigned n_calls)
{
	if (plan->n < 1 || plan->n > n_calls || !has_filters())
		return;
	plan->nr = calls[plan->n - 1].nr;
	plan->turn = 0;
	for (unsigned i = 0; i < plan->n; i++)
		plan->turn += calls[i].nr == plan->nr;
	for (unsigned i = 0; i < n_calls; i++)
		if (calls[i].nr == SYS_clone || calls[i].nr == SYS_clone3)
			plan->turn = 0;
}

bool tracer_is_one_more_turn(const struct tracer_call *calls, unsigned n_calls, unsigned n)
{
	const struct tracer_call *call;
	unsigned n_before = 0, n_after = 0;

	if (n < 1 || n > n_calls)
		return false;
	call = &calls[n - 1];
	for (unsigned i = 1; i <= n_calls; i++)
		if (i != n && calls[i - 1].nr == call->nr && calls[i - 1].place == call->place)
			*(i < n ? &n_before : &n_after) += 1;
	return call->place && n_before >= 2 && n_after > 0;
}

bool tracer_missed(struct tracer_plan *plan, const struct tracer_result *result)
{
	bool missed = plan->turn && !result->reached;

	if (missed)
		plan->turn = 0;
	return missed;
}

unsigned tracer_recorded(const struct tracer_result *result)
{
	return result->n_calls < TRACER_CALLS_MAX ? result->n_calls : TRACER_CALLS_MAX;
}

void tracer_mark(pid_t pid)
{
	syscall(SYS_tgkill, pid, pid, SIGUSR2);
}

/* ---- registers ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static int call_set(pid_t pid, const long *number, const long *result, const uint64_t *arg2)
{
	struct user_regs_struct regs;
	if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
		return -errno;
	if (number)
		regs.orig_rax = (unsigned long long)*number;
	if (result)
		regs.rax = (unsigned long long)*result;
	if (arg2)
		regs.rdx = *arg2;
	return ptrace(PTRACE_SETREGS, pid, NULL, &regs) < 0 ? -errno : 0;
}
#define TRACER_ARCH 1
#elif defined(__aarch64__)
static int call_set(pid_t pid, const long *number, const long *result, const uint64_t *arg2)
{
	if (number) {
		int nr = (int)*number;
		struct iovec iov = {&nr, sizeof(nr)};
		if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &iov) < 0)
			return -errno;
	}
	if (result || arg2) {
		struct user_regs_struct regs;
		struct iovec iov = {&regs, sizeof(regs)};
		if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &iov) < 0)
			return -errno;
		if (result)
			regs.regs[0] = (unsigned long long)*result;
		if (arg2)
			regs.regs[2] = *arg2;
		if (ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &iov) < 0)
			return -errno;
	}
	return 0;
}
#define TRACER_ARCH 1
#else
static int call_set(pid_t pid, const long *number, const long *result, const uint64_t *arg2)
{
	(void)pid, (void)number, (void)result, (void)arg2;
	return -ENOTSUP;
}
#define TRACER_ARCH 0
#endif

/* ---- the parent's side ----------------------------------------------------------------------- */

struct run {
	pid_t pid;
	const struct tracer_plan *plan;
	struct tracer_result *ret;
	bool counting;   /* between the marks */
	bool in_call;    /* the last stop was an entry */
	bool replace;    /* put plan->error in at the return of the current call */
	bool free_run;   /* nothing left to do for us: no more stops wanted */
	uint64_t failed; /* number of the call that fails for good */
	unsigned turn;   /* with an aim: how many calls of its number came */
};

/* A process that takes too long is killed by a timer's signal: waitpid() then ends, in whatever
 * order the two come. The signal is one that nobody else uses. */
#define DEADLINE_SIGNAL SIGRTMAX

static volatile sig_atomic_t overdue_pid, is_overdue;

static void on_deadline(int sig)
{
	(void)sig;
	if (overdue_pid > 0) {
		is_overdue = 1;
		kill((pid_t)overdue_pid, SIGKILL);
	}
}

static int deadline_start(pid_t pid, unsigned timeout_ms, timer_t *ret_timer)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = DEADLINE_SIGNAL};
	const struct sigaction action = {.sa_handler = on_deadline};
	const struct itimerspec when = {
		.it_value = {.tv_sec = timeout_ms / 1000,
			     .tv_nsec = (long)(timeout_ms % 1000) * 1000000}};

	overdue_pid = pid;
	is_overdue = 0;
	if (sigaction(DEADLINE_SIGNAL, &action, NULL) < 0 ||
	    timer_create(CLOCK_MONOTONIC, &event, ret_timer) < 0)
		return -errno;
	return timer_settime(*ret_timer, 0, &when, NULL) < 0 ? -errno : 0;
}

static int wait_stop(pid_t pid, int *ret_status)
{
	while (waitpid(pid, ret_status, __WALL) != pid)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Tracer and child run in turn: on one processor each wakes the other for half of what it costs on
 * two. Which one it is may change. */
static void share_processor(pid_t pid, cpu_set_t *ret_old)
{
	cpu_set_t one;
	int cpu = sched_getcpu();

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(*ret_old), ret_old) < 0 || cpu < 0 || cpu >= CPU_SETSIZE) {
		CPU_ZERO(ret_old);
		return;
	}
	CPU_SET((size_t)cpu, &one);
	sched_setaffinity(pid, sizeof(one), &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/*
 * Return addresses are the words on the stack that point into our own code; words that earlier
 * calls left there can look the same, so that one place may have several hashes, but hardly two
 * places one. FNV-1a (Fowler, Noll, Vo).
 */
static uint64_t place_of(pid_t pid, const struct __ptrace_syscall_info *info)
{
	extern const char __executable_start, etext; /* the linker's */
	const uint64_t from = (uintptr_t)&__executable_start, to = (uintptr_t)&etext;
	uint64_t words[STACK_WORDS], hash = 0xcbf29ce484222325u ^ info->entry.nr;
	struct iovec here = {words, sizeof(words)},
		     there = {(void *)(uintptr_t)info->stack_pointer, sizeof(words)};
	ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
	unsigned n_taken = 0;

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*words) && n_taken < STACK_CALLERS; i++)
		if (words[i] >= from && words[i] < to) {
			hash = (hash ^ (words[i] - from)) * 0x100000001b3u;
			n_taken++;
		}
	return n_taken ? hash : 0;
}

/* The entry of a counted call. Returns false where the child has just been killed. */
static bool on_entry(struct run *r, const struct __ptrace_syscall_info *info)
{
	struct tracer_result *ret = r->ret;
	unsigned n = ++ret->n_calls;
	if (n <= TRACER_CALLS_MAX) {
		ret->calls[n - 1].nr = info->entry.nr;
		memcpy(ret->calls[n - 1].args, info->entry.args, sizeof(ret->calls[n - 1].args));
		ret->calls[n - 1].place =
			r->plan->mode == TRACER_COUNT ? place_of(r->pid, info) : 0;
	}
	r->replace = false;
	bool this_one = n == r->plan->n && (!r->plan->only || r->plan->nr == info->entry.nr);
	if (this_one)
		ret->reached = true;
	static const long none = -1;
	switch (r->plan->mode) {
	case TRACER_COUNT:
	case TRACER_KILL_AFTER:
		break;
	case TRACER_KILL_BEFORE:
		if (this_one) {
			kill(r->pid, SIGKILL);
			return false;
		}
		break;
	case TRACER_FAIL_ALL:
		if (this_one)
			r->failed = info->entry.nr;
		if (n >= r->plan->n && info->entry.nr == r->failed)
			r->replace = call_set(r->pid, &none, NULL, NULL) == 0;
		break;
	case TRACER_FAIL:
		if (this_one)
			r->replace = call_set(r->pid, &none, NULL, NULL) == 0;
		break;
	case TRACER_FAIL_DONE:
		r->replace = this_one;
		break;
	case TRACER_SHORT:
		if (this_one && info->entry.nr == SYS_pwrite64 && info->entry.args[2] > 1) {
			uint64_t half = info->entry.args[2] / 2;
			call_set(r->pid, NULL, NULL, &half);
		}
		break;
	}
	return true;
}

/* The return of a counted call. Returns false where the child has just been killed. */
static bool on_return(struct run *r, const struct __ptrace_syscall_info *info)
{
	unsigned n = r->ret->n_calls;
	long result = info->exit.rval;
	if (r->replace) {
		result = -(long)r->plan->error;
		call_set(r->pid, NULL, &result, NULL);
	}
	if (n >= 1 && n <= TRACER_CALLS_MAX)
		r->ret->calls[n - 1].result = result;
	if (n != r->plan->n)
		return true;
	if (r->plan->mode == TRACER_KILL_AFTER) {
		kill(r->pid, SIGKILL);
		return false;
	}
	if (r->plan->mode == TRACER_FAIL || r->plan->mode == TRACER_FAIL_DONE ||
	    r->plan->mode == TRACER_SHORT)
		r->free_run = true;
	return true;
}

/* After an entry comes its return; what it is is of no interest where neither the call is
 * ours nor somebody only looks. */
static bool return_is_dull(const struct run *r)
{
	return r->in_call && !r->replace && r->ret->n_calls != r->plan->n &&
	       r->plan->mode != TRACER_COUNT;
}

/* Is that entry the end mark? Then it ends the count. */
static bool is_end(struct run *r, const struct __ptrace_syscall_info *info)
{
	if (info->entry.nr != SYS_prctl || info->entry.args[0] != TRACER_END)
		return false;
	r->counting = false;
	r->ret->ended = true;
	return true;
}

/* A stop at a system call. */
static void on_syscall(struct run *r)
{
	struct __ptrace_syscall_info info;
	if (return_is_dull(r)) {
		r->in_call = false;
		return;
	}
	memset(&info, 0, sizeof(info));
	if (ptrace(PTRACE_GET_SYSCALL_INFO, r->pid, (void *)sizeof(info), &info) < 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		r->in_call = !is_end(r, &info) && on_entry(r, &info);
	} else if (info.op == PTRACE_SYSCALL_INFO_EXIT && r->in_call) {
		/* The return of the begin mark itself comes here with in_call unset. */
		r->in_call = false;
		on_return(r, &info);
	}
}

/* A stop of the child's filter, at an entry, of which it says the same in the same place. Returns
 * true where the return is to be a stop, too. */
static bool on_filter(struct run *r)
{
	struct __ptrace_syscall_info info;

	if (!r->counting || r->free_run)
		return false;
	memset(&info, 0, sizeof(info));
	if (ptrace(PTRACE_GET_SYSCALL_INFO, r->pid, (void *)sizeof(info), &info) < 0)
		return false;
	if (is_end(r, &info))
		return false;
	/* How many calls of other numbers came in between is not known, nor of interest. */
	r->turn++;
	r->ret->n_calls = r->plan->n + r->turn - r->plan->turn - 1;
	r->in_call = on_entry(r, &info) && (r->replace || r->turn == r->plan->turn);
	return r->in_call;
}

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP)

int tracer_run(pid_t pid, const struct tracer_plan *plan, unsigned timeout_ms,
	       struct tracer_result *ret)
{
	struct run r = {.pid = pid, .plan = plan, .ret = ret, .failed = UINT64_MAX};
	cpu_set_t old;
	timer_t timer;
	ret->n_calls = 0;
	ret->reached = ret->ended = false;
	int error = deadline_start(pid, timeout_ms, &timer);
	if (error < 0)
		return error;
	share_processor(pid, &old);
	bool first = true, suspended = false;
	for (;;) {
		int status = 0;
		bool to_return = false;
		error = wait_stop(pid, &status);
		if (error < 0)
			break;
		ret->status = status;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			break;
		int sig = WSTOPSIG(status);
		if (first) {
			ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)OPTIONS);
			first = false;
			sig = sig == SIGTRAP ? 0 : sig; /* it has executed another program */
		}
		if (sig == (SIGTRAP | 0x80)) {
			sig = 0;
			on_syscall(&r);
		} else if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
			sig = 0;
			to_return = on_filter(&r);
		} else if (sig == SIGUSR2 && !r.counting && !ret->ended) {
			sig = 0;
			r.counting = true;
		} else if (sig == SIGUSR2 && plan->outside) {
			sig = 0;
			r.counting = false;
			ret->ended = true;
		}
		bool over = ret->ended || r.free_run;
		if (plan->turn && over && !suspended) {
			ptrace(PTRACE_SETOPTIONS, pid, NULL,
			       (void *)(uintptr_t)(OPTIONS | PTRACE_O_SUSPEND_SECCOMP));
			suspended = true;
		}
		bool follow = plan->turn ? to_return : r.counting && !r.free_run;
		ptrace(follow ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL, (void *)(intptr_t)sig);
	}
	overdue_pid = 0;
	timer_delete(timer);
	if (CPU_COUNT(&old))
		sched_setaffinity(0, sizeof(old), &old);
	return error == 0 && is_overdue ? -ETIMEDOUT : error;
}

int tracer_supported(void)
{
	if (!TRACER_ARCH)
		return -ENOTSUP;
	static struct tracer_result result;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (tracer_child(NULL) < 0)
			_exit(1);
		tracer_begin();
		syscall(SYS_getppid);
		tracer_end();
		_exit(0);
	}
	const struct tracer_plan plan = {.mode = TRACER_COUNT};
	int rc = tracer_run(pid, &plan, 10000, &result);
	if (rc < 0)
		return rc;
	return WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0 && result.n_calls == 1
		       ? 0
		       : -EPERM;
}
