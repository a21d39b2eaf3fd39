/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on alone: many stores, no daemon, and limits that one left in their pages. The test writes
 * these as the daemon would, and then only looks, and kills.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"
#include "handle.h"

enum {
	STORES = 5,
	STEPS = 400,
	KEYS = 20,
	LARGEST = 300000
};

#define HARD  (4ull << 20)
#define AHEAD (256u << 10)

struct one {
	pid_t pid;
	int fd; /* of its page */
	struct wire_credit *c;
};

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_partition_path(), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static bool has_limits(void *arg)
{
	return atomic_load(&((struct shmstore *)arg)->page->credit.epoch) != 0;
}

/* A store's owner: puts and deletes what comes, and ends with 0 where nothing
 * but a limit ever refused it. */
static int live(unsigned n, int ready)
{
	char name[16], key[16];
	struct shmstore *s;
	unsigned n_in = 0;

	snprintf(name, sizeof(name), "s%u", n);
	fake_nowhere();
	s = scratch_store(name);
	if (write(ready, "", 1) != 1 || !wait_until(has_limits, s, 20000))
		return 2;
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned long long x = (i * 2654435761u + n * 40503u) >> 5;
		int r;

		snprintf(key, sizeof(key), "k%llu", x % KEYS);
		if (x % 3 == 0) {
			r = shmstore_delete(s, KEY(key));
			if (r != 0 && r != -ENOENT)
				return 3;
			continue;
		}
		r = x % 2 ? put_pattern(s, key, x % LARGEST, i, SHMSTORE_REPLACE)
			  : seal_pattern(s, key, x % LARGEST, i, SHMSTORE_REPLACE);
		n_in += r == 0;
		if (r == 0 ? get_pattern(s, key, x % LARGEST, i) != 0
			   : r != -ENOSPC && r != -EDQUOT)
			return 4;
	}
	if (shmstore_close(s) != 0)
		return 5;
	return n_in ? 0 : 6;
}

static struct wire_credit *map_page(unsigned n, int *ret_fd)
{
	char name[16];
	void *map;
	int fd;

	snprintf(name, sizeof(name), "s%u", n);
	fd = open(scratch_store_path(name, WIRE_PAGE_FILE), O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	map = mmap(NULL, WIRE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	*ret_fd = fd;
	return (struct wire_credit *)(void *)((char *)map + WIRE_CREDIT_OFF);
}

enum limit {
	PARTITION,
	USER,
	LABEL
};

static struct one begin(unsigned n, enum limit limit, uint64_t hard)
{
	struct one o;
	int ready[2];
	char byte;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	o.pid = fork();
	cr_assert_geq(o.pid, 0);
	if (o.pid == 0)
		_exit(live(n, ready[1]));
	close(ready[1]);
	/* Open: before that the page may be the last owner's. */
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	o.c = map_page(n, &o.fd);
	atomic_store(limit == PARTITION ? &o.c->partition_hard
		     : limit == USER    ? &o.c->user_hard
					: &o.c->label_hard,
		     hard);
	atomic_store(&o.c->flags, limit == PARTITION ? 0 : WIRE_CREDIT_LAST);
	atomic_store(&o.c->credit, AHEAD);
	atomic_store(&o.c->epoch, 1);
	return o;
}

static int marker(void)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/.shmstore", scratch_partition_path());
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* A store that closes gave everything back before it lost its page. */
static bool closed(const struct one *o)
{
	struct stat st;

	cr_assert_eq(fstat(o->fd, &st), 0);
	return st.st_nlink == 0;
}

static int64_t named;

static int add_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	if (type == FTW_F && strcmp(path + at->base, WIRE_PAGE_FILE) != 0)
		named += st->st_blocks * INT64_C(512);
	return 0;
}

/* The memory that stores have a name for, besides their pages. */
static int64_t in_files(void)
{
	char path[600];

	named = 0;
	snprintf(path, sizeof(path), "%s/stores", scratch_partition_path());
	cr_assert_eq(nftw(path, add_file, 16, FTW_PHYS), 0);
	return named;
}

static void stop(const struct one *o)
{
	siginfo_t ended;

	if (!o->pid)
		return;
	kill(o->pid, SIGSTOP);
	waitid(P_PID, (id_t)o->pid, &ended, WSTOPPED | WEXITED | WNOWAIT);
}

/*
 * At one moment: what is used and what may still be charged. Nobody grants meanwhile (the lock, and
 * all are stopped, who have not got it). A put that is under way is charged and has no name yet.
 */
static int64_t sum(const struct one *all, enum limit limit)
{
	int64_t total;
	int fd = marker();

	cr_assert_eq(flock(fd, LOCK_EX), 0);
	for (size_t i = 0; i < STORES; i++)
		stop(&all[i]);
	total = limit == PARTITION ? (int64_t)used() : in_files();
	for (size_t i = 0; i < STORES; i++) {
		uint64_t charged = atomic_load(&all[i].c->charged),
			 granted = atomic_load(&all[i].c->granted);

		/* More than granted: about to be taken back. */
		if (all[i].pid && charged < granted && !closed(&all[i]))
			total += (int64_t)(granted - charged);
	}
	for (size_t i = 0; i < STORES; i++) {
		if (all[i].pid)
			kill(all[i].pid, SIGCONT);
	}
	close(fd);
	return total;
}

/* Reaps child i if it ended by itself. */
static bool ended(struct one *o)
{
	int status;

	if (!o->pid || waitpid(o->pid, &status, WNOHANG) != o->pid)
		return !o->pid;
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a store ended with %x",
		  (unsigned)status);
	o->pid = 0;
	return true;
}

