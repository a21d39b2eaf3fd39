/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c: messages to people on standard error. Names and keys in them come from other
 * processes: control characters are written as \xNN, so that no store can steer a terminal.
 */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "admin.h"
#include "jsonin.h"
#include "refused.h"

static void put_escaped(const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == 0x7f)
			fprintf(stderr, "\\x%02x", c);
		else
			fputc(c, stderr);
	}
}

static __attribute__((format(printf, 3, 0))) void put_line(const char *prefix, const char *what,
							   const char *format, va_list args)
{
	char *text = NULL;

	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	progress_clear();
	flockfile(stderr);
	fputs(prefix, stderr);
	if (what) {
		put_escaped(what);
		fputs(": ", stderr);
	}
	put_escaped(text ? text : "out of memory");
	fputc('\n', stderr);
	funlockfile(stderr);
	free(text);
}

void message_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_line(ADMIN_NAME ": ", NULL, format, args);
	va_end(args);
}

int message_fail(const char *what, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	put_line(ADMIN_NAME ": ", what, why, args);
	va_end(args);
	return ADMIN_FAILED;
}

const char *message_refused(int error)
{
	static char text[SHMS_REFUSED_TEXT + 32];
	char names[SHMS_REFUSED_TEXT];

	text[0] = '\0';
	if (error == -ENOTSUP || error == -EPERM)
		shms_refused_suspect();
	if (shms_refused_names(names))
		snprintf(text, sizeof(text), "; refused to this process: %s", names);
	return text;
}

int message_error(const char *what, int error)
{
	return message_fail(what, "%s%s", shmstore_strerror(error), message_refused(error));
}

int message_because(const char *what, const char *why)
{
	size_t n = strlen(what);

	if (strncmp(why, what, n) != 0 || why[n] != ':')
		return message_fail(what, "%s", why);
	message_say("%s", why);
	return ADMIN_FAILED;
}

int message_detail(const char *what, int error)
{
	const char *detail = shmstore_error_detail();

	return message_because(what, *detail ? detail : shmstore_strerror(error));
}

void message_hint(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_line("  ", NULL, format, args);
	va_end(args);
}

void message_command(const char *partition, const char *purpose, const char *command, ...)
{
	va_list args;
	char *text;

	va_start(args, command);
	if (vasprintf(&text, command, args) < 0)
		message_no_memory();
	va_end(args);
	message_hint("%s: " ADMIN_NAME " -p %s %s", purpose, shellword(partition), text);
	free(text);
}

void message_no_memory(void)
{
	fputs(ADMIN_NAME ": out of memory\n", stderr);
	exit(ADMIN_FAILED);
}

/* ---- quotes for the shell -------------------------------------------------------------------- */

/* A path with a space or worse must not turn a command that mends something into one that breaks
 * something else. The few quoted words are kept: whoever prints them need not free them. */
static struct word {
	struct word *next;
	char text[];
} * words;

const char *shellword(const char *text)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+:@%,=-";
	size_t size = strlen(text);

	if (size && strspn(text, plain) == size)
		return text;
	struct word *word = malloc(sizeof(*word) + size * 4 + 3); /* a quote becomes four bytes */
	if (!word)
		message_no_memory();
	char *out = word->text;
	*out++ = '\'';
	for (; *text; text++) {
		if (*text == '\'') {
			memcpy(out, "'\\''", 4);
			out += 4;
		} else {
			*out++ = *text;
		}
	}
	memcpy(out, "'", 2);
	word->next = words;
	words = word;
	return word->text;
}

/* ---- long work ------------------------------------------------------------------------------- */

/*
 * A thread waits two seconds and then writes, on a terminal, one line that it rewrites twice a
 * second; into a file, a line every ten seconds. A thread, because some of the work is one long
 * call of the library. The numbers are relaxed atomics: each is shown for itself.
 */

static struct {
	pthread_mutex_t lock; /* of running, shown and standard error's last line */
	pthread_cond_t wake;
	pthread_t thread;
	const char *what;
	struct timespec start;
	bool running, shown, terminal;
	_Atomic uint64_t n_objects, bytes;
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void clear_locked(void)
{
	if (progress.shown && progress.terminal)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

static void show_locked(void)
{
	struct timespec now;
	uint64_t n = atomic_load_explicit(&progress.n_objects, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(&progress.bytes, memory_order_relaxed);

	clock_gettime(CLOCK_MONOTONIC, &now);
	fprintf(stderr, "%s%s: %s: %lld s", progress.terminal ? "\r" : "", ADMIN_NAME,
		progress.what, (long long)(now.tv_sec - progress.start.tv_sec));
	if (n)
		fprintf(stderr, ", %" PRIu64 " objects", n);
	if (bytes)
		fprintf(stderr, ", %s", human_size(bytes));
	fputs(progress.terminal ? " ...\033[K" : "\n", stderr);
	fflush(stderr);
	progress.shown = true;
}

static void *run(void *arg)
{
	struct timespec next = progress.start;

	(void)arg;
	next.tv_sec += 2;
	pthread_mutex_lock(&progress.lock);
	while (progress.running) {
		if (pthread_cond_timedwait(&progress.wake, &progress.lock, &next) != ETIMEDOUT)
			continue;
		show_locked();
		if (!progress.terminal) {
			next.tv_sec += 10;
		} else {
			next.tv_nsec += 500000000;
			if (next.tv_nsec >= 1000000000) {
				next.tv_nsec -= 1000000000;
				next.tv_sec++;
			}
		}
	}
	pthread_mutex_unlock(&progress.lock);
	return NULL;
}

void progress_begin(const char *what)
{
	pthread_condattr_t attributes;

	progress.what = what;
	progress.terminal = isatty(STDERR_FILENO);
	progress.n_objects = 0;
	progress.bytes = 0;
	clock_gettime(CLOCK_MONOTONIC, &progress.start);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&progress.wake, &attributes);
	pthread_condattr_destroy(&attributes);
	progress.running = true;
	if (pthread_create(&progress.thread, NULL, run, NULL) != 0)
		progress.running = false; /* then without it */
}

void progress_set(uint64_t n_objects, uint64_t bytes)
{
	atomic_store_explicit(&progress.n_objects, n_objects, memory_order_relaxed);
	atomic_store_explicit(&progress.bytes, bytes, memory_order_relaxed);
}

void progress_clear(void)
{
	pthread_mutex_lock(&progress.lock);
	clear_locked();
	pthread_mutex_unlock(&progress.lock);
}

void progress_end(void)
{
	pthread_mutex_lock(&progress.lock);
	if (!progress.running) {
		pthread_mutex_unlock(&progress.lock);
		return;
	}
	progress.running = false;
	pthread_cond_signal(&progress.wake);
	clear_locked();
	pthread_mutex_unlock(&progress.lock);
	pthread_join(progress.thread, NULL);
}

/* ---- a signal -------------------------------------------------------------------------------- */

static volatile sig_atomic_t came; /* its number; 0 = none */

static void note(int number)
{
	came = number;
}

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND}, old;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		/* nohup stays nohup */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

bool interrupt_pending(void)
{
	return came != 0;
}

void interrupt_finish(void)
{
	if (!came)
		return;
	fflush(stdout); /* what was said of what was done */
	signal(came, SIG_DFL);
	raise(came);
}
