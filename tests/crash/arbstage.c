/* SPDX-License-Identifier: Apache-2.0 */
/* arbstage.c: see arbstage.h. One byte on a pipe asks the neighbour, an int on
 * another one is its answer. */
#include "arbstage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "ownbooks.h"

#define HAS       (4 * ARBSTAGE_MIB)  /* the neighbour */
#define ASKS      (20 * ARBSTAGE_MIB) /* for that besides */
#define ANSWER_MS (2 * ARBSTAGE_WAIT_MS)
#define SETTLE_MS 20000u
#define ASK_MS    20000u
#define POLL_NS   1000000L

bool arbstage_fail(struct arbstage *st, const char *format, ...)
{
	va_list args;

	if (st->shared->message[0] == '\0') {
		va_start(args, format);
		vsnprintf(st->shared->message, sizeof(st->shared->message), format, args);
		va_end(args);
	}
	return false;
}

static void take_a_moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

/* ---- the neighbour --------------------------------------------------------------------------- */

static int take_and_give_back(struct shmstore *s)
{
	struct shmstore_arb_task_options o = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	struct shmstore_arb_reservation has, asked;
	uint32_t task;
	int e, ended;

	o.priority = 100;
	e = shmstore_arb_task_begin(s, &o, &task);
	if (e != 0)
		return e;
	e = shmstore_arb_bind(s, NULL, task);
	if (e == 0)
		e = shmstore_arb_reserve(s, SHMSTORE_ARB_PARTITION, HAS, NULL, &has);
	if (e == 0)
		e = shmstore_arb_reserve(s, SHMSTORE_ARB_PARTITION, ASKS, NULL, &asked);
	if (e == 0)
		e = shmstore_arb_release(s, &asked);
	ended = shmstore_arb_task_end(s, task);
	return e ? e : ended;
}

static int be_neighbour(const struct arbstage *st, int ask_fd, int answer_fd)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;
	char word;
	int e = shmstore_partition_open(st->path, 0, &p);

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	if (e == 0)
		e = shmstore_open(p, "neighbour", &o, &s);
	while (write(answer_fd, &e, sizeof(e)) == (ssize_t)sizeof(e) && e >= 0 &&
	       read(ask_fd, &word, 1) == 1)
		e = take_and_give_back(s);
	if (e < 0)
		return 1;
	shmstore_close(s);
	shmstore_partition_unref(p);
	return 0;
}

