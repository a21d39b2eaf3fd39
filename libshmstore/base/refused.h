/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.h: system calls that this process is refused, by a seccomp filter, by the kernel of a
 * sandbox, or by one that is too old: told from an error of the kernel's that has another reason,
 * and named; and the way around one of them. For the daemon and the tool, too.
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

/*
 * Opens what lies below a directory, where others may have put anything: no symlink, no "..", no
 * other mount. Tried once: a descriptor or -errno. -ELOOP: a symlink is on the way; -EXDEV: the
 * path leads out; -EAGAIN: a rename raced with it, or, with O_NONBLOCK, the file is under a lease.
 * Adds O_CLOEXEC.
 */
int shms_beneath_open(int dir_fd, const char *path, int flags);

#endif
