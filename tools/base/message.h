/* SPDX-License-Identifier: Apache-2.0 */
/* message.h: what goes to standard error: "shmstore-admin: <what>: <why>", and below it what to
 * do. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "admin.h"

/* "shmstore-admin: <text>". Control characters are escaped, also below. */
void message_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "shmstore-admin: <what>: <why>". Returns ADMIN_FAILED, so that a command may return it. */
int message_fail(const char *what, const char *why, ...) __attribute__((format(printf, 2, 3)));
/* The same with the library's words for error (a -errno). */
int message_error(const char *what, int error);
/* "; refused to this process: …", where system calls are that we cannot do without and error may
 * stem from it; else "". Static. */
const char *message_refused(int error);
/* The same with what the library's last call has to say about it
 * (shmstore_error_detail()), where it has something. */
int message_detail(const char *what, int error);
/* "shmstore-admin: <what>: <why>", where why may begin with what itself. Returns ADMIN_FAILED. */
int message_because(const char *what, const char *why);
/* An indented line below the message: what to do about it. */
void message_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Such a line with a command of this tool: "  to see the stores: shmstore-admin -p /p du". */
void message_command(const char *partition, const char *purpose, const char *command, ...)
	__attribute__((format(printf, 3, 4)));
/* Out of memory: says so and ends the program. */
void message_no_memory(void) __attribute__((noreturn));

/* text as one word of a shell command that we print for people to run: itself, or in quotes where a
 * shell would change it. Lives until the program ends. */
const char *shellword(const char *text);

/* A line about work that takes more than two seconds, one at a time in the program. what: static
 * text such as "verify". */
void progress_begin(const char *what);
/* How far it is; cheap, may be called for every object. 0 = nothing to say. */
void progress_set(uint64_t n_objects, uint64_t bytes);
/* Takes the line off the terminal, because something else is about to be
 * printed. It comes back by itself. */
void progress_clear(void);
void progress_end(void);

/* Dying of a signal only after what was begun is undone: from here on SIGINT, SIGTERM and SIGHUP
 * end system calls with EINTR instead of the program; a second one ends it. */
void interrupt_catch(void);
bool interrupt_pending(void);
/* Dies of the signal that came, if one came. */
void interrupt_finish(void);

#endif