/* Random lives of STORES stores, some of them killed and begun again: the sum never passes hard. */
static void race(enum limit limit, uint64_t hard, unsigned n_kills)
{
	/* Their own pages: nobody charges them, and the kernel counts them. */
	const int64_t bound = (int64_t)hard + STORES * WIRE_PAGE_SIZE;
	struct one all[STORES];
	int64_t most = 0;
	uint64_t n = 0;
	size_t running = STORES;

	for (unsigned i = 0; i < STORES; i++)
		all[i] = begin(i, limit, hard);
	while (running) {
		int64_t now = sum(all, limit);

		cr_assert_leq(now, bound, "%zd of %zd", (ssize_t)now, (ssize_t)bound);
		most = now > most ? now : most;
		running = 0;
		for (unsigned i = 0; i < STORES; i++)
			running += !ended(&all[i]);
		if (n_kills && ++n % 64 == 0) {
			unsigned i = n_kills-- % STORES;

			if (all[i].pid) {
				kill(all[i].pid, SIGKILL);
				waitpid(all[i].pid, NULL, 0);
				close(all[i].fd);
				all[i] = begin(i, limit, hard);
			}
		}
	}
	cr_assert_gt(most, (int64_t)hard / 2, "the limit was never near");
}

Test(alone, partition_limit_holds_among_racing_and_killed_stores, .timeout = 120)
{
	shmstore_partition_unref(scratch_partition());
	if (!scratch_is_mount())
		cr_skip_test("no file system of its own");
	race(PARTITION, used() + HARD, 20);
}

Test(alone, user_limit_holds_among_racing_stores, .timeout = 120)
{
	shmstore_partition_unref(scratch_partition());
	race(USER, HARD, 0);
}

/* ---- one store ---- */

static struct shmstore *limited(const char *name, const char *label, struct wire_credit **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	fake_nowhere();
	o.label = label;
	o.wait_ms = 50;
	cr_assert_eq(shmstore_open(p, name, &o, &s), 0);
	shmstore_partition_unref(p);
	*ret = &s->page->credit;
	atomic_store(&(*ret)->credit, 65536);
	return s;
}

Test(alone, no_limit_is_no_limit)
{
	struct wire_credit *c;
	struct shmstore *s = limited("a", NULL, &c);

	atomic_store(&c->epoch, 1);
	cr_assert_eq(put_pattern(s, "k", 10000000, 1, 0), 0);
	cr_assert_geq(atomic_load(&c->granted), atomic_load(&c->charged));
	shmstore_close(s);
}

Test(alone, label_limit_counts_its_own_only)
{
	struct wire_credit *a, *b, *c;
	struct shmstore *sa = limited("a", "x", &a), *sb = limited("b", "x", &b),
			*sc = limited("c", "y", &c);

	for (int i = 0; i < 3; i++) {
		struct wire_credit *k = i == 0 ? a : i == 1 ? b : c;

		atomic_store(&k->label_hard, 1000000);
		atomic_store(&k->label_base, 100000);
		atomic_store(&k->flags, WIRE_CREDIT_LAST);
		atomic_store(&k->epoch, 1);
	}
	cr_assert_eq(put_pattern(sa, "k", 700000, 1, 0), 0);
	cr_assert_eq(put_pattern(sb, "k", 700000, 1, 0), -EDQUOT);
	cr_assert_eq(put_pattern(sb, "k", 700000, 1, SHMSTORE_WAIT), -ETIMEDOUT);
	cr_assert_eq(put_pattern(sc, "k", 700000, 1, 0), 0);
	cr_assert_eq(shmstore_delete(sa, KEY("k")), 0);
	/* It is in a's pool, and cold, as it is far more than a sixteenth
	 * of the limit: b takes it. */
	cr_assert_eq(put_pattern(sb, "k", 700000, 1, 0), 0);
	cr_assert_eq(put_pattern(sa, "k", 700000, 1, 0), -EDQUOT);
	cr_assert_eq(put_pattern(sb, "l", 700000, 1, 0), -EDQUOT);
	shmstore_close(sa);
	shmstore_close(sb);
	shmstore_close(sc);
}