static bool read_answer(struct arbstage *st, int *ret)
{
	struct pollfd p = {.fd = st->answer_fd, .events = POLLIN};
	int n;

	do {
		n = poll(&p, 1, (int)ANSWER_MS);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return arbstage_fail(st, "the neighbour hangs");
	return read(st->answer_fd, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret)
		       ? true
		       : arbstage_fail(st, "the neighbour is gone");
}

bool arbstage_start_neighbour(struct arbstage *st)
{
	int ask[2], answer[2], e;

	if (pipe2(ask, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
		return arbstage_fail(st, "no pipe: %m");
	st->shared->asked = false;
	st->neighbour = fork();
	if (st->neighbour == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ask[1]);
		close(answer[0]);
		_exit(be_neighbour(st, ask[0], answer[1]));
	}
	close(ask[0]);
	close(answer[1]);
	st->ask_fd = ask[1];
	st->answer_fd = answer[0];
	if (st->neighbour < 0)
		return arbstage_fail(st, "no neighbour: %m");
	return read_answer(st, &e) &&
	       (e == 0 || arbstage_fail(st, "the neighbour: %s", shmstore_strerror(e)));
}

void arbstage_end_neighbour(struct arbstage *st)
{
	if (st->neighbour <= 0)
		return;
	close(st->ask_fd);
	close(st->answer_fd);
	if (st->shared->message[0])
		kill(st->neighbour, SIGKILL);
	while (waitpid(st->neighbour, NULL, 0) < 0 && errno == EINTR)
		;
	st->neighbour = 0;
}

bool arbstage_ask(struct arbstage *st, struct shmstore *s)
{
	struct shmstore_arb_pool_info info = {0};
	uint64_t end_ms = clock_ms() + ANSWER_MS;
	int e = 0;

	st->shared->asked = true;
	if (write(st->ask_fd, "w", 1) != 1)
		return arbstage_fail(st, "the neighbour is gone");
	while (clock_ms() < end_ms) {
		e = shmstore_arb_pool_info(s, SHMSTORE_ARB_PARTITION, &info);
		if (e != 0 || info.n_waiting)
			break;
		take_a_moment();
	}
	return e == 0 && info.n_waiting ? true
					: arbstage_fail(st, "the neighbour does not wait (%d)", e);
}

bool arbstage_answer(struct arbstage *st, int *ret)
{
	*ret = 0;
	if (!st->shared->asked)
		return true;
	st->shared->asked = false;
	return read_answer(st, ret);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static bool write_config(struct arbstage *st)
{
	FILE *f = fopen(st->config, "we");

	if (!f)
		return arbstage_fail(st, "%s: %m", st->config);
	fprintf(f, "daemon { socket = \"%s\" }\nhttp { enabled = no }\n", st->socket);
	fprintf(f,
		"arbiter { wait = %ums\n tick = 20ms\n headroom = \"0\"\n call-timeout = 10s }\n",
		ARBSTAGE_WAIT_MS);
	fprintf(f, "partition \"%s\" { create = yes\n survey-interval = 1s }\n", st->path);
	return fclose(f) == 0;
}

bool arbstage_init(struct arbstage *st, const char *mount, const char *shmstored)
{
	memset(st, 0, sizeof(*st));
	st->mount = mount;
	st->daemon.program = shmstored;
	st->shared = mmap(NULL, sizeof(*st->shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (st->shared == MAP_FAILED)
		return false;
	snprintf(st->directory, sizeof(st->directory), "/tmp/shmstore-crash-XXXXXX");
	if (!mkdtemp(st->directory))
		return arbstage_fail(st, "%s: %m", st->directory);
	snprintf(st->path, sizeof(st->path), "%s/partition", mount);
	snprintf(st->socket, sizeof(st->socket), "%s/socket", st->directory);
	snprintf(st->config, sizeof(st->config), "%s/conf", st->directory);
	return write_config(st);
}

void arbstage_deinit(struct arbstage *st)
{
	sandbox_wipe(st->directory);
	rmdir(st->directory);
}

bool arbstage_start(struct arbstage *st)
{
	const char *wrong;

	st->shared->message[0] = '\0';
	wrong = own_daemon_start(&st->daemon, st->config, st->socket, ASK_MS);
	if (wrong)
		return arbstage_fail(st, "%s", wrong);
	if (!arbstage_start_neighbour(st))
		return false;
	st->bare = sandbox_used(st->mount);
	return true;
}

bool arbstage_stop(struct arbstage *st)
{
	const char *wrong;

	arbstage_end_neighbour(st);
	wrong = st->daemon.pid > 0 ? own_daemon_stop(&st->daemon) : NULL;
	st->daemon.pid = 0;
	st->daemon.client = shmstore_client_free(st->daemon.client);
	sandbox_wipe(st->mount);
	return wrong ? arbstage_fail(st, "%s", wrong) : true;
}

bool arbstage_settled(struct arbstage *st, bool bare)
{
	uint64_t end_ms = clock_ms() + SETTLE_MS;
	struct sandbox_used used = {0};
	struct own_books books;

	do {
		const char *wrong =
			own_books_settle(st->daemon.client, st->path, false, SETTLE_MS, &books);

		if (wrong)
			return arbstage_fail(st, "%s", wrong);
		used = sandbox_used(st->mount);
		if (!bare || (used.bytes == st->bare.bytes && used.inodes == st->bare.inodes &&
			      books.kernel == used.bytes))
			return true;
		take_a_moment();
	} while (clock_ms() < end_ms);
	return arbstage_fail(st, "statfs: %lld bytes and %lld inodes too many",
			     (long long)(used.bytes - st->bare.bytes),
			     (long long)(used.inodes - st->bare.inodes));
}
