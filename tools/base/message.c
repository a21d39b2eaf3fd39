/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c: messages to people on standard error. Names and keys in them come from other
 * processes: control characters are written as \xNN, so that no store can steer a terminal.
 */
#include "message.h"

#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "refused.h"

static void put_line(const char *prefix, const char *what, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));
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

static void put_line(const char *prefix, const char *what, const char *format, va_list args)
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
