/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on standard error: whole, one each, with their fields, and nobody forges one. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "scratch.h"

static int pipe_fds[2], saved;

static void redirect(void)
{
	unsetenv("JOURNAL_STREAM");
	saved = dup(STDERR_FILENO);
	ENSURE(pipe(pipe_fds) == 0 && dup2(pipe_fds[1], STDERR_FILENO) >= 0);
	close(pipe_fds[1]);
}

/* Restores standard error, and returns the text written so far. */
static const char *written(void)
{
	static char text[60000];
	size_t used = 0;
	ssize_t n;

	dup2(saved, STDERR_FILENO);
	while ((n = read(pipe_fds[0], text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	return text;
}

Test(log, line_has_level_message_and_fields)
{
	const char *text;

	redirect();
	log_init(LOG_INFO);
	errno = ENOTTY;
	log_say(LOG_WARNING,
		LOG_FIELDS(.conn = "pid 4711 uid 1000", .object = "/a/b", .error = -ENOSPC),
		"no room for %d bytes", 17);
	cr_assert_eq(errno, ENOTTY);
	text = written();
	cr_assert_str_eq(text, "shmstored: warning: no room for 17 bytes conn=\"pid 4711 uid "
			       "1000\" obj=\"/a/b\" errno=28 "
			       "(No space left on device)\n");
}

Test(log, what_is_below_the_level_is_not_said)
{
	const char *text;

	redirect();
	log_init(LOG_WARNING);
	log_say(LOG_INFO, NULL, "no");
	log_set_level(LOG_INFO);
	log_say(LOG_INFO, NULL, "yes");
	log_say(LOG_DEBUG, NULL, "no");
	text = written();
	cr_assert_str_eq(text, "shmstored: info: yes\n");
}

Test(log, nobody_forges_a_line)
{
	char name[9000];
	const char *text;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	redirect();
	log_init(LOG_INFO);
	log_say(LOG_ERR, LOG_FIELDS(.object = "a\nshmstored: error: forged\x1b[2J"), "bad\r\nname");
	log_say(LOG_ERR, LOG_FIELDS(.object = name, .conn = name), "%s", name);
	text = written();
	cr_assert_null(strchr(text, '\x1b'));
	cr_assert_null(strchr(text, '\r'));
	text = strchr(text, '\n');
	cr_assert_not_null(text);
	cr_assert_eq(strncmp(text + 1, "shmstored: error: xxx", 21), 0);
	cr_assert_eq(strchr(text + 1, '\n'), text + strlen(text) - 1,
		     "the second line is not one line");
}

#define N_THREADS 8
#define N_LINES   100 /* all of them go into the pipe */

static void *say(void *unused)
{
	/* Each line is a place of its own, so that none is left out. */
	for (int i = 0; i < N_LINES; i++) {
		struct log_site place = {0};

		log_write(&place, LOG_INFO, NULL, "abcdefghijklmnopqrstuvwxyz");
	}
	return unused;
}

Test(log, threads_write_whole_lines)
{
	pthread_t threads[N_THREADS];
	const char *text;
	size_t n = 0;

	redirect();
	log_init(LOG_INFO);
	for (int i = 0; i < N_THREADS; i++)
		ENSURE(pthread_create(&threads[i], NULL, say, NULL) == 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (text = written(); *text; text = strchr(text, '\n') + 1, n++) {
		static const char line[] = "shmstored: info: abcdefghijklmnopqrstuvwxyz\n";

		cr_assert_eq(strncmp(text, line, sizeof(line) - 1), 0, "%.60s", text);
	}
	cr_assert_eq(n, N_THREADS * N_LINES);
}
