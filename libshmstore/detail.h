/* SPDX-License-Identifier: Apache-2.0 */
/* detail.h: what this thread's last failure was about: a sentence and a path, for shmstore_error_detail() and _path(). */
#ifndef SHMS_DETAIL_H
#define SHMS_DETAIL_H

void shms_detail_clear(void);
/* path may be NULL. Returns error, so that it can be returned. */
int shms_detail(int error, const char *path, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
