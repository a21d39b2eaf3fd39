/* SPDX-License-Identifier: Apache-2.0 */
/* killing.h: ends of processes at any instruction, for tests that look at
 * what is there afterwards. */
#ifndef KILLING_H
#define KILLING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KILLING_STEPS 3000u /* at most so many instructions of a process are counted */

/*
 * The calling process is killed after that time, wherever it is then: the kernel's timer sends the
 * signal, so that no instruction is spared. False with errno.
 */
bool killing_after(uint64_t ns);
/* The calling process waits to be killed by killing_by_steps() of its parent. False with errno. */
bool killing_wait(void);
/*
 * Waits until the child is in killing_wait(), lets it go on for so many instructions, and kills it.
 * The child is to be reaped. False: it ended by itself, or was about to by a signal of its own;
 * *ret_status: as waitpid() says it.
 */
bool killing_by_steps(pid_t pid, uint64_t n, int *ret_status);

#endif
