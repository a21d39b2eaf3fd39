/* SPDX-License-Identifier: Apache-2.0 */
/* daemon_load.c: see daemon_load.h. The harmful ones go on as fast as they can: what holds
 * them back must be the daemon. */
#include "daemon_load.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "wire.h"

#define NOBODY 65534

static size_t make_ping(void *packet, size_t room, uint64_t serial)
{
	struct wire_ping body = {serial};

	return wire_pack(packet, room, WIRE_PING, serial, &body, NULL, 0);
}

static size_t make_hello(void *packet, size_t room)
{
	struct wire_hello body = {WIRE_VERSION, WIRE_VERSION, 0};

	return wire_pack(packet, room, WIRE_HELLO, 1, &body, NULL, 0);
}

int load_connect(const char *path, bool hello)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char packet[WIRE_PACKET_MAX];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r = 0;
	size_t n;

	if (fd < 0)
		return -errno;
	strncpy(a.sun_path, path, sizeof(a.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		r = -errno;
	if (r == 0 && hello) {
		struct wire_header h = {0};

		n = make_hello(packet, sizeof(packet));
		if (send(fd, packet, n, MSG_NOSIGNAL) < 0 ||
		    recv(fd, packet, sizeof(packet), 0) < (ssize_t)sizeof(h))
			r = -ECONNREFUSED;
		else
			memcpy(&h, packet, sizeof(h));
		if (r == 0 && h.type != WIRE_WELCOME)
			r = -EPROTO;
	}
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* A child that dies with us. */
static pid_t spawn(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid < 0 ? -errno : pid;
}

void load_kill(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* ---- those who ask and wait ------------------------------------------------------------------ */

static unsigned bucket_of(uint64_t ns)
{
	unsigned log;

	if (ns < 16)
		return (unsigned)ns;
	log = 63 - (unsigned)__builtin_clzll(ns);
	log = (log - 3) * 16 + (unsigned)(ns >> (log - 4) & 15);
	return log < LOAD_BUCKETS ? log : LOAD_BUCKETS - 1;
}

/* The middle of bucket i, in ns. */
static double value_of(unsigned i)
{
	return i < 16 ? i
		      : (double)(16 + i % 16) * (double)(UINT64_C(1) << (i / 16 - 1)) *
				(1 + 1.0 / 32);
}

static int ask(int fd, uint64_t serial)
{
	char packet[128];
	size_t n = make_ping(packet, sizeof(packet), serial);

	if (send(fd, packet, n, MSG_NOSIGNAL) != (ssize_t)n)
		return -errno;
	return recv(fd, packet, sizeof(packet), 0) == (ssize_t)n ? 0 : -EPROTO;
}

static void be_client(struct load *l, struct load_client *c, int fd)
{
	for (uint64_t serial = 2;; serial++) {
		uint64_t t0;
		int r;

		while (!atomic_load_explicit(&l->run, memory_order_acquire))
			sem_wait(&l->gate);
		t0 = measure_now_ns();
		r = ask(fd, serial);
		if (r < 0) {
			atomic_store(&l->failed, -r);
			_exit(1);
		}
		atomic_fetch_add_explicit(&c->buckets[bucket_of(measure_now_ns() - t0)], 1,
					  memory_order_relaxed);
		atomic_fetch_add_explicit(&c->n, 1, memory_order_relaxed);
	}
}

int load_start(const char *path, struct load **ret)
{
	struct load *l =
		mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return -errno;
	sem_init(&l->gate, 1, 0);
	for (unsigned i = 0; i < LOAD_CLIENTS; i++) {
		/* An echo server sends back HELLO as it is: any answer will do here. */
		int fd = load_connect(path, false), r = fd < 0 ? fd : 0;
		char packet[128];

		if (r == 0 &&
		    (send(fd, packet, make_hello(packet, sizeof(packet)), MSG_NOSIGNAL) < 0 ||
		     recv(fd, packet, sizeof(packet), 0) <= 0))
			r = -EPROTO;
		if (r == 0) {
			l->pids[i] = spawn();
			if (l->pids[i] == 0)
				be_client(l, &l->clients[i], fd);
			r = l->pids[i] < 0 ? (int)l->pids[i] : 0;
		}
		if (fd >= 0)
			close(fd);
		if (r < 0) {
			load_stop(l);
			return r;
		}
	}
	*ret = l;
	return 0;
}

void load_run(struct load *l, bool run)
{
	atomic_store_explicit(&l->run, run, memory_order_release);
	for (unsigned i = 0; run && i < LOAD_CLIENTS; i++)
		sem_post(&l->gate);
}

void load_counts(const struct load *l, struct load_counts *ret)
{
	*ret = (struct load_counts){0};
	for (unsigned i = 0; i < LOAD_CLIENTS; i++) {
		ret->n += atomic_load_explicit(&l->clients[i].n, memory_order_relaxed);
		for (unsigned b = 0; b < LOAD_BUCKETS; b++)
			ret->buckets[b] += atomic_load_explicit(&l->clients[i].buckets[b],
								memory_order_relaxed);
	}
}

double load_quantile(const struct load_counts *a, const struct load_counts *b, double p)
{
	uint64_t all = 0, seen = 0;

	for (unsigned i = 0; i < LOAD_BUCKETS; i++)
		all += b->buckets[i] - a->buckets[i];
	for (unsigned i = 0; i < LOAD_BUCKETS; i++) {
		seen += b->buckets[i] - a->buckets[i];
		if ((double)seen >= p * (double)all)
			return value_of(i);
	}
	return 0;
}

struct load *load_stop(struct load *l)
{
	for (unsigned i = 0; i < LOAD_CLIENTS; i++)
		load_kill(l->pids[i]);
	munmap(l, sizeof(*l));
	return NULL;
}

/* ---- the least a server can be --------------------------------------------------------------- */

static void be_echo(int listening)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = listening}, events[64];

	epoll_ctl(ep, EPOLL_CTL_ADD, listening, &ev);
	for (;;) {
		int n = epoll_wait(ep, events, 64, -1);

		for (int i = 0; i < n; i++) {
			char packet[4300];
			ssize_t size;
			int fd = events[i].data.fd;

			if (fd == listening) {
				ev.data.fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
				epoll_ctl(ep, EPOLL_CTL_ADD, ev.data.fd, &ev);
				continue;
			}
			size = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);
			if (size <= 0 ||
			    send(fd, packet, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
				close(fd);
		}
	}
}

pid_t load_echo_server(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pid_t pid;

	strncpy(a.sun_path, path, sizeof(a.sun_path) - 1);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0)
		return -errno;
	pid = spawn();
	if (pid == 0)
		be_echo(fd);
	close(fd);
	return pid;
}

/* ---- those who mean harm --------------------------------------------------------------------- */

/* Connects, says nothing, and connects again when it is dropped. */
static void say_nothing(const char *path)
{
	for (;;) {
		int fds[200];
		char byte;

		for (unsigned i = 0; i < 200; i++)
			fds[i] = load_connect(path, false);
		for (unsigned i = 0; i < 200; i++) {
			while (fds[i] >= 0 && recv(fds[i], &byte, 1, 0) > 0)
				;
			close(fds[i]);
		}
	}
}

/* Asks and asks, and reads no answer. */
static void read_nothing(const char *path)
{
	for (;;) {
		char packet[128];
		int fd = load_connect(path, true);
		uint64_t serial = 2;

		while (fd >= 0 && send(fd, packet, make_ping(packet, sizeof(packet), serial++),
				       MSG_NOSIGNAL) > 0)
			;
		close(fd);
	}
}

/* Opens connections and keeps them, up to 10,000, then all over. */
static void open_10000(const char *path)
{
	static int fds[10000];

	for (;;) {
		for (unsigned i = 0; i < 10000; i++)
			fds[i] = load_connect(path, false);
		for (unsigned i = 0; i < 10000; i++)
			close(fds[i]);
	}
}

static void pass_250_fds(const char *path)
{
	char packet[128], control[CMSG_SPACE(250 * sizeof(int))];
	int fds[250];

	for (unsigned i = 0; i < 250; i++)
		fds[i] = STDIN_FILENO;
	for (;;) {
		struct iovec v = {packet, make_ping(packet, sizeof(packet), 2)};
		struct msghdr m = {.msg_iov = &v,
				   .msg_iovlen = 1,
				   .msg_control = control,
				   .msg_controllen = sizeof(control)};
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		int fd = load_connect(path, true);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fds));
		memcpy(CMSG_DATA(c), fds, sizeof(fds));
		while (fd >= 0 && sendmsg(fd, &m, MSG_NOSIGNAL) > 0)
			;
		close(fd);
	}
}

