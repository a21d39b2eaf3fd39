/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c: in every scenario, lets each system call fail with each errno that the kernel may give there (once; and for those
 * that last, from there to the end), and each allocation (once; and from there to the end).
 *
 *   fault [-k calls|allocations] [scenario...]
 *
 * After each: the call returned a code of the closed list, or worked by another way; what it did or did not do agrees with that
 * code; the store works; after close and unref no descriptor, no mapping and no block of the heap is left in the process, and
 * after gc not a name and not a byte on the partition.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocfail.h"
#include "sandbox.h"
#include "stage.h"
#include "tracer.h"
#include "verify.h"

#define VICTIM_TIMEOUT_MS 20000u
#define FAILURES_MAX      8u
#define FDS_MAX           512
#define ERRORS_MAX        8

struct options {
	bool calls, allocations;
	char **names;
	size_t n_names;
};

struct fault {
	enum {
		FAULT_NONE,
		FAULT_CALL,
		FAULT_ALLOCATION
	} kind;
	struct tracer_plan plan;
	bool all; /* of allocations */
};

struct play {
	struct stage stage;
	const struct options *options;
	struct tracer_result result;
	struct tracer_call calls[TRACER_CALLS_MAX]; /* undisturbed */
	unsigned n_calls;
	unsigned n_faults, n_passed, n_failed;
};

/* What the kernel may answer. Not here: munmap of a whole mapping (cannot fail), calls that only ask about the process. */
struct plausible {
	uint64_t nr;
	enum tracer_mode mode;
	int errors[ERRORS_MAX];
};
static const struct plausible plausible[] = {
	{SYS_openat, TRACER_FAIL, {EMFILE, ENFILE, ENOMEM, EACCES, EINTR, EIO}},
	{SYS_openat2, TRACER_FAIL, {EMFILE, ENFILE, ENOMEM, EACCES, EINTR, EIO, EAGAIN, ENOSYS}},
	{SYS_close, TRACER_FAIL_DONE, {EINTR, EIO}},
	{SYS_linkat, TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO, EMLINK, EPERM}},
	{SYS_unlinkat, TRACER_FAIL, {EIO, EACCES, ENOMEM, EPERM, EBUSY}},
	{SYS_renameat2, TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO, EPERM}},
	{SYS_mkdirat, TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO}},
	{SYS_symlinkat, TRACER_FAIL, {ENOSPC, ENOMEM, EACCES, EIO}},
	{SYS_readlinkat, TRACER_FAIL, {ENOMEM, EACCES, EIO}},
	{SYS_pwritev, TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}},
	{SYS_pwritev2, TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}},
	{SYS_pwrite64, TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}},
	{SYS_pwrite64, TRACER_SHORT, {ENOSPC}},
	{SYS_write, TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM}},
	{SYS_pread64, TRACER_FAIL, {EIO, EINTR, ENOMEM}},
	{SYS_preadv, TRACER_FAIL, {EIO, EINTR, ENOMEM}},
	{SYS_read, TRACER_FAIL, {EIO, EINTR, ENOMEM}},
	{SYS_fallocate, TRACER_FAIL, {ENOSPC, EIO, EINTR, ENOMEM, EOPNOTSUPP}},
	{SYS_ftruncate, TRACER_FAIL, {EIO, EINTR, ENOSPC}},
	{SYS_fchmod, TRACER_FAIL, {EPERM, EIO}},
	{SYS_fchmodat, TRACER_FAIL, {EPERM, EIO, ENOMEM}},
	{SYS_fstat, TRACER_FAIL, {ENOMEM, EIO}},
	{SYS_newfstatat, TRACER_FAIL, {ENOMEM, EIO, EACCES}},
	{SYS_statx, TRACER_FAIL, {ENOMEM, EIO, EACCES}},
	{SYS_statfs, TRACER_FAIL, {ENOMEM, EIO, EINTR}},
	{SYS_fstatfs, TRACER_FAIL, {ENOMEM, EIO, EINTR}},
	{SYS_flock, TRACER_FAIL, {ENOLCK, EINTR, EWOULDBLOCK}},
	{SYS_mmap, TRACER_FAIL, {ENOMEM, EAGAIN, ENFILE}},
	{SYS_mprotect, TRACER_FAIL, {ENOMEM, EACCES}},
	{SYS_madvise, TRACER_FAIL, {ENOMEM, EAGAIN, EINVAL}},
	{SYS_mremap, TRACER_FAIL, {ENOMEM}},
	{SYS_getdents64, TRACER_FAIL, {EIO, ENOMEM}},
	{SYS_getrandom, TRACER_FAIL, {EINTR}},
	/* what lasts */
	{SYS_openat, TRACER_FAIL_ALL, {EMFILE, ENOMEM}},
	{SYS_openat2, TRACER_FAIL_ALL, {EMFILE, ENOMEM}},
	{SYS_linkat, TRACER_FAIL_ALL, {ENOSPC}},
	{SYS_unlinkat, TRACER_FAIL_ALL, {EIO}},
	{SYS_renameat2, TRACER_FAIL_ALL, {ENOSPC}},
	{SYS_pwritev, TRACER_FAIL_ALL, {ENOSPC}},
	{SYS_pwrite64, TRACER_FAIL_ALL, {ENOSPC}},
	{SYS_fallocate, TRACER_FAIL_ALL, {ENOSPC}},
	{SYS_mmap, TRACER_FAIL_ALL, {ENOMEM}},
	{SYS_flock, TRACER_FAIL_ALL, {ENOLCK}},
	{SYS_mkdirat, TRACER_FAIL_ALL, {ENOSPC}},
};

