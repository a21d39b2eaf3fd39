/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.h: system calls that this process is refused, by a seccomp filter, by the kernel of a
 * sandbox, or by one that is too old: told from an error of the kernel's that has another reason,
 * and named. For the daemon and the tool, too.
 */
#ifndef SHMS_REFUSED_H
#define SHMS_REFUSED_H

#include <stdbool.h>
#include <stddef.h>

#define SHMS_REFUSED_TEXT 256

/* Is the system call of that number refused? Makes it, with arguments that the kernel itself takes
 * for wrong, or that change nothing. */
bool shms_refused(long call);
struct shms_refusal {
	const char *call;
	int error;           /* what it is answered with */
	bool spared;         /* there is another way */
	const char *without; /* what that costs, or what cannot be done */
};
#define SHMS_REFUSED_MAX 40
/* All of those that we make, and that matter, which are refused. Returns how many. */
size_t shms_refused_list(struct shms_refusal ret[SHMS_REFUSED_MAX]);
/* Some call failed with ENOSYS or EPERM: one of those that we cannot do without may be refused. */
void shms_refused_suspect(void);
/*
 * Of the calls that we cannot do without those that are refused: "flock (Operation not permitted),
 * linkat (…)". NULL: none is. Asks nobody as long as nothing was suspected.
 */
const char *shms_refused_names(char ret[SHMS_REFUSED_TEXT]);

#endif