/* Valid requests, as many as the socket takes, answers read. No fault: it must
 * get no more than its turn. */
static void ask_ahead(const char *path)
{
	int fd = load_connect(path, true);
	uint64_t serial = 2;

	for (;;) {
		char packet[128];

		while (send(fd, packet, make_ping(packet, sizeof(packet), serial),
			    MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			serial++;
		if (recv(fd, packet, sizeof(packet), 0) <= 0) {
			close(fd);
			fd = load_connect(path, true);
		}
		while (recv(fd, packet, sizeof(packet), MSG_DONTWAIT) > 0)
			;
	}
}

/* Bytes that are no message at all. */
static void send_junk(const char *path)
{
	for (;;) {
		int fd = load_connect(path, true);

		while (fd >= 0 && send(fd, "junk", 4, MSG_NOSIGNAL) > 0)
			;
		close(fd);
	}
}

const struct harm load_harms[] = {
	{"says nothing", say_nothing},
	{"reads nothing", read_nothing},
	{"opens 10,000 connections", open_10000},
	{"passes 250 descriptors per message", pass_250_fds},
	{"sends junk", send_junk},
	{"asks ahead without end", ask_ahead},
};
const unsigned load_n_harms = sizeof(load_harms) / sizeof(load_harms[0]);

pid_t load_harm(const struct harm *h, const char *path)
{
	struct rlimit many = {20000, 20000};
	pid_t pid = spawn();

	if (pid)
		return pid;
	setrlimit(RLIMIT_NOFILE, &many);
	if (geteuid() == 0 && setuid(NOBODY) < 0)
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid() took it away */
	h->run(path);
	_exit(0);
}
