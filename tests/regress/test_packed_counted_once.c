/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner freed memory of its segment while another process was taking it. Each counted what the
 * file had before, less what it had after, so both counted the same bytes as given back, and the
 * daemon granted them twice: stores of a user with a limit of 24 MiB took up to 29 MiB.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "gc.h"
#include "handle.h"
#include "interpose.h"

#define MIB  (UINT64_C(1) << 20)
#define KEYS 600u
#define SIZE 3000u

static bool stop_at_punch; /* this process stops before it punches */

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	typedef int fn(int, int, off_t, off_t);
	bool stop = stop_at_punch;

	if (stop && (mode & FALLOC_FL_PUNCH_HOLE)) {
		stop_at_punch = false;
		raise(SIGSTOP);
	}
	return NEXT(fn *, "fallocate")(fd, mode, offset, length);
}

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_dir(NULL), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

struct taker {
	pid_t pid;
	int result;
};

/* Takes what free slots have, and is stopped between its look at the file and its first punch. */
static struct taker taker_stopped(void)
{
	struct taker t;
	int ends[2], status;

	cr_assert_eq(pipe(ends), 0);
	t.pid = fork_bound(60);
	if (t.pid == 0) {
		uint64_t taken;
		bool again;

		stop_at_punch = true;
		atomic_store(&scratch_partition()->vain_ms, 0);
		taken = shms_pool_take(scratch_partition(), geteuid(), 0, &again);
		_exit(write(ends[1], &taken, sizeof(taken)) != sizeof(taken));
	}
	close(ends[1]);
	t.result = ends[0];
	cr_assert_eq(waitpid(t.pid, &status, WUNTRACED), t.pid);
	cr_assert(WIFSTOPPED(status), "it punched nothing: 0x%x", status);
	return t;
}

static uint64_t go_on(struct taker *t)
{
	uint64_t taken = 0;
	int status;

	cr_assert_eq(kill(t->pid, SIGCONT), 0);
	cr_assert_eq(waitpid(t->pid, &status, 0), t->pid);
	cr_assert_eq(status, 0);
	cr_assert_eq(read(t->result, &taken, sizeof(taken)), sizeof(taken));
	close(t->result);
	return taken;
}

/* A store of which each step-th object stays, and the last; none where step is 0. */
static struct shmstore *filled(unsigned step)
{
	struct shmstore *s;
	char key[16];

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	s = packing_store("s", MIB, false);
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(s, key, SIZE, i, 0), 0);
	}
	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert((step && (i % step == 0 || i == KEYS - 1)) ||
			  shmstore_delete(s, KEY(key)) == 0);
	}
	(void)shms_pack_gave(shms_packed_pack(s));
	return s;
}

static void ensure_counted_once(struct shmstore *s, uint64_t before, struct taker *t)
{
	uint64_t gave = shms_pack_gave(shms_packed_pack(s)), taken = go_on(t), after = used();

	cr_assert_lt(after, before);
	cr_assert_leq(gave + taken, before - after, "the owner says %ju, who took it %ju",
		      (uintmax_t)gave, (uintmax_t)taken);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static void trims_beside_a_taker(unsigned step)
{
	struct shmstore *s = filled(step);
	uint64_t before = used();
	struct taker t = taker_stopped();

	shms_pack_trim(shms_packed_pack(s), 0);
	ensure_counted_once(s, before, &t);
}

Test(packed_counted_once, by_an_owner_that_trims)
{
	trims_beside_a_taker(8);
}

Test(packed_counted_once, by_an_owner_that_removes_the_segment)
{
	trims_beside_a_taker(0);
}

/* It frees the memory of each slot as it leaves it. */
Test(packed_counted_once, by_an_owner_that_is_short_of_memory)
{
	struct shmstore *s = filled(2);
	struct shms_pack *pack = shms_packed_pack(s);
	uint64_t before = used();
	struct taker t = taker_stopped();
	char key[16];

	shms_pack_tight(pack, true);
	for (unsigned i = 0; i < KEYS; i += 2) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(shms_pack_delete(pack, KEY(key), shms_now_boot_ms(), &(uint64_t){0}),
			     0);
	}
	ensure_counted_once(s, before, &t);
}

/* Once nobody takes, the owner frees it, and counts it. */
Test(packed_counted_once, by_an_owner_after_the_taker_was_killed)
{
	struct shmstore *s = filled(8);
	struct shms_pack *pack = shms_packed_pack(s);
	struct taker t = taker_stopped();
	uint64_t before;

	(void)shms_pack_trim(pack, shms_now_boot_ms());
	(void)shms_pack_gave(pack);
	before = used();
	cr_assert_eq(kill(t.pid, SIGKILL), 0);
	cr_assert_eq(waitpid(t.pid, NULL, 0), t.pid);
	close(t.result);
	cr_assert_gt(shms_pack_trim(pack, shms_now_boot_ms() + 60000), 0);
	cr_assert_eq(shms_pack_gave(pack), before - used());
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