/* fcntl() by its command. */
static const struct {
	int command;
	enum tracer_mode mode;
	int errors[ERRORS_MAX];
} plausible_fcntl[] = {
	{F_SETLEASE, TRACER_FAIL, {EAGAIN, EACCES, ENOMEM, EINVAL}},
	{F_SETLEASE, TRACER_FAIL_ALL, {EAGAIN, EINVAL}},
	{F_DUPFD_CLOEXEC, TRACER_FAIL, {EMFILE, EINVAL}},
	{F_SETSIG, TRACER_FAIL, {EINVAL, EPERM}},
};

static bool in_closed_list(int rc)
{
	static const int list[] = {EINVAL, ENOENT, EEXIST, EBUSY,  ENOSPC,  EDQUOT, EBADMSG,   EPERM,
				   ESTALE, EXDEV,  EMFILE, ENOMEM, ENOTSUP, EIO,    ETIMEDOUT, ECANCELED};
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (rc == -list[i])
			return true;
	return rc >= 0;
}

/* ---- what the process holds --------------------------------------------------------------------------------------- */

struct held {
	bool fd[FDS_MAX];
	unsigned n_maps; /* of files on the mount */
	long n_blocks;
};

static char maps[1 << 20];

static void look_at_self(const struct world *w, struct held *ret)
{
	ret->n_blocks = allocfail_live();
	for (int fd = 0; fd < FDS_MAX; fd++)
		ret->fd[fd] = fcntl(fd, F_GETFD) >= 0;
	ret->n_maps = 0;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t n;
	while (fd >= 0 && size < sizeof(maps) - 1 && (n = read(fd, maps + size, sizeof(maps) - 1 - size)) > 0)
		size += (size_t)n;
	close(fd);
	maps[size] = '\0';
	char prefix[256];
	snprintf(prefix, sizeof(prefix), " %s/", w->mount);
	for (const char *at = maps; (at = strstr(at, prefix)); at++)
		ret->n_maps++;
}

