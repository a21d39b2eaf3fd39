/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment_kills.c: stores that share packed segments, killed again and again beside one that lives.
 *
 *   segment_kills [-n KILLS] [-s SEED] [-k time|steps|calls]
 *
 * The survivor, store 0, works all the time: it puts, hands off, adopts what others hand off, views
 * and deletes. Beside it a victim does the same until SIGKILL: after a random time, after a random
 * number of its instructions (steps), or at each of its system calls in turn (calls; KILLS counts
 * nothing there). Stores of even numbers are kept. After each kill the dead are recovered, now or
 * later, by a process that may be killed at it as well. It must be so:
 *   - a ticket that was posted can be adopted, whoever died, and the bytes are right; so are those
 *     of all that the survivor has
 *   - a kept store that comes back has all that it had, and nothing that it
 *     never took or had given away
 *   - when all are dead and all leases have ended, every slot is free, and the
 *     file system is as it was before
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "killing.h"
#include "scratch.h"
#include "segworld.h"
#include "sys.h"
#include "tracer.h"

enum kind {
	BY_TIME,
	BY_STEPS,
	BY_CALLS
};

#define LATEST_NS 1500000u /* after its begin a victim is killed */
#define WARM      60u      /* at most so many operations come before its steps are counted */
#define TICK_MS   200u     /* the board's clock goes on by so much at each kill */

static struct segboard *board;
static int root_fd;
static struct dice dice;
static pid_t survivor;
static uint64_t n_kills, n_late, n_again;

static bool is_kept(uint32_t number)
{
	return number % 2 == 0;
}

static _Noreturn void report_and_exit(void)
{
	while (atomic_load(&board->failed) == 1)
		usleep(1000);
	if (survivor > 0)
		kill(survivor, SIGKILL);
	printf("FAIL after %lu kills: %s\nsegment kills: 0 passed, 1 failed\n", n_kills,
	       board->failed ? board->text : "a process ended by itself");
	exit(1);
}

static pid_t fork_here(void)
{
	pid_t parent = getpid(), pid;

	fflush(stdout);
	pid = fork();
	ENSURE(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(4);
	}
	return pid;
}

