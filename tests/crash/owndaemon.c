/* SPDX-License-Identifier: Apache-2.0 */
/* owndaemon.c: a child that is killed with us, and a client that is connected to it. */
#include "owndaemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS 10000u
#define POLL_MS  2u

static char wrong[512];

const char *own_daemon_connect(struct own_daemon *d, const char *socket, uint32_t ask_ms)
{
	unsigned waited_ms = 0;
	int e;

	setenv("SHMSTORE_SOCKET", socket, 1);
	if (shmstore_client_new(socket, ask_ms, &d->client) < 0)
		return "no client";
	while ((e = shmstore_client_connect(d->client)) < 0) {
		if (waited_ms > START_MS || waitpid(d->pid, NULL, WNOHANG) > 0) {
			snprintf(wrong, sizeof(wrong), "%s does not start: %s", d->program,
				 shmstore_strerror(e));
			return wrong;
		}
		nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
		waited_ms += POLL_MS;
	}
	return NULL;
}

const char *own_daemon_start(struct own_daemon *d, const char *config, const char *socket,
			     uint32_t ask_ms)
{
	fflush(stdout);
	d->pid = fork();
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(d->program, d->program, "--config", config, (char *)NULL);
		_exit(127);
	}
	return d->pid < 0 ? "no process" : own_daemon_connect(d, socket, ask_ms);
}

const char *own_daemon_stop(struct own_daemon *d)
{
	int status = 0;

	kill(d->pid, SIGTERM);
	if (waitpid(d->pid, &status, 0) == d->pid && !status)
		return NULL;
	snprintf(wrong, sizeof(wrong), "the daemon ended with status 0x%x", (unsigned)status);
	return wrong;
}
