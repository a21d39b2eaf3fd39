/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped pages of others: what is read of them, and that cutting the file is not our end. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"
#include "member.h"
#include "page.h"

/* The daemon's picture of a page is the library's. */
_Static_assert(offsetof(struct page_head, boot_id) == offsetof(struct shms_page, boot_id),
	       "boot_id");
_Static_assert(offsetof(struct page_head, start_time) == offsetof(struct shms_page, start_time),
	       "start_time");
_Static_assert(offsetof(struct page_head, address) == offsetof(struct shms_page, address),
	       "address");
_Static_assert(sizeof(struct page_head) == offsetof(struct shms_page, leases_with), "head");
_Static_assert(PAGE_VERSION == SHMS_PAGE_VERSION && PAGE_KEEP == SHMS_PAGE_KEEP, "page");
_Static_assert(WIRE_PAGE_SIZE == SHMS_PAGE_SIZE, "page");

static int a_file(size_t size)
{
	int fd = memfd_create("page", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static volatile char *volatile_page(void *page)
{
	return page;
}

Test(pages, head_is_what_the_library_wrote)
{
	struct shmstore *s = scratch_store("a");
	struct page_head head;
	int fd;

	cr_assert_eq(shmstore_set_address(s, "tcp://1.2.3.4:5"), 0);
	fd = open(scratch_store_path("a", ".store"), O_RDONLY);
	cr_assert_eq(pages_read_head(fd, &head), 0);
	cr_assert_str_eq(head.name, "a");
	cr_assert_str_eq(head.address, "tcp://1.2.3.4:5");
	cr_assert_eq(head.pid, (uint32_t)getpid());
	cr_assert_eq(head.flags, 0);
	close(fd);
	shmstore_close(s);
}

static int read_changed(size_t offset, const void *bytes, size_t n)
{
	struct page_head head;
	struct shms_page page = {0};
	int fd = a_file(0), r;

	shms_page_fill(&page, "name", "label", false);
	memcpy((char *)&page + offset, bytes, n);
	cr_assert_eq(write(fd, &page, sizeof(page)), sizeof(page));
	r = pages_read_head(fd, &head);
	close(fd);
	return r;
}

Test(pages, wrong_heads_are_refused)
{
	char full[256];
	uint32_t two = 2;
	int fd = a_file(100);
	struct page_head head;

	memset(full, 'x', sizeof(full));
	cr_assert_eq(read_changed(offsetof(struct page_head, magic), "SHMSTORE", 8), 0);
	cr_assert_eq(read_changed(offsetof(struct page_head, magic), "SHMSTORX", 8), -EBADMSG);
	cr_assert_eq(read_changed(offsetof(struct page_head, version), &two, 4), -ENOTSUP);
	cr_assert_eq(read_changed(offsetof(struct page_head, size), &two, 4), -EBADMSG);
	cr_assert_eq(read_changed(offsetof(struct page_head, name), full, 256), -EBADMSG);
	cr_assert_eq(read_changed(offsetof(struct page_head, label), full, 128), -EBADMSG);
	cr_assert_eq(read_changed(offsetof(struct page_head, address), full, 256), -EBADMSG);
	cr_assert_eq(pages_read_head(fd, &head), -EBADMSG, "too short");
	close(fd);
}

Test(pages, a_cut_file_is_lost_and_ends_nobody)
{
	int fd = a_file(WIRE_PAGE_SIZE), other_fd = a_file(WIRE_PAGE_SIZE);
	void *page, *other;

	cr_assert_eq(pages_init(), 0);
	cr_assert_eq(pages_map(fd, true, &page), 0);
	cr_assert_eq(pages_map(other_fd, true, &other), 0);
	volatile_page(page)[2048] = 'x';
	volatile_page(other)[2048] = 'y';
	cr_assert_not(pages_lost(page));
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(volatile_page(page)[2048], 0);
	volatile_page(page)[2560] = 1;
	cr_assert(pages_lost(page));
	cr_assert_not(pages_lost(other));
	cr_assert_eq(volatile_page(other)[2048], 'y');
	pages_unmap(page);
	pages_unmap(other);
	/* A slot that was lost is a good one again. */
	cr_assert_eq(ftruncate(fd, WIRE_PAGE_SIZE), 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(pages_map(fd, false, &page), 0);
		cr_assert_not(pages_lost(page));
	}
	close(fd);
	close(other_fd);
	pages_deinit();
}

static int fault_elsewhere(void *arg)
{
	int fd = a_file(4096);
	volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	(void)arg;
	signal(SIGBUS, SIG_DFL); /* a sanitizer has its own */
	if (pages_init() < 0 || map == MAP_FAILED || ftruncate(fd, 0) < 0)
		return 1;
	return map[0];
}

Test(pages, another_fault_ends_us_as_ever)
{
	cr_assert_eq(in_child(fault_elsewhere, NULL), 1000 + SIGBUS);
}
