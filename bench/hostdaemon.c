/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostdaemon.c: starts the daemon and asks it, by the wire and not by the library: whoever forks
 * clients must not have a store open itself.
 */
#include "hostdaemon.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon_load.h"
#include "wire.h"

#define ANSWERS_WITHIN_MS 10000u
#define LOOK_EACH_MS      10u

static void write_config(const struct hostdaemon *d, uint64_t limit, const char *more)
{
	FILE *f = fopen(d->config, "we");

	if (!f)
		err(1, "%s", d->config);
	fprintf(f,
		"daemon {\n\tsocket = \"%s\"\n\tlog-level = error\n}\nhttp {\n\tenabled = "
		"no\n}\npartition \"%s\" "
		"{\n\tcreate = yes\n",
		d->socket, d->partition);
	if (limit)
		fprintf(f, "\tlimit = %" PRIu64 "\n", limit);
	fprintf(f, "}\n%s", more ? more : "");
	if (fclose(f) != 0)
		err(1, "%s", d->config);
}

static void wait_for_answer(struct hostdaemon *d, const char *program)
{
	for (unsigned ms = 0;; ms += LOOK_EACH_MS) {
		int fd = load_connect(d->socket, true);

		if (fd >= 0) {
			close(fd);
			return;
		}
		if (waitpid(d->pid, NULL, WNOHANG) == d->pid) {
			d->pid = 0;
			errx(1, "%s has ended; its configuration is %s", program, d->config);
		}
		if (ms > ANSWERS_WITHIN_MS)
			errx(1, "%s does not answer on %s: %s", program, d->socket, strerror(-fd));
		nanosleep(&(struct timespec){.tv_nsec = LOOK_EACH_MS * 1000000L}, NULL);
	}
}

void hostdaemon_start(struct hostdaemon *d, const struct hostdaemon_options *o)
{
	const char *program = getenv("SHMSTORED");

	program = program && *program ? program : o->program;
	snprintf(d->socket, sizeof(d->socket), "%s/socket", o->directory);
	snprintf(d->config, sizeof(d->config), "%s/conf", o->directory);
	snprintf(d->partition, sizeof(d->partition), "%s", o->partition);
	write_config(d, o->limit, o->more);
	setenv("SHMSTORE_SOCKET", d->socket, 1);
	d->pid = fork();
	if (d->pid < 0)
		err(1, "fork");
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(program, program, "--config", d->config, (char *)NULL);
		err(127, "%s", program);
	}
	wait_for_answer(d, program);
}

void hostdaemon_stop(struct hostdaemon *d)
{
	if (d->pid <= 0)
		return;
	kill(d->pid, SIGTERM);
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
}

int hostdaemon_connect(const struct hostdaemon *d)
{
	int fd = load_connect(d->socket, true);

	if (fd < 0)
		errx(1, "%s: %s", d->socket, strerror(-fd));
	return fd;
}

char *hostdaemon_query(const struct hostdaemon *d, uint32_t what)
{
	struct wire_query body = {.what = what};
	unsigned char packet[WIRE_PACKET_MAX];
	struct wire_data data = {.flags = WIRE_DATA_MORE};
	const size_t head = sizeof(struct wire_header) + sizeof(data);
	size_t n = wire_pack(packet, sizeof(packet), WIRE_QUERY, 1, &body, d->partition,
			     strlen(d->partition)),
	       size = 0;
	int fd = hostdaemon_connect(d);
	char *text = NULL;

	if (send(fd, packet, n, MSG_NOSIGNAL) != (ssize_t)n)
		err(1, "%s", d->socket);
	while (data.flags & WIRE_DATA_MORE) {
		ssize_t got = recv(fd, packet, sizeof(packet), 0);
		struct wire_header h;

		if (got < (ssize_t)head)
			errx(1, "%s: no answer to question %u", d->socket, what);
		memcpy(&h, packet, sizeof(h));
		memcpy(&data, packet + sizeof(h), sizeof(data));
		if (h.type != WIRE_DATA)
			errx(1, "%s: question %u is refused", d->socket, what);
		text = realloc(text, size + (size_t)got - head + 1);
		if (!text)
			err(1, "an answer of %s", d->socket);
		memcpy(text + size, packet + head, (size_t)got - head);
		size += (size_t)got - head;
		text[size] = 0;
	}
	close(fd);
	return text;
}