static int check_held(struct world *w, const struct held *before)
{
	static struct held after;
	look_at_self(w, &after);
	for (int fd = 0; fd < FDS_MAX; fd++)
		if (after.fd[fd] != before->fd[fd]) {
			char path[64], target[256];
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			ssize_t n = readlink(path, target, sizeof(target) - 1);
			target[n < 0 ? 0 : n] = '\0';
			return world_fail(w, "descriptor %d is %s: %s", fd, after.fd[fd] ? "left open" : "gone",
					  target);
		}
	if (after.n_maps != before->n_maps)
		return world_fail(w, "%u mappings are left", after.n_maps - before->n_maps);
	if (after.n_blocks != before->n_blocks)
		return world_fail(w, "%ld blocks of the heap are left", after.n_blocks - before->n_blocks);
	return 0;
}

/* ---- one run ------------------------------------------------------------------------------------------------------ */

static const struct fault *the_fault; /* the victim's own */
static const struct world *the_world;

static void on_begin(void)
{
	if (the_fault->kind == FAULT_CALL)
		return;
	allocfail_arm(the_fault->kind == FAULT_ALLOCATION ? the_fault->plan.n : 0, the_fault->all);
}

static void on_end(void)
{
	unsigned long n = allocfail_disarm();
	if (the_fault->kind != FAULT_CALL)
		the_world->shared->n_allocations = n;
}

/* What the call said agrees with what is there. */
static int check_outcome(struct world *w, int rc)
{
	const struct scenario *sc = w->sc;
	if (!in_closed_list(rc))
		return world_fail(w, "returned %d (%s), which is not in the closed list", rc, strerror(-rc));
	if (sc->flags & OWN_PARTITION || !w->p)
		return 0;
	/* A call that opens or takes apart a whole store may stop half way; all others do all or nothing. */
	bool whole = !(sc->flags & (NO_STORE | CONSUMES));
	return world_check_keys(w, whole ? &rc : NULL);
}

static void victim(struct world *w, const struct fault *f)
{
	static struct held before;
	if (f->kind != FAULT_ALLOCATION && tracer_child() < 0)
		_exit(5);
	the_fault = f;
	the_world = w;
	content_reserve(4u << 20); /* before the look: it stays */
	look_at_self(w, &before);
	if (scenario_prepare(w) < 0)
		_exit(3);
	w->on_begin = on_begin;
	w->on_end = on_end;
	int rc = scenario_run(w);
	if (f->kind == FAULT_NONE && rc != w->sc->want_rc)
		world_fail(w, "returned %d, not %d", rc, w->sc->want_rc);
	scenario_after(w); /* room again */
	if (w->shared->message[0] == '\0' && check_outcome(w, rc) == 0 && w->s)
		world_check_works(w, w->s);
	int closed = scenario_release(w);
	if (!in_closed_list(closed))
		world_fail(w, "close returned %d", closed);
	if (w->shared->message[0] == '\0')
		check_held(w, &before);
	_exit(w->shared->message[0] ? 4 : 0);
}

static int live(struct play *p, const struct fault *f)
{
	struct world *w = &p->stage.world;
	if (scenario_before(w) < 0)
		return -1;
	if ((w->sc->flags & TICKET_IN) && survivor_handoff(&p->stage.survivor, w) < 0)
		return -1;
	pid_t pid = fork();
	if (pid < 0)
		return world_fail(w, "fork: %m");
	if (pid == 0)
		victim(w, f);
	int rc = 0;
	if (f->kind == FAULT_ALLOCATION) {
		while (waitpid(pid, &p->result.status, 0) < 0)
			if (errno != EINTR)
				return world_fail(w, "waitpid: %m");
	} else {
		rc = tracer_run(pid, &f->plan, VICTIM_TIMEOUT_MS, &p->result);
	}
	scenario_after(w);
	if (rc < 0)
		return world_fail(w, "the victim hung or could not be traced (%d)", rc);
	if (w->shared->message[0])
		return -1;
	if (!WIFEXITED(p->result.status) || WEXITSTATUS(p->result.status) != 0)
		return world_fail(w, "the victim ended with status 0x%x", p->result.status);
	return 0;
}

