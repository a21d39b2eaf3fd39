/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that was killed and starts again holds the partition's lock before it serves its socket, and looks at everything in between: seconds on
 * a host with more to do than it can. A store without credit waited for it for one second, and its puts failed.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "handle.h"

/* What a killed daemon leaves. */
static void stale_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", scratch_dir(NULL));
	cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	close(fd);
	setenv("SHMSTORE_SOCKET", address.sun_path, 1);
}

/* The starting daemon, which gives up in the end. */
static void *start_slowly(void *arg)
{
	int fd = *(int *)arg;

	nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
	close(fd);
	return NULL;
}

Test(daemon_starts_slowly, put_without_credit_waits)
{
	struct wire_credit *c;
	struct shmstore *s;
	char path[SCRATCH_PATH];
	pthread_t thread;
	int fd;

	stale_socket();
	s = scratch_store("a");
	c = &s->page->credit;
	atomic_store(&c->credit, 65536);
	atomic_store(&c->partition_hard, 1ull << 40);
	atomic_store(&c->epoch, 1);
	snprintf(path, sizeof(path), "%s/.shmstore", scratch_partition_path());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	cr_assert_eq(pthread_create(&thread, NULL, start_slowly, &fd), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	pthread_join(thread, NULL);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
