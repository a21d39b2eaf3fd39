/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores whose processes make no call, or are stopped, kept what their segments have for no object
 * from everybody else: a quarter of the partition together. The process that takes this memory may
 * be stopped or killed amid it; the owners' puts go on meanwhile, and owners take anew the memory
 * that they lost.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "books.h"
#include "gc.h"
#include "handle.h"
#include "interpose.h"
#include "shut.h"
#include "sys.h"

#define STORES 15
#define MIB    (UINT64_C(1) << 20)
#define SIZE   900000u
#define SMALL  3000u
#define TAKERS 3
#define LARGE  3
#define KEYS   400
#define MS     2000u

#define AS_IT_IS UINT32_MAX

static int on_punch; /* a signal for the process that punches, before it */
static bool no_barrier;

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	typedef int fn(int, int, off_t, off_t);
	int sig = on_punch;

	if (sig && (mode & FALLOC_FL_PUNCH_HOLE)) {
		on_punch = 0;
		raise(sig);
	}
	return NEXT(fn *, "fallocate")(fd, mode, offset, length);
}

long syscall(long number, ...)
{
	va_list ap;
	long r;

	if (no_barrier && number == SYS_membarrier) {
		errno = EPERM;
		return -1;
	}
	va_start(ap, number);
	r = interpose_syscall(number, ap);
	va_end(ap);
	return r;
}

static void begin(void)
{
	cr_assert_eq(setenv("SHMSTORE_PACK_MAX", "1048576", 1), 0);
	scratch_dir("size=256m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
}

static uint64_t room(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_dir(NULL), &fs), 0);
	return (uint64_t)fs.f_bavail * fs.f_frsize;
}

static const char *key_of(unsigned i)
{
	static char text[16];

	snprintf(text, sizeof(text), "k%u", i);
	return text;
}

/* Every eighth object stays. */
static void put_and_delete(struct shmstore *s, unsigned from, unsigned to, unsigned size)
{
	for (unsigned i = from; i < to; i++)
		cr_assert_eq(put_pattern(s, key_of(i), size, i, 0), 0, "%u: %s", i,
			     shmstore_error_detail());
	for (unsigned i = from; i < to; i++)
		cr_assert(i % 8 == 1 || shmstore_delete(s, KEY(key_of(i))) == 0);
}

static void ensure(struct shmstore *s, unsigned from, unsigned to, unsigned step, unsigned size)
{
	for (unsigned i = from; i < to; i += step)
		cr_assert_eq(get_pattern(s, key_of(i), size, i), 0, "%u", i);
}

static void fill_and_idle(struct other *o)
{
	for (unsigned i = 0; i < 17; i++)
		cr_assert_eq(other_put(o, key_of(i), SIZE, i), 0);
	for (unsigned i = 1; i < 17; i++)
		cr_assert_eq(other_delete(o, key_of(i)), 0);
}

static uint64_t take(ino_t but)
{
	bool again;

	/* Not as who looked just now. */
	atomic_store(&scratch_partition()->vain_ms, 0);
	return shms_pool_take(scratch_partition(), geteuid(), but, &again);
}

/* Takes what there is, and is sent that signal before it punches. Returns how it is then. */
static int taker(int sig, pid_t *ret)
{
	int status;

	*ret = fork_bound(60);
	if (*ret == 0) {
		on_punch = sig;
		_exit(take(0) == 0 || on_punch);
	}
	cr_assert_eq(waitpid(*ret, &status, WUNTRACED), *ret);
	return status;
}

