/* SPDX-License-Identifier: Apache-2.0 */
/* peer_python.c: starts peer_python.py and asks it, one line there, one line back. It ends at the
 * end of its standard input. */
#include "peer_python.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

static void be_python(int sock, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	dup2(sock, 0);
	dup2(sock, 1);
	close_range(3, ~0u, 0);
	execl(PYTHON, PYTHON, "-I", BENCH_PEER_PYTHON, (char *)NULL);
	_exit(127);
}

static int ask(struct peer_python *p, char *line, size_t size)
{
	if (fflush(p->to) != 0 || !fgets(line, (int)size, p->from))
		return -EPIPE;
	return 0;
}

int peer_python_start(struct peer_python *p)
{
	pid_t parent = getpid();
	char line[160];
	int socks[2];

	*p = (struct peer_python){0};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) < 0)
		return -errno;
	fflush(NULL);
	p->pid = fork();
	if (p->pid == 0)
		be_python(socks[1], parent);
	close(socks[1]);
	p->to = fdopen(socks[0], "w");
	p->from = fdopen(dup(socks[0]), "r");
	if (p->pid < 0 || !p->to || !p->from) {
		snprintf(p->reason, sizeof(p->reason), "fork: %s", strerror(errno));
		return -EIO;
	}
	fputs("hello\n", p->to);
	if (ask(p, line, sizeof(line)) < 0 || strcmp(line, "ready\n") != 0) {
		snprintf(p->reason, sizeof(p->reason), PYTHON " does not start");
		return -EIO;
	}
	return 0;
}

int peer_python_run(struct peer_python *p, const char *what, size_t size, uint64_t *ret_all_ns,
		    uint64_t *ret_put_ns)
{
	char line[160];

	fprintf(p->to, "%s %zu\n", what, size);
	if (ask(p, line, sizeof(line)) < 0)
		return -EPIPE;
	return sscanf(line, "%" SCNu64 " %" SCNu64, ret_all_ns, ret_put_ns) == 2 ? 0 : -EPROTO;
}

void peer_python_stop(struct peer_python *p)
{
	if (p->to) {
		shutdown(fileno(p->to), SHUT_RDWR);
		fclose(p->to);
	}
	if (p->from)
		fclose(p->from);
	if (p->pid > 0)
		while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
			;
	*p = (struct peer_python){0};
}