static int iterate(struct play *p, const struct fault *f)
{
	struct world *w = &p->stage.world;
	if (live(p, f) < 0 || survivor_verify(&p->stage.survivor, w) < 0)
		return -1;
	int rc = w->shared->rc;
	if ((w->sc->flags & OWN_PARTITION) && verify_look(w, VERIFY_GC, &rc) < 0)
		return -1;
	if ((w->sc->flags & TICKET_IN) && verify_ticket(w, &rc) < 0)
		return -1;
	if (w->shared->have_out && survivor_adopt(&p->stage.survivor, w) < 0)
		return -1;
	return verify_settled(w) < 0 ? -1 : stage_check_same(&p->stage);
}

static void say_failure(const struct play *p, const struct fault *f)
{
	const struct world *w = &p->stage.world;
	const char *all = f->plan.mode == TRACER_FAIL_ALL || f->all ? " and all after it" : "";
	if (f->kind == FAULT_CALL)
		printf("FAIL %s, call %u %s%s: %s: %s\n", w->sc->name, f->plan.n,
		       tracer_call_name(p->calls[f->plan.n - 1].nr), all,
		       f->plan.mode == TRACER_SHORT ? "cut short" : strerrorname_np(f->plan.error), w->shared->message);
	else if (f->kind == FAULT_ALLOCATION)
		printf("FAIL %s, allocation %u%s: %s\n", w->sc->name, f->plan.n, all, w->shared->message);
	else
		printf("FAIL %s, undisturbed: %s\n", w->sc->name, w->shared->message);
}

static bool try_one(struct play *p, const struct fault *f, unsigned *n_bad)
{
	if (stage_build(&p->stage) < 0) {
		printf("FAIL %s: the stage: %s\n", p->stage.world.sc->name, p->stage.world.shared->message);
		stage_burn(&p->stage);
		++*n_bad;
		return false;
	}
	p->n_faults += f->kind != FAULT_NONE;
	if (iterate(p, f) == 0)
		return true;
	say_failure(p, f);
	stage_burn(&p->stage);
	++*n_bad;
	return false;
}

/* ---- all of a scenario -------------------------------------------------------------------------------------------- */

static void fail_call(struct play *p, unsigned n, enum tracer_mode mode, const int errors[ERRORS_MAX], unsigned *n_bad)
{
	const struct tracer_call *call = &p->calls[n - 1];

	for (size_t i = 0; i < ERRORS_MAX && errors[i] && *n_bad < FAILURES_MAX; i++) {
		const struct fault f = {.kind = FAULT_CALL, .plan = {mode, n, errors[i], true, call->nr}};

		/* Who finds the name taken does not first find the directory full. */
		if (errors[i] == ENOSPC && call->result == -EEXIST)
			continue;
		try_one(p, &f, n_bad);
	}
}

static void fail_calls(struct play *p, unsigned *n_bad)
{
	for (unsigned n = 1; n <= p->n_calls; n++) {
		const struct tracer_call *call = &p->calls[n - 1];

		for (size_t i = 0; i < sizeof(plausible) / sizeof(plausible[0]); i++)
			if (plausible[i].nr == call->nr)
				fail_call(p, n, plausible[i].mode, plausible[i].errors, n_bad);
		for (size_t i = 0; i < sizeof(plausible_fcntl) / sizeof(plausible_fcntl[0]); i++)
			if (call->nr == SYS_fcntl && plausible_fcntl[i].command == (int)call->args[1])
				fail_call(p, n, plausible_fcntl[i].mode, plausible_fcntl[i].errors, n_bad);
	}
}

static void fail_allocations(struct play *p, unsigned long n_allocations, unsigned *n_bad)
{
	for (unsigned long n = 1; n <= n_allocations && *n_bad < FAILURES_MAX; n++)
		for (int all = 0; all < 2; all++) {
			const struct fault f = {.kind = FAULT_ALLOCATION, .plan = {.n = (unsigned)n}, .all = all};
			try_one(p, &f, n_bad);
		}
}

