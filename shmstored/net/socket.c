/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socket.c: making the listening socket so that no moment is unsafe.
 *
 * A lock beside the path says who may replace what is there: two daemons that both find a
 * stale socket cannot remove each other's new one. The new socket is bound under another name,
 * gets its owner and mode, listens, and is then renamed to path: at no moment is there a
 * socket that nobody answers, or one with wider rights. The lock file is never removed, since
 * that could not be done without a race.
 */
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"
#include "log.h"
#include "process.h"

#define DYING_TRIES  200u
#define DYING_NAP_NS 10000000l

static int make_address(const char *path, const char *suffix, struct sockaddr_un *ret)
{
	int n;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s%s", path, suffix);
	return n < 0 || (size_t)n >= sizeof(ret->sun_path) ? -EINVAL : 0;
}

static int failed(const char *what, const char **ret_what)
{
	*ret_what = what;
	return -errno;
}

/* An existing directory must be our user's or root's: others can make one in a public place. */
static int make_directory(const char *path, const char **ret_what)
{
	char *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
	struct stat st;
	int r = dir ? 0 : -ENOMEM;

	if (slash && slash != dir) {
		*slash = '\0';
		if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
			r = failed("mkdir() of its directory failed; --socket names another place",
				   ret_what);
		} else if (geteuid() != 0 &&
			   (stat(dir, &st) < 0 || (st.st_uid != geteuid() && st.st_uid != 0))) {
			*ret_what = "its directory is another user's; --socket names another place";
			r = -EPERM;
		}
	}
	free(dir);
	return r;
}

static int take_lock(struct socket *s, const char **ret_what)
{
	char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];

	snprintf(name, sizeof(name), "%s.lock", s->path);
	s->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return failed("open() of its lock, a file beside it that ends in .lock, failed; "
			      "remove that, or name another place with --socket",
			      ret_what);
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return failed("flock() of its lock failed", ret_what);
	*ret_what = "another daemon has its lock";
	return -EADDRINUSE;
}

/* Is path free to be replaced? Asks with a connect: only nobody's answer is
 * -ECONNREFUSED. -EADDRINUSE: it is not. */
static int look_for_another(const struct sockaddr_un *a, int type, const char **ret_what)
{
	struct stat st;
	int fd, r;

	if (lstat(a->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : failed("lstat() of it failed", ret_what);
	*ret_what = "something is there that is no stale socket of ours";
	/* Of an earlier daemon of ours that watched this partition beside others
	 * (link_partitions()): we have the partition now. */
	if (S_ISLNK(st.st_mode) && st.st_uid == geteuid())
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return failed("socket() failed", ret_what);
	r = connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 ? -errno : -EADDRINUSE;
	close(fd);
	if (r == -EPERM || r == -ENOSYS)
		return failed("connect(), which tells whether somebody listens there, failed",
			      ret_what);
	return r == -ECONNREFUSED || r == -ENOENT ? 0 : -EADDRINUSE;
}

/* Binds and listens under a name beside path, with the rights that it shall
 * have, and gives it its name. */
static int make(struct socket *s, const struct sockaddr_un *a, const char *path, uint32_t mode,
		const char *group, const char **ret_what)
{
	struct group entry, *found = NULL;
	char buf[4096];
	struct stat st;

	*ret_what = "there is no such group";
	if (group && (getgrnam_r(group, &entry, buf, sizeof(buf), &found) != 0 || !found))
		return -EINVAL;
	s->fd = socket(AF_UNIX, s->type | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return failed("socket() failed", ret_what);
	unlink(a->sun_path);
	/* On Linux the mode of the descriptor is that of the name which bind makes:
	 * nobody's, until all is right. */
	if (fchmod(s->fd, 0) < 0)
		return failed("fchmod() of it failed", ret_what);
	if (bind(s->fd, (const struct sockaddr *)a, sizeof(*a)) < 0)
		return failed("bind() failed; --socket names another place", ret_what);
	if (lchown(a->sun_path, (uid_t)-1, found ? found->gr_gid : (gid_t)-1) < 0)
		return failed("lchown() to that group failed", ret_what);
	if (chmod(a->sun_path, mode) < 0)
		return failed("chmod() to that mode failed", ret_what);
	if (listen(s->fd, SOCKET_BACKLOG) < 0)
		return failed("listen() failed", ret_what);
	if (lstat(a->sun_path, &st) < 0 || rename(a->sun_path, path) < 0)
		return failed("rename() from a name that ends in .new failed", ret_what);
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return 0;
}

static int open_own(struct socket *s, const char *path, uint32_t mode, const char *group,
		    const char **ret_what)
{
	struct sockaddr_un now, then;
	int r = make_address(path, "", &now);

	*ret_what = "the path is too long";
	if (r == 0)
		r = make_address(path, ".new", &then);
	if (r < 0)
		return r;
	s->path = strdup(path);
	if (!s->path)
		return -ENOMEM;
	r = make_directory(path, ret_what);
	if (r == 0)
		r = take_lock(s, ret_what);
	if (r < 0)
		return r;
	r = look_for_another(&now, s->type, ret_what);
	/* We have the lock, so it is no daemon of ours that lives. The ring of one that was killed
	 * keeps its socket for a moment. */
	for (unsigned i = 0; r == -EADDRINUSE && i < DYING_TRIES; i++) {
		nanosleep(&(struct timespec){.tv_nsec = DYING_NAP_NS}, NULL);
		r = look_for_another(&now, s->type, ret_what);
	}
	if (r < 0)
		return r;
	r = make(s, &then, path, mode, group, ret_what);
	if (r < 0)
		unlink(then.sun_path);
	return r;
}

static int open_or_say(struct socket *s, const char *path, uint32_t mode, const char *group)
{
	const char *what;
	int r = open_own(s, path, mode, group, &what);

	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.object = path, .error = r), "no socket: %s", what);
		if (s->fd >= 0)
			close(s->fd);
		s->fd = -1;
		s->dev = 0;
		socket_close(s);
	}
	return r;
}

