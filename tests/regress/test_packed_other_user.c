/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root could not look into another user's segments. Its gc, the daemon's as a rule, took a dead
 * store's link of a segment away though a lease was out in it, so that the ticket was stale; what a
 * dead store had in segments stayed there for ever; and root's books had all of them as pool.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define USER 54321
#define SIZE 5000
#define MUCH 1000 /* objects: more than the first segment of a store has slots for */

static char partition[512];
static struct scene {
	struct shmstore_ticket ticket;
	_Atomic int turn;
} * scene; /* with children */

static struct shmstore *open_as_user(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	ENSURE(setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0);
	o.pack_max = 64u << 10;
	o.recycle_max = 0;
	ENSURE(shmstore_partition_open(partition, 0, &p) == 0);
	ENSURE(shmstore_open(p, name, &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

static struct shmstore_partition *begin(void)
{
	struct shmstore_partition *p;

	if (geteuid() != 0 || !scratch_is_mount())
		cr_skip_test("needs root\n");
	scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	cr_assert_neq(scene, MAP_FAILED);
	snprintf(partition, sizeof(partition), "%s/shared", scratch_dir(NULL));
	cr_assert_eq(chmod(scratch_dir(NULL), 0755), 0);
	cr_assert_eq(shmstore_partition_open(partition, SHMSTORE_CREATE | SHMSTORE_SHARED, &p), 0);
	return p;
}

static struct shmstore_usage usage(struct shmstore_partition *p)
{
	struct shmstore_usage u;

	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u), 0);
	cr_assert_eq(u.residual, 0, "residual %lld of %llu", (long long)u.residual,
		     (unsigned long long)u.used);
	cr_assert_eq(u.foreign, 0);
	return u;
}

static bool is_there(const char *store)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/stores/%s", partition, store);
	return access(path, F_OK) == 0;
}

static int donate_and_die(void *arg)
{
	struct shmstore *s = open_as_user("donor");

	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), *(uint64_t *)arg, &scene->ticket) == 0);
	kill(getpid(), SIGKILL);
	return 0;
}

static int adopt_and_close(void *arg)
{
	struct shmstore *s = open_as_user("receiver");

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("k"), &scene->ticket, 0) == 0);
	ENSURE(get_pattern(s, "k", SIZE, 1) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(packed_other_user, lease_outlives_the_donor_whoever_collects)
{
	struct shmstore_partition *p = begin();
	uint64_t before = usage(p).used, lease_ms = 60000, expiry_ms;
	struct shmstore_gc_report report;
	char path[600];

	cr_assert_eq(in_child(donate_and_die, &lease_ms), 1000 + SIGKILL);
	snprintf(path, sizeof(path), "%s/stores/donor", partition);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_eq(shmstore_partition_reap(p, path, 0, NULL, NULL, &report, &expiry_ms), 0);
	cr_assert_neq(expiry_ms, UINT64_MAX, "a reap says when to come again");
	cr_assert_eq(usage(p).n_leases, 1);
	cr_assert_geq(usage(p).linked, SIZE);
	cr_assert_eq(in_child(adopt_and_close, NULL), 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert(!is_there("donor"));
	cr_assert_eq(usage(p).used, before);
	shmstore_partition_unref(p);
}

static bool is_collected(void *arg)
{
	return shmstore_partition_gc(arg, 0, NULL) == 0 && !is_there("donor");
}

Test(packed_other_user, ended_lease_keeps_nothing)
{
	struct shmstore_partition *p = begin();
	uint64_t before = usage(p).used, lease_ms = 1;

	cr_assert_eq(in_child(donate_and_die, &lease_ms), 1000 + SIGKILL);
	cr_assert(wait_until(is_collected, p, 20000));
	cr_assert_eq(usage(p).used, before);
	shmstore_partition_unref(p);
}

static int adopt_and_die(void *arg)
{
	struct shmstore *s = open_as_user("receiver");

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("k"), &scene->ticket, 0) == 0);
	kill(getpid(), SIGKILL);
	return 0;
}

static void await_turn(int turn)
{
	while (scene->turn != turn)
		usleep(1000);
}

/* Lives while its receiver dies; then it needs room, and what the dead one had of it goes. */
static int live_donor(void *arg)
{
	struct shmstore *s = open_as_user("donor");
	char key[16];

	(void)arg;
	ENSURE(put_pattern(s, "k", SIZE, 1, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, &scene->ticket) == 0);
	scene->turn = 1;
	await_turn(2);
	ENSURE(shmstore_delete(s, KEY("k")) == 0);
	for (unsigned i = 0; i < MUCH; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ENSURE(put_pattern(s, key, SIZE, i, 0) == 0);
	}
	for (unsigned i = 0; i < MUCH; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ENSURE(get_pattern(s, key, SIZE, i) == 0);
		ENSURE(shmstore_delete(s, KEY(key)) == 0);
	}
	scene->turn = 3;
	await_turn(4);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(packed_other_user, dead_receiver_holds_nothing)
{
	struct shmstore_partition *p = begin();
	uint64_t before = usage(p).used, held;
	pid_t donor = fork_bound(60);
	int status;

	if (donor == 0)
		_exit(live_donor(NULL));
	await_turn(1);
	cr_assert_eq(in_child(adopt_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert(!is_there("receiver"));
	held = usage(p).linked;
	cr_assert_geq(held, SIZE);
	scene->turn = 2;
	await_turn(3);
	cr_assert_leq(usage(p).linked + SIZE, held,
		      "the object of the dead receiver is still held");
	scene->turn = 4;
	cr_assert_eq(waitpid(donor, &status, 0), donor);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert_eq(usage(p).used, before);
	shmstore_partition_unref(p);
}
