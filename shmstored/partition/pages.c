/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c: a reserved range of addresses, a slot of one page for each
 * store, and the handler of SIGBUS.
 *
 * The range costs nothing until it is used. A slot is free, or holds a mapping; the free ones are a
 * stack. The handler does what is allowed to one: it looks at constants and atomics, and calls
 * mmap. Any other SIGBUS ends us as it would have.
 *
 * Rejected: pread() of each page at each tick (256 system calls a second, and no credit without a
 * mapping); a seal against cutting (files with a name cannot be sealed).
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "member.h"
#include "wire.h"

#define SLOTS 65536u

static struct {
	char *base;
	/* from a slot to the next: a page of the host, which may be larger than a store's */
	size_t step;
	uint32_t *given_back; /* slots, a stack */
	uint32_t n_given_back;
	uint32_t n_taken;      /* ever: above them nothing was used yet */
	_Atomic uint8_t *lost; /* by slot; written by the handler */
	struct sigaction before;
} pages;

static void on_sigbus(int signal, siginfo_t *info, void *context)
{
	char *at = info->si_addr;
	size_t slot;

	(void)context;
	if (at >= pages.base && at < pages.base + SLOTS * pages.step) {
		slot = (size_t)(at - pages.base) / pages.step;
		atomic_store_explicit(&pages.lost[slot], 1, memory_order_relaxed);
		if (mmap(pages.base + slot * pages.step, pages.step, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
			return;
	}
	sigaction(signal, &pages.before, NULL); /* the access is tried again, and ends us */
}

int pages_init(void)
{
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

	if (pages.base)
		return 0;
	pages.step = (size_t)sysconf(_SC_PAGESIZE);
	pages.given_back = calloc(SLOTS, sizeof(*pages.given_back));
	pages.lost = calloc(SLOTS, sizeof(*pages.lost));
	pages.base = mmap(NULL, SLOTS * pages.step, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages.base == MAP_FAILED)
		pages.base = NULL;
	if (!pages.given_back || !pages.lost || !pages.base) {
		pages_deinit();
		return -ENOMEM;
	}
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, &pages.before) < 0)
		return -errno;
	return 0;
}

void pages_deinit(void)
{
	if (pages.base) {
		sigaction(SIGBUS, &pages.before, NULL);
		munmap(pages.base, SLOTS * pages.step);
	}
	free(pages.given_back);
	free(pages.lost);
	memset(&pages, 0, sizeof(pages));
}

static size_t slot_of(const void *page)
{
	const char *at = page;

	assert(at >= pages.base && at < pages.base + SLOTS * pages.step);
	return (size_t)(at - pages.base) / pages.step;
}

int pages_map(int fd, bool write, void **ret)
{
	size_t slot;
	char *at;

	assert(pages.base);
	if (!pages.n_given_back && pages.n_taken == SLOTS)
		return -EMFILE;
	slot = pages.n_given_back ? pages.given_back[pages.n_given_back - 1] : pages.n_taken;
	at = pages.base + slot * pages.step;
	if (mmap(at, pages.step, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED)
		return -errno;
	if (pages.n_given_back)
		pages.n_given_back--;
	else
		pages.n_taken++;
	atomic_store_explicit(&pages.lost[slot], 0, memory_order_relaxed);
	*ret = at;
	return 0;
}

void pages_unmap(void *page)
{
	if (!page)
		return;
	/* Reserved again, not unmapped: nothing else may come to lie in between. */
	if (mmap(page, pages.step, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return; /* no memory for a mapping: the slot is not used again */
	pages.given_back[pages.n_given_back++] = (uint32_t)slot_of(page);
}

bool pages_lost(const void *page)
{
	return atomic_load_explicit(&pages.lost[slot_of(page)], memory_order_relaxed);
}

/* ---- what a page says ------------------------------------------------------------------------ */

int pages_open(const char *store)
{
	char path[WIRE_PATH_MAX + sizeof(WIRE_PAGE_FILE) + 2];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", store, WIRE_PAGE_FILE);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

int pages_read_head(int fd, struct page_head *ret)
{
	struct page_head head;
	ssize_t n = pread(fd, &head, sizeof(head), 0);

	if (n < 0)
		return -errno;
	if (n != sizeof(head) || memcmp(head.magic, PAGE_MAGIC, sizeof(head.magic)) != 0)
		return -EBADMSG;
	if (head.version != PAGE_VERSION)
		return -ENOTSUP;
	if (head.size != WIRE_PAGE_SIZE || !ends(head.name, sizeof(head.name)) ||
	    !ends(head.label, sizeof(head.label)) || !ends(head.address, sizeof(head.address)))
		return -EBADMSG;
	*ret = head;
	return 0;
}
