/* SPDX-License-Identifier: Apache-2.0 */
/* Which user is at the other end of a TCP connection: the one who opened the socket, and
 * nobody once it is closed. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "socket.h"

struct pair {
	int listener, ours, theirs;
};

static int listen_on(int family)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0;

	if (family == AF_INET6) {
		/* Of both kinds: an IPv4 client comes as ::ffff:127.0.0.1. */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		v6.sin6_addr = in6addr_any;
	}
	if (fd < 0 || bind(fd, family == AF_INET ? (void *)&v4 : (void *)&v6,
			   family == AF_INET ? sizeof(v4) : sizeof(v6)) < 0)
		return -1;
	cr_assert_eq(listen(fd, 4), 0);
	return fd;
}

static int connect_to(int listener, int family)
{
	struct sockaddr_in6 at = {0};
	socklen_t n = sizeof(at);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &n), 0);
	if (at.sin6_family == AF_INET6 && family == AF_INET) {
		struct sockaddr_in v4 = {.sin_family = AF_INET,
					 .sin_port = at.sin6_port,
					 .sin_addr = {htonl(INADDR_LOOPBACK)}};

		cr_assert_eq(connect(fd, (struct sockaddr *)&v4, sizeof(v4)), 0);
		return fd;
	}
	if (at.sin6_family == AF_INET6)
		at.sin6_addr = in6addr_loopback;
	cr_assert_eq(connect(fd, (struct sockaddr *)&at, n), 0);
	return fd;
}

static struct pair pair_of(int server_family, int client_family)
{
	struct pair p = {.listener = listen_on(server_family)};

	if (p.listener < 0)
		cr_skip_test("no such address family here");
	p.theirs = connect_to(p.listener, client_family);
	p.ours = accept(p.listener, NULL, NULL);
	cr_assert_geq(p.ours, 0);
	return p;
}

static struct peeruid *asker(void)
{
	struct peeruid *p;

	if (peeruid_new(&p) < 0)
		cr_skip_test("no sock_diag here");
	return p;
}

static void finds_us(int server_family, int client_family)
{
	struct pair s = pair_of(server_family, client_family);
	struct peeruid *p = asker();
	uid_t uid = 12345;

	cr_assert(peeruid_find(p, s.ours, &uid));
	cr_assert_eq(uid, geteuid());
	cr_assert(peeruid_find(p, s.theirs, &uid), "and the other way round");
	cr_assert_eq(uid, geteuid());
	cr_assert_null(peeruid_free(p));
}

Test(peeruid, ipv4)
{
	finds_us(AF_INET, AF_INET);
}

Test(peeruid, ipv6)
{
	finds_us(AF_INET6, AF_INET6);
}

Test(peeruid, ipv4_on_a_socket_of_both)
{
	finds_us(AF_INET6, AF_INET);
}

Test(peeruid, another_user)
{
	int listener = listen_on(AF_INET), ours, gate[2];
	struct peeruid *p = asker();
	uid_t uid;
	pid_t child;

	if (geteuid() != 0)
		cr_skip_test("needs root");
	cr_assert_eq(pipe(gate), 0);
	child = fork();
	if (child == 0) {
		char c;

		close(gate[1]);
		if (setuid(4321) != 0)
			_exit(1);
		connect_to(listener, AF_INET);
		_exit(read(gate[0], &c, 1) == 0 ? 0 : 2);
	}
	ours = accept(listener, NULL, NULL);
	cr_assert(peeruid_find(p, ours, &uid));
	cr_assert_eq(uid, 4321);
	close(gate[1]);
	cr_assert_eq(waitpid(child, NULL, 0), child);
	peeruid_free(p);
}

/* The kernel would call a socket root's that nobody has open any more. */
Test(peeruid, a_closed_end_is_nobodys)
{
	for (int way = 0; way < 2; way++) {
		struct pair s = pair_of(AF_INET, AF_INET);
		struct peeruid *p = asker();
		struct pollfd readable = {.fd = s.ours, .events = POLLIN};
		uid_t uid = 12345;

		if (way == 0)
			close(s.theirs);
		else
			shutdown(s.theirs, SHUT_WR);
		cr_assert_eq(poll(&readable, 1, 10000), 1);
		cr_assert_not(peeruid_find(p, s.ours, &uid));
		cr_assert_eq(uid, 12345);
		if (way == 0) {
			close(s.ours); /* theirs is in TIME_WAIT from here on */
			cr_assert_not(peeruid_find(p, s.ours, &uid));
		}
		peeruid_free(p);
	}
}

Test(peeruid, what_is_no_connection)
{
	struct peeruid *p = asker();
	int listener = listen_on(AF_INET), pair[2];
	uid_t uid;

	cr_assert_not(peeruid_find(p, listener, &uid));
	cr_assert_not(peeruid_find(p, -1, &uid));
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	cr_assert_not(peeruid_find(p, pair[0], &uid));
	cr_assert_null(peeruid_free(p));
	cr_assert_null(peeruid_free(NULL));
}
