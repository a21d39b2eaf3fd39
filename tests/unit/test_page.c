/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a store: what is read back, what is refused, and who is alive. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page.h"
#include "scratch.h"
#include "sys.h"

static int store_dir(void)
{
	int fd = open(scratch_dir(NULL), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

static void write_page(int dirfd, const void *page, size_t size)
{
	int fd;

	unlinkat(dirfd, SHMS_PAGE_FILE, 0);
	fd = openat(dirfd, SHMS_PAGE_FILE, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, page, size), (ssize_t)size);
	close(fd);
}

Test(page, filled_page_is_read_back)
{
	struct shms_page page = {0}, back;
	int dirfd = store_dir();
	uint8_t boot[16];

	shms_page_fill(&page, "a name", "a label", true);
	write_page(dirfd, &page, sizeof(page));
	cr_assert_eq(shms_page_read(dirfd, &back), 0);
	cr_assert_eq(memcmp(&page, &back, sizeof(page)), 0);
	cr_assert_str_eq(back.name, "a name");
	cr_assert_str_eq(back.label, "a label");
	cr_assert_str_eq(back.address, "");
	cr_assert_eq(back.pid, (uint32_t)getpid());
	cr_assert_eq(back.uid, geteuid());
	cr_assert_eq(back.flags, SHMS_PAGE_KEEP);
	cr_assert_neq(back.start_time, 0);
	shms_boot_id(boot);
	cr_assert_eq(memcmp(back.boot_id, boot, 16), 0);
	shms_page_fill(&page, "a name", NULL, false);
	cr_assert_eq(page.flags, 0);
	cr_assert_str_eq(page.label, "");
	close(dirfd);
}

Test(page, longest_names_stay_terminated)
{
	struct shms_page page = {0};
	char name[600];

	memset(name, 'n', sizeof(name));
	name[599] = '\0';
	shms_page_fill(&page, name, name, false);
	cr_assert_eq(strlen(page.name), sizeof(page.name) - 1);
	cr_assert_eq(strlen(page.label), sizeof(page.label) - 1);
}

Test(page, damage_is_told)
{
	struct shms_page page = {0}, bad, back;
	int dirfd = store_dir();

	cr_assert_eq(shms_page_read(dirfd, &back), -ENOENT);
	shms_page_fill(&page, "x", "y", false);
	for (size_t n = 0; n < sizeof(page); n += 101) {
		write_page(dirfd, &page, n);
		cr_assert_eq(shms_page_read(dirfd, &back), -EBADMSG, "%zu bytes", n);
	}
#define DAMAGE(statement, error)                                               \
	do {                                                                   \
		bad = page;                                                    \
		statement;                                                     \
		write_page(dirfd, &bad, sizeof(bad));                          \
		cr_assert_eq(shms_page_read(dirfd, &back), error, #statement); \
	} while (0)
	DAMAGE(bad.magic[0] ^= 1, -EBADMSG);
	DAMAGE(bad.version = 2, -ENOTSUP);
	DAMAGE(bad.size = 8192, -EBADMSG);
	DAMAGE(memset(bad.name, 'x', sizeof(bad.name)), -EBADMSG);
	DAMAGE(memset(bad.label, 'x', sizeof(bad.label)), -EBADMSG);
	DAMAGE(memset(bad.address, 'x', sizeof(bad.address)), -EBADMSG);
	DAMAGE((void)0, 0);
#undef DAMAGE
	close(dirfd);
}

Test(page, symlink_fifo_and_directory_are_refused_without_waiting, .timeout = 10)
{
	struct shms_page page = {0}, back;
	int dirfd = store_dir();

	shms_page_fill(&page, "x", "y", false);
	write_page(dirfd, &page, sizeof(page));
	cr_assert_eq(renameat(dirfd, SHMS_PAGE_FILE, dirfd, "elsewhere"), 0);
	cr_assert_eq(symlinkat("elsewhere", dirfd, SHMS_PAGE_FILE), 0);
	cr_assert_lt(shms_page_read(dirfd, &back), 0);
	cr_assert_eq(unlinkat(dirfd, SHMS_PAGE_FILE, 0), 0);
	cr_assert_eq(mkfifoat(dirfd, SHMS_PAGE_FILE, 0600), 0);
	cr_assert_lt(shms_page_read(dirfd, &back), 0);
	cr_assert_eq(unlinkat(dirfd, SHMS_PAGE_FILE, 0), 0);
	cr_assert_eq(mkdirat(dirfd, SHMS_PAGE_FILE, 0700), 0);
	cr_assert_lt(shms_page_read(dirfd, &back), 0);
	close(dirfd);
}

static struct shms_page_moved moved_of(int dirfd, const char *name)
{
	struct shms_page_moved moved;
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(pread(fd, &moved, sizeof(moved), offsetof(struct shms_page, moved)),
		     (ssize_t)sizeof(moved));
	close(fd);
	return moved;
}

/* A user who makes another file's name a page would have root write into that file. */
Test(page, others_write_only_into_a_page_that_has_one_name)
{
	struct shms_page_moved after;
	struct shms_page page = {0};
	int dirfd = store_dir();

	shms_page_fill(&page, "x", "y", false);
	write_page(dirfd, &page, sizeof(page));
	shms_page_pool_taken(dirfd, 2, 8192);
	shms_page_exposed(dirfd, ".");
	after = moved_of(dirfd, SHMS_PAGE_FILE);
	cr_assert(after.pool_n == 2 && after.pool_bytes == 8192);
	cr_assert(after.exposed == 1);

	write_page(dirfd, &page, sizeof(page));
	cr_assert_eq(linkat(dirfd, SHMS_PAGE_FILE, dirfd, "victim", 0), 0);
	shms_page_pool_taken(dirfd, 2, 8192);
	shms_page_exposed(dirfd, ".");
	after = moved_of(dirfd, "victim");
	cr_assert(after.pool_n == 0 && after.pool_bytes == 0);
	cr_assert(after.exposed == 0);
	cr_assert_eq(unlinkat(dirfd, "victim", 0), 0);
	close(dirfd);
}

Test(page, counters_are_the_ledgers_in_order)
{
	static struct shms_page page;
	struct shms_ledger *ledger = &page.ledger;
	struct shmstore_counters c;
	_Atomic uint64_t *all = (_Atomic uint64_t *)ledger;

	for (size_t i = 0; i < sizeof(*ledger) / 8; i++)
		all[i] = 1000 + i;
	shms_page_counters(&page, &c);
	cr_assert_eq(c.put_n, 1000);
	cr_assert_eq(c.put_bytes, 1001);
	cr_assert_eq(c.recycled_n, ledger->recycled_n);
	cr_assert_eq(c.linked_bytes, ledger->linked_bytes);
	cr_assert_eq(c.mapped_n, ledger->mapped_n);
	cr_assert_eq(c.pool_bytes_max, ledger->pool_bytes_max);
	cr_assert_eq(c.enospc_n, ledger->enospc_n);
	/* Bytes that others moved to the tier take no memory here; moved back they do again. */
	page.moved.bytes = 20;
	cr_assert_eq(shms_page_linked(&page), ledger->linked_bytes - 20);
	page.moved.bytes = (uint64_t)-20;
	cr_assert_eq(shms_page_linked(&page), ledger->linked_bytes + 20);
	page.moved.bytes = 1000000;
	cr_assert_eq(shms_page_linked(&page), 0);
}

/* ---- liveness -------------------------------------------------------------------------------- */

/* A child that locks the page, says so, and lives until it is killed. */
static pid_t start_owner(int dirfd)
{
	int say[2];
	char c;
	pid_t pid;

	cr_assert_eq(pipe(say), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		int fd = openat(dirfd, SHMS_PAGE_FILE, O_RDWR | O_CLOEXEC);

		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(say[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(say[1]);
	cr_assert_eq(read(say[0], &c, 1), 1);
	close(say[0]);
	return pid;
}

static bool is_dead(void *dirfd)
{
	return shms_page_alive(*(int *)dirfd) == SHMSTORE_DEAD;
}

Test(page, lock_is_the_owners_life, .timeout = 20)
{
	struct shms_page page = {0};
	int dirfd = store_dir(), fd;
	pid_t pid;

	cr_assert_eq(shms_page_alive(dirfd), -ENOENT);
	cr_assert_eq(shms_page_lock(dirfd), -ENOENT);
	shms_page_fill(&page, "x", NULL, false);
	write_page(dirfd, &page, sizeof(page));
	cr_assert_eq(shms_page_alive(dirfd), SHMSTORE_DEAD);
	pid = start_owner(dirfd);
	cr_assert_eq(shms_page_alive(dirfd), SHMSTORE_ALIVE);
	cr_assert_eq(shms_page_lock(dirfd), -EBUSY);
	cr_assert_eq(shms_page_alive(dirfd), SHMSTORE_ALIVE, "probing takes nothing away");
	kill(pid, SIGKILL);
	/* Not waited for yet: a zombie holds no lock. */
	cr_assert(wait_until(is_dead, &dirfd, 5000));
	fd = shms_page_lock(dirfd);
	cr_assert_geq(fd, 0);
	cr_assert_eq(shms_page_alive(dirfd), SHMSTORE_ALIVE);
	cr_assert_eq(shms_page_lock(dirfd), -EBUSY);
	close(fd);
	cr_assert_eq(shms_page_alive(dirfd), SHMSTORE_DEAD);
	waitpid(pid, NULL, 0);
	close(dirfd);
}

static int probe_for_ever(void *arg)
{
	for (;;)
		shms_page_alive(*(int *)arg);
	return 0;
}

Test(page, lock_is_had_while_others_only_probe, .timeout = 60)
{
	struct shms_page page = {0};
	int dirfd = store_dir();
	pid_t pid;

	shms_page_fill(&page, "x", NULL, false);
	write_page(dirfd, &page, sizeof(page));
	pid = fork();
	if (pid == 0)
		_exit(probe_for_ever(&dirfd));
	for (int i = 0; i < 300; i++) {
		int fd = shms_page_lock(dirfd);

		if (fd < 0)
			kill(pid, SIGKILL);
		cr_assert_geq(fd, 0, "round %d: %d", i, fd);
		close(fd);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(dirfd);
}
