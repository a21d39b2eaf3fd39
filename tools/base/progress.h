/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: a line on standard error about work that takes more than two seconds. One
 * at a time in the program. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* what: static text such as "verify". */
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