Test(packed_silent_pools, give_a_large_put_its_room, .timeout = 120)
{
	struct shmstore *s;
	struct other o[STORES];
	char name[16];

	begin();
	for (int i = 0; i < STORES; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		o[i] = other_start(name);
	}
	for (int i = 0; i < STORES; i++)
		fill_and_idle(&o[i]);
	for (int i = 0; i < STORES; i += 2)
		cr_assert_eq(kill(o[i].pid, SIGSTOP), 0);
	cr_assert_lt(room(), 225 * MIB);
	s = scratch_plain_store("newcomer");
	cr_assert_eq(put_pattern(s, "big", 225 * MIB, 1, 0), 0, "%s", shmstore_error_detail());
	ensure_books_close();
	/* An owner may take anew the memory that the newcomer has not; memory that it has is
	 * refused, not written to. */
	for (int i = 0; i < STORES; i += 2)
		cr_assert_eq(kill(o[i].pid, SIGCONT), 0);
	for (int i = 0; i < STORES; i++) {
		int r = other_put(&o[i], "again", SIZE, 3);

		cr_assert(r == 0 || r == -ENOSPC, "%d", r);
		cr_assert_eq(other_get(&o[i], key_of(0), SIZE, 0), 0);
	}
	cr_assert_eq(shmstore_delete(s, KEY("big")), 0);
	for (int i = 0; i < STORES; i++) {
		cr_assert_eq(other_put(&o[i], "more", SIZE, 4), 0);
		cr_assert_eq(other_get(&o[i], "more", SIZE, 4), 0);
		cr_assert_eq(other_get(&o[i], key_of(0), SIZE, 0), 0);
	}
	ensure_books_close();
	for (int i = 0; i < STORES; i++)
		cr_assert_eq(other_close(&o[i]), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Puts one object as soon as the write end of gate is closed, and sends what the put returned. */
static pid_t large_put(unsigned store, uint64_t size, const int gate[2], int result)
{
	struct shmstore *s;
	char name[16];
	pid_t pid = fork_bound(60);
	int r;

	if (pid != 0)
		return pid;
	close(gate[1]);
	snprintf(name, sizeof(name), "large%u", store);
	s = scratch_plain_store(name);
	r = (int)read(gate[0], name, 1);
	if (r == 0)
		r = put_pattern(s, "big", size, 1, 0);
	if (r == 0)
		r = get_pattern(s, "big", size, 1);
	for (r = write(result, &r, sizeof(r)) == sizeof(r);; pause())
		;
}

static void large_puts_at_once(void)
{
	pid_t pids[LARGE];
	int gate[2], results[2], r[LARGE];

	cr_assert(pipe(gate) == 0 && pipe(results) == 0);
	for (unsigned i = 0; i < LARGE; i++)
		pids[i] = large_put(i, 75 * MIB, gate, results[1]);
	usleep(50000);
	close(gate[0]);
	close(gate[1]);
	for (unsigned i = 0; i < LARGE; i++)
		cr_assert_eq(read(results[0], &r[i], sizeof(r[i])), sizeof(r[i]));
	close(results[0]);
	close(results[1]);
	ensure_books_close();
	for (unsigned i = 0; i < LARGE; i++) {
		cr_expect_eq(r[i], 0, "%d", r[i]);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
}

Test(packed_silent_pools, give_large_puts_at_once_their_room, .timeout = 120)
{
	struct other o[STORES];
	char name[16];

	begin();
	for (int i = 0; i < STORES; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		o[i] = other_start(name);
	}
	for (int i = 0; i < STORES; i++)
		fill_and_idle(&o[i]);
	cr_assert_lt(room(), 225 * MIB);
	large_puts_at_once();
	for (int i = 0; i < STORES; i++)
		cr_assert_eq(other_get(&o[i], key_of(0), SIZE, 0), 0);
	for (int i = 0; i < STORES; i++)
		cr_assert_eq(other_close(&o[i]), 0);
	ensure_nothing_left();
}

/* Three rounds, so that the slots of large objects are written through the map. */
static void fill_thrice(struct shmstore *s, unsigned n, unsigned size)
{
	for (int i = 0; i < 3; i++) {
		put_and_delete(s, 0, n, size);
		for (unsigned k = 1; k < n; k += 8)
			cr_assert_eq(shmstore_delete(s, KEY(key_of(k))), 0);
	}
	put_and_delete(s, 0, n, size);
}

/* In a full partition a write to memory that was taken would be a SIGBUS. */
static void puts_in_a_full_partition(unsigned size)
{
	struct shmstore *s, *other;
	unsigned n = 0;
	int r;

	begin();
	s = packing_store("s", MIB, false);
	other = scratch_plain_store("other");
	fill_thrice(s, 8000000 / size, size);
	cr_assert_gt(take(other->dir_inode), MIB);
	/* For fewer puts than pass before the owner looks whether room is scarce. */
	cr_assert_eq(put_pattern(other, "big", room() - 131072, 1, SHMSTORE_NO_EVICT), 0, "%s",
		     shmstore_error_detail());
	do {
		r = put_pattern(s, key_of(100000 + n), size, 100000 + n, 0);
	} while (r == 0 && ++n < 100000);
	cr_assert_eq(r, -ENOSPC, "%u", n);
	ensure(s, 1, 8000000 / size, 8, size);
	ensure(s, 100000, 100000 + n, 1, size);
	ensure_books_close();
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_silent_pools, small_puts_after_it_are_refused, .timeout = 120)
{
	puts_in_a_full_partition(SMALL);
}

Test(packed_silent_pools, large_puts_after_it_are_refused, .timeout = 120)
{
	puts_in_a_full_partition(200000);
}

static void after_a_taker(int sig, bool kept, unsigned size)
{
	struct shmstore *s;
	pid_t pid;
	int status;

	begin();
	s = packing_store("s", MIB, kept);
	fill_thrice(s, 600, size);
	status = taker(sig, &pid);
	cr_assert(sig == SIGSTOP ? WIFSTOPPED(status) : WIFSIGNALED(status),
		  "it punched nothing: 0x%x", status);
	if (kept) {
		cr_assert_eq(shmstore_close(s), 0);
		s = packing_store("s", MIB, true);
	}
	for (unsigned i = 600; i < 900; i++)
		cr_assert_eq(put_pattern(s, key_of(i), size, i, 0), 0, "%u: %s", i,
			     shmstore_error_detail());
	cr_assert_eq(n_shut(s), sig == SIGSTOP ? 1 : 0);
	for (unsigned i = 1; i < 600; i += 16)
		cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
	if (sig == SIGSTOP) {
		cr_assert_eq(kill(pid, SIGCONT), 0);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert_eq(status, 0);
	}
	for (unsigned i = 900; i < 1800; i++)
		cr_assert_eq(put_pattern(s, key_of(i), size, i, 0), 0, "%u: %s", i,
			     shmstore_error_detail());
	cr_assert_eq(n_shut(s), 0);
	ensure(s, 9, 600, 16, size);
	ensure(s, 600, 1800, 1, size);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	s = packing_store("s", MIB, false);
	if (kept)
		ensure(s, 600, 1800, 1, size);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_silent_pools, stopped_taker_delays_no_put, .timeout = 120)
{
	after_a_taker(SIGSTOP, false, SMALL);
}

Test(packed_silent_pools, stopped_taker_delays_no_put_of_large_objects, .timeout = 120)
{
	after_a_taker(SIGSTOP, false, 70000);
}

Test(packed_silent_pools, stopped_taker_delays_no_kept_store, .timeout = 120)
{
	after_a_taker(SIGSTOP, true, SMALL);
}

Test(packed_silent_pools, killed_taker_leaves_nothing_wrong, .timeout = 120)
{
	after_a_taker(SIGKILL, false, SMALL);
}

Test(packed_silent_pools, killed_taker_leaves_a_kept_store, .timeout = 120)
{
	after_a_taker(SIGKILL, true, SMALL);
}

static void say(const struct shmstore *s, uint32_t owner, uint64_t vain_ms)
{
	const struct shms_pack *p = shms_packed_pack(s);

	for (uint32_t i = 0; p && i < p->n_segments; i++) {
		struct shms_segment_use *use;

		if (!p->segments[i].own)
			continue;
		use = shms_segment_use(&p->segments[i].own->file.segment);
		if (owner != AS_IT_IS)
			atomic_store(&use->owner, owner);
		atomic_store(&use->vain_ms, vain_ms);
	}
}

Test(packed_silent_pools, owner_amid_a_put_keeps_its_slots)
{
	struct shmstore *s;

	begin();
	s = packing_store("s", MIB, false);
	put_and_delete(s, 0, 600, SMALL);
	say(s, 1, 0);
	cr_assert_eq(take(0), 0);
	/* Not asked again at once. */
	say(s, 0, shms_now_boot_ms());
	cr_assert_eq(take(0), 0);
	say(s, 0, 0);
	cr_assert_gt(take(0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* As a release that knows nothing of takers. */
Test(packed_silent_pools, owner_that_does_not_look_keeps_its_memory)
{
	struct shmstore *s;

	begin();
	s = packing_store("s", MIB, false);
	put_and_delete(s, 0, 600, SMALL);
	atomic_store(&s->page->packed.looks, 0);
	cr_assert_eq(take(0), 0);
	atomic_store(&s->page->packed.looks, 1);
	cr_assert_gt(take(0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_silent_pools, without_barriers_nothing_is_taken)
{
	struct shmstore *s;

	begin();
	s = packing_store("s", MIB, false);
	put_and_delete(s, 0, 600, SMALL);
	no_barrier = true;
	cr_assert_eq(take(0), 0);
	no_barrier = false;
	put_and_delete(s, 600, 1200, SMALL);
	ensure(s, 1, 1200, 8, SMALL);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

/* Nothing but a barrier would show it who takes. */
Test(packed_silent_pools, owner_that_gets_no_barriers_keeps_its_memory)
{
	struct shmstore *s;

	begin();
	no_barrier = true;
	s = packing_store("s", MIB, false);
	put_and_delete(s, 0, 600, SMALL);
	no_barrier = false;
	cr_assert_eq(take(0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static pid_t taker_that_goes_on(void)
{
	pid_t pid = fork_bound(60);

	while (pid == 0) {
		(void)take(0);
		usleep((useconds_t)rand() % 300);
	}
	return pid;
}

/* One of them is stopped, killed or started anew now and then. */
static void disturb(pid_t pids[TAKERS], unsigned turn)
{
	pid_t *pid = &pids[turn % TAKERS];

	switch (turn % 5) {
	case 0:
		cr_assert_eq(kill(*pid, SIGSTOP), 0);
		break;
	case 1:
	case 2:
		cr_assert_eq(kill(*pid, SIGCONT), 0);
		break;
	default:
		cr_assert_eq(kill(*pid, SIGKILL), 0);
		cr_assert_eq(waitpid(*pid, NULL, 0), *pid);
		*pid = taker_that_goes_on();
	}
}

Test(packed_silent_pools, owner_at_work_beside_takers, .timeout = 120)
{
	static const unsigned sizes[] = {100, 3000, 70000, 300000};
	uint64_t seeds[KEYS] = {0}, end_ms;
	pid_t pids[TAKERS];
	unsigned n_put = 0, n = 0;
	struct shmstore *s;

	begin();
	s = packing_store("s", MIB, false);
	for (int i = 0; i < TAKERS; i++)
		pids[i] = taker_that_goes_on();
	for (end_ms = shms_now_boot_ms() + MS; shms_now_boot_ms() < end_ms; n++) {
		unsigned i = (unsigned)rand() % KEYS, size = sizes[i % 4];

		if (seeds[i]) {
			cr_assert_eq(get_pattern(s, key_of(i), size, seeds[i]), 0, "%u", n);
			cr_assert_eq(shmstore_delete(s, KEY(key_of(i))), 0);
			seeds[i] = 0;
		} else if (put_pattern(s, key_of(i), size, n + 1, 0) == 0) {
			seeds[i] = n + 1;
			n_put++;
		}
		say(s, AS_IT_IS, 0);
		if (n % 500 == 499)
			disturb(pids, n / 500);
	}
	cr_assert_gt(n_put, 100);
	for (int i = 0; i < TAKERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	for (unsigned i = 0; i < KEYS; i++)
		cr_assert(!seeds[i] || get_pattern(s, key_of(i), sizes[i % 4], seeds[i]) == 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