/* ---- a store that goes while another one has memory of its ---- */

enum end {
	CLOSES,
	DIES, /* and gc comes */
	IS_TAKEN_OVER
};

static struct shmstore *limited_to(const char *name, uint64_t hard)
{
	struct wire_credit *c;
	struct shmstore *s = limited(name, "x", &c);

	atomic_store(&c->user_hard, hard);
	atomic_store(&c->label_hard, hard);
	atomic_store(&c->flags, WIRE_CREDIT_LAST);
	atomic_store(&c->epoch, 1);
	return s;
}

/* Offers an object, and ends when it was taken. */
static int offer(enum end end, int out, int taken)
{
	struct shmstore *s = limited_to("a", 1000000);
	struct shmstore_ticket t;
	char byte;

	if (put_pattern(s, "k", 700000, 1, 0) != 0 ||
	    shmstore_handoff(s, KEY("k"), 60000, &t) != 0 ||
	    write(out, &t, sizeof(t)) != sizeof(t) || read(taken, &byte, 1) != 1)
		return 1;
	return end == CLOSES ? shmstore_close(s) != 0 : 0;
}

static void goes_while_another_has_its_object(enum end end)
{
	struct shmstore *b = limited_to("b", 1000000), *c = limited_to("c", 1000000);
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_ticket t;
	int out[2], taken[2], status;
	pid_t pid;

	cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(taken, O_CLOEXEC), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(offer(end, out[1], taken[0]));
	cr_assert_eq(read(out[0], &t, sizeof(t)), sizeof(t));
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(write(taken[1], "", 1), 1);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	if (end == DIES)
		cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	else if (end == IS_TAKEN_OVER)
		cr_assert_eq(shmstore_close(scratch_store("a")), 0);
	cr_assert_eq(put_pattern(c, "k", 700000, 1, 0), -EDQUOT, "of 1000000 bytes b has 700000");
	/* It comes off the sum once. */
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_eq(put_pattern(c, "k", 700000, 1, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(put_pattern(c, "l", 700000, 1, 0), -EDQUOT);
	shmstore_close(c);
	shmstore_partition_unref(p);
}

Test(alone, memory_that_outlives_a_closed_store_counts)
{
	goes_while_another_has_its_object(CLOSES);
}

Test(alone, memory_that_outlives_a_dead_store_counts)
{
	goes_while_another_has_its_object(DIES);
}

Test(alone, memory_that_outlives_a_store_that_is_taken_over_counts)
{
	goes_while_another_has_its_object(IS_TAKEN_OVER);
}

Test(alone, nothing_is_granted_while_a_daemon_lives)
{
	struct wire_credit *c;
	struct shmstore *s = limited("a", NULL, &c);
	int fd = marker();

	atomic_store(&c->partition_hard, 1ull << 40);
	atomic_store(&c->epoch, 1);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), -ENOSPC);
	cr_assert_eq(atomic_load(&c->granted), 0);
	close(fd);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	shmstore_close(s);
}

static void stale_socket(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = fake_start(p, false, NULL, NULL);
	char path[SCRATCH_PATH];

	/* A killed daemon leaves its socket. */
	snprintf(path, sizeof(path), "%s-killed", getenv("SHMSTORE_SOCKET"));
	cr_assert_eq(rename(getenv("SHMSTORE_SOCKET"), path), 0);
	fake_stop(f);
	setenv("SHMSTORE_SOCKET", path, 1);
	shmstore_partition_unref(p);
}

static struct shmstore *open_labelled(const char *name, const char *label)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	o.label = label;
	cr_assert_eq(shmstore_open(p, name, &o, &s), 0);
	shmstore_partition_unref(p);
	return s;
}

Test(alone, new_store_takes_the_limits_of_a_dead_daemon)
{
	struct wire_credit *c;
	struct shmstore *a = limited("a", "x", &c), *b, *other;

	atomic_store(&c->user_hard, 3000000);
	atomic_store(&c->label_hard, 1000000);
	atomic_store(&c->flags, WIRE_CREDIT_LAST);
	atomic_store(&c->epoch, 5);
	stale_socket();
	b = open_labelled("b", "x");
	other = open_labelled("c", "y");
	cr_assert_eq(put_pattern(a, "k", 700000, 1, 0), 0);
	cr_assert_eq(put_pattern(b, "k", 700000, 1, 0), -EDQUOT);
	cr_assert_eq(put_pattern(other, "k", 1500000, 1, 0), 0);
	cr_assert_eq(put_pattern(other, "l", 1500000, 1, 0), -EDQUOT);
	shmstore_close(a);
	cr_assert_eq(put_pattern(b, "k", 700000, 1, 0), 0);
	shmstore_close(b);
	shmstore_close(other);
}

