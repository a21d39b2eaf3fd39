/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handed.c: what is wanted is found by what it is, not by its number or name: the units may be edited. With these two the service runs in
 * an empty network namespace: HTTP comes in through the one, and whose connection it is, is asked through the other.
 */
#include "handed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

static bool is_netlink(int fd, int protocol)
{
	socklen_t size = sizeof(int);
	int is;

	return sd_is_socket(fd, AF_NETLINK, 0, -1) > 0 && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &is, &size) == 0 &&
	       is == protocol;
}

/* protocol: netlink's; -1: TCP. */
static int find(int protocol)
{
	int n = sd_listen_fds(0);

	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
		if (protocol < 0 ? sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) <= 0 : !is_netlink(fd, protocol))
			continue;
		return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : fd;
	}
	return n < 0 ? n : -ENOENT;
}

int handed_tcp(void)
{
	return find(-1);
}

int handed_netlink(int protocol)
{
	return find(protocol);
}
