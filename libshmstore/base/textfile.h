/* SPDX-License-Identifier: Apache-2.0 */
/* textfile.h: puts a small text file in place whole. */
#ifndef SHMS_TEXTFILE_H
#define SHMS_TEXTFILE_H

#include <sys/types.h>

/*
 * Writes text to a new file tmp_name in dirfd, 0444, uid's, and renames it to name. Readers see the
 * old text or the new one; a killed writer may leave tmp_name, which the next replaces. 0, -errno.
 */
int shms_textfile_replace(int dirfd, const char *tmp_name, const char *name, const char *text,
			  uid_t uid);

#endif