static void check_end(pid_t pid, bool killed)
{
	int status;

	ENSURE(waitpid(pid, &status, 0) == pid);
	if (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (!atomic_load(&board->failed))
		printf("status %x\n", (unsigned)status);
	report_and_exit();
}

/* ---- processes ------------------------------------------------------------------------------- */

static _Noreturn void survive(uint64_t seed)
{
	struct segstore s;

	segstore_open(&s, board, root_fd, 0, false, seed);
	while (!atomic_load(&board->stop))
		segstore_step(&s, board->mail[0], board->mail[1]);
	segstore_end(&s);
	_exit(0);
}

static _Noreturn void be_victim(uint32_t number, uint64_t seed, bool steps)
{
	struct segstore s;

	if (!steps)
		ENSURE(killing_after(seed % LATEST_NS));
	segstore_open(&s, board, root_fd, number, is_kept(number), seed);
	s.small = steps;
	if (steps) {
		for (uint64_t i = seed / LATEST_NS % WARM; i > 0; i--)
			segstore_step(&s, board->mail[1], board->mail[0]);
		ENSURE(killing_wait());
	}
	for (;;)
		segstore_step(&s, board->mail[1], board->mail[0]);
}

/* All that asks the kernel for something, in one row. */
static _Noreturn void be_called_victim(uint32_t number, uint64_t seed)
{
	struct segstore s;

	ENSURE(tracer_child(NULL) == 0);
	tracer_begin();
	segstore_open(&s, board, root_fd, number, is_kept(number), seed);
	segstore_put(&s, 1000);
	segstore_post(&s, board->mail[0]);
	segstore_put(&s, 131072);
	segstore_post(&s, board->mail[0]);
	segstore_take(&s, board->mail[1]);
	segstore_take(&s, board->mail[1]);
	segstore_look(&s);
	segstore_drop(&s);
	segstore_drop(&s);
	shms_segown_trim(&s.own, atomic_load(&board->clock_ms));
	segstore_put(&s, 1000);
	segstore_leave_orphans(&s);
	tracer_end();
	segworld_gc(board, root_fd, 0, false);
	segstore_end(&s);
	_exit(0);
}

/* ---- kills ----------------------------------------------------------------------------------- */

static void kill_by_steps(pid_t pid, uint64_t n)
{
	int status;

	if (!killing_by_steps(pid, n, &status)) {
		printf("status %x\n", (unsigned)status);
		report_and_exit();
	}
	check_end(pid, true);
}

/*
 * A ticket that a dead process was taking is not offered again: if it was used, it
 * could meet another lease of the same object, which somebody else was promised. If it
 * was not used its lease ends by its time.
 */
static void settle_mail(void)
{
	for (size_t i = 0; i < SEGWORLD_MAIL; i++) {
		uint32_t taking = SEGMAIL_TAKING;

		atomic_compare_exchange_strong(&board->mail[1][i].state, &taking, SEGMAIL_EMPTY);
	}
}

/* Recovers, perhaps killed at it before. */
static void recover(uint32_t number, bool gone)
{
	if (dice_draw(&dice, 4) == 0) {
		pid_t pid = fork_here();

		if (pid == 0) {
			ENSURE(killing_after(dice_draw(&dice, LATEST_NS / 8)));
			segworld_gc(board, root_fd, number, gone);
			_exit(0);
		}
		check_end(pid, true);
		n_again++;
	}
	segworld_gc(board, root_fd, number, gone);
}

/* After the kill of store number: its journal says what is true, and what must go goes, now or
 * before it is opened the next time. */
static void look_after(uint32_t number, bool *io_late)
{
	settle_mail();
	n_kills++;
	atomic_fetch_add(&board->clock_ms, TICK_MS);
	if (atomic_load(&board->failed))
		report_and_exit();
	if (!is_kept(number)) {
		segworld_forget(board, number);
		io_late[number] = dice_draw(&dice, 2);
		n_late += io_late[number];
		if (!io_late[number])
			recover(number, true);
	} else if (dice_draw(&dice, 16) == 0) {
		recover(number, true);
		segworld_forget(board, number);
	} else if (dice_draw(&dice, 2)) {
		recover(number, false);
	}
}

static void kill_many(enum kind kind, uint64_t n)
{
	bool late[SEGWORLD_STORES] = {false};

	for (uint64_t i = 0; i < n; i++) {
		uint32_t number = 1 + (uint32_t)dice_draw(&dice, SEGWORLD_STORES - 1);
		uint64_t seed = dice_bits(&dice);
		bool steps = kind == BY_STEPS;
		pid_t pid;

		if (late[number])
			recover(number, true);
		late[number] = false;
		pid = fork_here();
		if (pid == 0)
			be_victim(number, seed, steps);
		if (steps)
			kill_by_steps(pid, dice_draw(&dice, KILLING_STEPS));
		else
			check_end(pid, true);
		look_after(number, late);
	}
}

/* Before and after each system call, until there is none more; of a store that is
 * kept and one that is not. */
static void kill_at_calls(void)
{
	static struct tracer_result result;
	bool late[SEGWORLD_STORES] = {false};

	for (uint32_t number = 1; number <= 2; number++) {
		for (unsigned n = 1;; n++) {
			struct tracer_plan plan = {.mode = n % 2 ? TRACER_KILL_BEFORE
								 : TRACER_KILL_AFTER,
						   .n = (n + 1) / 2};
			pid_t pid;
			int r;

			if (late[number])
				recover(number, true);
			pid = fork_here();
			if (pid == 0)
				be_called_victim(number, dice_bits(&dice));
			r = tracer_run(pid, &plan, 20000, &result);
			if (r < 0)
				printf("tracer: %s\n", strerror(-r));
			if (r < 0 || (!result.reached && result.status != 0))
				report_and_exit();
			look_after(number, late);
			if (!result.reached)
				break;
		}
	}
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint64_t used(void)
{
	struct statvfs v;

	ENSURE(fstatvfs(root_fd, &v) == 0);
	return (v.f_blocks - v.f_bfree) * v.f_frsize;
}

/* Everybody is dead. */
static void check_rest(uint64_t used_before)
{
	atomic_fetch_add(&board->clock_ms, 4 * SEGWORLD_LEASE_MS);
	for (int pass = 0; pass < 2; pass++) { /* one of them frees what the other's place kept */
		for (uint32_t i = 0; i < SEGWORLD_STORES; i++)
			segworld_gc(board, root_fd, i, false);
	}
	for (uint32_t i = 0; i < SEGWORLD_STORES; i++)
		segworld_retire(board, root_fd, i);
	for (uint32_t i = 0; i < SEGWORLD_STORES; i++)
		segworld_check(board, root_fd, i);
	for (uint32_t i = 0; i < SEGWORLD_STORES; i++) {
		if (segworld_gc(board, root_fd, i, true))
			segworld_fail(board, "a link of store %u stays, and no lease stands", i);
	}
	if (scratch_is_mount() && used() != used_before)
		segworld_fail(board, "%lu bytes are in use at the end, %lu at the begin", used(),
			      used_before);
}

int main(int argc, char **argv)
{
	uint64_t n = 2000, seed = 1, used_before;
	enum kind kind = BY_TIME;
	int option;
	pid_t last;

	while ((option = getopt(argc, argv, "n:s:k:")) != -1) {
		if (option == 'n')
			n = strtoull(optarg, NULL, 10);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (option == 'k')
			kind = *optarg == 's' ? BY_STEPS : *optarg == 'c' ? BY_CALLS : BY_TIME;
		else
			return 2;
	}
	if (kind == BY_CALLS && tracer_supported() < 0)
		return 77;
	dice.state = seed;
	board = segworld_board();
	root_fd = open(scratch_dir("size=512m,mode=700"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ENSURE(root_fd >= 0);
	for (uint32_t i = 0; i < SEGWORLD_STORES; i++)
		segworld_directory(root_fd, i);
	used_before = used();
	survivor = fork_here();
	if (survivor == 0)
		survive(dice_bits(&dice));
	if (kind == BY_CALLS)
		kill_at_calls();
	else
		kill_many(kind, n);
	atomic_store(&board->stop, 1);
	check_end(survivor, false);
	survivor = 0;
	last = fork_here();
	if (last == 0) {
		check_rest(used_before);
		_exit(0);
	}
	check_end(last, false);
	printf("%lu kills, %lu of them in recovery, %lu recovered later; %lu operations, %lu "
	       "objects put, %lu adopted, "
	       "%lu deleted\n",
	       n_kills + n_again, n_again, n_late, board->n_ops, board->n_put, board->n_adopted,
	       board->n_dropped);
	printf("segment kills: 1 passed, 0 failed\n");
	return 0;
}
