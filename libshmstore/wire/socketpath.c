/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socketpath.c: which socket, and connecting to it. The environment is read at each call: who sets
 * it between two attempts means it. A daemon of one's own goes before the host's; its socket file
 * is looked for, not whether somebody listens there: between the death and the restart of one's own
 * daemon nobody should end up at the other.
 */
#include "socketpath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "wire.h"

_Static_assert(SHMS_SOCKET_PATH == sizeof(((struct sockaddr_un *)NULL)->sun_path),
	       "a socket's address");

/* The socket of a daemon of our own, where there is one. In a shared partition anybody may have
 * made something of that name. */
static bool find_own(const char *partition, char ret_path[SHMS_SOCKET_PATH])
{
	int n = snprintf(ret_path, SHMS_SOCKET_PATH, "%s/" WIRE_OWN_SOCKET, partition);
	struct stat st;

	return n > 0 && n < SHMS_SOCKET_PATH && lstat(ret_path, &st) == 0 &&
	       st.st_uid == geteuid() && (S_ISSOCK(st.st_mode) || S_ISLNK(st.st_mode));
}

int shms_socket_path(const char *given, const char *partition, char ret_path[SHMS_SOCKET_PATH])
{
	const char *path = given && *given ? given : getenv("SHMSTORE_SOCKET");

	if (!path || !*path) {
		if (partition && find_own(partition, ret_path))
			return 0;
		path = WIRE_SOCKET;
	}
	if (strlen(path) >= SHMS_SOCKET_PATH)
		return -EINVAL;
	strcpy(ret_path, path);
	return 0;
}

int shms_socket_connect(const char *path, uint32_t timeout_ms)
{
	struct timeval timeout = {.tv_sec = (time_t)(timeout_ms / 1000),
				  .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_fd_ int fd = -1;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENOENT;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (timeout_ms ? 0 : SOCK_NONBLOCK), 0);
	if (fd < 0)
		return -errno;
	/* SO_SNDTIMEO bounds connect() too; a full backlog is EAGAIN then
	 * as it is without blocking. */
	if (timeout_ms && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	if (timeout_ms && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return shms_take_fd(&fd);
}
