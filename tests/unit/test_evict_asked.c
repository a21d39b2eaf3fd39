/* SPDX-License-Identifier: Apache-2.0 */
/* Packed objects of a live store give way to others' puts, since its process is asked for them and
 * makes a call, or is the one that asks. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "crowded.h"
#include "handle.h"
#include "packgive.h"
#include "scratch.h"
#include "tiered.h"

#define SIZE (48u << 10)
#define MOST ((unsigned)(CROWDED_OF * MIB / SIZE))

TestSuite(evict_asked, .timeout = 120);

static const char *key_of(unsigned i)
{
	static char text[16];

	snprintf(text, sizeof(text), "k%u", i);
	return text;
}

static struct shmstore *open_store(const char *name)
{
	return packing_store(name, 256u << 10, false);
}

/* Another process, whose store fills the partition with packed objects. It makes one call
 * for each byte that comes. */
struct owner {
	pid_t pid;
	int to, from;
};

/* 'g': a get; 'b': one after the other, until the next command comes; 'd': deletes half of its
 * objects; 'c': every object has its bytes. */
static int obey(struct shmstore *s, char command, unsigned n, int from)
{
	struct pollfd next = {.fd = from, .events = POLLIN};
	int r = 0;

	if (command == 'g')
		r = get_pattern(s, key_of(0), SIZE, 0);
	while (command == 'b' && r == 0 && poll(&next, 1, 0) == 0)
		r = get_pattern(s, key_of(0), SIZE, 0);
	for (unsigned i = 1; command == 'd' && r == 0 && i < n; i += 2)
		r = shmstore_delete(s, key_of(i), strlen(key_of(i)));
	for (unsigned i = 0; command == 'c' && r == 0 && i < n; i++)
		r = get_pattern(s, key_of(i), SIZE, i);
	return r;
}

static void own(int from, int to)
{
	struct shmstore *s = open_store("owner");
	unsigned n = 0;
	char command;
	int r;

	while (put_pattern(s, key_of(n), SIZE, n, SHMSTORE_NO_EVICT) == 0)
		n++;
	r = n > MOST / 2 ? 0 : -1;
	while (write(to, &r, sizeof(r)) == sizeof(r) && read(from, &command, 1) == 1)
		r = obey(s, command, n, from);
	_exit(shmstore_close(s) == 0 ? 0 : 1);
}

static int answer(const struct owner *o)
{
	int r;

	cr_assert_eq(read(o->from, &r, sizeof(r)), sizeof(r));
	return r;
}

static void tell(const struct owner *o, char command)
{
	cr_assert_eq(write(o->to, &command, 1), 1);
}

static struct owner owner_start(void)
{
	struct owner o;
	int to[2], from[2];

