/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peeruid.c: asks the kernel (sock_diag) for the socket whose own end is our peer's end. The answer
 * is complete when the question is sent: nothing waits.
 *
 * Only an established socket that a process has open tells its user: the kernel reports uid 0 for
 * one in TIME_WAIT and, on kernels before 6.16, for one whose process closed it; root is what a
 * client must not become by closing early. Only loopback addresses: another one could be another
 * host's. Rejected: /proc/net/tcp (walks every socket of the host).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "socket.h"

/*
 * A socket is found by its kind, not by its number or name: the units may be edited. With
 * these two the service runs in an empty network namespace: HTTP comes in through the one, and
 * whose connection it is, is asked through the other.
 */
static bool is_netlink(int fd, int protocol)
{
	socklen_t size = sizeof(int);
	int is;

	return sd_is_socket(fd, AF_NETLINK, 0, -1) > 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &is, &size) == 0 && is == protocol;
}

static bool is_meant(int fd, int protocol)
{
	switch (protocol) {
	case HANDED_TCP:
		return sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) > 0;
	case HANDED_UNIX:
		return sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0;
	default:
		return is_netlink(fd, protocol);
	}
}

int handed_socket(int protocol)
{
	int n = sd_listen_fds(0);

	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
		if (is_meant(fd, protocol))
			return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : fd;
	}
	return n < 0 ? n : -ENOENT;
}

struct peeruid {
	int fd;
	uint32_t sequence;
};

struct question {
	struct nlmsghdr header;
	struct inet_diag_req_v2 request;
};

int peeruid_new(struct peeruid **ret)
{
	struct peeruid *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->fd = handed_socket(NETLINK_SOCK_DIAG);
	if (p->fd < 0)
		p->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			       NETLINK_SOCK_DIAG);
	if (p->fd < 0) {
		r = -errno;
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct peeruid *peeruid_free(struct peeruid *p)
{
	if (p)
		close(p->fd);
	free(p);
	return NULL;
}

/* An end as sock_diag wants it; an IPv4 address in IPv6's clothes is an IPv4 one. */
static bool end_of(const struct sockaddr_storage *address, uint8_t *ret_family, __be16 *ret_port,
		   __be32 ret_host[4])
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;

	if (address->ss_family == AF_INET) {
		*ret_family = AF_INET;
		*ret_port = v4->sin_port;
		ret_host[0] = v4->sin_addr.s_addr;
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	}
	if (address->ss_family != AF_INET6)
		return false;
	*ret_port = v6->sin6_port;
	memcpy(ret_host, &v6->sin6_addr, 16);
	if (!IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		*ret_family = AF_INET6;
		return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	}
	*ret_family = AF_INET;
	ret_host[0] = ret_host[3];
	ret_host[1] = ret_host[2] = ret_host[3] = 0;
	return ntohl(ret_host[0]) >> 24 == 127;
}

static bool compose(struct peeruid *p, int fd, struct question *q)
{
	struct sockaddr_storage ours, theirs;
	socklen_t n_ours = sizeof(ours), n_theirs = sizeof(theirs);
	uint8_t family;

	if (getsockname(fd, (struct sockaddr *)&ours, &n_ours) < 0 ||
	    getpeername(fd, (struct sockaddr *)&theirs, &n_theirs) < 0)
		return false;
	*q = (struct question){
		.header = {.nlmsg_len = sizeof(*q),
			   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			   .nlmsg_flags = NLM_F_REQUEST,
			   .nlmsg_seq = ++p->sequence},
		.request = {.sdiag_protocol = IPPROTO_TCP,
			    .idiag_states = 1u << TCP_ESTABLISHED,
			    .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	return end_of(&theirs, &q->request.sdiag_family, &q->request.id.idiag_sport,
		      q->request.id.idiag_src) &&
	       end_of(&ours, &family, &q->request.id.idiag_dport, q->request.id.idiag_dst) &&
	       family == q->request.sdiag_family;
}

bool peeruid_find(struct peeruid *p, int fd, uid_t *ret)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct {
		struct nlmsghdr header;
		struct inet_diag_msg socket;
		char attributes[1024];
	} answer;
	struct question q;
	ssize_t n;

	if (!compose(p, fd, &q) || sendto(p->fd, &q, sizeof(q), 0, (struct sockaddr *)&kernel,
					  sizeof(kernel)) != (ssize_t)sizeof(q))
		return false;
	do { /* an answer that was not fetched belongs to an earlier question */
		n = recv(p->fd, &answer, sizeof(answer), MSG_DONTWAIT);
	} while (n >= (ssize_t)sizeof(answer.header) && answer.header.nlmsg_seq != p->sequence);
	if (n < (ssize_t)(sizeof(answer.header) + sizeof(answer.socket)) ||
	    answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	/* The id again: without it, a lookup that found a listener would be taken for the peer. */
	if (answer.socket.idiag_state != TCP_ESTABLISHED || answer.socket.idiag_inode == 0 ||
	    answer.socket.id.idiag_sport != q.request.id.idiag_sport ||
	    answer.socket.id.idiag_dport != q.request.id.idiag_dport)
		return false;
	*ret = answer.socket.idiag_uid;
	return true;
}