static void play_scenario(struct play *p, const struct scenario *sc)
{
	p->stage.world.sc = sc;
	unsigned n_bad = 0, n_faults = p->n_faults;
	const struct fault none = {.kind = FAULT_NONE};
	unsigned long n_allocations = 0;
	if (try_one(p, &none, &n_bad)) {
		p->n_calls = p->result.n_calls < TRACER_CALLS_MAX ? p->result.n_calls : TRACER_CALLS_MAX;
		memcpy(p->calls, p->result.calls, sizeof(p->calls));
		n_allocations = p->stage.world.shared->n_allocations;
		if (p->options->calls)
			fail_calls(p, &n_bad);
		if (p->options->allocations)
			fail_allocations(p, n_allocations, &n_bad);
	}
	if (p->stage.built && stage_strike(&p->stage) < 0) {
		printf("FAIL %s: in the end: %s\n", sc->name, p->stage.world.shared->message);
		stage_burn(&p->stage);
		n_bad++;
	}
	if (n_bad)
		p->n_failed++;
	else
		p->n_passed++;
	printf("%s %-24s %3u calls, %3lu allocations, %4u faults\n", n_bad ? "not ok" : "ok    ", sc->name, p->n_calls,
	       n_allocations, p->n_faults - n_faults);
	fflush(stdout);
}

/* Once through the library in this process, so that what libc allocates at first use is not taken for a leak. */
static void warm_up(const char *mount)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/warm", mount);
	struct shmstore_partition *p = NULL;
	struct shmstore *s = NULL;
	struct shmstore_view *v = NULL;
	struct shmstore_usage u;
	struct content c = {1, 100000};
	if (shmstore_partition_open(path, SHMSTORE_CREATE, &p) == 0 && shmstore_open(p, "warm", NULL, &s) == 0 &&
	    content_put(s, "k", 1, c, 0) == 0 && shmstore_get(s, "k", 1, 0, &v) == 0) {
		shmstore_view_unref(v);
		shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);
		shmstore_partition_gc(p, 0, NULL);
	}
	shmstore_close(s);
	shmstore_partition_unref(p);
	sandbox_wipe(mount);
}

static bool wanted(const struct options *o, const char *name)
{
	for (size_t i = 0; i < o->n_names; i++)
		if (strcmp(o->names[i], name) == 0)
			return true;
	return o->n_names == 0;
}

static int body(const char *mount, void *arg)
{
	if (!allocfail_works()) {
		printf("SKIP a sanitizer's own system calls would fail too\n");
		return 77;
	}
	int rc = tracer_supported();
	if (rc < 0) {
		printf("SKIP ptrace does not work here: %s\n", strerror(-rc));
		return 77;
	}
	static struct play p;
	p.options = arg;
	if (stage_init(&p.stage, mount) < 0)
		return 2;
	warm_up(mount);
	struct timespec t0, t1;
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (size_t i = 0; i < n_scenarios; i++)
		if (wanted(p.options, scenarios[i].name))
			play_scenario(&p, &scenarios[i]);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
	printf("fault: %u faults in %.1f s, %.1f ms each\n", p.n_faults, s, p.n_faults ? s * 1000 / p.n_faults : 0.0);
	printf("fault: %u passed, %u failed\n", p.n_passed, p.n_failed);
	return p.n_failed ? 1 : 0;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'k':
		o->calls = strcmp(arg, "calls") == 0;
		o->allocations = strcmp(arg, "allocations") == 0;
		if (!o->calls && !o->allocations)
			argp_error(state, "-k takes calls or allocations");
		return 0;
	case ARGP_KEY_ARGS:
		o->names = state->argv + state->next;
		o->n_names = (size_t)(state->argc - state->next);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"kind", 'k', "KIND", 0, "Only calls or only allocations", 0},
		{0},
	};
	static const struct argp argp = {known,
					 on_option,
					 "[SCENARIO...]",
					 "Lets each system call and each allocation of the library fail.",
					 NULL,
					 NULL,
					 NULL};
	struct options options = {.calls = true, .allocations = true};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return sandbox_run("size=64m,huge=within_size,nr_inodes=10000", body, &options);
}
