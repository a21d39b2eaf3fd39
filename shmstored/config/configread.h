/* SPDX-License-Identifier: Apache-2.0 */
/* configread.h: one file's text, by libConfuse, into a configuration. For config.c. */
#ifndef CONFIGREAD_H
#define CONFIGREAD_H

struct config;

/*
 * Reads file into c: what it names takes the place of what c says. 0, -errno, -EINVAL; ret_error: "file:line: what", to be freed.
 */
int configread_file(struct config *c, const char *file, char **ret_error);

#endif
