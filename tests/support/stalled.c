/* SPDX-License-Identifier: Apache-2.0 */
/* stalled.c: see stalled.h. */
#include "stalled.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

bool stalled_init(struct stalled *s)
{
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_api api = {.api = UFFD_API};

	s->faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (s->faults < 0)
		return false;
	s->page = mmap(NULL, STALLED_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	range.range = (struct uffdio_range){(uintptr_t)s->page, STALLED_PAGE};
	if (s->page == MAP_FAILED || ioctl(s->faults, UFFDIO_API, &api) < 0 ||
	    ioctl(s->faults, UFFDIO_REGISTER, &range) < 0)
		abort();
	return true;
}

void stalled_await(const struct stalled *s)
{
	struct uffd_msg message;

	if (read(s->faults, &message, sizeof(message)) != (ssize_t)sizeof(message))
		abort();
}

void stalled_let_go(const struct stalled *s)
{
	struct uffdio_zeropage zero = {.range = {(uintptr_t)s->page, STALLED_PAGE}};

	if (ioctl(s->faults, UFFDIO_ZEROPAGE, &zero) < 0)
		abort();
}

void stalled_deinit(struct stalled *s)
{
	munmap(s->page, STALLED_PAGE);
	close(s->faults);
}