	cr_assert_eq(pipe(to) + pipe(from), 0);
	o.pid = fork();
	if (o.pid == 0) {
		close(to[1]);
		close(from[0]);
		own(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	o.to = to[1];
	o.from = from[0];
	cr_assert_eq(answer(&o), 0);
	return o;
}

static void owner_end(const struct owner *o)
{
	int status;

	tell(o, 'c');
	cr_assert_eq(answer(o), 0);
	close(o->to);
	cr_assert_eq(waitpid(o->pid, &status, 0), o->pid);
	cr_assert_eq(status, 0);
	close(o->from);
}

/* The partition, full of the owner's objects, and another store that has none. */
static struct owner begin(bool tier, struct shmstore **ret)
{
	scratch_dir("size=64m");
	if (!scratch_is_mount() || !tiered_disk())
		cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n");
	cr_assert(!tier || tiered_begin(NULL));
	*ret = open_store("other");
	return owner_start();
}

static void end(const struct owner *o, struct shmstore *s)
{
	cr_assert_eq(shmstore_close(s), 0);
	owner_end(o);
	ensure_nothing_left();
}

#define TRIES 100 /* on a busy host its process may have to wait for a processor */

static void put(struct shmstore *s, unsigned i)
{
	int r = -ENOSPC;

	for (unsigned k = 0; k < TRIES && r == -ENOSPC; k++)
		r = put_pattern(s, key_of(i), SIZE, 1000 + i, 0);
	cr_assert_eq(r, 0, "%u: %s %s", i, shmstore_strerror(r), shmstore_error_detail());
}

Test(evict_asked, one_that_makes_calls_gives_to_a_put)
{
	struct shmstore *s;
	struct owner o = begin(true, &s);

	tell(&o, 'b');
	for (unsigned i = 0; i < MOST / 2; i++)
		put(s, i);
	tell(&o, 'g');
	cr_assert_eq(answer(&o), 0);
	cr_assert_eq(answer(&o), 0);
	for (unsigned i = 0; i < MOST / 2; i++)
		cr_assert_eq(get_pattern(s, key_of(i), SIZE, 1000 + i), 0, "%u", i);
	cr_assert_gt(tiered_count_files(), (int)MOST / 4);
	ensure_books_close();
	end(&o, s);
	ensure_tier_empty();
}

Test(evict_asked, one_that_makes_calls_gives_to_an_eviction)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_partition *p;
	uint64_t before;
	struct shmstore *s;
	struct owner o = begin(true, &s);
	int r = -ENOSPC;

	p = scratch_partition();
	before = crowded_used();
	tell(&o, 'b');
	what.bytes = 2 * MIB;
	for (unsigned k = 0; k < TRIES && r == -ENOSPC; k++)
		r = shmstore_partition_evict(p, &what, NULL);
	cr_assert_eq(r, 1, "%s", shmstore_error_detail());
	tell(&o, 'g');
	cr_assert_eq(answer(&o), 0);
	cr_assert_eq(answer(&o), 0);
	/* The one that is got may have gone, and come back as a file. */
	cr_assert_leq(crowded_used() + what.bytes, before + 2 * SIZE);
	shmstore_partition_unref(p);
	end(&o, s);
	ensure_tier_empty();
}

Test(evict_asked, a_silent_one_gives_with_its_next_call)
{
	struct shmstore *s;
	struct owner o = begin(true, &s);

	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(put_pattern(s, "x", SIZE, 7, 0), -ENOSPC);
	cr_assert_eq(tiered_count_files(), 0);
	tell(&o, 'g');
	cr_assert_eq(answer(&o), 0);
	cr_assert_gt(tiered_count_files(), 0);
	cr_assert_eq(put_pattern(s, "x", SIZE, 7, 0), 0);
	end(&o, s);
	ensure_tier_empty();
}

Test(evict_asked, without_a_tier_the_pool_is_given)
{
	struct shmstore *s;
	struct owner o = begin(false, &s);

	cr_assert_eq(put_pattern(s, "x", SIZE, 7, 0), -ENOSPC);
	tell(&o, 'g');
	cr_assert_eq(answer(&o), 0);
	cr_assert_eq(put_pattern(s, "x", SIZE, 7, 0), -ENOSPC, "it has no pool");
	tell(&o, 'd');
	cr_assert_eq(answer(&o), 0);
	cr_assert_eq(put_pattern(s, "x", SIZE, 7, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	close(o.to);
	cr_assert_eq(waitpid(o.pid, NULL, 0), o.pid);
	ensure_nothing_left();
}

/* A store of this process that has nearly all of the partition. Returns how many objects. */
static unsigned fill(struct shmstore *s)
{
	unsigned n = 0;

	while (put_pattern(s, key_of(n), SIZE, n, SHMSTORE_NO_EVICT) == 0)
		n++;
	cr_assert_gt(n, MOST / 2);
	return n;
}

static struct shmstore *begin_alone(void)
{
	scratch_dir("size=64m");
	if (!scratch_is_mount() || !tiered_begin(NULL))
		cr_skip_test("needs a tmpfs of its own (root) and a directory on disk\n");
	return open_store("full");
}

/* Nobody else makes a call: it moves what the eviction wants by itself. */
Test(evict_asked, own_process_gives_to_its_eviction)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore *s = begin_alone();
	struct shmstore_partition *p = scratch_partition();
	unsigned n = fill(s);
	uint64_t before = crowded_used();

	what.bytes = 16 * MIB;
	cr_assert_eq(shmstore_partition_evict(p, &what, NULL), 1, "%s", shmstore_error_detail());
	cr_assert_leq(crowded_used() + what.bytes, before);
	cr_assert_geq(tiered_count_files(), (int)(what.bytes / 2 / SIZE),
		      "its pool was not that much");
	for (unsigned i = 0; i < n; i += 17)
		cr_assert_eq(get_pattern(s, key_of(i), SIZE, i), 0, "%u", i);
	ensure_books_close();
	shmstore_partition_unref(p);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(evict_asked, own_process_gives_to_another_store)
{
	struct shmstore *s = begin_alone(), *other = open_store("other");
	unsigned n = fill(s);

	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(put_pattern(other, key_of(i), SIZE, 1000 + i, 0), 0, "%u: %s", i,
			     shmstore_error_detail());
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(get_pattern(other, key_of(i), SIZE, 1000 + i), 0);
	for (unsigned i = 0; i < n; i += 17)
		cr_assert_eq(get_pattern(s, key_of(i), SIZE, i), 0, "%u", i);
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

#define ROUNDS 30

static void *evict_again_and_again(void *arg)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_partition *p = scratch_partition();
	_Atomic bool *over = arg;

	what.bytes = MIB;
	while (!atomic_load(over))
		(void)shmstore_partition_evict(p, &what, NULL);
	shmstore_partition_unref(p);
	return NULL;
}

/* A store may be closed while another thread has it give. */
Test(evict_asked, closed_while_it_gives)
{
	struct shmstore *s = begin_alone();
	_Atomic bool over = false;
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, evict_again_and_again, &over), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < 100; i++)
			cr_assert_eq(put_pattern(s, key_of(i), SIZE, i, 0), 0);
		for (unsigned i = 0; i < 100; i += 7)
			cr_assert_eq(get_pattern(s, key_of(i), SIZE, i), 0);
		cr_assert_eq(shmstore_close(s), 0);
		s = open_store("full");
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* A store that says to have more than all others, and never answers: its
 * page is written all the time. */
static pid_t liar_start(const char *name)
{
	int pipes[2], ready;
	pid_t pid;
	char byte;

	cr_assert_eq(pipe(pipes), 0);
	ready = pipes[1];
	pid = fork_bound(100);
	if (pid == 0) {
		struct shmstore *s = open_store(name);
		struct wire_packed *packed = &s->page->packed;

		if (write(ready, "", 1) != 1)
			_exit(1);
		for (;;) {
			atomic_store(&packed->bytes, UINT64_MAX / 2);
			atomic_store(&packed->wanted, 0);
			usleep(1000);
		}
	}
	close(ready);
	cr_assert_eq(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	return pid;
}

static uint64_t wanted_of_owner(void)
{
	int dir = open(scratch_store_path("owner", ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct shms_page page;

	cr_assert_eq(shms_page_read(dir, &page), 0);
	close(dir);
	return atomic_load(&page.packed.wanted);
}

Test(evict_asked, one_that_lies_keeps_nobody_from_being_asked)
{
	struct shms_packask k;
	struct shmstore *s;
	struct owner o;
	pid_t liars[2];

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("needs a tmpfs of its own (root)\n");
	/* The directory is read from one end or the other. */
	liars[0] = liar_start("liar");
	cr_assert_eq(mkdir(scratch_store_path("owner", ""), 0700), 0);
	s = open_store("other");
	liars[1] = liar_start("one more");
	o = owner_start();
	for (int i = 0; i < 2; i++) {
		shms_packask_begin(scratch_partition(), geteuid(), s->dir_inode, MIB, &k);
		cr_assert_gt(wanted_of_owner(), MIB / 2);
		(void)shms_packask_end(&k, MIB);
		tell(&o, 'g');
		cr_assert_eq(answer(&o), 0);
		kill(liars[i], SIGKILL);
		cr_assert_eq(waitpid(liars[i], NULL, 0), liars[i]);
	}
	cr_assert_eq(shmstore_close(s), 0);
	owner_end(&o);
}
