/* SPDX-License-Identifier: Apache-2.0 */
/* mountline.h: a line of /proc/PID/mountinfo (proc(5)). Pure. For the tool, too. */
#ifndef SHMS_MOUNTLINE_H
#define SHMS_MOUNTLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct shms_mountline {
	dev_t device;
	const char *root; /* the part of the file system that is mounted: "/" but for bind mounts */
	const char *point;   /* where */
	const char *type;    /* "tmpfs" */
	const char *options; /* of this mount: "rw,nosuid" */
	const char *super;   /* of the file system: "rw,size=1024k,huge=within_size" */
};

/* Cuts line up; *ret points into it. False where it is no line of mountinfo. */
bool shms_mountline_parse(char *line, struct shms_mountline *ret);
/* Is path below dir, or dir itself? */
bool shms_mountline_covers(const char *dir, const char *path);
/* The value of an option in "a,b=c", which is not ended by a NUL: *ret_size bytes, 0 where it has
 * none. NULL: it is not there. */
const char *shms_mountline_option(const char *options, const char *name, size_t *ret_size);

#endif
