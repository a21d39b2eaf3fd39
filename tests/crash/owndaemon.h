/* SPDX-License-Identifier: Apache-2.0 */
/* owndaemon.h: a shmstored of the test's own, which ends with the test. */
#ifndef OWNDAEMON_H
#define OWNDAEMON_H

#include <shmstore/daemon.h>
#include <stdint.h>
#include <sys/types.h>

struct own_daemon {
	const char *program; /* shmstored's path */
	pid_t pid;
	struct shmstore_client *client; /* connected */
};

/* Waits for d->pid to listen at socket, where SHMSTORE_SOCKET leads from here on. NULL,
 * or what is wrong: static. */
const char *own_daemon_connect(struct own_daemon *d, const char *socket, uint32_t ask_ms);
/* Started with the configuration file config, whose socket is where SHMSTORE_SOCKET leads from here
 * on. NULL, or what is wrong: static. */
const char *own_daemon_start(struct own_daemon *d, const char *config, const char *socket,
			     uint32_t ask_ms);
/* In good order. NULL, or what is wrong: static. */
const char *own_daemon_stop(struct own_daemon *d);

#endif
