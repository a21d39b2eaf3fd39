/* SPDX-License-Identifier: Apache-2.0 */
/* process.h: what the kernel says of another process. */
#ifndef SHMS_PROCESS_H
#define SHMS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Field 22 of /proc/<pid>/stat; 0 where it cannot be read. */
uint64_t shms_start_time(pid_t pid);
/* Was it killed, or did it end, and is not gone yet? Until it is, it holds what it has
 * open and locked: threads of idle rank that get no processor make that last. False
 * where it cannot be known. */
bool shms_dying(pid_t pid);
#endif