int socket_open(struct socket *s, const char *path, uint32_t mode, const char *group)
{
	int r = handed_socket(HANDED_UNIX);

	*s = SOCKET_NULL;
	s->type = SOCK_SEQPACKET;
	if (r >= 0) {
		s->fd = r;
		/* The unit's Backlog= may be long; see listener.c. */
		listen(s->fd, SOCKET_BACKLOG);
		return 0;
	}
	return open_or_say(s, path, mode, group);
}

int socket_open_stream(struct socket *s, const char *path)
{
	*s = SOCKET_NULL;
	s->type = SOCK_STREAM;
	return open_or_say(s, path, 0600, NULL);
}

void socket_remove(struct socket *s)
{
	struct stat st;

	if (s->path && s->fd >= 0 && lstat(s->path, &st) == 0 && st.st_dev == s->dev &&
	    st.st_ino == s->ino)
		unlink(s->path);
	free(s->path);
	s->path = NULL;
}

void socket_close(struct socket *s)
{
	socket_remove(s);
	if (s->fd >= 0)
		close(s->fd);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	*s = SOCKET_NULL;
}

struct source source_of(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const void *)address;
	const struct sockaddr_in6 *v6 = (const void *)address;
	struct source s = {0};

	if (address->sa_family == AF_INET) {
		s.network = v4->sin_addr.s_addr;
	} else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		uint32_t mapped;

		memcpy(&mapped, v6->sin6_addr.s6_addr + 12, sizeof(mapped));
		s.network = mapped;
	} else if (address->sa_family == AF_INET6) {
		memcpy(&s.network, &v6->sin6_addr, sizeof(s.network));
		s.v6 = true;
	}
	return s;
}

bool source_same(struct source a, struct source b)
{
	return a.network == b.network && a.v6 == b.v6;
}

/*
 * The kernel's own word (SO_PEERPIDFD, from 6.5 on), else a descriptor by number, of a process that
 * is older than its connection.
 *
 * Of the descriptor by number: the process is looked at after the opening, and still lives after
 * the look. A process that began before the connection was accepted and has the number now had it
 * then; so it is the one that connected.
 */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define SECOND_NS UINT64_C(1000000000)

int process_read(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, ret, size - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	ret[n] = '\0';
	return 0;
}

int process_start(pid_t pid, uint64_t *ret_ticks)
{
	char text[PROCSTAT_MAX];
	const char *at;
	int r = process_read(pid, "stat", text, sizeof(text));

	if (r < 0)
		return r;
	at = procstat_find(text, PROCSTAT_START_TICKS);
	return at && sscanf(at, "%" SCNu64, ret_ticks) == 1 ? 0 : -ESRCH;
}

static int open_by_number(pid_t pid, uint64_t since_ns)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	uint64_t age = clock_ns(CLOCK_MONOTONIC) - since_ns, ticks = 0, tick_ns;
	int r;

	if (p.fd < 0)
		return -errno;
	r = process_start(pid, &ticks);
	tick_ns = SECOND_NS / (uint64_t)sysconf(_SC_CLK_TCK);
	if (r == 0 && (poll(&p, 1, 0) != 0 || ticks * tick_ns + age > clock_ns(CLOCK_BOOTTIME)))
		r = -ESRCH;
	if (r < 0)
		close(p.fd);
	return r < 0 ? r : p.fd;
}

int peerpid_open(int fd, pid_t pid, uint64_t since_ns)
{
	socklen_t size = sizeof(int);
	int pidfd = -1;

	if (pid <= 0)
		return -EPERM;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	return errno == ENOPROTOOPT ? open_by_number(pid, since_ns) : -ESRCH;
}