Test(alone, new_store_has_no_limits_where_no_daemon_was)
{
	struct wire_credit *c;
	struct shmstore *a = limited("a", "x", &c), *b;

	stale_socket();
	b = open_labelled("b", "x");
	cr_assert_eq(atomic_load(&b->page->credit.epoch), 0);
	shmstore_close(a);
	shmstore_close(b);
}

/* ---- pages that lie ---- */

struct lie {
	uint64_t granted, charged, settled, fresh, last;
	bool seen; /* whatever the limits */
};

static const struct lie lies[] = {
	{UINT64_MAX, 0, 0, 0, 0, false},
	{0, UINT64_MAX - 1, 0, 0, 0, true},
	{1ull << 46, 1ull << 46, 0, 0, 0, false},
	{10, 10, 1000, 0, 0, true},
	{100, 100, 100, 1ull << 62, 0, true},
	{100, 100, 100, 101, 0, true},
	{0, 0, 0, INT64_MAX, 0, true},
	{0, 0, 0, 0, UINT64_MAX, true},
};

static void say(struct wire_credit *c, const struct lie *l)
{
	atomic_store(&c->granted, l->granted);
	atomic_store(&c->charged, l->charged);
	atomic_store(&c->settled, l->settled);
	atomic_store(&c->fresh, l->fresh);
	atomic_store(&c->last, l->last);
	atomic_store(&c->epoch, 1);
}

static int see_damage(const struct shmstore_verify_finding *f, void *arg)
{
	bool page = strstr(f->path, "/liar/" WIRE_PAGE_FILE) != NULL;

	cr_assert(f->error == 0 || (page && f->error == -EBADMSG), "%s: %s", f->path, f->reason);
	*(unsigned *)arg += f->error != 0;
	return 0;
}

static void put_beside(struct shmstore *s, struct wire_credit *c, enum limit limit,
		       const struct lie *l)
{
	static unsigned n;
	char key[16];

	atomic_store(&c->partition_hard, limit == PARTITION ? used() + 4 * HARD : 0);
	atomic_store(&c->user_hard, limit == USER ? 4 * HARD : 0);
	atomic_store(&c->label_hard, limit == LABEL ? 4 * HARD : 0);
	atomic_store(&c->flags, limit == PARTITION ? 0 : WIRE_CREDIT_LAST);
	atomic_store(&c->epoch, 1);
	snprintf(key, sizeof(key), "k%u", n++);
	/* More than was granted ahead. */
	cr_assert_eq(put_pattern(s, key, 200000, 1, 0), 0, "limit %d, lie %ld: %s", limit, l - lies,
		     shmstore_error_detail());
}

Test(alone, no_lie_refuses_others, .timeout = 120)
{
	struct wire_credit *c, *of_liar;
	struct shmstore *s = limited("honest", "x", &c), *liar = limited("liar", "x", &of_liar);

	if (!scratch_is_mount())
		cr_skip_test("no file system of its own");
	for (const struct lie *l = lies; l < lies + sizeof(lies) / sizeof(lies[0]); l++) {
		unsigned n = 0;

		for (enum limit limit = PARTITION; limit <= LABEL; limit++) {
			say(of_liar, l);
			put_beside(s, c, limit, l);
		}
		say(of_liar, l);
		cr_assert_eq(shmstore_partition_verify(scratch_partition(), see_damage, &n), 0);
		cr_assert_eq(n, l->seen, "lie %ld", l - lies);
	}
	shmstore_close(s);
	shmstore_close(liar);
}

Test(alone, new_store_takes_no_limits_of_the_time_to_come)
{
	struct wire_credit *c, *of_liar;
	struct shmstore *a = limited("a", "x", &c), *liar = limited("liar", "x", &of_liar), *b;

	atomic_store(&c->user_hard, 1ull << 40);
	atomic_store(&c->flags, WIRE_CREDIT_LAST);
	atomic_store(&c->epoch, 5);
	atomic_store(&of_liar->user_hard, 1);
	atomic_store(&of_liar->flags, WIRE_CREDIT_LAST);
	atomic_store(&of_liar->epoch, UINT64_MAX - 2);
	stale_socket();
	b = open_labelled("b", "x");
	cr_assert_eq(atomic_load(&b->page->credit.epoch), 5);
	cr_assert_eq(put_pattern(b, "k", 700000, 1, 0), 0, "%s", shmstore_error_detail());
	shmstore_close(a);
	shmstore_close(b);
	shmstore_close(liar);
}
