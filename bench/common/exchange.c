/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c: the pair of processes. The child has nothing of its own but what begin() makes; it
 * leaves on end of file or with the parent's death. Both ends block: a spinning one would starve
 * the other, they share a CPU.
 */
#include "exchange.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int send_message(int sock, const void *message, size_t size, int fd)
{
	struct iovec iov = {(void *)(uintptr_t)message, size};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	while (sendmsg(sock, &m, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static ssize_t receive_message(int sock, void *message, size_t size, int *ret_fd)
{
	struct iovec iov = {message, size};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t n;

	*ret_fd = -1;
	m.msg_control = control.bytes;
	m.msg_controllen = sizeof(control.bytes);
	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
	return n;
}

static void serve(int sock, const struct exchange_consumer *consumer)
{
	_Alignas(8) static char message[EXCHANGE_MAX];
	int32_t answer = consumer->begin ? consumer->begin(consumer->arg) : 0;
	ssize_t n;
	int fd;

	if (send_message(sock, &answer, sizeof(answer), -1) < 0 || answer < 0)
		return;
	while ((n = receive_message(sock, message, sizeof(message), &fd)) > 0) {
		answer = consumer->take(consumer->arg, message, (size_t)n, fd);
		if (fd >= 0)
			close(fd);
		if (send_message(sock, &answer, sizeof(answer), -1) < 0)
			return;
	}
}

static int wait_answer(int sock)
{
	int32_t answer;
	int fd;
	ssize_t n = receive_message(sock, &answer, sizeof(answer), &fd);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return (int)n;
	return n == sizeof(answer) ? answer : -EPIPE;
}

int exchange_start(struct exchange *x, const struct exchange_consumer *consumer)
{
	pid_t parent = getpid();
	int socks[2];
	int r;

	*x = (struct exchange){-1, 0};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return -errno;
	fflush(NULL);
	x->child = fork();
	if (x->child < 0) {
		r = -errno;
		close(socks[0]);
		close(socks[1]);
		return r;
	}
	if (x->child == 0) {
		close(socks[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			serve(socks[1], consumer);
		_exit(0);
	}
	close(socks[1]);
	x->fd = socks[0];
	r = wait_answer(x->fd);
	if (r < 0)
		exchange_stop(x);
	return r;
}

int exchange_call(struct exchange *x, const void *message, size_t size, int fd)
{
	int r = send_message(x->fd, message, size, fd);

	return r < 0 ? r : wait_answer(x->fd);
}

void exchange_stop(struct exchange *x)
{
	if (x->fd >= 0) {
		shutdown(x->fd, SHUT_RDWR); /* children forked later hold this end too */
		close(x->fd);
	}
	x->fd = -1;
	if (x->child > 0)
		while (waitpid(x->child, NULL, 0) < 0 && errno == EINTR)
			;
	x->child = 0;
}
