/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handoff said that no object has the key, and one had it all the time. linkat() finds the file
 * of the old name first, and locks the new name's directory after that. Another process, as a
 * demotion does, gave the old name another file in between, and linkat() fails with ENOENT where
 * the file that it found has no name left. Here a reader of the new name's directory keeps that
 * locked: it stands still at the page that it writes to, until the file is exchanged.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "stalled.h"

#define SIZE (UINT64_C(4) << 20) /* a file, not packed */

struct scene {
	struct shmstore *donor, *receiver;
	struct shmstore_ticket ticket;
	struct stalled page;
	int (*call)(struct scene *c);
	int dir, r;
	_Atomic pid_t caller;
	pthread_t reader, thread;
};

static void *read_directory(void *arg)
{
	struct scene *c = arg;

	return syscall(SYS_getdents64, c->dir, c->page.page, STALLED_PAGE) > 0 ? c : NULL;
}

static void *call(void *arg)
{
	struct scene *c = arg;

	c->caller = (pid_t)syscall(SYS_gettid);
	c->r = c->call(c);
	return NULL;
}

/* Is the caller in linkat()? Then it has looked up the old name. */
static bool links(const struct scene *c)
{
	char path[64], text[16] = "", wanted[16];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)c->caller);
	snprintf(wanted, sizeof(wanted), "%d ", SYS_linkat);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	return strncmp(text, wanted, strlen(wanted)) == 0;
}

/* Another file of the same bytes takes the name of the donor's object. */
static void exchange_file(void)
{
	static unsigned char bytes[SIZE + 65536];
	const char *object = scratch_store_path("donor", "objects/k"),
		   *copy = scratch_store_path("donor", "copy");
	int from = open(object, O_RDONLY | O_CLOEXEC),
	    to = open(copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	ssize_t n = read(from, bytes, sizeof(bytes));

	cr_assert_gt(n, (ssize_t)SIZE);
	cr_assert_lt(n, (ssize_t)sizeof(bytes));
	cr_assert_eq(write(to, bytes, (size_t)n), n);
	close(from);
	close(to);
	cr_assert_eq(rename(copy, object), 0);
}

static int hand_off(struct scene *c)
{
	return shmstore_handoff(c->donor, KEY("k"), 60000, &c->ticket);
}

static int adopt(struct scene *c)
{
	return shmstore_adopt(c->receiver, KEY("k"), &c->ticket, 0);
}

/* The call, which links in that directory. */
static void call_amid_an_exchange(struct scene *c, const char *directory,
				  int (*fn)(struct scene *c))
{
	void *done;

	if (!stalled_init(&c->page))
		cr_skip_test("userfaultfd is not allowed");
	c->call = fn;
	c->caller = 0;
	c->dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(c->dir, 0);
	cr_assert_eq(pthread_create(&c->reader, NULL, read_directory, c), 0);
	stalled_await(&c->page);
	cr_assert_eq(pthread_create(&c->thread, NULL, call, c), 0);
	while (!c->caller || !links(c))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	exchange_file();
	stalled_let_go(&c->page);
	pthread_join(c->reader, &done);
	cr_assert_not_null(done);
	pthread_join(c->thread, NULL);
	close(c->dir);
	stalled_deinit(&c->page);
}

static struct scene begin(void)
{
	struct scene c = {.donor = scratch_plain_store("donor"),
			  .receiver = scratch_plain_store("receiver")};

	cr_assert_eq(put_pattern(c.donor, "k", SIZE, 1, 0), 0);
	return c;
}

static void end(const struct scene *c)
{
	cr_assert_eq(get_pattern(c->receiver, "k", SIZE, 1), 0);
	cr_assert_eq(inode_of("receiver", "k"), inode_of("donor", "k"));
	cr_assert_eq(shmstore_close(c->donor), 0);
	cr_assert_eq(shmstore_close(c->receiver), 0);
	ensure_nothing_left();
}

Test(link_exchanged, a_handoff_finds_the_object, .timeout = 60)
{
	struct scene c = begin();

	call_amid_an_exchange(&c, scratch_store_path("donor", "handoff"), hand_off);
	cr_assert_eq(c.r, 0, "%d: %s", c.r, shmstore_strerror(c.r));
	cr_assert_eq(adopt(&c), 0);
	end(&c);
}

Test(link_exchanged, an_adoption_by_path_finds_the_object, .timeout = 60)
{
	struct scene c = begin();

	cr_assert_eq(hand_off(&c), 0);
	cr_assert_eq(unlink(c.ticket.path), 0);
	snprintf(c.ticket.path, sizeof(c.ticket.path), "%s",
		 scratch_store_path("donor", "objects/k"));
	call_amid_an_exchange(&c, scratch_store_path("receiver", "objects"), adopt);
	cr_assert_eq(c.r, 0, "%d: %s", c.r, shmstore_strerror(c.r));
	end(&c);
}
