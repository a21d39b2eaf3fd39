/* SPDX-License-Identifier: Apache-2.0 */
/* accountlock: who holds a lock. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"
#include "scratch.h"

enum {
	USER = 60001
};

/* A process that holds the lock of fd's file until it is killed. hidden: it does what it
 * can to be taken for root's. */
static pid_t hold(const char *path, bool hidden)
{
	int ready[2];
	char c;
	pid_t pid;

	ENSURE(pipe2(ready, O_CLOEXEC) == 0);
	pid = fork();
	ENSURE(pid >= 0);
	if (pid == 0) {
		ENSURE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		if (geteuid() == 0)
			ENSURE(setresgid(USER, USER, USER) == 0 &&
			       setresuid(USER, USER, USER) == 0);
		ENSURE(prctl(PR_SET_DUMPABLE, !hidden) == 0);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ENSURE(fd >= 0 && flock(fd, LOCK_EX) == 0 && write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ENSURE(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	return pid;
}

Test(accountlock, the_holder_is_found_and_its_user)
{
	uid_t expected = geteuid() == 0 ? USER : geteuid(), uid;
	char path[SCRATCH_PATH];
	struct stat st;
	pid_t pid, holder;
	int fd;

	snprintf(path, sizeof(path), "%s/file", scratch_dir(NULL));
	cr_assert_eq(chmod(scratch_dir(NULL), 0755), 0);
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0444);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fchmod(fd, 0444), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(accountlock_holder(&st, &holder, &uid), -ENOENT);
	for (int hidden = 0; hidden < 2; hidden++) {
		pid = hold(path, hidden);
		cr_assert_eq(accountlock_holder(&st, &holder, &uid), 0);
		cr_assert_eq(holder, pid);
		cr_assert_eq(uid, expected);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		cr_assert_eq(accountlock_holder(&st, &holder, &uid), -ENOENT);
	}
	/* Another file's lock is another's. */
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	st.st_ino++;
	cr_assert_eq(accountlock_holder(&st, &holder, &uid), -ENOENT);
	close(fd);
}
