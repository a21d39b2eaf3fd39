/* SPDX-License-Identifier: Apache-2.0 */
/* bell.c: an eventfd, and an epoll instance of it and of the connection. */
#include "bell.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "sys.h"

void shms_bell_deinit(struct shms_bell *b)
{
	b->event_fd = shms_close_fd(b->event_fd);
	b->epoll_fd = shms_close_fd(b->epoll_fd);
}

void shms_bell_ring(const struct shms_bell *b)
{
	uint64_t one = 1;

	if (b->event_fd >= 0 && write(b->event_fd, &one, sizeof(one)) < 0)
		return; /* its count is at the maximum, so that it is readable */
}

void shms_bell_quiet(const struct shms_bell *b)
{
	uint64_t n;

	if (b->event_fd >= 0 && read(b->event_fd, &n, sizeof(n)) < 0)
		return; /* it was not rung */
}

static int make(struct shms_bell *b, int connection_fd)
{
	_fd_ int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	_fd_ int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event in = {.events = EPOLLIN};

	if (event_fd < 0 || epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &in) < 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection_fd, &in) < 0)
		return shms_error(errno);
	b->event_fd = shms_take_fd(&event_fd);
	b->epoll_fd = shms_take_fd(&epoll_fd);
	return 0;
}

int shms_bell_fd(struct shms_bell *b, int connection_fd, bool rung)
{
	int r;

	if (b->epoll_fd >= 0)
		return b->epoll_fd;
	r = make(b, connection_fd);
	if (r < 0)
		return r;
	if (rung)
		shms_bell_ring(b);
	return b->epoll_fd;
}
